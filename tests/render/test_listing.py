"""Lines, gutters, changes and folds."""

from io import StringIO
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from cursor_gateway.model.documents import Diff
from cursor_gateway.render import listing
from cursor_gateway.render.looks import line_runs
from cursor_gateway.render.terminal import make_console
from cursor_gateway.stages.diffs import split_lines
from tests.render.screen import screen


def drawn(rows: list[listing.ListingRow], *, plain: bool = True, width: int = 30) -> str:
    out = StringIO()
    console = make_console(out, plain=plain, width=width)
    console.print(listing.Listing(rows), soft_wrap=plain)
    return out.getvalue()


def changed(old: str, new: str, start: int = 1) -> str:
    lines = len(old.split("\n"))
    return drawn(
        listing.change(Diff(old_string=old, new_string=new, start_line=start, end_line=start + lines - 1)).rows
    )


def test_a_line_feed_ends_a_line() -> None:
    assert split_lines("") == []
    assert split_lines("a\n\nb\n") == ["a", "", "b"]
    assert split_lines("a") == ["a"]


def test_line_numbers_are_the_files_own() -> None:
    assert (
        drawn(list(listing.numbered_rows("a = 1\n\nb = 2\n", "python", 99)))
        == "   99 │ a = 1\n  100 │\n  101 │ b = 2\n"
    )


def test_a_long_line_goes_on_below_itself_and_stays_whole_in_a_file() -> None:
    rows = list(listing.code_rows("x" * 50, "text"))
    assert drawn(rows) == f"  {'x' * 50}\n"
    assert screen(drawn(rows, plain=False), height=25) == [f"  {'x' * 28}", f"↪ {'x' * 22}", ""]


def test_a_terminal_that_is_too_narrow_still_shows_something() -> None:
    assert "a" in drawn(list(listing.numbered_rows("abc", "text", 1)), plain=False, width=3)


def test_code_is_coloured_and_unknown_languages_are_not_an_error() -> None:
    assert any(row.line.spans for row in listing.code_rows("def f(): pass", "python"))
    assert [row.line.plain for row in listing.code_rows("def f(): pass", "no such language")] == ["def f(): pass"]


def test_very_long_code_is_shown_without_colours() -> None:
    rows = list(listing.code_rows("x = 1\n" * 40_000, "python"))
    assert len(rows) == 40_000
    assert not rows[0].line.spans


def test_tabs_become_spaces() -> None:
    assert drawn(list(listing.plain_rows(["\ta"]))) == "      a\n"
    assert drawn(list(listing.code_rows("\ta", "go"))) == "      a\n"


def test_a_change_shows_old_and_new_lines_with_their_numbers() -> None:
    assert changed("a\nb\nc", "a\nB\nc", 10) == "  10   a\n  11 - b\n  11 + B\n  12   c\n"


def test_what_is_far_from_any_change_is_left_out() -> None:
    same = "\n".join(f"same {number}" for number in range(20))
    assert "⋮ 14 unchanged lines" in changed(f"a\n{same}\nb", f"A\n{same}\nB")
    short = "\n".join(f"same {number}" for number in range(7))
    assert "⋮ 1 unchanged line\n" in changed(f"a\n{short}\nb", f"A\n{short}\nB")


def test_added_and_removed_lines_are_counted() -> None:
    counted = listing.change(Diff(old_string="a\nb", new_string="a\nc\nd", start_line=1, end_line=2))
    assert (counted.added, counted.removed) == (2, 1)


def test_no_change_is_no_line() -> None:
    assert listing.change(Diff(old_string="", new_string="", start_line=1, end_line=1)).rows == []


def test_a_huge_change_is_not_compared_line_by_line() -> None:
    old, new = "a\n" * 3000, "b\n" * 3000
    counted = listing.change(Diff(old_string=old, new_string=new, start_line=1, end_line=3000))
    assert (counted.added, counted.removed) == (3000, 3000)


def test_a_fold_says_what_it_hides_and_never_hides_a_single_line() -> None:
    rows = [listing.ListingRow(Text(), Text(str(number))) for number in range(10)]
    assert drawn(listing.folded(rows, 2)) == "0\n1\n  … 8 more lines\n"
    assert listing.folded(rows, 9) == rows
    assert drawn(listing.folded_in_the_middle(rows, 1, 2)) == "0\n  … 7 more lines …\n8\n9\n"
    assert listing.folded_in_the_middle(rows, 4, 5) == rows


texts = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=30)


@given(texts, texts, st.booleans())
def test_the_runs_of_a_change_are_both_texts(old: list[str], new: list[str], compares: bool) -> None:
    runs = list(line_runs(old, new, compares=compares))
    if runs:
        assert [old[number] for run in runs if run.sign != "+" for number in run.old] == old
        assert [new[number] for run in runs if run.sign != "-" for number in run.new] == new
    else:
        assert old == new
    assert all(len(run.old) == len(run.new) for run in runs if run.sign in " ⋮")
    assert all(before.sign != after.sign for before, after in pairwise(runs))
