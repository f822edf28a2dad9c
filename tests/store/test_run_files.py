"""The file of a run: one write for each batch, whose lines are read again whatever happened to their writer."""

import errno
import fcntl
import os
import stat
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import pytest
from msgspec.structs import replace

from cursor_gateway.errors import StoreUnavailable
from cursor_gateway.model.document_events import ContentDelta, DocumentEvent
from cursor_gateway.store import batches
from cursor_gateway.store.base import NewMessage
from cursor_gateway.store.sqlite import run_files
from cursor_gateway.store.sqlite.run_files import (
    DamagedFile,
    EventBatch,
    FileSummary,
    RunFile,
    batch_line,
    begin_line,
    end_line,
    has_end,
    lines_of,
    locked,
    mark,
    name_of,
    names,
    rows_in,
)
from tests.store.making import deltas, new_run, run_end

NEW, END = new_run("run", "conv", "Hello"), run_end("run")


def events_line(first: int, events: Sequence[DocumentEvent]) -> bytes:
    return batch_line(first, len(events), batches.encode(events))


WHOLE = b"".join([begin_line(NEW), events_line(1, deltas(1, 2)), events_line(3, deltas(3)), end_line(END)])


@pytest.fixture
def file(tmp_path: Path) -> RunFile:
    return RunFile(str(tmp_path / "runs"), NEW, is_entered=False)


def written(tmp_path: Path, data: bytes) -> str:
    path = tmp_path / "run.ndjson"
    path.write_bytes(data)
    return str(path)


# --- writing ----------------------------------------------------------------------------------------


def test_lines_are_appended_to_a_file_of_the_owner_alone(file: RunFile) -> None:
    assert file.append(begin_line(NEW), 0)
    assert file.append(events_line(1, deltas(1, 2)), 2)
    assert file.append(events_line(3, deltas(3)) + end_line(END), 1)
    assert Path(file.path).read_bytes() == WHOLE
    assert (file.count, file.size) == (3, len(WHOLE))
    assert stat.S_IMODE(os.stat(file.path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(Path(file.path).parent).st_mode) == 0o700


def test_the_last_bytes_tell_whether_a_run_has_ended(file: RunFile) -> None:
    for line, is_last in zip(WHOLE.splitlines(keepends=True), (False, False, False, True), strict=True):
        file.append(line, 0)
        assert has_end(file.path) is is_last
        assert (file.path, os.fstat(file._file).st_size) == (f"{Path(file.path).parent}/run.ndjson", file.size)


def test_nothing_is_appended_to_a_file_that_is_not_as_it_was_left(file: RunFile) -> None:
    file.append(begin_line(NEW), 0)
    path = Path(file.path)
    with path.open("ab") as other:
        other.write(b"more")
    before = path.read_bytes()
    assert not file.append(events_line(1, deltas(1)), 1)
    assert path.read_bytes() == before
    path.unlink()
    assert not file.append(events_line(1, deltas(1)), 1)
    assert not path.exists()


def test_a_file_that_exists_already_is_not_written_to(file: RunFile) -> None:
    path = Path(file.path)
    path.parent.mkdir()
    path.touch()
    assert not file.append(begin_line(NEW), 0)
    assert path.read_bytes() == b""


def test_a_link_is_not_followed(file: RunFile, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"")
    Path(file.path).parent.mkdir()
    Path(file.path).symlink_to(other)
    assert not file.append(begin_line(NEW), 0)
    Path(file.path).unlink()
    assert file.append(begin_line(NEW), 0)
    aside = Path(file.path).rename(tmp_path / "aside")
    Path(file.path).symlink_to(aside)
    assert not file.append(events_line(1, deltas(1)), 1)
    Path(file.path).unlink()
    assert not file.append(events_line(1, deltas(1)), 1)
    assert (other.read_bytes(), aside.read_bytes()) == (b"", begin_line(NEW))


def test_who_cannot_have_the_lock_writes_nothing(file: RunFile) -> None:
    file.append(begin_line(NEW), 0)
    with locked(file.path) as opened:
        assert opened is not None
        with pytest.raises(BlockingIOError):
            file.append(events_line(1, deltas(1)), 1)
        with pytest.raises(StoreUnavailable, match="retry in a moment"), locked(file.path):
            pass
    assert file.append(events_line(1, deltas(1)), 1)


def test_a_file_that_is_removed_while_it_is_being_locked_is_none(
    file: RunFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    with locked(file.path) as opened:
        assert opened is None
    file.append(begin_line(NEW), 0)
    original = fcntl.flock

    def flock(descriptor: int, how: int) -> None:
        os.unlink(file.path)
        original(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with locked(file.path) as opened:
        assert opened is None


def test_a_part_of_a_line_is_taken_back(file: RunFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a disk that becomes full."""
    file.append(begin_line(NEW), 0)
    original = os.pwrite

    def pwrite(descriptor: int, data: bytes, place: int) -> int:
        if len(data) < 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(descriptor, data[:-10], place)

    line = events_line(1, deltas(1))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", pwrite)
        with pytest.raises(OSError, match="No space"):
            file.append(line, 1)
        assert Path(file.path).read_bytes() == begin_line(NEW)
        patch.setattr(os, "ftruncate", lambda *_: pwrite(0, b"", 0))  # the disk fails altogether
        with pytest.raises(OSError, match="No space"):
            file.append(line, 1)
    assert len(Path(file.path).read_bytes()) > len(begin_line(NEW))
    assert file.append(line, 1)
    assert Path(file.path).read_bytes() == begin_line(NEW) + line


def test_a_write_may_take_several_calls(file: RunFile, monkeypatch: pytest.MonkeyPatch) -> None:
    original = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, place: original(descriptor, data[:7], place))
    assert file.append(WHOLE, 3)
    assert Path(file.path).read_bytes() == WHOLE


def test_an_event_is_found_without_reading_all_before_it(file: RunFile) -> None:
    file.append(begin_line(NEW), 0)
    for number in range(1, 41):
        file.append(events_line(number, [ContentDelta("doc_001", "x" * 10_000)]), 1)
    place = file.place_of(40)
    assert place > 200_000
    with open(file.path, "rb") as opened:
        opened.seek(place)
        first = next(lines_of(opened, -1))
    assert isinstance(first, EventBatch)
    assert 30 < first.first <= 40
    assert file.place_of(1) == file.place_of(0) == 0


def test_every_run_has_a_file_in_the_folder() -> None:
    assert name_of("chat_0f-A") == "chat_0f-A"
    for odd in ("../x", "a/b", "", ".", "ä", "x" * 101, "a.ended"):
        assert name_of(odd).startswith("run-")
        assert len(name_of(odd)) == 36
    assert name_of("a/b") != name_of("a.b")


# --- reading ----------------------------------------------------------------------------------------


def test_the_lines_come_back_as_they_were() -> None:
    begun, first, second, end = lines_of(BytesIO(WHOLE))
    assert begun == NEW
    assert (first, second) == (
        EventBatch(1, 2, batches.encode(deltas(1, 2))),
        EventBatch(3, 1, batches.encode(deltas(3))),
    )
    assert end == END


def test_texts_that_are_no_text_are_repaired() -> None:
    new = replace(NEW, messages=[NewMessage("user", "half a character: \ud83d")])
    (begun,) = lines_of(BytesIO(begin_line(new)))
    assert begun == replace(NEW, messages=[NewMessage("user", "half a character: \ufffd")])
    (end,) = lines_of(BytesIO(end_line(replace(END, answer="\ud83d", begun=NEW))))
    assert end == replace(END, answer="\ufffd")


def test_a_line_without_its_end_does_not_count() -> None:
    for size in range(len(WHOLE)):
        read = list(lines_of(BytesIO(WHOLE[:size])))
        assert len(read) == WHOLE[:size].count(b"\n")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (events_line(3, deltas(3)), "events are missing"),
        (b"nonsense\n", "cannot be read"),
        (b"{}\n", "cannot be read"),
        (b'{"first":1,"count":1,"events":[\n', "cannot be read"),
        (b'{"begin":{"id":"\xff"}}\n', "cannot be read"),
    ],
)
def test_a_damaged_line_ends_what_can_be_read(tmp_path: Path, wrong: bytes, why: str) -> None:
    with pytest.raises(DamagedFile, match=why):
        list(lines_of(BytesIO(begin_line(NEW) + wrong)))
    path = written(tmp_path, begin_line(NEW) + events_line(1, deltas(1)) + wrong + end_line(END))
    found = FileSummary(path)
    assert (found.new, found.count, found.end) == (NEW, 1, None)
    assert "events" in found.damage or "read" in found.damage
    assert [batches.decode(row.data) for row in rows_in(path, found.count)] == [deltas(1)]


def test_events_that_are_not_as_many_as_they_should_be_are_damage(tmp_path: Path) -> None:
    line = batch_line(1, 2, batches.encode(deltas(1)))
    assert FileSummary(written(tmp_path, begin_line(NEW) + line)).damage == "events are missing"


@pytest.mark.parametrize("torn", [b"", b'{"first":4,"cou', b'{"first":4,"count":1,"events":["' + b"x" * 200_000])
def test_a_mark_is_no_line_of_the_run(tmp_path: Path, torn: bytes) -> None:
    path = written(tmp_path, WHOLE + torn)  # as if its writer was killed while it wrote
    with locked(path) as file:
        assert file is not None
        mark(file)
    assert Path(path).read_bytes() == WHOLE + b'{"claimed":true}\n'
    found = FileSummary(path)
    assert (found.new, found.count, found.end, found.damage) == (NEW, 3, END, "")


def test_a_file_without_a_line_can_be_marked(tmp_path: Path) -> None:
    for data in (b"", b'{"begin"', b"x" * 200_000):
        with locked(written(tmp_path, data)) as file:
            assert file is not None
            mark(file)
        assert (tmp_path / "run.ndjson").read_bytes() == b'{"claimed":true}\n'


def test_batches_become_few_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, WHOLE)
    (row,) = rows_in(path, 3)
    assert (row.first, row.count, batches.decode(row.data)) == (1, 3, deltas(1, 2, 3))
    monkeypatch.setattr(run_files, "_ROW_BYTES", 1)
    assert [(row.first, row.count) for row in rows_in(path, 3)] == [(1, 2), (3, 1)]
    assert [(row.first, row.count) for row in rows_in(path, 2)] == [(1, 2)]
    assert list(rows_in(path, 0)) == []
    with pytest.raises(DamagedFile, match="events are missing"):
        list(rows_in(path, 4))


def test_a_folder_that_is_not_there_has_no_files(tmp_path: Path) -> None:
    assert names(str(tmp_path / "none")) == []
