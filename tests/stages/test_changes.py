"""Edits of files, one after the other, in; one change of each file out."""

from collections.abc import Iterable
from itertools import pairwise
from time import thread_time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from cursor_gateway.model.changes import FileChange
from cursor_gateway.model.documents import (
    Diff,
    Document,
    FileEditDocument,
    FileEditMetadata,
    Operation,
    State,
    TextDocument,
    TextMetadata,
)
from cursor_gateway.stages.changes import combined, edited_files, listed
from cursor_gateway.stages.diffs import line_diff
from tests.laws.strategies import examples


def edited(
    path: str,
    operation: Operation = "edit",
    diff: Diff | None = None,
    content: str | None = None,
    old_path: str | None = None,
    state: State | None = None,
) -> Document:
    metadata = FileEditMetadata(
        file_path=path,
        operation=operation,
        language="text",
        diff=diff or UNSET,
        old_path=old_path or UNSET,
        state=state or UNSET,
    )
    return FileEditDocument(id="doc", sequence=1, content=content, metadata=metadata)


def file_changes(documents: Iterable[Document]) -> list[FileChange]:
    return [combined(file) for file in edited_files(documents)]


def apply(text: str, change: FileChange) -> str:
    """The way a person reads the diffs: at their old lines."""
    lines, shift = text.split("\n"), 0
    for diff in change.diffs:
        old = diff.old_string.split("\n") if diff.old_string else []
        new = diff.new_string.split("\n") if diff.new_string else []
        place = diff.start_line - 1 + shift
        assert lines[place : place + len(old)] == old
        lines[place : place + len(old)] = new
        shift += len(new) - len(old)
    return "\n".join(lines)


_texts = st.lists(st.sampled_from("abcd"), min_size=2, max_size=9).map("\n".join)


@given(st.lists(_texts, min_size=1, max_size=6))
@examples(300)
def test_the_combined_change_makes_the_last_version_of_the_first(versions: list[str]) -> None:
    edits = [edited("a", diff=line_diff(before, after)) for before, after in pairwise(versions) if before != after]
    for change in file_changes(edits):
        assert apply(versions[0], change) == versions[-1]
        assert [diff.start_line for diff in change.diffs] == sorted(diff.start_line for diff in change.diffs)


def test_two_edits_of_one_place_are_one_change() -> None:
    first = line_diff("a\nb\nc", "a\nx\ny\nc")
    second = line_diff("a\nx\ny\nc", "a\nx\nz\nc")
    (change,) = file_changes([edited("f", diff=first), edited("f", diff=second)])
    assert change.operation == "edit"
    assert change.diffs == [Diff(old_string="b", new_string="x\nz", start_line=2, end_line=2)]


def test_what_is_taken_back_is_no_change() -> None:
    there, back = line_diff("a\nb", "a\nc"), line_diff("a\nc", "a\nb")
    (change,) = file_changes([edited("f", diff=there), edited("f", diff=back)])
    assert change.diffs == []


def test_a_new_file_is_shown_as_it_is_at_the_end() -> None:
    (change,) = file_changes([edited("f", "create", content="a\nb\n"), edited("f", diff=line_diff("a\nb\n", "a\nc\n"))])
    assert (change.operation, [diff.new_string for diff in change.diffs]) == ("create", ["a\nc"])
    (empty,) = file_changes([edited("f", "create")])
    assert empty.diffs == []


def test_a_file_that_is_written_anew_or_deleted() -> None:
    (change,) = file_changes([edited("f", diff=line_diff("a", "b")), edited("f", "create", content="c")])
    assert (change.operation, [diff.new_string for diff in change.diffs]) == ("edit", ["c"])
    (change,) = file_changes([edited("f", diff=line_diff("a", "b")), edited("f", "delete")])
    assert (change.operation, change.diffs) == ("delete", [])


def test_a_renamed_file_keeps_its_changes() -> None:
    changes = file_changes([edited("f", diff=line_diff("a", "b")), edited("g", "rename", old_path="f")])
    assert [(change.path, change.operation, len(change.diffs)) for change in changes] == [("g", "edit", 1)]
    (renamed,) = file_changes([edited("g", "rename", old_path="f")])
    assert (renamed.path, renamed.operation) == ("g", "rename")


def test_a_file_that_somebody_else_changed_in_between_has_both_changes() -> None:
    changes = file_changes([edited("f", diff=line_diff("a\nb", "a\nc")), edited("f", diff=line_diff("x\ny", "x\nz"))])
    assert [(diff.old_string, diff.new_string) for diff in changes[0].diffs] == [("b", "c"), ("y", "z")]


def test_what_did_not_happen_does_not_count() -> None:
    text = TextDocument(id="t", sequence=1, content="Hi", metadata=TextMetadata())
    assert file_changes([text, edited("f", state="rejected", diff=line_diff("a", "b"))]) == []


def test_a_change_further_up_moves_those_below_it() -> None:
    first = "a\nb\nc\nd\ne\nf"
    second = "a\nb\nc\nd\ne\nF"
    third = "a\nB\nB\nc\nd\ne\nF"
    last = "a\nB\nB\nc\nd\ne\nG"
    versions = [first, second, third, last]
    (change,) = file_changes([edited("f", diff=line_diff(old, new)) for old, new in pairwise(versions)])
    assert [(diff.start_line, diff.new_string) for diff in change.diffs] == [(2, "B\nB"), (6, "G")]
    assert apply(first, change) == last


@pytest.mark.parametrize("second", ["a\n\nc\nd\ne", "a\n\nb\nc\nd\ne", "a\nx\n\nb\nc\nd\ne", "a\nc\nd\ne"])
def test_a_blank_line_further_up_is_a_line(second: str) -> None:
    versions = ["a\nb\nc\nd\ne", second, second.replace("d", "D")]
    (change,) = file_changes([edited("f", diff=line_diff(old, new)) for old, new in pairwise(versions)])
    assert change.diffs[-1] == Diff(old_string="d", new_string="D", start_line=4, end_line=4)


def test_edits_that_are_not_combined_are_listed_in_their_order() -> None:
    first, second = line_diff("a\nb", "a\nc"), line_diff("a\nc", "a\nd")
    documents = [edited("f", diff=first), edited("f", diff=second), edited("f", "delete")]
    assert first is not None
    assert second is not None
    (change,) = [listed(file) for file in edited_files(documents)]
    assert (change.path, change.operation, change.diffs) == ("f", "delete", [first, second])


def _edit(start: int, old: str, new: str) -> Document:
    return edited("f", diff=Diff(old_string=old, new_string=new, start_line=start, end_line=start + old.count("\n")))


def _spread(number: int) -> list[tuple[int, str, str]]:
    return [(1 + (index * 7919) % number * 3, "a", f"b{index}\nc") for index in range(number)]


MANY = 8000
LAYOUTS: dict[str, list[tuple[int, str, str]]] = {
    "upwards": [(3 * (MANY - index), "a", "b\nc") for index in range(MANY)],
    "downwards": [(1 + 4 * index, "a", "b\nc") for index in range(MANY)],
    "spread": _spread(MANY),
    "one after the other": [(1 + index, "a", "b") for index in range(MANY)],
    "one before the other": [(MANY - index, "a", "b") for index in range(MANY)],
    "insertions in one place": [(1, "", "x") for _ in range(MANY)],
    "unrelated": [(5, f"{index}", "x") for index in range(MANY)],
    "strange places": [((-1) ** index * 2 ** (index % 70), "a", "b") for index in range(MANY)],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_thousands_of_edits_of_a_file_take_no_quadratic_time(layout: str) -> None:
    """They took up to 43 s; ten times what they take now is still much less."""
    (file,) = edited_files([_edit(*edit) for edit in LAYOUTS[layout]])
    began = thread_time()
    combined(file)
    assert thread_time() - began < 10
