"""The runs whose events are in files, and their way into the database.

A run that begins a conversation is a file and nothing else until somebody asks for it: the id of its conversation is
new, so there is nothing to compare it with. A background thread enters the beginnings of runs and moves those that have
ended, many in one transaction. A call that could notice that they are missing does it first.

A file counts only while its run is running in the database, with its first epoch and without events. Otherwise it is
what a killed process left, and is removed. So every step can be repeated, by any process. If a file is not as its
writer left it, the database decides what that means.
"""

import logging
import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from cursor_gateway.errors import StoreUnavailable
from cursor_gateway.model.document_events import DocumentEvent
from cursor_gateway.store import batches
from cursor_gateway.store.base import (
    FIRST_EPOCH,
    Busy,
    Fenced,
    KeyTaken,
    Lease,
    MakeNotices,
    NewRun,
    RunEnd,
    Stored,
    Superseded,
    Written,
)
from cursor_gateway.store.sqlite import writing
from cursor_gateway.store.sqlite.connections import Connections, unwritable
from cursor_gateway.store.sqlite.indexing import Indexer
from cursor_gateway.store.sqlite.run_files import (
    SUFFIX,
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

_log = logging.getLogger(__name__)

_MANY = 64  # runs that are moved in one transaction
_MUCH = 64 * 1024  # bytes
_TURN_SECONDS = 2.0  # to wait for another thread that moves them
_ASIDE = ".damaged"
_PROBE_BYTES = 64 * 1024


def is_alone(new: NewRun) -> bool:
    """Whether no other run can be in its way, and it leaves no queue."""
    return new.is_first and new.idempotency is None and new.claim is None


class RunFiles:
    def __init__(
        self, folder: Path, connections: Connections, indexer: Indexer, make_notices: MakeNotices | None = None
    ) -> None:
        self._folder, self._connections, self._indexer = str(folder), connections, indexer
        self._make_notices = make_notices
        self._own: dict[str, RunFile] = {}  # of this process's runs, by their ids
        self._unknown: dict[str, RunFile] = {}  # those of them that the database does not have
        self._ended: dict[str, RunFile] = {}
        self._seen: set[str] = set()  # names of other processes' files that need not be read again before they end
        self._stuck: set[str] = set()  # those of them that a bug keeps here
        self._spares: list[str] = []  # empty files of runs that were moved, for the next runs
        self._turn = threading.Lock()  # held while files are moved
        self._is_failing = False
        self.appended = 0  # batches
        self.is_closed = False

    # --- writing ------------------------------------------------------------------------------------

    def begin(self, new: NewRun, *, is_entered: bool) -> RunFile:
        file = self._own.get(new.id)
        if file is None:
            spare = self._spares.pop() if self._spares else ""
            file = self._own[new.id] = RunFile(self._folder, new, is_entered=is_entered, spare=spare)
        return file

    def enter(
        self, connection: sqlite3.Connection, new: NewRun
    ) -> writing.Change[Lease | KeyTaken | Busy | Superseded]:
        """Begins a run, and its file in the same transaction: whoever claims or deletes the run finds the file."""
        if (change := writing.begin(connection, new)).note is not None:  # else the store had it already
            self.append(self.begin(new, is_entered=True), 1, ())
        return change

    def of(self, lease: Lease) -> RunFile | None:
        return self._own.get(lease.run_id) if lease.epoch == FIRST_EPOCH else None

    def append(
        self, file: RunFile, first_number: int, events: Sequence[DocumentEvent], end: RunEnd | None = None
    ) -> Written | None:
        """None: the file is not as it was left."""
        if self.is_closed:
            raise StoreUnavailable("The history is closed: the gateway is shutting down.")
        if (known := file.count + 1 - first_number) != 0:
            if known < 0:
                return None
            found = self.read(file.new.id, first_number)
            stored = [(batch.first, batches.decode(batch.data)) for batch in found]
            batches.check_repeated(first_number, events[:known], stored)
            events = events[known:]
        if file.end is not None:
            return Fenced("ended") if events else Stored(0)
        lines, size = b"" if file.size else begin_line(file.new), 0
        if events:
            data = batches.encode(events)
            size = len(data)
            lines += batch_line(file.count + 1, len(events), data)
        if end is not None:
            lines += end_line(end)
        if lines:
            self.appended += 1
            try:
                if not file.append(lines, len(events)):
                    return None
            except OSError as error:
                raise self._failed(error) from error
            if self._is_failing:
                self._worked()
        if not file.is_entered:
            self._unknown[file.new.id] = file
        if end is not None:
            file.end = end  # from now on, another thread may move it
            self._ended[file.new.id] = file
        return Stored(size)

    def _failed(self, error: OSError) -> StoreUnavailable:
        self._is_failing = True
        unavailable = unwritable(error, self._folder)
        self._connections.health.failed("append", unavailable, is_conflict=isinstance(error, BlockingIOError))
        return unavailable

    def _worked(self) -> None:
        self._is_failing = False
        self._connections.health.worked("append")

    def probe(self) -> None:
        """If the last write failed: whether the folder can be written by now."""
        if self._is_failing:
            path = f"{self._folder}/.probe-{os.getpid()}"
            with suppress(OSError):
                os.makedirs(self._folder, 0o700, exist_ok=True)
                try:
                    with open(path, "wb") as file:
                        file.write(bytes(_PROBE_BYTES))
                finally:
                    _remove(path)
                self._worked()

    def leave(self, run_id: str) -> None:
        """The run is no longer in a file of this process."""
        for files in (self._unknown, self._ended):
            files.pop(run_id, None)
        file = self._own.pop(run_id, None)
        if file is not None and file.spare and not file.is_created:
            self._spares.append(file.spare)

    # --- reading ------------------------------------------------------------------------------------

    def read(self, run_id: str, next: int, max_bytes: int = sys.maxsize) -> list[EventBatch]:
        """Batches from this event on, of a running run of any process; none if it has just ended. Raises
        `DamagedFile`."""
        own = self._own.get(run_id)
        path, place = (self._path(run_id), 0) if own is None else (own.path, own.place_of(next))
        found, size = list[EventBatch](), 0
        with suppress(FileNotFoundError), open(path, "rb") as file:
            try:
                file.seek(place)
                for line in lines_of(file, -1 if place else 0):
                    if isinstance(line, EventBatch) and line.first + line.count > next:
                        found.append(line)
                        size += len(line.data)
                        if size >= max_bytes:
                            break
            except DamagedFile:
                if os.path.samestat(os.stat(path), os.fstat(file.fileno())):
                    raise
            if os.path.samestat(os.stat(path), os.fstat(file.fileno())):
                return found
        return []  # it was moved meanwhile, and its file may be another run's by now

    def own(self, run_id: str, owner: str) -> RunFile | None:
        """Of a run that this process has written to its end, and nobody has moved yet."""
        file = self._ended.get(run_id)
        return file if file is not None and file.new.owner == owner else None

    def count(self, run_id: str) -> int:
        """How many events it has."""
        if (own := self._own.get(run_id)) is not None:
            return own.count
        with suppress(DamagedFile):
            if found := self.read(run_id, 1):
                return found[-1].first + found[-1].count - 1
        return 0

    def size(self) -> int:
        """In bytes."""
        found = 0
        for name in self._names():
            with suppress(FileNotFoundError):
                found += os.stat(f"{self._folder}/{name}").st_size
        return found

    # --- moving -------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        return bool(self._ended or self._unknown)

    @property
    def is_full(self) -> bool:
        return len(self._ended) >= _MANY

    @property
    def has_much(self) -> bool:
        """More than can be compressed while somebody waits."""
        return sum(file.size for file in list(self._ended.values())) > _MUCH

    def lacks(self, ids: Iterable[object]) -> bool:
        """Whether one of these runs or conversations is not in the database yet."""
        waiting = [file.new for file in (*self._unknown.values(), *self._ended.values())]
        waiting += self._others()
        return not {id for new in waiting for id in (new.id, new.conversation_id)}.isdisjoint(ids)

    def _others(self) -> Iterator[NewRun]:
        """Runs in files of other processes, as far as they can be read."""
        own = self._own_names()
        with suppress(StoreUnavailable):
            for name in self._names():
                if name not in own and name not in self._seen:
                    with suppress(OSError, DamagedFile), open(f"{self._folder}/{name}", "rb") as file:
                        if isinstance(line := next(lines_of(file), None), NewRun):
                            yield line

    def settle(self) -> int:
        """Afterwards the database has every run, and all that have ended completely. Returns the bytes that were
        written for those of this process. Raises `StoreUnavailable`."""
        written = 0
        while self._ended:
            written += self.move_some()
        if self._unknown:
            with self._taking_turns():
                written += self._move([file for file in list(self._unknown.values()) if file.end is None])
        self.recover(self._seen)
        return written

    def move_some(self) -> int:
        """Of the runs that have ended."""
        with self._taking_turns():
            return self._move(list(self._ended.values())[:_MANY])

    @contextmanager
    def _taking_turns(self) -> Iterator[None]:
        if not self._turn.acquire(timeout=_TURN_SECONDS):
            raise StoreUnavailable("The gateway is busy writing its history; retry in a moment.")
        try:
            yield
        finally:
            self._turn.release()

    def _move(self, files: Collection[RunFile]) -> int:
        if not files:
            return 0
        ends = [file.end for file in files]  # a run may end meanwhile
        try:
            whole = self._packed(files, ends) if len(files) > 1 else []
            with self._connections.writing() as connection:
                added = self._added(connection, whole)
                changes = [
                    added.get(file.new.id) or self._moved(connection, file, end)
                    for file, end in zip(files, ends, strict=True)
                ]
        except StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 -- reported
            if len(files) > 1:  # each by itself, so that the others are not lost
                return sum(self._move([file]) for file in files)
            for file in files:
                self._give_up(file, error)
            return 0
        for file, end, change in zip(files, ends, changes, strict=True):
            file.is_entered = True
            self._unknown.pop(file.new.id, None)
            if end is not None:
                self._empty(file.path)
                self.leave(file.new.id)
            if change.note is not None:
                self._indexer.note(change.run, change.note)
        return sum(change.size for change in changes)

    def _packed(self, files: Iterable[RunFile], ends: Iterable[RunEnd | None]) -> list[writing.WholeRun]:
        """Those that are all of their conversations, and short: the usual case. Raises `OSError`, and `DamagedFile`."""
        found = []
        for file, end in zip(files, ends, strict=True):
            if end is not None and not file.is_entered and is_alone(file.new):
                file.pack()
                if file.row is not None:
                    found.append(writing.WholeRun(file.new, file.row, end))
        return found

    def _added(
        self, connection: sqlite3.Connection, runs: Sequence[writing.WholeRun]
    ) -> dict[str, writing.Change[object]]:
        """Without those that were deleted, and must not come back."""
        left = set(self._names()) if runs else ()
        runs = [run for run in runs if f"{name_of(run.new.id)}{SUFFIX}" in left]
        return writing.add_whole(connection, runs, self._make_notices) if runs else {}

    def _moved(self, connection: sqlite3.Connection, file: RunFile, end: RunEnd | None) -> writing.Change[object]:
        """Raises `FileNotFoundError`: then it was deleted, and must not come back."""
        if end is not None:
            rows = rows_in(file.path, file.count)
            return writing.move(connection, file.new, rows, end, self._make_notices)
        os.stat(file.path)
        return writing.move(connection, file.new, (), end)

    def _empty(self, path: str) -> None:
        """Keeps the file for another run, which gives it its own name: creating one takes ext4 up to half a
        millisecond, and longer the more were deleted in the last seconds."""
        with suppress(OSError):
            if len(self._spares) < _MANY:
                os.truncate(path, 0)
                self._spares.append(path)
                return
        with suppress(OSError):  # the next start removes it
            _remove(path)

    def close(self) -> None:
        for files in (self._own, self._unknown, self._ended):  # their descriptors are closed with the last reference
            files.clear()
        self.remove_spares()

    def remove_spares(self) -> None:
        """Those of other processes are removed as they recover what was left (`_remove_empty`): they create files where
        theirs are missing."""
        while self._spares:
            with suppress(OSError):
                _remove(self._spares.pop())

    def _give_up(self, file: RunFile, error: Exception) -> None:
        """The next start recovers what can be read, if there is a file."""
        self.leave(file.new.id)
        match error:
            case FileNotFoundError():  # another process has moved or deleted it
                pass
            case DamagedFile():
                self._found_damage(f"The file of a run is damaged ({error}): {file.path}. Restart the gateway.")
            case _:
                _log.exception("bug in moving a run into the history; its file is kept")

    # --- what other processes left ------------------------------------------------------------------

    def recover(self, skip: Collection[str] = ()) -> list[str]:
        """Enters the runs that other processes began, moves those that have ended, and removes files that do not count.
        Returns what is wrong with damaged ones. Files with the names in `skip` are read only if their runs have ended
        meanwhile. Raises `StoreUnavailable`."""
        found = self._names()
        if not found:
            return []
        own = self._own_names()
        others = [name for name in found if name not in own]
        self._seen.intersection_update(others)
        self._stuck.intersection_update(others)
        wrong = [self._recover(name) for name in others if name not in skip or self._has_end(name)]
        return [damage for damage in wrong if damage]

    def _own_names(self) -> set[str]:
        return {os.path.basename(path) for path in [*self._spares, *(file.path for file in list(self._own.values()))]}

    def _has_end(self, name: str) -> bool:
        try:
            return name not in self._stuck and has_end(f"{self._folder}/{name}")
        except FileNotFoundError:  # moved meanwhile
            return False
        except OSError as error:
            raise unwritable(error, self._folder) from error

    def _names(self) -> list[str]:
        """Raises `StoreUnavailable`."""
        try:
            return names(self._folder)
        except OSError as error:
            raise unwritable(error, self._folder) from error

    def _recover(self, name: str) -> str:
        path = f"{self._folder}/{name}"
        try:
            found = FileSummary(path)
            if found.new is None:
                return self._set_aside(path, found.damage) if found.damage else _remove_empty(path)
            end = None if found.damage else found.end
            with self._connections.writing() as connection:
                rows = rows_in(path, found.count) if end is not None else ()
                change = writing.move(connection, found.new, rows, end, self._make_notices)
        except FileNotFoundError:  # moved meanwhile
            return ""
        except StoreUnavailable:
            raise
        except Exception:  # noqa: BLE001 -- reported; the others must not wait for it
            self._seen.add(name)
            self._stuck.add(name)
            _log.exception("bug in recovering a run; its file is kept")
            return ""
        if change.note is not None:
            self._indexer.note(change.run, change.note)
        if isinstance(change.result, Busy | KeyTaken):
            return self._set_aside(path, "its conversation has another run")
        if end is not None or isinstance(change.result, Fenced):
            with suppress(OSError):
                _remove(path)
        else:
            self._seen.add(name)
        return ""  # of a running run: whoever claims it reports the damage

    def claim(self, lease: Lease) -> bool:
        """Gives a running run to this lease, and its events to the database: its writer can write no more. False if it
        has ended, or has another epoch than the one before."""
        return self._take(lease.run_id, lambda connection: writing.claim(connection, lease))

    def take(self, run_id: str) -> None:
        """Whatever is written about this run from now on is written to the database."""
        if os.path.exists(self._path(run_id)):
            self._take(run_id, lambda connection: True)

    def _take(self, run_id: str, is_granted: Callable[[sqlite3.Connection], bool]) -> bool:
        path, damage = self._path(run_id), ""

        def rows(file: int) -> Iterator[EventBatch]:
            nonlocal damage
            found = FileSummary(path)
            damage = found.damage
            mark(file)
            yield from rows_in(path, found.count)

        self._recover(os.path.basename(path))  # it may have ended, or not be entered yet
        with locked(path) as file, self._connections.writing() as connection:
            if not is_granted(connection):
                return False
            if file is not None:
                writing.take_over(connection, run_id, rows(file))
        self.leave(run_id)
        if damage:
            self._set_aside(path, damage)
        else:
            _remove(path)
        return True

    def _path(self, run_id: str) -> str:
        return f"{self._folder}/{name_of(run_id)}{SUFFIX}"

    def remove(self, run_ids: Iterable[str]) -> None:
        for id in run_ids:
            self.leave(id)
            _remove(self._path(id))

    def _set_aside(self, path: str, damage: str) -> str:
        """Returns what the operator should know."""
        with suppress(FileNotFoundError):
            os.rename(path, f"{path}{_ASIDE}")
        kept = f"{path}{_ASIDE}"
        said = f"The file of a run was damaged ({damage}). It is kept as {kept}; the history has what could be read."
        self._found_damage(said)
        return said

    def _found_damage(self, said: str) -> None:
        self._connections.health.failed("damage", StoreUnavailable(said))


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _remove_empty(path: str) -> str:
    """Its writer was killed before its first line, or is about to write it."""
    with suppress(StoreUnavailable), locked(path) as file:
        if file is not None and FileSummary(path).new is None:
            _remove(path)
    return ""
