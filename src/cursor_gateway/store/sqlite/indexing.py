"""Runs in; what they say in the index, soon afterwards, and before anybody searches, out.

To index a run costs more than to store it, and many at once little more than one: who writes only notes what is to be
done. That a run has ended and is not indexed stands in a table, too: whoever searches, and whoever comes after a
process that died, reads its events again.
"""

import sqlite3
import threading
from contextlib import suppress

import msgspec
from msgspec import Struct

from cursor_gateway.errors import StoreUnavailable
from cursor_gateway.model.document_events import DocumentEnded
from cursor_gateway.store.search import Words, conversation_scope, owner_scope, searchable
from cursor_gateway.store.sqlite import batches
from cursor_gateway.store.sqlite.connections import Connections

_LENGTH_PER_STEP = 30_000  # characters: whoever writes meanwhile waits for it
_RUNS_PER_STEP = 20

_ADD = "INSERT OR REPLACE INTO search (rowid, scope, words) VALUES (-?, ?, ?)"
_WHOSE = """
    SELECT conversations.key, conversations.owner FROM runs JOIN conversations ON conversations.key = runs.conversation
    WHERE runs.key = ? AND runs.id = ? AND conversations.owner IS NOT NULL
"""
_UNKNOWN = "SELECT runs.key, runs.id FROM unindexed CROSS JOIN runs ON runs.key = unindexed.run"  # in this order
_EVENTS = "SELECT data FROM events WHERE place BETWEEN ? << 32 AND ? << 32 | 0xffffffff ORDER BY place"


class Note(Struct, frozen=True):
    id: str  # of the run: keys of runs that were deleted are used again
    words: str
    is_whole: bool  # the run has ended


class Indexer:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._noted: dict[int, Note] = {}  # by the keys of their runs
        self._state = threading.Lock()
        self._one_at_a_time = threading.Lock()

    def note(self, run: int, note: Note) -> None:
        """What it is to be found by: in place of what was noted or indexed of the run before."""
        with self._state:
            self._noted[run] = note

    @property
    def has_work(self) -> bool:
        return bool(self._noted)

    def step(self) -> bool:
        """Indexes some of what is noted, and says whether there is more."""
        with self._one_at_a_time:
            some = self._some()
            try:
                with self._connections.writing() as connection:
                    for run, note in some.items():
                        _index(connection, run, note)
            except BaseException:
                with self._state:
                    self._noted = {**some, **self._noted}  # what was noted meanwhile is newer
                raise
            return self.has_work

    def catch_up(self) -> None:
        """Whoever searches finds all that was stored before, as long as the index can be written."""
        with suppress(StoreUnavailable):
            self.note_unknown()
            while self.has_work and self.step():
                pass

    def note_unknown(self) -> None:
        """What another process has not indexed, or had not when it died."""
        with self._one_at_a_time, self._connections.reading() as connection:
            for run, id in connection.execute(_UNKNOWN).fetchall():
                if run not in self._noted:
                    self.note(run, Note(id, _words_of(connection, run), is_whole=True))

    def _some(self) -> dict[int, Note]:
        some: dict[int, Note] = {}
        length = 0
        with self._state:
            while self._noted and length < _LENGTH_PER_STEP and len(some) < _RUNS_PER_STEP:
                run = next(iter(self._noted))
                some[run] = self._noted.pop(run)
                length += len(some[run].words)
        return some


def _index(connection: sqlite3.Connection, run: int, note: Note) -> None:
    whose = connection.execute(_WHOSE, (run, note.id)).fetchone()
    if whose is not None:  # it was not deleted meanwhile
        conversation, owner = whose
        connection.execute(_ADD, (run, f"{owner_scope(owner)} {conversation_scope(conversation)}", note.words))
        if note.is_whole:
            connection.execute("DELETE FROM unindexed WHERE run = ?", (run,))


def _words_of(connection: sqlite3.Connection, run: int) -> str:
    words = Words()
    with suppress(msgspec.DecodeError):  # it is found by what can be read of it
        for (data,) in connection.execute(_EVENTS, (run, run)):
            for event in batches.decode(data):
                if isinstance(event, DocumentEnded):
                    words.push(event.document)
    asked = connection.execute("SELECT text FROM messages WHERE run = ? AND role = 'user'", (run,)).fetchall()
    return searchable([*(text for (text,) in asked), *words.all])
