"""Runs in; entries in the search index, written later, when the database is idle, and always before a search, out.

FTS5 stores the tokens of `stages/search_tokens.py`. It splits at spaces only, so both sides have the same tokens. The
text for snippets is in a table of its own.

Indexing a run costs more than storing it, and indexing many at once costs little more than one, so writers only queue
a note. Ended runs that are not indexed yet are also listed in the table `unindexed`: before a search, or after a
process died, their events are read again. A run is therefore never missing from a search that starts after it ended.
"""

import sqlite3
import threading
from collections.abc import Mapping
from contextlib import suppress

from msgspec import Struct

from cursor_gateway.errors import StoreUnavailable
from cursor_gateway.model.document_events import DocumentEnded
from cursor_gateway.stages.search_tokens import Query, Words, tokens
from cursor_gateway.store import batches
from cursor_gateway.store.sql import UNREADABLE
from cursor_gateway.store.sqlite.connections import Connections
from cursor_gateway.store.sqlite.opening import SQL_ERRORS
from cursor_gateway.store.texts import conversation_scope, owner_scope, searchable

_BYTES_PER_STEP = 30_000  # writers wait during a step
_RUNS_PER_STEP = 40
_MOST_RUNS, _MOST_BYTES = 2000, 1_000_000  # queued: a search indexes so much within a second

_ADD = "INSERT OR REPLACE INTO search (rowid, tokens) VALUES (-?, ?)"
_ADD_TEXT = "INSERT OR REPLACE INTO texts (run, text) VALUES (?, ?)"
TEXT = "SELECT coalesce((SELECT text FROM texts WHERE run = ?1), (SELECT text FROM search WHERE rowid = -?1), '')"
_WHOSE = """
    SELECT conversations.key, conversations.owner FROM runs JOIN conversations ON conversations.key = runs.conversation
    WHERE runs.key = ? AND runs.id = ? AND conversations.owner IS NOT NULL
"""
_UNKNOWN = """
    SELECT runs.key, runs.id
    FROM unindexed
        CROSS JOIN runs ON runs.key = unindexed.run
        JOIN conversations ON conversations.key = runs.conversation
    WHERE conversations.owner IS NOT NULL ORDER BY unindexed.run DESC
"""
_EVENTS = "SELECT data FROM events WHERE place BETWEEN ? << 32 AND ? << 32 | 0xffffffff ORDER BY place"


def expression(query: Query, scope: str) -> str:
    """In FTS5's query language, where quoted words are taken literally."""
    quoted = [f'"{token}"' for token in (scope, *query.tokens)]
    if query.prefix:
        quoted.append(f'"{query.prefix}" *')
    return " AND ".join(quoted)


class Note(Struct, frozen=True):
    id: str  # of the run: the keys of deleted runs are reused
    text: bytes  # in UTF-8: as a string it takes four times as much if it contains an emoji
    is_whole: bool  # the run has ended


class Indexer:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._noted: dict[int, Note] = {}  # by the run's key
        self._bytes = 0  # of what is queued
        self._state = threading.Lock()
        self._one_at_a_time = threading.Lock()

    def note(self, run: int, note: Note) -> None:
        """Queues a run's text, which replaces what was queued or indexed for it before."""
        with self._state:
            self._put(run, note)

    @property
    def has_work(self) -> bool:
        return bool(self._noted)

    @property
    def is_full(self) -> bool:
        return len(self._noted) > _MOST_RUNS or self._bytes > _MOST_BYTES

    def step(self) -> bool:
        """Indexes some of the queue. Returns whether there is more."""
        with self._one_at_a_time:
            some = self._some()
            try:
                texts = {run: note.text.decode() for run, note in some.items()}
                found = {run: " ".join(tokens(text)) for run, text in texts.items()}  # before writers have to wait
                with self._connections.writing() as connection:
                    _index(connection, some, texts, found)
            except BaseException:
                with self._state:
                    for run, note in some.items():
                        if run not in self._noted:  # else what was queued in the meantime is newer
                            self._put(run, note)
                raise
            return self.has_work

    def finish(self) -> None:
        """Indexes what is queued, unless the index cannot be written."""
        with suppress(StoreUnavailable):
            while self.has_work:
                self.step()

    def catch_up(self) -> None:
        """Indexes everything stored so far, unless the index cannot be written."""
        with suppress(StoreUnavailable):
            while self.note_unknown() or self.has_work:
                self.step()

    def note_unknown(self) -> bool:
        """Queues runs that another process has not indexed, perhaps because it died, or that a new version of the index
        lacks; the newest first, and not all at once. Returns whether there were any."""
        queued = 0
        with self._one_at_a_time, self._connections.reading() as connection:
            for run, id in connection.execute(_UNKNOWN):
                if run not in self._noted:
                    self.note(run, Note(id, _text_of(connection, run).encode(), is_whole=True))
                    queued += 1
                    if queued == _RUNS_PER_STEP:
                        break
        return queued > 0

    def _some(self) -> dict[int, Note]:
        some: dict[int, Note] = {}
        size = 0
        with self._state:
            while self._noted and size < _BYTES_PER_STEP and len(some) < _RUNS_PER_STEP:
                run = next(iter(self._noted))
                some[run] = self._noted.pop(run)
                size += len(some[run].text)
            self._bytes -= size
        return some

    def _put(self, run: int, note: Note) -> None:
        before = self._noted.get(run)
        self._noted[run] = note
        self._bytes += len(note.text) - (len(before.text) if before is not None else 0)


def _index(
    connection: sqlite3.Connection, notes: Mapping[int, Note], texts: Mapping[int, str], tokens: Mapping[int, str]
) -> None:
    """Those that were not deleted in the meantime."""
    whose = {run: connection.execute(_WHOSE, (run, note.id)).fetchone() for run, note in notes.items()}
    runs = sorted(run for run, found in whose.items() if found is not None)
    scopes = {run: f"{owner_scope(whose[run][1])} {conversation_scope(whose[run][0])}" for run in runs}
    # In the order of the rows: in any other, FTS5 writes each by itself, and pages are left half empty.
    connection.executemany(_ADD, [(run, f"{scopes[run]} {tokens[run]}") for run in reversed(runs)])
    connection.executemany(_ADD_TEXT, [(run, texts[run]) for run in runs])
    connection.executemany("DELETE FROM unindexed WHERE run = ?", [(run,) for run in runs if notes[run].is_whole])


def _text_of(connection: sqlite3.Connection, run: int) -> str:
    words = Words()
    with suppress(*SQL_ERRORS, *UNREADABLE):  # index what can be read
        for (data,) in connection.execute(_EVENTS, (run, run)):
            for event in batches.decode(data):
                if isinstance(event, DocumentEnded):
                    words.push(event.document)
    messages = connection.execute("SELECT text FROM messages WHERE run = ? AND role = 'user'", (run,)).fetchall()
    return searchable([*(text for (text,) in messages), *words.all])
