"""A folder in; a database that this version can use out: created, migrated, checked, and recovered if damaged.

Only SQLite may open the file: its locks belong to the process, and closing any other descriptor of the file would
drop them (https://sqlite.org/howtocorrupt.html, 2.2).
"""

import errno
import fcntl
import os
import re
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Literal

from cursor_gateway.errors import SettingsError, StoreUnavailable
from cursor_gateway.store import batches
from cursor_gateway.store.sql import (
    UNREADABLE,
    Migration,
    conversation_of,
    migrations_of,
    run_of,
    select_conversations,
    select_runs,
)
from cursor_gateway.store.sqlite.run_files import FOLDER, damage_in

# --- damage: of its pages, its tables, or what its rows say -----------------------------------------

APPLICATION_ID = 0x43_47_48_31  # CGH1

# The file may be in order: another program has it, the disk is full, or the system refuses something.
_NOT_DAMAGE = frozenset(
    {
        sqlite3.SQLITE_AUTH,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_READONLY,
    }
)
_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_MISSING_PARTS = re.compile("no such (?!column|savepoint)|malformed|unsupported|vtable|fts5")
_QUOTED = re.compile(r"(?<=malformed database schema) .*", re.DOTALL)
_LONGEST = 200  # characters of a description
_NOISE = re.compile(r"--[^\n]*|[\s\"]+")  # in the text of a table, which SQLite rewrites when it is altered

_LOG_HEADER, _LOG_MAGIC = struct.Struct(">8I"), 0x377F0682
_FRAME_HEADER = struct.Struct(">6I")

SQL_ERRORS = (sqlite3.Error, UnicodeDecodeError)  # SQLite quotes what it found in messages, which may be no text


class Damaged(sqlite3.DatabaseError):
    """With what was found."""

    sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    sqlite_errorname = "SQLITE_CORRUPT"


def primary_code(error: Exception) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF  # errors raised by the sqlite3 module itself have none


def is_damage(error: Exception) -> bool:
    """For a statement that works in a good file."""
    if isinstance(error, UnicodeDecodeError) or primary_code(error) in _DAMAGE:
        return True
    return primary_code(error) == sqlite3.SQLITE_ERROR and _MISSING_PARTS.search(str(error)) is not None


def may_be_damage(error: Exception) -> bool:
    """The same while the file is checked: nothing else can be the reason."""
    return primary_code(error) not in _NOT_DAMAGE


def described(error: Exception) -> str:
    """The error without what SQLite quotes: in a damaged list of tables that may be a prompt, of any length."""
    return _QUOTED.sub("", str(error))[:_LONGEST]


def decoded(text: bytes) -> str:
    """For `text_factory`: a damaged character must not make a row unreadable."""
    return text.decode("utf-8", "replace")


# --- the tables -------------------------------------------------------------------------------------


def shape(connection: sqlite3.Connection) -> frozenset[tuple[str, ...]]:
    """The tables and indexes, as far as they do not depend on SQLite's version."""
    found = connection.execute("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema").fetchall()
    return frozenset(
        (str(kind), str(name), str(table), "" if str(name).startswith("search_") else _NOISE.sub("", str(sql)))
        for kind, name, table, sql in found
        if not str(name).startswith("sqlite_")
    )


@cache
def shape_of(version: int) -> frozenset[tuple[str, ...]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        for migration in migrations_of(__package__)[:version]:
            connection.executescript(migration.script)
        return shape(connection)


def check_tables(connection: sqlite3.Connection, version: int) -> None:
    """Raises `Damaged` unless the file has the tables of this version. The number itself may be damaged as well."""
    found, newest = shape(connection), len(migrations_of(__package__))
    if missing := shape_of(version) - found:
        raise Damaged(f"the table or index {min(name for _, name, *_ in missing)!r} is not as it should be")
    if version < newest and shape_of(version) < shape_of(newest) <= found:
        raise Damaged("its version number is wrong")


def is_ours(connection: sqlite3.Connection) -> bool:
    """Whether the tables are those of the newest version, whatever the header says."""
    return shape(connection) == shape_of(len(migrations_of(__package__)))


# --- the pages and rows -----------------------------------------------------------------------------


def check_pages(connection: sqlite3.Connection) -> None:
    """Raises `Damaged`, or SQLite's error."""
    (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if found != "ok":
        raise Damaged(" ".join(found.split()))


def check_log(connection: sqlite3.Connection, path: Path) -> None:
    """Raises `Damaged` if the WAL has a transaction that SQLite ignores because a part before it is damaged. Nobody may
    write meanwhile: a new transaction would look like an ignored one.

    See https://sqlite.org/fileformat.html, 4.1 and 4.2. Frames of another generation of the WAL have other salts.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        header = file.read(_LOG_HEADER.size)
        if len(header) < _LOG_HEADER.size:
            return
        magic, _, page_size, _, *salts, _, _ = _LOG_HEADER.unpack(header)
        try:
            is_busy, frames, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error as error:
            if may_be_damage(error):
                raise
            return  # a full disk
        if is_busy:  # another process does the same, and the number of frames is not known
            return
        if magic & ~1 != _LOG_MAGIC or not page_size:
            raise Damaged("the beginning of its log is damaged")
        size = _FRAME_HEADER.size + page_size
        for number in range(max(frames, 0), path.stat().st_size // size):
            file.seek(_LOG_HEADER.size + number * size)
            frame = file.read(_FRAME_HEADER.size)
            if len(frame) == _FRAME_HEADER.size:
                _, commit, *found, _, _ = _FRAME_HEADER.unpack(frame)
                if commit and found == salts:
                    raise Damaged("a part of its log is damaged")


def check_rows(connection: sqlite3.Connection) -> None:
    """Raises `Damaged` for a row that cannot be read."""
    try:
        for row in _named(connection, f"{select_conversations()} WHERE owner IS NOT NULL"):
            conversation_of(row)
        for row in _named(connection, select_runs("0")):
            if row["owner"] is not None:
                run_of(row)
        found = connection.execute("SELECT place >> 32, place & 0xffffffff, count, data FROM events ORDER BY place")
        for _, rows in groupby(found, key=lambda row: row[0]):
            expected = 1
            for _, first, count, data in rows:
                if first != expected or len(batches.decode(data)) != count:
                    raise Damaged("events are missing")
                expected += count
        wrong = "typeof(text) <> 'text' OR typeof(number) <> 'integer' OR typeof(created_ms) <> 'integer'"
        if connection.execute(f"SELECT 1 FROM messages WHERE {wrong} LIMIT 1").fetchone():
            raise Damaged("a message cannot be read")
    except UNREADABLE as error:
        raise Damaged(f"a row cannot be read: {error}") from error


def _named(connection: sqlite3.Connection, statement: str) -> Iterator[dict[str, object]]:
    cursor = connection.execute(statement)
    names = [column[0] for column in cursor.description]
    return (dict(zip(names, row, strict=True)) for row in cursor)


# --- opening ----------------------------------------------------------------------------------------

FILE = "history.db"

_CHECKED_WHOLE = 32 * 1024 * 1024  # bytes; a larger file is only checked after an error
_TIMEOUT = 5.0  # seconds to wait for another process that opens it at the same time
_COMPANIONS = ("-wal", "-shm")
_NOTED_SINCE = 11  # the version from which on a table has it as well


def open_database(path: Path, now_ms: int) -> str | None:
    """Sets a damaged file aside, recovers what can be read, and returns a warning that says so.

    Raises `SettingsError` for what the operator must decide, `StoreUnavailable` or SQLite's error for what may be
    temporary.
    """
    _prepare(path.parent)
    was_used = _lock_of(path).exists()
    with _alone(path):
        is_empty = was_used and path.is_file() and not path.stat().st_size
        damaged = _set_aside_if_damaged(path, now_ms) if path.exists() else _interrupted(path)
        warning = _recover(damaged[0], path, damaged[1]) if damaged is not None else None
        update(path, _TIMEOUT)
        _suspicion(path).unlink(missing_ok=True)
        return warning or (f"The history in {path} was empty; a new one was started." if is_empty else None)


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


def connect(path: Path, timeout: float, mode: Literal["rw", "ro"] = "rw") -> sqlite3.Connection:
    """Never creates the file. The connection may be used by any thread, one at a time."""
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=timeout, isolation_level=None, check_same_thread=False)
    connection.text_factory = decoded
    connection.execute("PRAGMA temp_store = MEMORY")  # the temporary folder may be full
    return connection


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


def _lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """An exclusive lock: two processes must not set the same file aside, or the second would move the new one."""
    with _os_errors_translated(path.parent):
        lock = os.open(_lock_of(path), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


# --- the file ---------------------------------------------------------------------------------------


def _set_aside_if_damaged(path: Path, now_ms: int) -> tuple[Path, str] | None:
    """Where the damaged file is now, and what is wrong with it."""
    for end in ("", *_COMPANIONS):
        if (part := path.with_name(f"{path.name}{end}")).exists() and not part.is_file():
            return _set_aside(path, now_ms), f"{part.name} is not a file"
    with closing(connect(path, _TIMEOUT)) as connection:
        try:
            _check(connection, path)
        except (*SQL_ERRORS, MemoryError) as error:
            if not (may_be_damage(error) or (_is_read_only(error) and _is_writable(path))):
                raise
            return _set_aside(path, now_ms), described(error)  # while it is open: closing it would remove the WAL
    return None


def _is_read_only(error: Exception) -> bool:
    return primary_code(error) == sqlite3.SQLITE_READONLY


def _is_writable(path: Path) -> bool:
    """Then a header that says otherwise is wrong."""
    return os.access(path, os.R_OK | os.W_OK) and os.access(path.parent, os.W_OK)


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """Raises `Damaged` or an SQLite error if the file is damaged."""
    version = _version(connection, path)
    check_tables(connection, version)
    if not version or (path.stat().st_size > _CHECKED_WHOLE and not _suspicion(path).exists()):
        return
    try:  # first: since SQLite 3.44, the check of the whole file includes the index
        connection.execute("INSERT INTO search (search) VALUES ('integrity-check')")
    except sqlite3.Error as error:
        if not may_be_damage(error):
            raise
        connection.execute("INSERT INTO search (search) VALUES ('rebuild')")  # the index stores its own content
    check_pages(connection)
    with closing(connect(path, _TIMEOUT)) as other:  # another gateway may use the file
        other.execute("BEGIN IMMEDIATE")
        check_log(connection, path.with_name(f"{path.name}-wal"))
    if version == len(migrations()):
        check_rows(connection)


def examine(path: Path) -> str:
    """What is damaged, the files of running runs included; empty: nothing. Changes nothing. Raises as `open_database`
    does."""
    if path.exists() and not path.is_file():
        return f"{path} is not a file"
    with closing(connect(path, _TIMEOUT, mode="ro")) as connection:
        try:
            version = _version(connection, path)
            check_tables(connection, version)
            check_pages(connection)
            if version == len(migrations()):
                check_rows(connection)
        except (*SQL_ERRORS, MemoryError) as error:
            if not may_be_damage(error):
                raise
            return described(error)
    return damage_in(str(path.with_name(FOLDER)))


def _recover(damaged: Path, path: Path, reason: str) -> str:
    """A new database with what can be read of the damaged one. Returns a warning."""
    new = _recovering(path)
    with _os_errors_translated(path.parent):
        for end in _COMPANIONS:
            new.with_name(f"{new.name}{end}").unlink(missing_ok=True)
        os.truncate(new, 0)  # not deleted: see `is_being_recovered`
    update(new, _TIMEOUT)
    from cursor_gateway.store.sqlite.copying import salvage  # late: few histories are ever damaged

    found = salvage(damaged, new)
    with _os_errors_translated(path.parent):
        new.rename(path)
    return f"The history was damaged ({reason}). The damaged file is kept as {damaged}; {found}."


def is_being_recovered(path: Path) -> bool:
    """Then no other process may make a new file: the recovered one takes its place, and would find the other's WAL."""
    return _recovering(path).exists() and not path.exists()


def _recovering(path: Path) -> Path:
    return path.with_name(f"{path.name}.recovering")


def _interrupted(path: Path) -> tuple[Path, str] | None:
    """The damaged file, if a recovery was interrupted before its result was in place."""
    if path.exists() or not _recovering(path).exists():
        return None
    found = [file for file in path.parent.glob(f"{path.name}.damaged-*") if not file.name.endswith(_COMPANIONS)]
    newest = max(found, key=lambda file: file.stat().st_mtime, default=None)
    return None if newest is None else (newest, "its recovery was interrupted")


def _set_aside(path: Path, now_ms: int) -> Path:
    with _os_errors_translated(path.parent):
        _recovering(path).touch(mode=0o600)
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


# In one statement: another process may be creating the tables at this moment.
_HEADER = """
    SELECT user_version, application_id, (SELECT count(*) FROM sqlite_schema)
    FROM pragma_user_version, pragma_application_id
"""


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """The version of the schema; 0 for a new file."""
    version, application, tables = connection.execute(_HEADER).fetchone()
    if application != APPLICATION_ID and tables:
        _raise_if_ours(connection, "its application id is wrong")
        raise SettingsError(
            f"{str(path)!r} is another program's database; move it, or set `data_dir` to another folder.",
            param="data_dir",
        )
    newest = len(migrations())
    if version > newest:
        if not _confirms(connection, version):
            _raise_if_ours(connection, "its version number is wrong")
        raise SettingsError(
            f"{str(path)!r} was written by a newer cursor-gateway (format {version}, this version supports {newest}); "
            "upgrade again, or set `data_dir` to another folder.",
            param="data_dir",
        )
    return int(version)


def _confirms(connection: sqlite3.Connection, version: int) -> bool:
    """Whether the tables have the version that the header has: then a newer gateway wrote both."""
    try:
        return bool(connection.execute("SELECT version FROM upkeep").fetchone() == (version,))
    except SQL_ERRORS:
        return False


def _raise_if_ours(connection: sqlite3.Connection, reason: str) -> None:
    """Raises `Damaged` if the file has the tables of this version: then its header is damaged."""
    if is_ours(connection):
        raise Damaged(reason)


def _apply(connection: sqlite3.Connection, path: Path, migration: Migration) -> None:
    """Applies a migration in one transaction, once, even if several processes try."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _version(connection, path) < migration.number:
            for statement in _statements(migration.script):
                connection.execute(statement)
            if migration.number >= _NOTED_SINCE:
                connection.execute("UPDATE upkeep SET version = ?", (migration.number,))
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
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
