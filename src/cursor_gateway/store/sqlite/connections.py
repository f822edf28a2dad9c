"""Connections to one database: one writer and a few readers, opened on demand and reopened after an error.

The set of connections is either usable or suspect. It becomes usable when the file was opened and its tables are up
to date; it becomes suspect on any error other than busy, locked or full, and when the file at the path is no longer
the one that was opened. A suspect set is never used: its readers are closed at once, its writer by the next thread
that writes, and the next call opens the file again. Damage that is found by reading costs what was to be read. When it
is found by writing, nothing more is written until the gateway restarts, which sets the file aside and recovers the
rest.

Two locks: `_turn` is held for a whole write, so there is never more than one transaction of this process; `_state`
guards the fields and is held only briefly. Whoever takes both takes `_turn` first.

SQLite's errors become `StoreUnavailable`. A failed transaction changes nothing, so the error goes away with
its cause. `health` knows of each.
"""

import errno
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from cursor_gateway.errors import HistoryDamaged, SettingsError, StoreUnavailable
from cursor_gateway.store.health import Access, StoreHealth
from cursor_gateway.store.sql import UNREADABLE_PART
from cursor_gateway.store.sqlite.opening import (
    SQL_ERRORS,
    connect,
    described,
    is_being_recovered,
    is_damage,
    open_database,
    primary_code,
    suspect,
    update,
)

# Seconds to wait for a lock.
_WRITER_TIMEOUT = 0.1  # short: the event loop is blocked meanwhile
_TURN_TIMEOUT = 1.0  # for this process's own threads, which write in short steps
_READER_TIMEOUT = 2.0
_MAINTENANCE_TIMEOUT = 0.05  # shorter than the writer's, which waits for maintenance
_KEPT_READERS = 4
_WRITERS_SETTINGS = (
    "cache_size = -1000",  # kilobytes, half of the default: the system has the file in memory as well
    "foreign_keys = ON",
    "synchronous = NORMAL",
    "wal_autocheckpoint = 0",  # a checkpoint waits for the disk: see `Maintenance`
    "journal_size_limit = 16777216",  # bytes of the WAL file that are kept when it restarts
    "secure_delete = ON",  # deleted data must not remain in free pages
)

_CHANGED = "The history was changed meanwhile, and cannot be used; run `cursor-gateway doctor`."
_DAMAGED = "The history is damaged; restart the gateway: it keeps the file and recovers what can be read."
_RECOVERED = "The history was damaged, and another gateway recovers it; if this lasts, restart the gateway."
_BUSY = "The history is locked by another program; wait for it to end, or end it."
_WHY = {
    sqlite3.SQLITE_BUSY: _BUSY,
    sqlite3.SQLITE_LOCKED: _BUSY,
    sqlite3.SQLITE_PROTOCOL: _BUSY,
    sqlite3.SQLITE_FULL: "The disk with the history is full; free some space, or keep less history.",
    sqlite3.SQLITE_READONLY: "The history is read-only; make its folder and files writable.",
    sqlite3.SQLITE_PERM: "The history cannot be used; check the permissions of its folder and files.",
    sqlite3.SQLITE_CANTOPEN: "The history cannot be opened; check its folder and permissions.",
    sqlite3.SQLITE_IOERR: "The disk failed while accessing the history; check the system log.",
}
# After these the connection is still good.
_HARMLESS = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL})
_CONFLICTS = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})


def unwritable(error: OSError, path: str) -> StoreUnavailable:
    """For a file beside the database."""
    match error:
        case BlockingIOError():
            why = _BUSY
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            why = _WHY[sqlite3.SQLITE_FULL]
        case OSError(errno=errno.EACCES | errno.EPERM | errno.EROFS):
            why = _WHY[sqlite3.SQLITE_READONLY]
        case _:
            why = f"The history cannot be written: {error.strerror}; check the disk with the gateway's data."
    return StoreUnavailable(why, details=f"{error.strerror} ({path})")


class Connections:
    def __init__(self, path: Path) -> None:
        self.path, self._name = path, str(path)
        self.health = StoreHealth()
        self._writer: sqlite3.Connection | None = None
        self._writers_file: int | None = None
        self._readers: list[sqlite3.Connection] = []
        self._is_usable = False  # opened, and no reason since then to suspect it
        self._file: int | None = None
        self._is_damaged = False
        self._is_closed = False
        self._timeout = _WRITER_TIMEOUT
        self._turn = threading.Lock()  # held while writing
        self._state = threading.RLock()  # guards the fields above

    def open(self, now_ms: int) -> str | None:
        """Returns a warning, if any. Raises `SettingsError` for what the operator must fix."""
        with self._state:
            try:
                warning = open_database(self.path, now_ms)
            except SQL_ERRORS as error:
                self._fail("write", error)
            except StoreUnavailable as error:
                self.health.failed("write", error)
                raise
            self._is_usable, self._is_damaged = True, False
            self._file = self._file_now()
            return warning

    @property
    def is_usable(self) -> bool:
        return self._is_usable

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction, committed at the end of the block."""
        self._take_turn()
        try:
            connection = self._current_writer() or self._new_writer()
            connection.execute("BEGIN IMMEDIATE")
            self._lock_acquired()
            yield connection
            connection.execute("COMMIT")
            self.health.worked("write")
        except SQL_ERRORS as error:
            self._writer_failed(error)
        finally:
            self._end_turn()

    def write(self, statement: str, values: Mapping[str, object]) -> int:
        """Runs one statement as its own transaction. Returns the number of rows."""
        self._take_turn()
        try:
            connection = self._current_writer() or self._new_writer()
            count = connection.execute(statement, values).rowcount
            self._lock_acquired()
            self.health.worked("write")
            return count
        except SQL_ERRORS as error:
            self._writer_failed(error)
        finally:
            self._end_turn()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A read transaction: the block sees one snapshot."""
        try:
            connection, file = self._reader()
            try:
                connection.execute("BEGIN")
                yield connection
            except SQL_ERRORS:
                connection.close()
                raise
            except BaseException:
                self._put_back(connection, file)
                raise
            self._put_back(connection, file)
            self.health.worked("read")
        except SQL_ERRORS as error:
            self._fail("read", error)

    def another(self) -> sqlite3.Connection:
        """A separate connection, owned by the caller, for work that waits for the disk."""
        with self._state:
            self._check_usable("write")
        return connect(self.path, _MAINTENANCE_TIMEOUT)

    def close(self) -> None:
        with self._turn, self._state:
            self._is_closed = True
            self._suspect()
            self._close_writer()

    # --- writing ------------------------------------------------------------------------------------

    def _take_turn(self) -> None:
        if not self._turn.acquire(timeout=_TURN_TIMEOUT):
            busy = StoreUnavailable("The gateway is busy writing its history; retry in a moment.")
            self.health.failed("write", busy, is_conflict=True)
            raise busy

    def _end_turn(self) -> None:
        try:
            self._undo()
        finally:
            self._turn.release()

    def _writer_failed(self, error: Exception) -> NoReturn:
        if primary_code(error) == sqlite3.SQLITE_BUSY:
            self._set_timeout(0)
        elif primary_code(error) not in _HARMLESS:
            self._close_writer()
        self._fail("write", error)

    def _current_writer(self) -> sqlite3.Connection | None:
        return self._writer if self._is_usable and self._file_now() == self._writers_file else None

    def _new_writer(self) -> sqlite3.Connection:
        self._close_writer()
        with self._state:
            if not self._is_current():
                self._suspect()
            self._check_usable("write")
            connection = connect(self.path, self._timeout)
            try:
                for setting in _WRITERS_SETTINGS:
                    connection.execute(f"PRAGMA {setting}")
            except SQL_ERRORS:
                connection.close()
                raise
            self._writer, self._writers_file = connection, self._file
            return connection

    def _lock_acquired(self) -> None:
        if self._timeout == 0:
            self._set_timeout(_WRITER_TIMEOUT)

    def _set_timeout(self, seconds: float) -> None:
        """After SQLITE_BUSY, writers do not wait until one of them gets the lock: each wait blocks the event loop."""
        self._timeout = seconds
        if self._writer is not None:
            self._writer.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")

    def _undo(self) -> None:
        if self._writer is None or not self._writer.in_transaction:
            return
        try:
            self._writer.execute("ROLLBACK")
        except sqlite3.Error:  # the disk again; closing the connection rolls back, too
            self._close_writer()

    def _close_writer(self) -> None:
        """Only called while holding `_turn`: no other thread can be using it."""
        if self._writer is not None:
            with suppress(sqlite3.Error):
                self._writer.close()
            self._writer = None

    # --- reading ------------------------------------------------------------------------------------

    def _reader(self) -> tuple[sqlite3.Connection, int | None]:
        """With the file that it reads."""
        with self._state:
            if not self._is_current():
                self._suspect()
            self._check_usable("read")
            if self._readers:
                return self._readers.pop(), self._file
            connection = connect(self.path, _READER_TIMEOUT)  # while no other thread makes a new file
            connection.execute("PRAGMA query_only = ON")
            return connection, self._file

    def _put_back(self, connection: sqlite3.Connection, file: int | None) -> None:
        """Unless the file was replaced meanwhile: whoever read the old one next would miss what is in the new one."""
        connection.rollback()
        with self._state:
            is_current = self._is_usable and not self._is_closed and file == self._file
            if is_current and len(self._readers) < _KEPT_READERS:
                self._readers.append(connection)
            else:
                connection.close()

    # --- faults -------------------------------------------------------------------------------------

    def _check_usable(self, access: Access) -> None:
        if self._is_closed:
            raise StoreUnavailable("The history is closed: the gateway is shutting down.")
        if self._is_damaged and access == "write":
            raise StoreUnavailable(_DAMAGED, details=self._name)
        try:
            self._open_again()
        except StoreUnavailable as error:
            self.health.failed(access, error)
            raise

    def _open_again(self) -> None:
        if not self._is_usable:
            if is_being_recovered(self.path):
                raise StoreUnavailable(_RECOVERED, details=self._name)
            try:
                update(self.path, self._timeout)
            except SettingsError as error:  # after startup it is reported like any other failure
                raise StoreUnavailable(_CHANGED, details=str(error)) from error
            self._is_usable = True
            self._file = self._file_now()

    def _is_current(self) -> bool:
        """False if the file was deleted or renamed: a connection would keep writing to it, and the data is lost."""
        return self._is_usable and self._file_now() == self._file

    def _file_now(self) -> int | None:
        try:
            return os.stat(self._name).st_ino
        except OSError:
            return None

    def _fail(self, access: Access, error: Exception) -> NoReturn:
        """Raises `StoreUnavailable`, or the error itself if it is a bug in the gateway's SQL."""
        code = primary_code(error)
        details = f"{getattr(error, 'sqlite_errorname', '')}: {described(error)} ({self._name})"
        if is_damage(error):
            self.found_damage(details)
            if access == "read" and code != sqlite3.SQLITE_NOTADB:
                raise HistoryDamaged(UNREADABLE_PART, details=details) from error
            if getattr(error, "sqlite_errorcode", 0) != sqlite3.SQLITE_CORRUPT_VTAB:  # else it is only the index
                self._is_damaged = True
                self._suspect()
            raise StoreUnavailable(_DAMAGED, details=details) from error
        if code not in _WHY:
            raise error
        if code not in _HARMLESS:
            self._suspect()
        unavailable = StoreUnavailable(_WHY[code], details=details)
        self.health.failed(access, unavailable, is_conflict=code in _CONFLICTS)
        raise unavailable from error

    def found_damage(self, details: str) -> None:
        """Tells the operator, and makes the next start check the whole file."""
        suspect(self.path)
        self.health.failed("damage", StoreUnavailable(_DAMAGED, details=details))

    def _suspect(self) -> None:
        """Marks the connections as suspect. The writer is replaced by the next thread that writes."""
        with self._state:
            self._is_usable = False
            for connection in self._readers:
                connection.close()
            self._readers.clear()
