"""Edits are reverted where the text still fits, and nowhere else."""

from itertools import pairwise
from time import thread_time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from cursor_gateway.model.documents import Diff, FileEditDocument, FileEditMetadata, Operation
from cursor_gateway.stages.diffs import line_diff
from cursor_gateway.stages.reverting import Before, Misfit, before


def document(operation: Operation, content: str | None = None, diff: Diff | None = None) -> FileEditDocument:
    metadata = FileEditMetadata(file_path="a.py", operation=operation, language="python", diff=diff or UNSET)
    return FileEditDocument(id="doc_001", sequence=1, content=content, metadata=metadata)


def edit(old: str, new: str) -> FileEditDocument:
    return document("edit", new, line_diff(old, new))


lines = st.text("ab\n", max_size=12)


@given(st.lists(lines, min_size=2, max_size=4))
def test_what_was_edited_is_reverted_or_refused(versions: list[str]) -> None:
    edits = [edit(old, new) for old, new in pairwise(versions) if old != new]
    found = before(versions[-1], edits, is_untouched=True)
    # Only a file that was emptied may get a line end that it did not have.
    assert isinstance(found, Misfit) or (found.text or "").rstrip("\n") == versions[0].rstrip("\n")


ONE, TWO, THREE = "a\nb\nc\n", "a\nB\nc\n", "a\nB\nc\nd\n"


@pytest.mark.parametrize("is_untouched", [True, False])
def test_edits_are_reverted_from_the_last_to_the_first(is_untouched: bool) -> None:
    edits = [edit(ONE, TWO), edit(TWO, THREE)]
    assert before(THREE, edits, is_untouched=is_untouched) == Before(ONE)
    assert before("new\n" + THREE, edits, is_untouched=False) == Before("new\n" + ONE)  # elsewhere in the file


def test_a_created_file_is_deleted_if_it_is_the_same() -> None:
    created = document("create", "x\n")
    assert before("x", [created], is_untouched=True) == Before(None)
    assert before("y\n", [edit("x\n", "y\n")], is_untouched=True) == Before("x\n")
    assert before("y\n", [created, edit("x\n", "y\n")], is_untouched=True) == Before(None)
    assert before("z", [created], is_untouched=True) == Misfit("changed")
    assert before("", [document("create")], is_untouched=True) == Misfit("changed")


def test_what_somebody_has_changed_since_is_left_alone() -> None:
    assert before("a\nmine\nc\n", [edit(ONE, TWO)], is_untouched=False) == Misfit("changed")
    twice = "a\nB\nc\nB\n"
    assert before(twice, [edit(ONE, TWO)], is_untouched=False) == Misfit("changed")  # which of the two?
    assert before(twice, [edit(ONE, TWO)], is_untouched=True) == Before("a\nb\nc\nB\n")


def test_a_place_that_is_not_known_must_be_the_only_one() -> None:
    nowhere = document("edit", "B", Diff(old_string="b", new_string="B", start_line=1, end_line=1))
    assert before("a\nB\n", [nowhere], is_untouched=True) == Before("a\nb\n")
    assert before("B\nB\n", [nowhere], is_untouched=True) == Misfit("changed")


def test_a_deletion_is_reverted_only_where_its_place_is_certain() -> None:
    deletion = edit("a\nb\nc\n", "a\nc\n")
    assert before("a\nc\n", [deletion], is_untouched=True) == Before("a\nb\nc\n")
    assert before("a\nc\n", [deletion], is_untouched=False) == Misfit("changed")
    assert before("", [edit("a\nb\nc\nd\n", "a\nb\n")], is_untouched=True) == Misfit("changed")
    assert before("a\n\nc\n", [deletion], is_untouched=True) == Misfit("unrecorded")  # or was it one empty line?


@pytest.mark.parametrize("operation", ["delete", "rename", "edit"])
def test_what_was_not_recorded_is_not_reverted(operation: Operation) -> None:
    assert before("x", [document(operation)], is_untouched=True) == Misfit("unrecorded")


def test_a_file_that_is_gone_is_not_reverted() -> None:
    assert before(None, [edit(ONE, TWO)], is_untouched=True) == Misfit("gone")


def written(start: int, old: str, new: str) -> FileEditDocument:
    return document("edit", new, Diff(old_string=old, new_string=new, start_line=start, end_line=start))


@pytest.mark.parametrize("is_untouched", [True, False])
@pytest.mark.parametrize("place", [1, 2, 150_000])
def test_lines_that_repeat_take_no_quadratic_time(place: int, is_untouched: bool) -> None:
    """Each line looks like the beginning of what is searched for: such a search took an hour."""
    text, part = "a\n" * 200_000, "a\n" * 100_000 + "b"
    began = thread_time()
    assert before(text, [written(place, "x", part)], is_untouched=is_untouched) == Misfit("changed")
    found = before(text + "b", [written(place, "x", part)], is_untouched=is_untouched)
    assert found == Before("a\n" * 100_000 + "x")
    assert thread_time() - began < 5


def test_the_work_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    edits = [edit(f"{number}\n", f"{number + 1}\n") for number in range(100)]
    assert before("100\n", edits, is_untouched=False) == Before("0\n")
    monkeypatch.setattr("cursor_gateway.stages.reverting._MOST_WORK", 300)
    assert before("100\n", edits, is_untouched=False) == Misfit("large")
    assert before("100\n", edits[-10:], is_untouched=False) == Before("90\n")
    monkeypatch.setattr("cursor_gateway.stages.reverting._MOST_LINES", 3)
    assert before("1\n\n\n\n", edits, is_untouched=False) == Misfit("large")


def test_it_ends_when_it_is_over() -> None:
    edits = [edit(f"{number}\n", f"{number + 1}\n") for number in range(100)]
    calls = iter([False] * 5 + [True])
    assert before("100\n", edits, is_untouched=False, is_over=lambda: next(calls)) == Misfit("large")
    assert next(calls, None) is None


@pytest.mark.parametrize("place", [-5, 0, 2**70, -(2**70)])
def test_a_place_that_no_file_has(place: int) -> None:
    assert before("a\nb\n", [written(place, "x", "")], is_untouched=True) == Misfit("changed")
    assert before("a\nb\n", [written(place, "x", "b")], is_untouched=True) == Before("a\nx\n")
