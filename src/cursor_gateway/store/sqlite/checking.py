"""A database in; what is damaged in it out: its pages, its tables, or what its rows say."""

import re
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from itertools import groupby
from pathlib import Path

from cursor_gateway.store import batches
from cursor_gateway.store.migrations import migrations_of
from cursor_gateway.store.sql import UNREADABLE, conversation_of, run_of, select_conversations, select_runs

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
