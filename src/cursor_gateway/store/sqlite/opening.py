"""A folder in; a database that this version can use out: created, migrated, or replaced if damaged.

Only SQLite may open the file: its locks belong to the process, and closing any other descriptor of the file would
drop them (https://sqlite.org/howtocorrupt.html, 2.2).
"""

import errno
import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from cursor_gateway.errors import SettingsError, StoreUnavailable
from cursor_gateway.store.migrations import Migration, migrations_of

FILE = "history.db"

_APPLICATION_ID = 0x43_47_48_31  # CGH1
_CHECKED_WHOLE = 32 * 1024 * 1024  # bytes; a larger file is only checked after an error
_TIMEOUT = 5.0  # seconds to wait for another process that opens it at the same time
_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_COMPANIONS = ("-wal", "-shm")


def open_database(path: Path, now_ms: int) -> str | None:
    """Sets a damaged file aside and returns a warning that says so.

    Raises `SettingsError` for what the operator must decide, `StoreUnavailable` or SQLite's error for what may be
    temporary.
    """
    _prepare(path.parent)
    with _alone(path):
        warning = _set_aside_if_damaged(path, now_ms) if path.exists() else None
        update(path, _TIMEOUT)
        _suspicion(path).unlink(missing_ok=True)
        return warning


def update(path: Path, timeout: float) -> None:
    """Creates the file if it is missing, and applies the migrations it lacks. Raises for a damaged file."""
    _prepare(path.parent)
    with _os_errors_translated(path.parent), suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with closing(connect(path, timeout)) as connection:
        version = _version(connection, path)
        if not version:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # no effect after the first page is written
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA secure_delete = ON")  # overwrites what a migration drops
        for migration in migrations()[version:]:
            _apply(connection, path, migration)


def connect(path: Path, timeout: float) -> sqlite3.Connection:
    """Never creates the file. The connection may be used by any thread, one at a time."""
    uri = f"{path.absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(uri, uri=True, timeout=timeout, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA temp_store = MEMORY")  # the temporary folder may be full
    return connection


def is_damage(error: sqlite3.Error) -> bool:
    return primary_code(error) in _DAMAGE


def primary_code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF  # errors raised by the sqlite3 module itself have none


def suspect(path: Path) -> None:
    """Requests a full check when the file is opened the next time, whatever its size."""
    with suppress(OSError):
        _suspicion(path).touch(mode=0o600)


def _suspicion(path: Path) -> Path:
    return path.with_name(f"{path.name}.suspect")


# --- the folder -------------------------------------------------------------------------------------


def _prepare(directory: Path) -> None:
    with _os_errors_translated(directory):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)


@contextmanager
def _os_errors_translated(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE):
            raise StoreUnavailable(
                f"The history cannot be written: {error.strerror}; check the disk with the gateway's data.",
                details=str(directory),
            ) from error
        raise SettingsError(
            f"the history cannot be kept in {str(directory)!r}: {error.strerror}; "
            "check its permissions, or set `data_dir` to another folder.",
            param="data_dir",
        ) from error


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """An exclusive lock: two processes must not set the same file aside, or the second would move the new one."""
    with _os_errors_translated(path.parent):
        lock = os.open(path.with_name(f"{path.name}.lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


# --- the file ---------------------------------------------------------------------------------------


def _set_aside_if_damaged(path: Path, now_ms: int) -> str | None:
    with closing(connect(path, _TIMEOUT)) as connection:
        try:
            _check(connection, path)
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            aside = _set_aside(path, now_ms)  # while it is open: closing it would remove the WAL
            return f"The history was damaged ({error}). It is kept as {aside}; a new one was started."
    return None


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """Raises an `sqlite3.DatabaseError` that `is_damage` if the file is damaged."""
    if not _version(connection, path) or (path.stat().st_size > _CHECKED_WHOLE and not _suspicion(path).exists()):
        return
    try:  # first: since SQLite 3.44, the check of the whole file includes the index
        connection.execute("INSERT INTO search (search) VALUES ('integrity-check')")
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        connection.execute("INSERT INTO search (search) VALUES ('rebuild')")  # the index stores its own content
    (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise _damage(found)


def _damage(found: str) -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError(" ".join(found.split()))
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def _set_aside(path: Path, now_ms: int) -> Path:
    time = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
    name = f"{path.name}.damaged-{time}"
    aside, number = path.with_name(name), 1
    while any(path.with_name(f"{aside.name}{end}").exists() for end in ("", *_COMPANIONS)):
        number += 1
        aside = path.with_name(f"{name}-{number}")
    with _os_errors_translated(path.parent):
        for end in ("", *_COMPANIONS):  # the WAL must keep the file's name
            with suppress(FileNotFoundError):
                path.with_name(f"{path.name}{end}").rename(path.with_name(f"{aside.name}{end}"))
    return aside


# --- the tables -------------------------------------------------------------------------------------


def migrations() -> Sequence[Migration]:
    return migrations_of(__package__)


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """The version of the schema; 0 for a new file."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application != _APPLICATION_ID and tables:
        raise SettingsError(
            f"{str(path)!r} is another program's database; move it, or set `data_dir` to another folder.",
            param="data_dir",
        )
    newest = len(migrations())
    if version > newest:
        raise SettingsError(
            f"{str(path)!r} was written by a newer cursor-gateway (format {version}, this version supports {newest}); "
            "upgrade again, or set `data_dir` to another folder.",
            param="data_dir",
        )
    return int(version)


def _apply(connection: sqlite3.Connection, path: Path, migration: Migration) -> None:
    """Applies a migration in one transaction, once, even if several processes try."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _version(connection, path) < migration.number:
            for statement in _statements(migration.script):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {migration.number}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _statements(script: str) -> Iterator[str]:
    """Not `executescript`, which would commit first."""
    statement = ""
    for line in script.splitlines():
        statement += f"{line}\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    assert not statement.strip(), "a migration ends with `;`"
