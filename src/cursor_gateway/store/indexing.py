"""Runs in; what they say in the index, soon afterwards, and before anybody searches, out.

To index a run costs more than to store it, and many at once little more than one: who writes only notes what is to be
done. A process that dies before it was done leaves runs that the index does not know; they are found and read again.
"""

import sqlite3
import threading
from contextlib import suppress

from cursor_gateway.core.document_events import DocumentEnded
from cursor_gateway.errors import StoreUnavailable
from cursor_gateway.store import batches
from cursor_gateway.store.connections import Connections
from cursor_gateway.store.search import Words, conversation_scope, owner_scope, searchable

_LENGTH_PER_STEP = 30_000  # characters: whoever writes meanwhile waits for it
_RUNS_PER_STEP = 20

_ADD = "INSERT OR REPLACE INTO search (rowid, scope, words) VALUES (-?, ?, ?)"
_WHOSE = """
    SELECT conversations.key, conversations.owner FROM runs JOIN conversations ON conversations.key = runs.conversation
    WHERE runs.key = ? AND conversations.owner IS NOT NULL
"""
_UNKNOWN = """
    SELECT key FROM runs LEFT JOIN search_docsize ON search_docsize.id = -runs.key
    WHERE runs.state <> 'running' AND search_docsize.id IS NULL
"""
_EVENTS = "SELECT data FROM events WHERE place BETWEEN ? << 32 AND ? << 32 | 0xffffffff ORDER BY place"


class Indexer:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._noted: dict[int, str] = {}  # by the keys of their runs
        self._state = threading.Lock()
        self._one_at_a_time = threading.Lock()

    def note(self, run: int, words: str) -> None:
        """What is to be found by: in place of what was noted or indexed of the run before."""
        with self._state:
            self._noted[run] = words

    @property
    def has_work(self) -> bool:
        return bool(self._noted)

    def step(self) -> bool:
        """Indexes some of what is noted, and says whether there is more."""
        with self._one_at_a_time:
            some = self._some()
            try:
                with self._connections.writing() as connection:
                    for run, words in some.items():
                        _index(connection, run, words)
            except BaseException:
                with self._state:
                    self._noted = {**some, **self._noted}  # what was noted meanwhile is newer
                raise
            return self.has_work

    def catch_up(self) -> None:
        """Whoever searches finds all that was stored before, as long as the index can be written."""
        with suppress(StoreUnavailable):
            while self.has_work and self.step():
                pass

    def note_unknown(self) -> None:
        """What a process that is gone had not indexed."""
        with self._connections.reading() as connection:
            for (run,) in connection.execute(_UNKNOWN).fetchall():
                self.note(run, _words_of(connection, run))

    def _some(self) -> dict[int, str]:
        some: dict[int, str] = {}
        length = 0
        with self._state:
            while self._noted and length < _LENGTH_PER_STEP and len(some) < _RUNS_PER_STEP:
                run = next(iter(self._noted))
                some[run] = self._noted.pop(run)
                length += len(some[run])
        return some


def _index(connection: sqlite3.Connection, run: int, words: str) -> None:
    whose = connection.execute(_WHOSE, (run,)).fetchone()
    if whose is not None:  # it was not deleted meanwhile
        conversation, owner = whose
        connection.execute(_ADD, (run, f"{owner_scope(owner)} {conversation_scope(conversation)}", words))


def _words_of(connection: sqlite3.Connection, run: int) -> str:
    words = Words()
    for (data,) in connection.execute(_EVENTS, (run, run)):
        for event in batches.decode(data):
            if isinstance(event, DocumentEnded):
                words.push(event.document)
    asked = connection.execute("SELECT text FROM messages WHERE run = ? AND role = 'user'", (run,)).fetchall()
    return searchable([*(text for (text,) in asked), *words.all])
