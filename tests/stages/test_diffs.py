"""A change as lines: it is small, it is where it says it is, and made to the old text it gives the new."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.model.documents import Diff
from cursor_gateway.stages.diffs import diff_lines, line_diff, patch_diff
from tests.strategies import examples

texts = st.lists(st.sampled_from(["a", "b", "c", "", "a\n", "\n", "b\n", "é", "\r\n"]), max_size=8).map("".join)


def applied(diff: Diff, before: str) -> str:
    """The old lines of the range give way to the new ones."""
    old = before.split("\n")
    return "\n".join([*old[: diff.start_line - 1], *diff.new_string.split("\n"), *old[diff.end_line :]])


def smallest_ranges(before: str, after: str) -> tuple[int, list[str]]:
    """How many old lines must be replaced at least, and by what: every range is tried."""
    old, new = before.split("\n"), after.split("\n")
    ranges = [
        (end - start, "\n".join(new[start : len(new) - (len(old) - end)]))
        for start in range(len(old) + 1)
        for end in range(start, len(old) + 1)
        if start + len(old) - end <= len(new)
        and old[:start] == new[:start]
        and old[end:] == new[len(new) - (len(old) - end) :]
    ]
    smallest = min(count for count, _ in ranges)
    return smallest, [text for count, text in ranges if count == smallest]


different = st.tuples(texts, texts).filter(lambda pair: pair[0] != pair[1])


@given(different)
@examples(1200)
def test_a_change_is_the_smallest_says_what_it_replaces_and_gives_the_new_text(pair: tuple[str, str]) -> None:
    before, after = pair
    diff = line_diff(before, after)
    assert applied(diff, before) == after
    assert diff.new_string or not after
    smallest, texts = smallest_ranges(before, after)
    more = diff.end_line - diff.start_line + 1 - smallest
    assert more == 0 or (more <= 2 and (smallest == 0 or "" in texts))
    assert diff.old_string == "\n".join(before.split("\n")[diff.start_line - 1 : diff.end_line])


@given(different)
@examples(1200)
def test_the_lines_of_a_change_replace_those_of_its_range(pair: tuple[str, str]) -> None:
    before, after = pair
    diff, lines = line_diff(before, after), before.split("\n")
    old, new = diff_lines(diff, diff.old_string, diff.new_string)
    if diff.new_string:
        assert old == lines[diff.start_line - 1 : diff.end_line]
        assert [*lines[: diff.start_line - 1], *new, *lines[diff.end_line :]] == after.split("\n")


def test_texts_that_end_with_a_line_end_have_no_line_after_it() -> None:
    diff = Diff(old_string="a\n", new_string="b\nc\n", start_line=1, end_line=1)
    assert diff_lines(diff, diff.old_string, diff.new_string) == (["a"], ["b", "c"])
    assert diff_lines(diff, "a\n", "") == (["a"], [])


STEPS = {
    "one line of three": ("a\nb\nc\n", "a\nB\nc\n", Diff(old_string="b", new_string="B", start_line=2, end_line=2)),
    "two places are one range": (
        "a\nb\nc\nd\n",
        "A\nb\nc\nD\n",
        Diff(old_string="a\nb\nc\nd", new_string="A\nb\nc\nD", start_line=1, end_line=4),
    ),
    "an insertion takes the line before it along": (
        "import api\napp.register_blueprint(api_bp)\nrun()\n",
        "import api\napp.register_blueprint(api_bp)\napp.register_blueprint(auth_bp)\nrun()\n",
        Diff(
            old_string="app.register_blueprint(api_bp)",
            new_string="app.register_blueprint(api_bp)\napp.register_blueprint(auth_bp)",
            start_line=2,
            end_line=2,
        ),
    ),
    "an insertion at the top takes the line after it": (
        "b\nc\n",
        "a\nb\nc\n",
        Diff(old_string="b", new_string="a\nb", start_line=1, end_line=1),
    ),
    "an insertion at the end": ("a\n", "a\nb\n", Diff(old_string="a", new_string="a\nb", start_line=1, end_line=1)),
    "a final line end alone": ("a", "a\n", Diff(old_string="a", new_string="a\n", start_line=1, end_line=1)),
    "a deletion takes the line before it along": (
        "a\nb\nc\nd\n",
        "a\nd\n",
        Diff(old_string="a\nb\nc", new_string="a", start_line=1, end_line=3),
    ),
    "a deletion at the top takes the line after it": (
        "a\nb\n",
        "b\n",
        Diff(old_string="a\nb", new_string="b", start_line=1, end_line=2),
    ),
    "a line that becomes blank, too": (
        "a\nb\nc\n",
        "a\n\nc\n",
        Diff(old_string="a\nb", new_string="a\n", start_line=1, end_line=2),
    ),
    "a deletion beside a blank line takes one more": (
        "a\n\nb\nc\n",
        "a\n\nc\n",
        Diff(old_string="a\n\nb", new_string="a\n", start_line=1, end_line=3),
    ),
    "all of it goes": ("a\nb", "", Diff(old_string="a\nb", new_string="", start_line=1, end_line=2)),
    "an empty file gets lines": ("", "a\nb", Diff(old_string="", new_string="a\nb", start_line=1, end_line=1)),
    "an empty file gets whole lines": ("", "a\n", Diff(old_string="", new_string="a\n", start_line=1, end_line=1)),
    "one of several equal lines": (
        "a\na\n",
        "a\na\na\n",
        Diff(old_string="a", new_string="a\na", start_line=2, end_line=2),
    ),
    "a CR is part of its line": (
        "a\r\nb\r\n",
        "a\r\nb\n",
        Diff(old_string="b\r", new_string="b", start_line=2, end_line=2),
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_the_change(name: str) -> None:
    before, after, expected = STEPS[name]
    assert line_diff(before, after) == expected


@pytest.mark.parametrize("text", ["", "a", "a\nb\n"])
def test_no_change_is_an_empty_one(text: str) -> None:
    assert line_diff(text, text) == Diff(old_string="", new_string="", start_line=1, end_line=1)


# --- Patches --------------------------------------------------------------------------------------

HEADER = "--- a/x\n+++ b/x\n"


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ("@@ -7,3 +7,3 @@\n a\n-b\n+B\n c\n", Diff(old_string="b", new_string="B", start_line=8, end_line=8)),
        ("@@ -1 +1 @@ def f():\n-a\n+b\n", Diff(old_string="a", new_string="b", start_line=1, end_line=1)),
        ("@@ -1 +1,2 @@\n+new\n old\n", Diff(old_string="old", new_string="new\nold", start_line=1, end_line=1)),
        ("@@ -4,2 +4,3 @@\n a\n+new\n b\n", Diff(old_string="a", new_string="a\nnew", start_line=4, end_line=4)),
        ("@@ -4,3 +4,2 @@\n a\n-b\n c\n", Diff(old_string="a\nb", new_string="a", start_line=4, end_line=5)),
        ("@@ -2 +2 @@\n--- x\n+++ y\n", Diff(old_string="-- x", new_string="++ y", start_line=2, end_line=2)),
        (
            "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n",
            Diff(old_string="a", new_string="b", start_line=1, end_line=1),
        ),
    ],
)
def test_a_patch_gives_the_same_change(patch: str, expected: Diff) -> None:
    assert patch_diff(HEADER + patch) == expected
    assert patch_diff(patch) == expected


@pytest.mark.parametrize("patch", ["", HEADER, " a\n", "a\n+b\n", "@@ -x +y @@\n-a\n", "no patch"])
def test_without_a_hunk_there_is_no_change(patch: str) -> None:
    assert patch_diff(patch) is None


def test_several_hunks_are_one_range_with_their_lines_joined() -> None:
    patch = "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n@@ -40,3 +40,3 @@\n x\n-y\n+Y\n z\n"
    assert patch_diff(HEADER + patch) == Diff(
        old_string="b\nc\nx\ny", new_string="B\nc\nx\nY", start_line=2, end_line=41
    )


def test_a_patch_that_fills_an_empty_file_is_a_change_of_its_first_line() -> None:
    assert patch_diff("--- /dev/null\n+++ b/x\n@@ -0,0 +1,2 @@\n+a\n+b\n") == Diff(
        old_string="", new_string="a\nb", start_line=1, end_line=1
    )


AFTER = "one\ntwo\nthree\nfour\n"
HEADLESS = {
    "a line": ("-2\n+two", AFTER, Diff(old_string="2", new_string="two", start_line=2, end_line=2)),
    "with lines around it": (
        " two\n-3\n+three\n four\n",
        AFTER,
        Diff(old_string="3", new_string="three", start_line=3, end_line=3),
    ),
    "at the end": ("-4\n+four", AFTER, Diff(old_string="4", new_string="four", start_line=4, end_line=4)),
    "of a file without its last line end": (
        "-4\n+four",
        AFTER.rstrip(),
        Diff(old_string="4", new_string="four", start_line=4, end_line=4),
    ),
    "with an empty line": (
        " a\n\n-b\n+c",
        "x\na\n\nc\n",
        Diff(old_string="b", new_string="c", start_line=4, end_line=4),
    ),
    "a file that nobody knows": ("-a\n+b\n", None, Diff(old_string="a", new_string="b", start_line=1, end_line=1)),
    "another file": ("-a\n+b\n", AFTER, Diff(old_string="a", new_string="b", start_line=1, end_line=1)),
    "a removed comment": ("--- 2\n+two\n", AFTER, Diff(old_string="-- 2", new_string="two", start_line=2, end_line=2)),
    "no line end at the end": (
        "-a\n\\ No newline at end of file\n+two",
        AFTER,
        Diff(old_string="a", new_string="two", start_line=2, end_line=2),
    ),
}


@pytest.mark.parametrize(("patch", "after", "expected"), HEADLESS.values(), ids=HEADLESS)
def test_a_patch_without_headers_is_one_hunk(patch: str, after: str | None, expected: Diff) -> None:
    assert patch_diff(patch, after) == expected
    assert patch_diff(HEADER + patch, after) == expected


@pytest.mark.parametrize(("number", "line"), [("007", 7), ("0" * 5000 + "7", 7), ("9" * 9, 999_999_999)])
def test_a_line_number_of_a_patch(number: str, line: int) -> None:
    diff = patch_diff(f"@@ -{number} +1 @@\n-a\n+b\n")
    assert diff is not None
    assert (diff.start_line, diff.end_line) == (line, line)


@pytest.mark.parametrize("number", ["9" * 10, str(2**64), "9" * 5000])
def test_a_line_number_that_no_file_has_is_clamped(number: str) -> None:
    diff = patch_diff(f"@@ -{number},2 +{number},1 @@\n-a\n-b\n+c\n")
    assert diff is not None
    assert (diff.start_line, diff.end_line) == (10**9, 10**9 + 1)
