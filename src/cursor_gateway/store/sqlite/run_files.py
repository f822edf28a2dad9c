"""The files of running runs, `runs/<id>.ndjson` in the data directory, each of which one process appends to.

A line is the beginning of the run, a batch of events, or the end of the run. It is written with one call, and visible
to readers only after that: a process that is killed loses nothing that it has shown. A last line without its end was
never shown, and does not count. A file that has the run's end soon moves into the database; see `moving.py`. Other
processes see the end from the file's last bytes.

Whoever changes a file locks it, for as long as one call takes. A process that takes a run over first writes a
mark into the file, so its writer, which compares the size before each write, writes no more.
"""

import fcntl
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from io import BytesIO
from typing import TypeAlias

import msgspec
from msgspec import Struct

from cursor_gateway.errors import StoreUnavailable
from cursor_gateway.store import batches
from cursor_gateway.store.base import NewRun, RunEnd
from cursor_gateway.store.sql import UNREADABLE
from cursor_gateway.wire.surrogates import repair_json

FOLDER = "runs"
SUFFIX = ".ndjson"

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
_BATCH = re.compile(rb'\{"first":(\d{1,10}),"count":(\d{1,10}),"events":')
_CLAIMED = b'{"claimed":true}\n'
_LAST = b',"is_last":true}\n'  # of a line
_NEW = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC
_EXISTING = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
_LOCK = fcntl.LOCK_EX | fcntl.LOCK_NB
_ROW_BYTES = 256 * 1024  # of events in one row, before they are compressed: a reader gets them together
_PIECE = 64 * 1024
_INDEXED_BYTES = 64 * 1024  # between two places that are remembered, to find an event without reading all before it


class DamagedFile(ValueError):
    """With what was found."""


class EventBatch(Struct, frozen=True, gc=False):
    first: int  # the number of its first event
    count: int
    data: bytes  # as by `batches.encode`


class _Begin(Struct, frozen=True):
    begin: NewRun


class _End(Struct, frozen=True):
    end: RunEnd
    is_last: bool = True


Line: TypeAlias = EventBatch | NewRun | RunEnd

_begun, _ended = msgspec.json.Decoder(_Begin), msgspec.json.Decoder(_End)


def begin_line(new: NewRun) -> bytes:
    return _encoded(_Begin(new))


def batch_line(first: int, count: int, data: bytes) -> bytes:
    return b'{"first":%d,"count":%d,"events":%b}\n' % (first, count, data)


def end_line(end: RunEnd) -> bytes:
    return _encoded(_End(msgspec.structs.replace(end, begun=None)))


def _encoded(value: Struct) -> bytes:
    try:
        return msgspec.json.encode(value) + b"\n"
    except UnicodeEncodeError:
        return msgspec.json.encode(repair_json(msgspec.to_builtins(value))) + b"\n"


def name_of(run_id: str) -> str:
    """Of the file, without its suffix."""
    return run_id if _PLAIN_NAME.fullmatch(run_id) else f"run-{sha256(run_id.encode()).hexdigest()[:32]}"


class RunFile:
    """As the process has it that appends to it."""

    def __init__(self, folder: str, new: NewRun, *, is_entered: bool, spare: str = "") -> None:
        """`spare` is an empty file that can be renamed, in place of a new one."""
        self.new, self.spare = new, spare
        self.row: EventBatch | None = None  # all of its events, compressed, once `pack` has read them
        self.path = f"{folder}/{name_of(new.id)}{SUFFIX}"
        self.is_entered = is_entered  # the database has the run's beginning
        self.end: RunEnd | None = None
        self.count = self.size = 0  # events and bytes
        self.places = [(1, 0)]  # events, and where their lines start
        self.is_created = False
        self.is_torn = False  # a write failed halfway, and what it left is still there
        self._file = -1  # its descriptor: to open it for each batch takes longer than to write the batch
        self._inode = 0

    def append(self, lines: bytes, count: int) -> bool:
        """With one write. False: the file is not as it was left, and is not changed.

        Raises `OSError`; then nothing was written."""
        if self._file < 0:
            try:
                self._file = os.open(self.path, _EXISTING) if self.is_created else self._create()
            except (FileNotFoundError, FileExistsError):
                return False
            self._inode = os.fstat(self._file).st_ino
        file = self._file
        fcntl.flock(file, _LOCK)
        try:
            if self.is_torn:
                os.ftruncate(file, self.size)
                self.is_torn = False
            found = os.lstat(self.path)  # the file may be elsewhere, or deleted
            if found.st_size != self.size or found.st_ino != self._inode:
                return False
            self._write(file, lines)
        except FileNotFoundError:
            return False
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)
        if self.size - self.places[-1][1] > _INDEXED_BYTES:
            self.places.append((self.count + 1, self.size))
        self.size += len(lines)
        self.count += count
        return True

    def _create(self) -> int:
        try:
            if self.spare and not os.path.exists(self.path):
                with suppress(FileNotFoundError):  # removed meanwhile
                    os.rename(self.spare, self.path)
                    file = os.open(self.path, _EXISTING)
                    self.is_created = True
                    return file
            file = os.open(self.path, _NEW, 0o600)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(self.path), 0o700, exist_ok=True)
            file = os.open(self.path, _NEW, 0o600)
        self.is_created = True
        return file

    def _write(self, file: int, lines: bytes) -> None:
        try:
            written = os.pwrite(file, lines, self.size)
            while written < len(lines):  # a full disk takes a part, and refuses the rest
                written += os.pwrite(file, lines[written:], self.size + written)
        except OSError:
            self.is_torn = True
            with suppress(OSError):
                os.ftruncate(file, self.size)
                self.is_torn = False
            raise

    def __del__(self) -> None:
        """Closes the file. Not earlier: another thread may be appending to it."""
        if self._file >= 0:
            os.close(self._file)

    def pack(self) -> None:
        """Reads the events of a short run that has ended. Raises `OSError`, and `DamagedFile`."""
        if self.row is None and self.count > 0 and self.size <= _ROW_BYTES:
            (self.row,) = rows_of(BytesIO(os.pread(self._file, self.size, 0)), self.count)

    def place_of(self, number: int) -> int:
        """Where to start reading, to find this event."""
        return next((place for first, place in reversed(self.places) if first <= number), 0)


# --- reading ----------------------------------------------------------------------------------------


def lines_of(file: Iterable[bytes], count: int = 0) -> Iterator[Line]:
    """What the complete lines say. Raises `DamagedFile` at the first that cannot be read, or that does not follow the
    one before it; `count` events are before them, or an unknown number if it is negative."""
    for line in file:
        if not line.endswith(b"\n"):
            return  # it was never shown
        if (found := _BATCH.match(line)) is not None and line.endswith(b"]}\n"):
            first, size = int(found[1]), int(found[2])
            if count >= 0 and first != count + 1:
                raise DamagedFile("events are missing")
            count = first + size - 1
            yield EventBatch(first, size, line[found.end() : -2])
        elif line != _CLAIMED:
            try:
                yield _begun.decode(line).begin if line.startswith(b'{"begin"') else _ended.decode(line).end
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise DamagedFile(f"a line cannot be read: {error}") from error


@contextmanager
def locked(path: str) -> Iterator[int | None]:
    """The descriptor of the file, while nobody else can change it; None if there is none.

    Raises `StoreUnavailable` if another process is changing it."""
    try:
        file = os.open(path, _EXISTING)
    except FileNotFoundError:
        yield None
        return
    try:
        try:
            fcntl.flock(file, _LOCK)
        except BlockingIOError as error:
            raise StoreUnavailable("Another process is using the history; retry in a moment.", details=path) from error
        yield file if os.fstat(file).st_nlink else None
    finally:
        os.close(file)


class FileSummary:
    """What a file says that its process may have left, up to the first line that cannot be read."""

    def __init__(self, path: str) -> None:
        """Raises `OSError`."""
        self.new: NewRun | None = None
        self.count = 0  # of events
        self.end: RunEnd | None = None
        self.damage = ""
        with open(path, "rb") as file:
            try:
                for line in lines_of(file):
                    match line:
                        case NewRun():
                            self.new = line
                        case RunEnd():
                            self.end = line
                        case EventBatch(first, count, data):
                            if len(batches.decode(data)) != count:
                                raise DamagedFile("events are missing")
                            self.count = first + count - 1
            except UNREADABLE as error:
                self.damage = str(error)


def has_end(path: str) -> bool:
    """Whether its run has ended. Raises `OSError`."""
    with open(path, "rb", buffering=0) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - len(_LAST)))
        return file.read(len(_LAST)) == _LAST


def rows_in(path: str, count: int) -> Iterator[EventBatch]:
    """As `rows_of`. Raises also `OSError`."""
    with open(path, "rb", _PIECE) as file:
        yield from rows_of(file, count)


def rows_of(file: Iterable[bytes], count: int) -> Iterator[EventBatch]:
    """The first `count` events, in few compressed batches. Raises `DamagedFile`."""
    first, size, parts = 1, 0, list[bytes]()
    lines = lines_of(file)
    while first <= count:
        line = next(lines, None)
        if line is None:
            raise DamagedFile("events are missing")
        if isinstance(line, EventBatch):
            parts.append(line.data[1:-1])
            size += len(line.data)
            last = line.first + line.count - 1
            if size > _ROW_BYTES or last >= count:
                yield EventBatch(first, last + 1 - first, batches.compress(b"[%b]" % b",".join(parts)))
                first, size, parts = last + 1, 0, []


def mark(file: int) -> None:
    """From now on, its writer writes no more. A last line without its end is removed."""
    place = os.fstat(file).st_size
    while place and (found := os.pread(file, _PIECE, max(0, place - _PIECE))[:place].rfind(b"\n")) < 0:
        place = max(0, place - _PIECE)
    end = max(0, place - _PIECE) + found + 1 if place else 0
    os.ftruncate(file, end)
    os.pwrite(file, _CLAIMED, end)


def names(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if name.endswith(SUFFIX)]
    except FileNotFoundError:
        return []


def damage_in(folder: str) -> str:
    """Empty: every file can be read."""
    for name in names(folder):
        with suppress(FileNotFoundError):  # moved meanwhile
            if damage := FileSummary(f"{folder}/{name}").damage:
                return f"{name}: {damage}"
    return ""
