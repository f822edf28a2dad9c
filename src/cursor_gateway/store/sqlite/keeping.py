"""What a database needs done behind the backs of those who use it: runs indexed, its log copied into it, and what is
deleted removed.

Everything is done in short steps with a pause between, so that who writes never waits for long.
"""

import logging
import sqlite3
import threading
from contextlib import closing, suppress

from cursor_gateway.errors import StoreUnavailable
from cursor_gateway.store.sqlite.connections import Connections
from cursor_gateway.store.sqlite.indexing import Indexer

_log = logging.getLogger(__name__)

_LOG_BYTES = 6 * 1024 * 1024  # written since the last checkpoint, which holds up whoever writes for some milliseconds
_PAGES_PER_WRITE = 2 * 4096  # bytes: a transaction writes whole pages
_LONGEST_LOG = 16 * 1024  # pages, 64 MB
_GATHERING = 0.25  # seconds
_AGAIN = 5.0  # seconds until what failed is tried again
_FEW_PAGES = 1000  # free ones, which are not worth a sweep
_PAUSE = 0.005  # seconds between two steps, for those who wait to write
_EVENTS_PER_STEP = 100  # rows
_PAGES_PER_STEP = 100
_MANY_LEVELS, _LEVELS = 64, 9  # of the index, before and after the empty ones are taken out

_DELETED_RUN = """
    SELECT runs.key FROM conversations JOIN runs ON runs.conversation = conversations.key
    WHERE conversations.owner IS NULL LIMIT 1
"""
_DELETE_EVENTS = """
    DELETE FROM events WHERE place IN (
        SELECT place FROM events WHERE place BETWEEN :run << 32 AND :run << 32 | 0xffffffff ORDER BY place LIMIT :most
    )
"""
_DELETE_EMPTY = """
    DELETE FROM conversations
    WHERE owner IS NULL AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.conversation = conversations.key)
"""


class Keeper:
    """A thread that is started by the first one who has work for it."""

    def __init__(self, connections: Connections, indexer: Indexer) -> None:
        self._connections, self._indexer = connections, indexer
        self._written = 0
        self._is_sweeping_wanted = self._is_cleaning_wanted = False
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._one_sweeper = threading.Lock()
        self._one_starter = threading.Lock()
        self._thread: threading.Thread | None = None

    def wrote(self, size: int) -> None:
        self._written += size + _PAGES_PER_WRITE
        if self._written > _LOG_BYTES or self._indexer.has_work:
            self._call()

    def clean_up_soon(self) -> None:
        """After a process that died: what it was about to remove, and what it had not indexed."""
        self._is_cleaning_wanted = True
        self.sweep_soon()

    def sweep_soon(self) -> None:
        self._is_sweeping_wanted = True
        self._call()

    def close(self) -> None:
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        if self._connections.is_usable:
            self._indexer.catch_up()
            with suppress(StoreUnavailable):
                self._empty_log()

    def sweep(self) -> None:
        """Removes what is deleted, to the last word in the index and the last page in the file.

        A conversation's own row goes last: as long as it is there, there is something left to do, also after a crash.
        """
        with self._one_sweeper:
            if self._is_anything_deleted():
                while self._remove_rows():
                    self._pause()
                self._forget_words()
                self._lower_index()
                with self._connections.writing() as connection:
                    connection.execute(_DELETE_EMPTY)
            elif not self._has_free_pages():  # a migration leaves some, too
                return
            while self._give_back():
                self._pause()
            self._empty_log()

    # --- the thread ---------------------------------------------------------------------------------

    def _call(self) -> None:
        self._wake.set()
        if self._thread is None:
            self._start()

    def _start(self) -> None:
        with self._one_starter, suppress(RuntimeError):  # there are no more threads: perhaps the next time
            if self._thread is None and not self._stop.is_set():
                thread = threading.Thread(target=self._work, name="history", daemon=True)
                thread.start()
                self._thread = thread

    def _work(self) -> None:
        while True:
            self._wake.wait(_AGAIN if self._indexer.has_work or self._is_sweeping_wanted else None)
            self._wake.clear()
            if self._stop.is_set():
                return
            try:
                self._work_once()
            except StoreUnavailable:
                pass  # who reads or writes is told why; the work is still there for the next time
            except Exception:  # noqa: BLE001 -- one row that cannot be read must not end the care for all others
                _log.exception("mistake in looking after the history")

    def _work_once(self) -> None:
        if self._written > _LOG_BYTES:
            self._written = 0
            self._checkpoint()
        self._index()
        if self._is_sweeping_wanted:
            self._is_sweeping_wanted = False  # first: what is deleted while it sweeps is for the next time
            try:
                self.sweep()
            except StoreUnavailable:
                self._is_sweeping_wanted = True
                raise

    def _pause(self) -> None:
        if self._stop.wait(_PAUSE):
            raise StoreUnavailable("The history is closed; what is left to remove goes the next time.")

    # --- the steps ----------------------------------------------------------------------------------

    def _index(self) -> None:
        if self._is_cleaning_wanted:
            self._indexer.note_unknown()
            self._is_cleaning_wanted = False
        if self._indexer.has_work and not self._stop.wait(_GATHERING):  # many at once cost little more than one
            while self._indexer.step():
                self._pause()

    def _checkpoint(self) -> None:
        """The log begins anew when somebody writes after all of it was copied. Who writes without a pause never leaves
        it such a moment, and must wait for one now and then. Has a connection of its own: it waits for the disk.

        What cannot be copied now is copied the next time: a full disk or a lock are told to those who write.
        """
        with suppress(sqlite3.Error), closing(self._connections.another()) as connection:
            _, pages, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if pages > _LONGEST_LOG:  # what is left of it now is short
                connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()

    def _empty_log(self) -> None:
        with suppress(sqlite3.Error), closing(self._connections.another()) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _is_anything_deleted(self) -> bool:
        with self._connections.reading() as connection:
            return connection.execute("SELECT 1 FROM conversations WHERE owner IS NULL LIMIT 1").fetchone() is not None

    def _has_free_pages(self) -> bool:
        with self._connections.reading() as connection:
            return bool(connection.execute("PRAGMA freelist_count").fetchone()[0] > _FEW_PAGES)

    def _remove_rows(self) -> bool:
        with self._connections.writing() as connection:
            found = connection.execute(_DELETED_RUN).fetchone()
            if found is None:
                return False
            (run,) = found
            gone = connection.execute(_DELETE_EVENTS, {"run": run, "most": _EVENTS_PER_STEP}).rowcount
            if gone < _EVENTS_PER_STEP:
                connection.execute("DELETE FROM unindexed WHERE run = ?", (run,))
                connection.execute("DELETE FROM search WHERE rowid = -?", (run,))
                connection.execute("DELETE FROM messages WHERE run = ?", (run,))
                connection.execute("DELETE FROM idempotency WHERE run = ?", (run,))
                connection.execute("DELETE FROM runs WHERE key = ?", (run,))
            return True

    def _forget_words(self) -> None:
        """The index only notes that a row is gone; its words stay until the parts that hold them are merged. A negative
        number begins to merge all parts into one, positive ones go on with it (https://sqlite.org/fts5.html, 6.8)."""
        pages = -_PAGES_PER_STEP
        while True:
            with self._connections.writing() as connection:
                before = connection.total_changes
                connection.execute("INSERT INTO search (search, rank) VALUES ('merge', ?)", (pages,))
                is_done = connection.total_changes - before < 2
            if is_done:
                return
            pages = _PAGES_PER_STEP
            self._pause()

    def _lower_index(self) -> None:
        """FTS5 puts what it merges a level or two higher each time, and takes more than 2,000 levels for damage (SQLite
        3.40: a thousand deletions). When all parts are one, the empty levels below it mean nothing and are taken out.

        By a connection of its own: others then read the levels anew, and the one that changes them would not.
        """
        with suppress(sqlite3.Error), closing(self._connections.another()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            (block,) = connection.execute("SELECT block FROM search_data WHERE id = 10").fetchone()
            if (lower := lowered(block)) is not None:
                connection.execute("UPDATE search_data SET block = ? WHERE id = 10", (lower,))
            connection.execute("COMMIT")

    def _give_back(self) -> bool:
        with self._connections.writing() as connection:
            (free,) = connection.execute("PRAGMA freelist_count").fetchone()
            for _ in range(min(free, _PAGES_PER_STEP)):  # the module asks SQLite only once for each call: one page
                connection.execute("PRAGMA incremental_vacuum")
            return bool(free > _PAGES_PER_STEP)


def lowered(structure: bytes) -> bytes | None:
    """FTS5's record of its parts (four bytes; the numbers of levels, parts and writes; each level) with fewer levels;
    None where there are few, or other parts than one at the top, or in a form that is not known here."""
    try:
        levels, after_levels = _varint(structure, 4)
        parts, at = _varint(structure, after_levels)
        _, at = _varint(structure, at)
    except IndexError:
        return None
    top = at + 2 * (levels - 1)
    if levels <= _MANY_LEVELS or parts != 1 or top >= len(structure) or any(structure[at:top]):
        return None
    return b"".join(
        (structure[:4], bytes([_LEVELS]), structure[after_levels:at], bytes(2 * (_LEVELS - 1)), structure[top:])
    )


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """SQLite's: seven bits a byte, the highest first; and where the next begins."""
    value = 0
    while True:
        value = value << 7 | data[at] & 0x7F
        at += 1
        if not data[at - 1] & 0x80:
            return value, at
