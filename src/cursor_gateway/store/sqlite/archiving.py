"""The history's file in; its conversations, to be copied to another engine, out."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from cursor_gateway.store import batches
from cursor_gateway.store.archive import (
    CONVERSATION_COLUMNS,
    MESSAGE_COLUMNS,
    REPLY_COLUMNS,
    REQUEST_COLUMNS,
    RUN_COLUMNS,
    ArchivedBatch,
    ArchivedConversation,
    ArchivedRun,
    Row,
)
from cursor_gateway.store.sqlite.connections import Connections
from cursor_gateway.store.sqlite.indexing import Indexer
from cursor_gateway.store.sqlite.moving import RunFiles
from cursor_gateway.store.sqlite.opening import FILE
from cursor_gateway.store.sqlite.run_files import FOLDER

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

    def conversations(self) -> Iterator[ArchivedConversation]:
        columns = ", ".join(CONVERSATION_COLUMNS)
        select = f"SELECT key, {columns} FROM conversations WHERE owner IS NOT NULL ORDER BY key"
        for key, *row in self._connection.execute(select):
            messages = self._rows("messages", MESSAGE_COLUMNS, "conversation", key, "number")
            yield ArchivedConversation(row, messages, list(self._runs(key)))

    def _runs(self, conversation: int) -> Iterator[ArchivedRun]:
        for key, *row in self._rows("runs", ("key", *RUN_COLUMNS), "conversation", conversation, "key"):
            found = self._connection.execute("SELECT text FROM search WHERE rowid = -?", (key,)).fetchone()
            yield ArchivedRun(
                key,
                row,
                found[0] if found else "",
                self._rows("idempotency", REPLY_COLUMNS, "run", key, "key"),
                self._rows("requests", REQUEST_COLUMNS, "run", key, "after"),
                partial(self._batches, key),
            )

    def _batches(self, run: int) -> Iterator[ArchivedBatch]:
        for first, count, data in self._connection.execute(_BATCHES, (run, run)):
            yield first, count, batches.decompress(data)

    def _rows(self, table: str, columns: Sequence[str], of: str, key: int, order: str) -> list[Row]:
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
