"""Background maintenance of the database: moving runs into it, indexing them, checkpointing the WAL, and removing
deleted data.

Everything is done in short steps with pauses in between, so that writers never wait for long.
"""

import logging
import sqlite3
import threading
from contextlib import closing, suppress

from cursor_gateway.errors import StoreUnavailable
from cursor_gateway.store.sqlite.connections import Connections
from cursor_gateway.store.sqlite.indexing import Indexer
from cursor_gateway.store.sqlite.moving import RunFiles

_log = logging.getLogger(__name__)

_LOG_BYTES = 6 * 1024 * 1024  # written between checkpoints; a checkpoint delays writers for some milliseconds
_PAGES_PER_WRITE = 2 * 4096  # bytes per transaction besides its data: it writes whole pages
_LONGEST_LOG = 16 * 1024  # pages, 64 MB
_QUIET = 0.25  # seconds without a write: then runs are indexed
_GATHERING = 0.25  # seconds until runs are moved into the database, together
_AGAIN = 5.0  # seconds before a retry
_FEW_PAGES = 1000  # fewer free pages than this are not worth a sweep
_PAUSE = 0.005  # seconds between steps, to let writers in
_EVENTS_PER_STEP = 100  # rows
_PAGES_PER_STEP = 100
_MERGES_PER_REBUILD = 800  # of the index

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


class Maintenance:
    """A background thread, started when there is work for the first time."""

    def __init__(self, connections: Connections, indexer: Indexer, files: RunFiles) -> None:
        self._connections, self._indexer, self._files = connections, indexer, files
        self._written = 0  # bytes, since the last checkpoint
        self._writes = 0
        self._quiet_writes = -1  # how many there were when it was quiet last
        self._sweep_requested = self._cleanup_requested = False
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._many_files = threading.Event()
        self._one_sweeper = threading.Lock()
        self._one_starter = threading.Lock()
        self._thread: threading.Thread | None = None

    def wrote(self, size: int) -> None:
        self._written += size + _PAGES_PER_WRITE
        self._writes += 1
        if self._written > _LOG_BYTES or self._indexer.has_work:
            self._call()

    def has_files(self) -> None:
        """That are to be moved into the database."""
        self._call()
        if self._files.is_full and not self._many_files.is_set():
            self._many_files.set()

    def clean_up_soon(self) -> None:
        """Finishes the removals and the indexing of a process that died."""
        self._cleanup_requested = True
        self.sweep_soon()

    def sweep_soon(self) -> None:
        self._sweep_requested = True
        self._call()

    def close(self) -> None:
        self._stop.set()
        self._wake.set()
        self._many_files.set()
        if self._thread is not None:
            self._thread.join()
        if self._files.has_work:
            with suppress(StoreUnavailable):
                self._files.settle()
        if self._connections.is_usable:
            self._indexer.finish()
            with suppress(StoreUnavailable):
                self._empty_log()

    def sweep(self) -> None:
        """Removes deleted data completely, including words in the index and free pages in the file.

        A conversation's own row is removed last: while it exists there is work left, even after a crash.
        """
        with self._one_sweeper:
            if self._is_anything_deleted():
                while self._remove_rows():
                    self._pause()
                self._remove_words()
                with self._connections.writing() as connection:
                    connection.execute(_DELETE_EMPTY)
            elif not self._has_free_pages():  # a migration may leave some
                return
            while self._release_pages():
                self._pause()
            self._empty_log()

    # --- the thread ---------------------------------------------------------------------------------

    def _call(self) -> None:
        if not self._wake.is_set():
            self._wake.set()
        if self._thread is None:
            self._start()

    def _start(self) -> None:
        with self._one_starter, suppress(RuntimeError):  # no thread can be started; the next call retries
            if self._thread is None and not self._stop.is_set():
                thread = threading.Thread(target=self._work, name="history", daemon=True)
                thread.start()
                self._thread = thread

    def _work(self) -> None:
        while True:
            has_work = self._files.has_work or self._indexer.has_work or self._sweep_requested
            self._wake.wait(_AGAIN if has_work else None)
            self._wake.clear()
            if self._stop.is_set():
                return
            try:
                self._work_once()
            except StoreUnavailable:
                pass  # readers and writers report the reason; the work is retried later
            except Exception:  # noqa: BLE001 -- one unreadable row must not stop maintenance for good
                _log.exception("bug in the maintenance of the history")

    def _work_once(self) -> None:
        self._move_files()
        self._checkpoint_if_due()
        if self._sweep_requested:
            self._sweep_requested = False  # before sweeping: a deletion meanwhile requests another sweep
            try:
                self.sweep()
            except StoreUnavailable:
                self._sweep_requested = True
                raise
        self._index()

    def _pause(self) -> None:
        if self._stop.wait(_PAUSE):
            raise StoreUnavailable("The history is closed; the remaining removals are done after the next start.")

    # --- the steps ----------------------------------------------------------------------------------

    def _move_files(self) -> None:
        """Many runs in one transaction cost little more than one."""
        if self._files.has_work:
            if not self._files.is_full:
                self._many_files.wait(_GATHERING)
            self._many_files.clear()
            while self._files.is_full and not self._stop.is_set():
                self._moved(self._files.move_some())
                self._checkpoint_if_due()
            self._moved(self._files.settle())

    def _moved(self, size: int) -> None:
        self._written += size
        self._writes += 1

    def _index(self) -> None:
        """Indexes what is queued, unless a sweep is requested meanwhile.

        Waits until nothing is written: indexing holds the interpreter, which writers need, and many runs at once
        cost little more than one. Does not wait when much is queued: the next search would have to index it.
        """
        while (self._cleanup_requested or self._indexer.has_work) and not self._sweep_requested:
            if self._indexer.is_full or self._is_quiet():
                if self._note_unknown() or self._indexer.has_work:
                    self._indexer.step()
                self._pause()
            self._move_files()
            self._checkpoint_if_due()  # writers may be faster than this loop

    def _is_quiet(self) -> bool:
        """Whether nothing was written for a moment, which it waits for, or since it was quiet last. Many files to move
        do not wait."""
        if self._all_writes != self._quiet_writes:
            writes = self._all_writes
            self._many_files.clear()  # a reader may have moved them
            if not (self._files.is_full or self._stop.is_set()):
                self._many_files.wait(_QUIET)
            if self._stop.is_set():
                raise StoreUnavailable("The history is closed; the rest is indexed while closing.")
            if self._all_writes != writes or self._files.is_full:
                return False
            self._quiet_writes = writes
        return True

    @property
    def _all_writes(self) -> int:
        return self._writes + self._files.appended

    def _note_unknown(self) -> bool:
        if self._cleanup_requested:
            self._cleanup_requested = self._indexer.note_unknown()
        return self._cleanup_requested

    def _checkpoint_if_due(self) -> None:
        if self._written > _LOG_BYTES:
            self._written = 0
            self._checkpoint()

    def _checkpoint(self) -> None:
        """The WAL restarts when a write follows a complete checkpoint. Continuous writing never allows that, so when
        the WAL is long, RESTART makes writers wait. Uses a separate connection, because it waits for the disk.

        Errors are ignored and retried the next time: writers report a full disk or a lock themselves.
        """
        with suppress(sqlite3.Error), closing(self._connections.another()) as connection:
            _, pages, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if pages > _LONGEST_LOG:  # PASSIVE has copied most of it, so RESTART is short
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
                connection.execute("DELETE FROM search WHERE rowid = -?", (run,))
                for table in ("unindexed", "texts", "messages", "idempotency", "calls"):
                    connection.execute(f"DELETE FROM {table} WHERE run = ?", (run,))
                connection.execute("DELETE FROM runs WHERE key = ?", (run,))
            return True

    def _remove_words(self) -> None:
        """FTS5 only marks a row as deleted; its words remain until the segments that hold them are merged. Each merge
        adds a level or two, and SQLite 3.40 reports more than 2,000 levels as corruption (newer versions stop at 65).
        So the index is rebuilt from time to time instead, which starts again with one level."""
        with self._connections.writing() as connection:
            (merges,) = connection.execute("UPDATE upkeep SET merges = merges + 1 RETURNING merges").fetchone()
        if merges <= _MERGES_PER_REBUILD or not self._rebuild_index():
            self._merge_index()

    def _merge_index(self) -> None:
        """A negative number starts merging all segments into one, positive ones continue
        (https://sqlite.org/fts5.html, 6.8)."""
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

    def _rebuild_index(self) -> bool:
        """In one transaction, which takes a few seconds for 10 MB of tokens. On a separate connection, so that writers
        do not block the event loop: they are refused at once, keep their events and retry. False if it was refused."""
        with suppress(sqlite3.Error), closing(self._connections.another()) as connection:
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO search (search) VALUES ('rebuild')")
            connection.execute("UPDATE upkeep SET merges = 0")
            connection.execute("COMMIT")
            return True
        return False

    def _release_pages(self) -> bool:
        with self._connections.writing() as connection:
            (free,) = connection.execute("PRAGMA freelist_count").fetchone()
            for _ in range(min(free, _PAGES_PER_STEP)):  # sqlite3 steps each statement once, which frees one page
                connection.execute("PRAGMA incremental_vacuum")
            return bool(free > _PAGES_PER_STEP)
