"""Connections to one database: one that writes, a few that read; made when needed, and anew after a fault.

What SQLite refuses becomes `StoreUnavailable` here. Nothing of a transaction that fails is left, and
the next one begins as if nothing had happened: when the cause is gone, so is the error.
"""

import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from cursor_gateway.errors import SettingsError, StoreUnavailable
from cursor_gateway.store.sqlite.opening import connect, is_damage, open_database, primary_code, suspect, update

_WRITER_PATIENCE = 0.1  # seconds: the event loop waits with it
_TURN_PATIENCE = 1.0  # for our own threads, which write in short steps
_READER_PATIENCE = 2.0
_KEEPER_PATIENCE = 0.05  # shorter than that of who writes, and waits for it
_KEPT_READERS = 4
_WRITERS_SETTINGS = (
    "foreign_keys = ON",
    "synchronous = NORMAL",
    "wal_autocheckpoint = 0",  # it waits for the disk: see `Keeper`
    "journal_size_limit = 16777216",  # bytes of the log that are kept when it begins anew
    "secure_delete = ON",  # what is deleted is not left in free pages
)

_BUSY = "The history is locked by another program; wait until that has ended, or end it."
_WHY = {
    sqlite3.SQLITE_BUSY: _BUSY,
    sqlite3.SQLITE_LOCKED: _BUSY,
    sqlite3.SQLITE_PROTOCOL: _BUSY,
    sqlite3.SQLITE_FULL: "The disk that has the history is full; make room on it, or keep less.",
    sqlite3.SQLITE_READONLY: "The history can only be read; make its folder and its files writable.",
    sqlite3.SQLITE_PERM: "The history cannot be used; see to the permissions of its folder and its files.",
    sqlite3.SQLITE_CANTOPEN: "The history cannot be opened; see to its folder and its permissions.",
    sqlite3.SQLITE_IOERR: "The disk failed with the history; the system's log may say why.",
    sqlite3.SQLITE_CORRUPT: "The history is damaged; restart the gateway: it is set aside, and a new one begun.",
    sqlite3.SQLITE_NOTADB: "The history is damaged; restart the gateway: it is set aside, and a new one begun.",
}
_HARMLESS = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL})  # to the connection


class Connections:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._writer: sqlite3.Connection | None = None
        self._writers_file: int | None = None
        self._readers: list[sqlite3.Connection] = []
        self._is_usable = False  # it was opened, and nothing has happened since that casts doubt on it
        self._file: int | None = None
        self._is_damaged = False
        self._is_closed = False
        self._patience = _WRITER_PATIENCE
        self._turn = threading.Lock()  # who holds it writes
        self._state = threading.RLock()  # for all of the above

    def open(self, now_ms: int) -> str | None:
        """What there is to warn of. Raises `SettingsError` for what will not mend itself."""
        with self._state, self._told():
            warning = open_database(self.path, now_ms)
            self._is_usable, self._is_damaged = True, False
            self._file = self._file_now()
            return warning

    @property
    def is_usable(self) -> bool:
        return self._is_usable

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction: all that is done within, or nothing."""
        with self._writer_alone() as connection:
            connection.execute("BEGIN IMMEDIATE")
            self._let_in()
            yield connection
            connection.execute("COMMIT")

    def write(self, statement: str, values: Mapping[str, object]) -> int:
        """One statement, which is a transaction of its own. How many rows it wrote."""
        with self._writer_alone() as connection:
            count = connection.execute(statement, values).rowcount
            self._let_in()
            return count

    @contextmanager
    def _writer_alone(self) -> Iterator[sqlite3.Connection]:
        if not self._turn.acquire(timeout=_TURN_PATIENCE):
            raise StoreUnavailable("The gateway is busy with its history; wait a moment.")
        try:
            with self._told():
                try:
                    yield self._current_writer() or self._new_writer()
                except sqlite3.Error as error:
                    if primary_code(error) == sqlite3.SQLITE_BUSY:
                        self._be_patient(0)
                    elif primary_code(error) not in _HARMLESS:
                        self._close_writer()
                    raise
                finally:
                    self._undo()
        finally:
            self._turn.release()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """All that is read within is of one moment."""
        with self._told():
            connection = self._reader()
            try:
                connection.execute("BEGIN")
                yield connection
            except sqlite3.Error:
                connection.close()
                raise
            except BaseException:
                self._put_back(connection)
                raise
            self._put_back(connection)

    def another(self) -> sqlite3.Connection:
        """One that is the caller's, for work that waits for disks."""
        with self._state:
            self._check_usable()
        return connect(self.path, _KEEPER_PATIENCE)

    def close(self) -> None:
        with self._turn, self._state:
            self._is_closed = True
            self._doubt()
            self._close_writer()

    # --- writing ------------------------------------------------------------------------------------

    def _current_writer(self) -> sqlite3.Connection | None:
        return self._writer if self._is_usable and self._file_now() == self._writers_file else None

    def _new_writer(self) -> sqlite3.Connection:
        self._close_writer()
        with self._state:
            if not self._is_current():
                self._doubt()
            self._check_usable()
            connection = connect(self.path, self._patience)
            try:
                for setting in _WRITERS_SETTINGS:
                    connection.execute(f"PRAGMA {setting}")
            except sqlite3.Error:
                connection.close()
                raise
            self._writer, self._writers_file = connection, self._file
            return connection

    def _let_in(self) -> None:
        if self._patience == 0:
            self._be_patient(_WRITER_PATIENCE)

    def _be_patient(self, seconds: float) -> None:
        """Who was refused does not wait again until it was let in: each wait stops the event loop."""
        self._patience = seconds
        if self._writer is not None:
            self._writer.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")

    def _undo(self) -> None:
        if self._writer is None or not self._writer.in_transaction:
            return
        try:
            self._writer.execute("ROLLBACK")
        except sqlite3.Error:  # the disk again; closing it has the same effect
            self._close_writer()

    def _close_writer(self) -> None:
        """By whoever has the turn: nobody else can be using it."""
        if self._writer is not None:
            with suppress(sqlite3.Error):
                self._writer.close()
            self._writer = None

    # --- reading ------------------------------------------------------------------------------------

    def _reader(self) -> sqlite3.Connection:
        with self._state:
            if not self._is_current():
                self._doubt()
            self._check_usable()
            if self._readers:
                return self._readers.pop()
        connection = connect(self.path, _READER_PATIENCE)
        connection.execute("PRAGMA query_only = ON")
        return connection

    def _put_back(self, connection: sqlite3.Connection) -> None:
        connection.rollback()
        with self._state:
            if self._is_usable and not self._is_closed and len(self._readers) < _KEPT_READERS:
                self._readers.append(connection)
            else:
                connection.close()

    # --- faults -------------------------------------------------------------------------------------

    def _check_usable(self) -> None:
        if self._is_closed:
            raise StoreUnavailable("The history is closed: the gateway is about to stop.")
        if self._is_damaged:
            raise StoreUnavailable(_WHY[sqlite3.SQLITE_CORRUPT])
        if not self._is_usable:
            try:
                update(self.path, self._patience)
            except SettingsError as error:  # while the gateway runs it is nobody's request
                raise StoreUnavailable(str(error)) from error
            self._is_usable = True
            self._file = self._file_now()

    def _is_current(self) -> bool:
        """A connection goes on with its file when that was deleted or renamed, and what it writes is lost."""
        return self._is_usable and self._file_now() == self._file

    def _file_now(self) -> int | None:
        try:
            return os.stat(self.path).st_ino
        except OSError:
            return None

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Mistakes in our SQL are left as they are."""
        try:
            yield
        except sqlite3.Error as error:
            code = primary_code(error)
            if code not in _WHY:
                raise
            if is_damage(error):
                self._is_damaged = True
                suspect(self.path)
            if code not in _HARMLESS:
                self._doubt()
            raise StoreUnavailable(_WHY[code], details=getattr(error, "sqlite_errorname", "")) from error

    def _doubt(self) -> None:
        """All connections are made anew; the one that writes, by whoever writes next."""
        with self._state:
            self._is_usable = False
            for connection in self._readers:
                connection.close()
            self._readers.clear()
