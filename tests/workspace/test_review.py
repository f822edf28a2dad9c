"""Nothing is written that was not seen, and nothing is lost when a file changes in between."""

import zlib
from pathlib import Path

import pytest

from cursor_gateway.errors import FileChanged
from cursor_gateway.model import changes
from cursor_gateway.workspace import review as module
from cursor_gateway.workspace.beneath import OnDisk, PathRefused, read_below, write_below
from cursor_gateway.workspace.change_log import ChangeLog, FileStep, TurnStep, version_of
from cursor_gateway.workspace.review import Review


@pytest.fixture
def log(tmp_path: Path) -> ChangeLog:
    (tmp_path / "data").mkdir()
    return ChangeLog(str(tmp_path / "data"), "conv_1")


def changed(log: ChangeLog, work: Path, path: str, old: bytes | None, new: bytes) -> None:
    """A turn that wrote the new content."""
    (work / path).write_bytes(new)
    log.keep(data for data in (old, new) if data is not None)
    versions = [version_of(data, len(data), 0o644) if data is not None else None for data in (old, new)]
    log.append(TurnStep("chat_1", [FileStep(path, versions[0], versions[1])]))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def test_a_file_that_changes_while_it_is_looked_at_is_not_written(
    log: ChangeLog, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed(log, work, "a", b"1\n", b"2\n")
    looked = 0

    def read_and_change(workspace: str, path: str, largest: int) -> OnDisk | None:
        nonlocal looked
        looked += 1
        if looked == 2:
            (work / "a").write_bytes(b"mine\n")
        return read_below(workspace, path, largest)

    monkeypatch.setattr(module, "read_below", read_and_change)
    with pytest.raises(FileChanged, match="no longer as the agent left it"):
        Review(str(work), log).perform(changes.RevertRequest(path="a"))
    assert (work / "a").read_bytes() == b"mine\n"


@pytest.mark.parametrize("stored", [b"damaged", zlib.compress(b"3\n")])
def test_contents_that_were_tampered_with_are_unknown(
    log: ChangeLog, work: Path, tmp_path: Path, stored: bytes
) -> None:
    changed(log, work, "a", b"1\n", b"2\n")
    for file in (tmp_path / "data/changes/conv_1").iterdir():
        if file.suffix != ".jsonl":
            file.write_bytes(stored)
    with pytest.raises(FileChanged, match="earlier content is not known"):
        Review(str(work), log).perform(changes.RevertRequest(path="a"))
    listed = Review(str(work), log).perform(changes.ListRequest())
    assert isinstance(listed, changes.ListedChanges)
    assert [(file.can_revert, bool(file.note)) for file in listed.files] == [(False, True)]


def test_a_line_that_was_cut_off_does_not_count(log: ChangeLog, work: Path, tmp_path: Path) -> None:
    changed(log, work, "a", None, b"2\n")
    with open(tmp_path / "data/changes/conv_1/log.jsonl", "ab") as file:
        file.write(b'{"type":"turn","chat_id":"cha')
    reverted = Review(str(work), log).perform(changes.RevertRequest(chat_id="chat_1"))
    assert isinstance(reverted, changes.RevertedFiles)
    assert not (work / "a").exists()


def test_a_list_ends_in_time(log: ChangeLog, work: Path) -> None:
    changed(log, work, "a", b"1\n", b"2\n")
    listed = Review(str(work), log, is_over=lambda: True).perform(changes.ListRequest())
    assert isinstance(listed, changes.ListedChanges)
    assert listed.files[0].note == "There was no time to compare it."


def test_contents_have_a_limit(log: ChangeLog, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cursor_gateway.workspace.change_log._MOST_CONTENT", 1)
    changed(log, work, "a", b"1\n", b"2\n")
    assert [file.name for file in (tmp_path / "data/changes/conv_1").iterdir()] == ["log.jsonl"]
    with pytest.raises(FileChanged, match="earlier content is not known"):
        Review(str(work), log).perform(changes.RevertRequest(path="a"))


def test_what_was_reverted_before_a_failure_can_be_undone(
    log: ChangeLog, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed(log, work, "a", b"1\n", b"2\n")
    changed(log, work, "b", b"1\n", b"2\n")

    def write(workspace: str, path: str, data: bytes, mode: int) -> None:
        if path == "b":
            raise PathRefused("it cannot be written (No space left on device)")
        write_below(workspace, path, data, mode)

    monkeypatch.setattr(module, "write_below", write)
    with pytest.raises(FileChanged, match="1 other files were reverted before it"):
        Review(str(work), log).perform(changes.RevertRequest(chat_id="chat_1"))
    assert (work / "a").read_bytes() == b"1\n"
    listed = Review(str(work), log).perform(changes.ListRequest())
    assert isinstance(listed, changes.ListedChanges)
    Review(str(work), log).perform(changes.RevertRequest(undo=listed.undo))
    assert (work / "a").read_bytes() == b"2\n"


def test_lines_have_their_runs_and_a_trace_ends_in_time(log: ChangeLog, work: Path, tmp_path: Path) -> None:
    changed(log, work, "a", b"1\n", b"1\n2\n")
    changed(log, work, "gone", None, b"x\n")
    (work / "gone").unlink()
    (work / "gone").symlink_to(tmp_path)  # cannot be read
    log.append(TurnStep("chat_2", [], problem="The folder was too large."))
    traced = Review(str(work), log).perform(changes.TraceRequest())
    assert isinstance(traced, changes.LineTrace)
    (file,) = traced.files
    assert (file.path, [(one.chat_id, one.start, one.end) for one in file.lines]) == ("a", [("chat_1", 2, 2)])
    assert (traced.revision, traced.notes) == ("", ["The folder was too large."])
    late = Review(str(work), log, is_over=lambda: True).perform(changes.TraceRequest())
    assert isinstance(late, changes.LineTrace)
    assert (late.files, late.notes[1]) == ([], "There was no time to compare all files.")
