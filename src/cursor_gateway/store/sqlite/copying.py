"""A history in; its conversations, to be copied to another engine, or into a new file if it is damaged, out.

**Damaged histories.** Works on a copy whose header is repaired first: its fields have known values, but a single wrong
bit makes the whole file unreadable. If the list of tables is damaged, the pages that hold it are taken from a new
database: the tables of every history that was created by the same version begin at the same pages.

Then each conversation is copied on its own. A page that cannot be read costs the rows in it, and the answers whose
events were in it keep the events before that.
"""

import shutil
import sqlite3
import struct
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from cursor_gateway.model.document_events import Done
from cursor_gateway.store import batches, sql
from cursor_gateway.store.sqlite.connections import Connections
from cursor_gateway.store.sqlite.indexing import TEXT, Indexer
from cursor_gateway.store.sqlite.moving import RunFiles
from cursor_gateway.store.sqlite.opening import APPLICATION_ID, FILE, SQL_ERRORS, decoded, described
from cursor_gateway.store.sqlite.run_files import FOLDER

# --- to another engine ------------------------------------------------------------------------------

_BATCHES = """
    SELECT place & 0xffffffff, count, data FROM events
    WHERE place BETWEEN ? << 32 AND ? << 32 | 0xffffffff ORDER BY place
"""


class SqliteArchive:
    """A snapshot of the history: later writes are not visible."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @property
    def count(self) -> int:
        """Of conversations."""
        (count,) = self._connection.execute("SELECT count(*) FROM conversations WHERE owner IS NOT NULL").fetchone()
        return int(count)

    @property
    def last_run(self) -> int:
        """The highest key of a run."""
        (key,) = self._connection.execute("SELECT coalesce(max(key), 0) FROM runs").fetchone()
        return int(key)

    def conversations(self) -> Iterator[sql.ArchivedConversation]:
        columns = ", ".join(sql.CONVERSATION_COLUMNS)
        select = f"SELECT key, {columns} FROM conversations WHERE owner IS NOT NULL ORDER BY key"
        for key, *row in self._connection.execute(select):
            messages = self._rows("messages", sql.MESSAGE_COLUMNS, "conversation", key, "number")
            yield sql.ArchivedConversation(row, messages, list(self._runs(key)))

    def _runs(self, conversation: int) -> Iterator[sql.ArchivedRun]:
        for key, *row in self._rows("runs", ("key", *sql.RUN_COLUMNS), "conversation", conversation, "key"):
            (text,) = self._connection.execute(TEXT, (key,)).fetchone()
            yield sql.ArchivedRun(
                key,
                row,
                text,
                self._rows("idempotency", sql.REPLY_COLUMNS, "run", key, "key"),
                self._rows("requests", sql.REQUEST_COLUMNS, "run", key, "after"),
                partial(self._batches, key),
            )

    def _batches(self, run: int) -> Iterator[sql.ArchivedBatch]:
        for first, count, data in self._connection.execute(_BATCHES, (run, run)):
            yield first, count, batches.decompress(data)

    def _rows(self, table: str, columns: Sequence[str], of: str, key: int, order: str) -> list[sql.Row]:
        select = f"SELECT {', '.join(columns)} FROM {table} WHERE {of} = ? ORDER BY {order}"
        return self._connection.execute(select, (key,)).fetchall()


@contextmanager
def open_archive(directory: Path, now_ms: int) -> Iterator[SqliteArchive]:
    """Raises `StoreUnavailable`, or `SettingsError` for what the operator must fix."""
    connections = Connections(directory / FILE)
    try:
        connections.open(now_ms)
        indexer = Indexer(connections)
        RunFiles(directory / FOLDER, connections, indexer).recover()
        indexer.catch_up()  # the copies are found by the text that the index has
        with connections.reading() as connection:
            yield SqliteArchive(connection)
    finally:
        connections.close()


# --- out of a damaged file --------------------------------------------------------------------------

_PAGE = 4096  # bytes; SQLite's default since 2016
_MAGIC = b"SQLite format 3\0"
_LARGEST_GAP = 10_000  # keys that are tried one by one
_NOBODY = "recovered"  # a process that does not run: its runs are ended as interrupted

_DEFAULTS = {"epoch": "1", "pinned": "0", "needs_decision": "0", "after": "0", "client": "''"}  # of later columns

_BESIDE = {  # tables that are of no conversation
    "token_usage": ("owner", "day", "model", "runs", "prompt_tokens", "completion_tokens", "cached_tokens"),
    "notices": ("webhook", "id", "owner", "run", "number", "body", "attempts", "due_ms"),
}

_Error = (*SQL_ERRORS, *sql.UNREADABLE, MemoryError, OverflowError)


class Salvaged(Struct):
    conversations: int = 0
    cut: int = 0  # answers that lost events
    lost: int = 0  # conversations that are known to have existed
    problem: str = ""  # why not everything was tried

    def __str__(self) -> str:
        parts = [f"{_counted(self.conversations, 'conversation')} recovered"]
        if self.cut:
            parts.append(f"{_counted(self.cut, 'answer')} only in part")
        if self.lost:
            parts.append(f"at least {_counted(self.lost, 'conversation')} lost")
        return ", ".join(parts) + (f" ({self.problem})" if self.problem else "")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def salvage(damaged: Path, new: Path) -> Salvaged:
    """Into a new, empty database. The damaged file is only read."""
    result = Salvaged()
    copy = new.with_name(f"{new.name}.copy")
    try:
        _repaired_copy(damaged, copy)
        with closing(_opened(copy)) as source, closing(sqlite3.connect(new, isolation_level=None)) as target:
            target.execute("PRAGMA foreign_keys = ON")
            _copy_all(source, target, result)
    except IsADirectoryError:
        pass
    except OSError as error:
        result.problem = error.strerror or str(error)
    except _Error as error:
        result.problem = described(error)
    finally:
        for end in ("", "-wal", "-shm"):
            copy.with_name(f"{copy.name}{end}").unlink(missing_ok=True)
    return result


# --- the copy ---------------------------------------------------------------------------------------


def _repaired_copy(damaged: Path, copy: Path) -> None:
    for end in ("", "-wal"):
        with suppress(*(() if not end else (FileNotFoundError, IsADirectoryError))):
            shutil.copyfile(damaged.with_name(f"{damaged.name}{end}"), copy.with_name(f"{copy.name}{end}"))
            copy.with_name(f"{copy.name}{end}").chmod(0o600)
    with copy.open("r+b") as file:
        header = bytearray(file.read(100).ljust(100, b"\0"))
        _repair(header, copy.stat().st_size // _PAGE)
        file.seek(0)
        file.write(header)
    if not _has_tables(copy):
        template = _new_database()
        with copy.open("r+b") as file:
            for number in _schema_pages(template):
                file.seek((number - 1) * _PAGE)
                file.write(template[(number - 1) * _PAGE : number * _PAGE])
            file.seek(0)
            _repair(page := bytearray(template[:100]), copy.stat().st_size // _PAGE)
            file.write(page)


def _repair(header: bytearray, pages: int) -> None:
    """See https://sqlite.org/fileformat.html, 1.3."""
    changes = bytes(header[24:28])
    header[:24] = _MAGIC + struct.pack(">HBBBBBB", _PAGE, 2, 2, 0, 64, 32, 32)
    struct.pack_into(">III", header, 28, pages, 0, 0)  # without free pages
    struct.pack_into(">I", header, 44, 4)
    struct.pack_into(">IIIIII", header, 52, 1, 1, len(sql.migrations_of(__package__)), 1, APPLICATION_ID, 0)
    header[76:92] = bytes(16)
    header[92:96] = changes


def _has_tables(path: Path) -> bool:
    with suppress(*_Error), closing(_opened(path)) as connection:
        for columns in ("id FROM conversations", "conversation FROM runs", "place, data FROM events"):
            connection.execute(f"SELECT {columns} LIMIT 0")
        return True
    return False


def _new_database() -> bytes:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        for migration in sql.migrations_of(__package__):
            connection.executescript(migration.script)
        return connection.serialize()


def _schema_pages(file: bytes) -> Iterator[int]:
    """The pages of the list of tables, whose root is page 1."""

    def below(number: int) -> Iterator[int]:
        yield number
        start = (number - 1) * _PAGE + (100 if number == 1 else 0)
        if file[start] == 5:  # an interior page
            (cells,) = struct.unpack_from(">H", file, start + 3)
            for place in struct.unpack_from(f">{cells}H", file, start + 12):
                yield from below(*struct.unpack_from(">I", file, (number - 1) * _PAGE + place))
            yield from below(*struct.unpack_from(">I", file, start + 8))

    return below(1)


def _opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.text_factory = decoded
    connection.execute("PRAGMA writable_schema = ON")  # tolerates what is wrong in the list of tables
    connection.execute("PRAGMA cell_size_check = ON")
    return connection


# --- the rows ---------------------------------------------------------------------------------------


def _copy_all(source: sqlite3.Connection, target: sqlite3.Connection, result: Salvaged) -> None:
    runs = defaultdict[int, list[dict[str, Any]]](list)
    for key in _keys(source, "runs").tried:
        for row in _read(source, "runs", ("key", "conversation", *sql.RUN_COLUMNS), "key = ?", key):
            runs[row["conversation"]].append(row)
    keys = _keys(source, "conversations")
    for key in keys.tried:
        found = _read(source, "conversations", sql.CONVERSATION_COLUMNS, "key = ?", key)
        if found and found[0]["owner"] is None:
            continue  # deleted
        if not found or not _is_readable(sql.conversation_of, {**found[0], "is_running": 0, "needs_decision": 0}):
            result.lost += key in keys.found
            continue
        try:
            target.execute("BEGIN IMMEDIATE")
            cut = _copy(source, target, key, found[0], runs[key])
            target.execute("COMMIT")
        except sqlite3.OperationalError:  # the disk of the new one
            raise
        except _Error:  # for example, two rows have the same id
            target.execute("ROLLBACK")
            result.lost += 1
        else:
            result.conversations += 1
            result.cut += cut
    for table, columns in _BESIDE.items():
        for row in _read(source, table, columns, "1 = ?", 1):
            with suppress(sqlite3.IntegrityError):
                _insert(target, table, row)


def _copy(
    source: sqlite3.Connection,
    target: sqlite3.Connection,
    key: int,
    conversation: dict[str, Any],
    runs: Sequence[dict[str, Any]],
) -> int:
    """Returns how many of its runs lost events."""
    _insert(target, "conversations", {"key": key, **conversation})
    kept, cut = set[int](), 0
    for run in runs:
        record = {name: value for name, value in run.items() if name not in ("key", "conversation")}
        of = {"conversation_id": conversation["id"], "owner": conversation["owner"]}
        if not _is_readable(sql.run_of, {**record, **of, "event_count": 0}):
            cut += 1
            continue
        stored, is_complete = _events(source, run["key"])
        if not is_complete and run["state"] != "running":
            cut += 1
            ends = ("first_event_ms", "ended_ms", "total_tokens", "failure_code", "tool_uses")
            run = {**run, "state": "running", "instance": _NOBODY, **dict.fromkeys(ends)}
        _insert(target, "runs", run)
        kept.add(run["key"])
        target.executemany("INSERT INTO events (place, count, data) VALUES (?, ?, ?)", stored)
        for reply in _read(source, "idempotency", sql.REPLY_COLUMNS, "run = ?", run["key"]):
            with suppress(sqlite3.IntegrityError):
                _insert(target, "idempotency", {**reply, "run": run["key"]})
        for request in _read(source, "requests", sql.REQUEST_COLUMNS, "run = ?", run["key"]):
            with suppress(sqlite3.IntegrityError):
                _insert(target, "requests", {**request, "run": run["key"]})
        if run["state"] != "running":
            target.execute("INSERT INTO unindexed (run) VALUES (?)", (run["key"],))
    for message in _read(source, "messages", sql.MESSAGE_COLUMNS, "conversation = ?", key):
        if message["run"] in kept and _is_readable(sql.message_of, {**message, "run_id": ""}):
            with suppress(sqlite3.IntegrityError):
                _insert(target, "messages", {"conversation": key, **message})
    return cut


def _events(source: sqlite3.Connection, run: int) -> tuple[list[tuple[int, int, bytes]], bool]:
    """The batches up to the first that is missing or unreadable, and whether the last has the end of the run."""
    found: list[tuple[int, int, bytes]] = []
    next, is_complete = run << 32 | 1, False
    of_run = "SELECT place, count, data FROM events WHERE place BETWEEN ? << 32 AND ? << 32 | 0xffffffff ORDER BY place"
    with suppress(*_Error):
        for place, count, data in source.execute(of_run, (run, run)):
            events = batches.decode(data)
            if place != next or len(events) != count:
                return found, False
            found.append((place, count, data))
            next, is_complete = place + count, isinstance(events[-1], Done)
    return found, is_complete


class _Keys(Struct, frozen=True):
    found: set[int]
    tried: list[int]


def _keys(source: sqlite3.Connection, table: str) -> _Keys:
    """From both ends up to what cannot be read, and what may lie between."""
    ends: list[list[int]] = []
    for order in ("ASC", "DESC"):
        ends.append(found := [])
        try:
            for (key,) in source.execute(f"SELECT key FROM {table} NOT INDEXED ORDER BY key {order}"):
                found.append(key)
        except _Error:
            continue
        return _Keys(set(found), sorted(found))
    first, last = ends
    low, high = first[-1] if first else 0, last[-1] if last else (first[-1] if first else 0) + _LARGEST_GAP
    certain = {*first, *last}
    return _Keys(certain, sorted({*certain, *range(low, min(high, low + _LARGEST_GAP))}))


def _read(
    source: sqlite3.Connection, table: str, columns: Sequence[str], where: str, value: int
) -> list[dict[str, Any]]:
    """The rows up to one that cannot be read."""
    rows: list[dict[str, Any]] = []
    with suppress(*_Error):
        known = {name for _, name, *_ in source.execute(f"PRAGMA table_info({table})")}
        columns = [name if name in known else f"{_DEFAULTS.get(name, 'NULL')} AS {name}" for name in columns]
        cursor = source.execute(f"SELECT {', '.join(columns)} FROM {table} WHERE {where}", (value,))
        names = [column[0] for column in cursor.description]
        for row in cursor:
            rows.append(dict(zip(names, row, strict=True)))
    return rows


def _is_readable(read: Callable[[dict[str, Any]], object], row: dict[str, Any]) -> bool:
    try:
        read(dict(row))
    except sql.UNREADABLE:
        return False
    return True


def _insert(target: sqlite3.Connection, table: str, row: dict[str, Any]) -> None:
    marks = ", ".join("?" * len(row))
    target.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))
