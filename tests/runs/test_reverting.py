"""Reverting writes below the workspace only, and only what is still as it was."""

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cursor_gateway.errors import FileChanged
from cursor_gateway.model.documents import Diff, FileEditDocument, FileEditMetadata
from cursor_gateway.runs import reverting
from cursor_gateway.runs.reverting import FileEdits, fitting, revert
from cursor_gateway.stages.reverting import before

FUTURE = 10**15


def edits(path: str, count: int = 1) -> FileEdits:
    """It was `old`, then `new 1` and so on."""
    texts = ["old", *(f"new {number}" for number in range(1, count + 1))]
    documents = [
        FileEditDocument(
            id="doc",
            sequence=number,
            content=new,
            metadata=FileEditMetadata(
                file_path=path,
                operation="edit",
                language="text",
                diff=Diff(old_string=old, new_string=new, start_line=1, end_line=1),
            ),
        )
        for number, (old, new) in enumerate(pairwise(texts))
    ]
    return FileEdits(path, documents, FUTURE)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    for name in ("work/a.txt", "work/sub/a.txt", "out.txt", "beside/a.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("new 1\n")
    return tmp_path / "work"


def never() -> bool:
    return False


def test_files_below_the_workspace_are_reverted(work: Path) -> None:
    assert fitting(str(work), [edits("a.txt"), edits(str(work / "sub" / "a.txt"))], never) == {
        "a.txt",
        str(work / "sub" / "a.txt"),
    }
    revert(str(work), [edits("a.txt"), edits(str(work / "sub" / "a.txt"))])
    assert (work / "a.txt").read_text() == (work / "sub" / "a.txt").read_text() == "old\n"


@pytest.mark.parametrize(
    "path",
    ["../out.txt", "sub/../../out.txt", "{work}/../out.txt", "{work}/sub/../../out.txt", "{home}/out.txt", "sub/.."],
)
def test_no_path_leads_out_of_the_workspace(work: Path, path: str) -> None:
    whole = path.format(work=work, home=work.parent)
    assert fitting(str(work), [edits(whole)], never) == set()
    with pytest.raises(FileChanged, match="not in the conversation's folder"):
        revert(str(work), [edits(whole)])
    assert (work.parent / "out.txt").read_text() == "new 1\n"


@pytest.mark.parametrize("change", ["text", "mode", "gone", "link"])
def test_a_file_that_changes_while_it_is_looked_at_is_not_written(
    work: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """After everything was found to fit, and before it is written."""
    looked, file = before, work / "a.txt"

    def looked_slowly(text: str | None, edits: Sequence[FileEditDocument], **more: Any) -> object:
        found = looked(text, edits, **more)
        match change:
            case "text":
                file.write_text("mine\n")
            case "mode":
                file.chmod(0o700)
            case "gone":
                file.unlink()
            case _:
                file.unlink()
                file.symlink_to(work.parent / "out.txt")
        return found

    monkeypatch.setattr(reverting, "before", looked_slowly)
    with pytest.raises(FileChanged):
        revert(str(work), [edits("a.txt")])
    if change == "text":
        assert file.read_text() == "mine\n"
    assert file.exists() == (change != "gone")
    assert (work.parent / "out.txt").read_text() == "new 1\n"


def test_one_that_does_not_fit_keeps_all_from_being_written(work: Path) -> None:
    (work / "sub" / "a.txt").write_text("mine\n")
    with pytest.raises(FileChanged, match=r"sub/a\.txt"):
        revert(str(work), [edits("a.txt"), edits("sub/a.txt")])
    assert (work / "a.txt").read_text() == "new 1\n"


def test_looking_ends_in_time_and_when_nobody_waits(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (work / "a.txt").write_text("new 50\n")
    assert fitting(str(work), [edits("a.txt", 50)], never) == {"a.txt"}
    looks = iter([False] * 20 + [True] * 2)
    assert fitting(str(work), [edits("a.txt", 50), edits("sub/a.txt")], lambda: next(looks)) == set()
    assert next(looks, None) is None  # at once, also with the other file
    clock = iter(range(100))
    monkeypatch.setattr("cursor_gateway.runs.reverting.time.monotonic", lambda: next(clock))
    assert fitting(str(work), [edits("a.txt", 50)], never) == set()
    assert next(clock) < 10


def test_a_file_that_is_too_large_or_a_pipe_is_left_alone(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(work / "pipe")
    monkeypatch.setattr(reverting, "_MOST_BYTES", 3)
    assert fitting(str(work), [edits("a.txt"), edits("pipe")], never) == set()
