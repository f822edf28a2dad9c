"""The history in a local SQLite file, which any number of processes may share.

A batch of events is one row and one short transaction, in the WAL before `append` returns: a process killed after
that loses none of it (a power failure may). Batches of a run are stored in order and without gaps, so the last row
says how many events there are, and a repeated `append` stores only what is missing.

A run is `running` until exactly one `end_run` ends it; after that, nothing can be appended. The statement that appends
a batch also compares the epoch and the number of the last event, so fencing costs no statement. Deleting a conversation
first sets its owner to NULL, which hides it from every query in the same transaction; its rows are removed in the
background. So a deleted conversation never reappears, even after a crash halfway through.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from cursor_gateway.model.document_events import DocumentEvent, Paused
from cursor_gateway.stages import search_tokens
from cursor_gateway.stages.search_tokens import Query
from cursor_gateway.store import batches
from cursor_gateway.store.base import (
    Begun,
    Busy,
    ConversationPage,
    ConversationRecord,
    EventPage,
    Fenced,
    FoundConversation,
    IdempotentRun,
    KeyTaken,
    Lease,
    MessageRecord,
    NewRun,
    RunEnd,
    RunRecord,
    Stored,
    Written,
)
from cursor_gateway.store.cursors import MOST, START, ByRun, ByTime, opaque, place_of
from cursor_gateway.store.rows import conversation_of, run_of
from cursor_gateway.store.search import conversation_scope, owner_scope, query_words, searchable, snippet
from cursor_gateway.store.sqlite.connections import Connections
from cursor_gateway.store.sqlite.indexing import Indexer, Note, expression
from cursor_gateway.store.sqlite.maintenance import Maintenance
from cursor_gateway.store.sqlite.opening import FILE
from cursor_gateway.store.titles import title_of
from cursor_gateway.wire.surrogates import repair

_FIRST_EPOCH = 1
_LAST_NUMBER = 2**32 - 1  # of an event: it is one half of a batch's place
_HIDDEN_AT_ONCE = 20  # conversations hidden per transaction
_CAUTION = 0.75  # delete this share of the estimated surplus, then measure again
_SAME_FINGERPRINT = 10  # conversations; more are never needed to choose from

_encoder = msgspec.json.Encoder()

# --- statements -------------------------------------------------------------------------------------

# How many events of a run are stored. A batch's place combines its run's key and the number of its first event.
_EVENT_COUNT = """coalesce((
    SELECT (place & 0xffffffff) + count - 1 FROM events
    WHERE place BETWEEN runs.key << 32 AND runs.key << 32 | 0xffffffff ORDER BY place DESC LIMIT 1
), 0)"""
_PLACE = f"SELECT key, conversation, epoch, state, {_EVENT_COUNT} FROM runs WHERE id = ?"
_ADD_EVENTS = "INSERT INTO events (place, count, data) VALUES (? << 32 | ?, ?, ?)"
# The common case in one statement: the run is running under this lease, and these are its next events.
_APPEND = f"""
    INSERT INTO events (place, count, data)
    SELECT key << 32 | :first, :count, :data FROM runs
    WHERE id = :id AND epoch = :epoch AND state = 'running' AND {_EVENT_COUNT} = :first - 1
"""
_ADD_CALL = """
    INSERT OR REPLACE INTO calls (owner, id, run)
    SELECT owner, ?, ? FROM conversations WHERE key = ? AND owner IS NOT NULL
"""
_CLAIM = "UPDATE runs SET epoch = epoch + 1 WHERE id = :id AND epoch = :epoch AND state = 'running'"
_RUNNING_IN = """
    SELECT runs.id FROM conversations JOIN runs ON runs.conversation = conversations.key
    WHERE conversations.owner = ? AND conversations.id = ? AND runs.state = 'running'
"""
_ADD_CONVERSATION = """
    INSERT INTO conversations (id, owner, title, workspace, mode, model, created_ms, updated_ms)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
_ADD_RUN = """
    INSERT INTO runs (id, conversation, instance, state, model, mode, created, fences, include, started_ms)
    VALUES (?, ?, ?, 'running', ?, ?, ?, ?, ?, ?)
"""
_ADD_MESSAGE = "INSERT INTO messages (conversation, number, role, text, run, created_ms) VALUES (?, ?, ?, ?, ?, ?)"
_END_RUN = """
    UPDATE runs SET state = ?, model = ?, first_event_ms = ?, ended_ms = ?, prompt_tokens = ?, completion_tokens = ?,
        total_tokens = ?, cached_tokens = ?, estimated = ?, failure_code = ?, tool_uses = ?
    WHERE key = ?
"""
_END_TURN = """
    UPDATE conversations SET model = ?, updated_ms = max(updated_ms, ?), session_id = coalesce(?, session_id),
        fingerprint = coalesce(?, fingerprint)
    WHERE key = ?
"""
_RUNS = f"""
    SELECT runs.id, conversations.id AS conversation_id, conversations.owner, runs.instance, runs.epoch, runs.state,
        runs.model, runs.mode, runs.created, runs.fences, runs.include, runs.started_ms, runs.first_event_ms,
        runs.ended_ms, runs.prompt_tokens, runs.completion_tokens, runs.total_tokens, runs.cached_tokens,
        runs.estimated, runs.failure_code, runs.tool_uses, {_EVENT_COUNT} AS event_count
    FROM runs JOIN conversations ON conversations.key = runs.conversation
"""
_CONVERSATIONS = """
    SELECT id, owner, title, workspace, mode, model, created_ms, updated_ms, session_id, fingerprint, pinned,
        EXISTS (SELECT 1 FROM runs WHERE runs.conversation = conversations.key AND runs.state = 'running') AS is_running
    FROM conversations
"""
_PROMPT = "(SELECT text FROM messages WHERE run = runs.key AND role = 'user' ORDER BY number DESC LIMIT 1)"
_MOST_PINNED = 100
_EVENTS_AFTER = """
    SELECT place & 0xffffffff, data FROM events
    WHERE place >= coalesce(
        (SELECT max(place) FROM events WHERE place BETWEEN :run << 32 AND :run << 32 | :next), :run << 32
    ) AND place <= :run << 32 | 0xffffffff ORDER BY place
"""
_MESSAGES = """
    SELECT messages.number, messages.role, messages.text, runs.id AS run_id, messages.created_ms
    FROM conversations
        JOIN messages ON messages.conversation = conversations.key
        JOIN runs ON runs.key = messages.run
    WHERE conversations.owner = ? AND conversations.id = ? ORDER BY messages.number
"""
_MATCHES = """
    SELECT runs.key, runs.conversation
    FROM search
        JOIN runs ON runs.key = -search.rowid
        JOIN conversations ON conversations.key = runs.conversation
    WHERE search MATCH ? AND search.rowid > -? AND conversations.owner = ? ORDER BY search.rowid
"""
_NEWER_MATCH = "SELECT 1 FROM search WHERE search MATCH ? AND rowid BETWEEN -? AND -? LIMIT 1"
_IDEMPOTENT = """
    SELECT runs.id AS run_id, idempotency.body_hash, idempotency.after
    FROM idempotency JOIN runs ON runs.key = idempotency.run
    WHERE idempotency.owner = ? AND idempotency.key = ?
"""
_NAME_REPLY = """
    INSERT OR REPLACE INTO idempotency (owner, key, run, body_hash, created_ms, after)
    SELECT conversations.owner, ?, runs.key, ?, ?, ?
    FROM runs JOIN conversations ON conversations.key = runs.conversation
    WHERE runs.id = ? AND conversations.owner = ?
"""
_OWN_RUN = """
    SELECT runs.key FROM runs JOIN conversations ON conversations.key = runs.conversation
    WHERE runs.id = ? AND conversations.owner = ?
"""
# Bytes of events per conversation, newest first.
_SIZES = """
    SELECT conversations.key, conversations.owner, coalesce(sum(length(events.data)), 0)
    FROM conversations
        LEFT JOIN runs ON runs.conversation = conversations.key
        LEFT JOIN events ON events.place BETWEEN runs.key << 32 AND runs.key << 32 | 0xffffffff
    WHERE conversations.owner IS NOT NULL
    GROUP BY conversations.key ORDER BY conversations.updated_ms DESC
"""
_OLDEST = """
    SELECT key FROM conversations
    WHERE owner IS NOT NULL AND updated_ms <= ?
        AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.conversation = conversations.key AND runs.state = 'running')
    ORDER BY updated_ms LIMIT ?
"""


class Database:
    """The synchronous half of a `Store`. `open` is optional and may fail: every call opens the file if needed."""

    def __init__(self, directory: Path) -> None:
        self._connections = Connections(directory / FILE)
        self._indexer = Indexer(self._connections)
        self._maintenance = Maintenance(self._connections, self._indexer)

    def open(self, now_ms: int) -> str | None:
        """Returns a warning if a damaged file was set aside.

        Raises `SettingsError` for what only the operator can fix, `StoreUnavailable` for what may be temporary.
        """
        warning = self._connections.open(now_ms)
        self._maintenance.clean_up_soon()
        return warning

    def close(self) -> None:
        self._maintenance.close()
        self._connections.close()

    # --- runs ---------------------------------------------------------------------------------------

    def begin_run(self, new: NewRun) -> Begun:
        lease = Lease(new.id, _FIRST_EPOCH)
        with self._connections.writing() as connection:
            if connection.execute("SELECT 1 FROM runs WHERE id = ?", (new.id,)).fetchone():
                return lease
            if new.idempotency and connection.execute(_IDEMPOTENT, (new.owner, new.idempotency.key)).fetchone():
                return KeyTaken()
            if running := connection.execute(_RUNNING_IN, (new.owner, new.conversation_id)).fetchone():
                return Busy(running[0])
            conversation = _conversation_of(connection, new)
            run = connection.execute(
                _ADD_RUN,
                (
                    *(new.id, conversation, new.instance, new.model, new.mode, new.created, new.fences),
                    *(_encoder.encode(sorted(new.include)).decode(), new.started_ms),
                ),
            ).lastrowid
            texts = [repair(message.text) for message in new.messages]
            messages = zip((message.role for message in new.messages), texts, strict=True)
            _add_messages(connection, conversation, run, messages, new.started_ms)
            if new.idempotency:
                connection.execute(
                    "INSERT INTO idempotency (owner, key, run, body_hash, created_ms) VALUES (?, ?, ?, ?, ?)",
                    (new.owner, new.idempotency.key, run, new.idempotency.body_hash, new.started_ms),
                )
        assert run is not None
        self._indexer.note(run, Note(new.id, searchable(texts), is_whole=False))
        self._maintenance.wrote(sum(map(len, texts)))
        return lease

    def claim_run(self, run_id: str, epoch: int) -> Lease | None:
        is_claimed = self._connections.write(_CLAIM, {"id": run_id, "epoch": epoch})
        return Lease(run_id, epoch + 1) if is_claimed else None

    def append(self, lease: Lease, first_number: int, events: Sequence[DocumentEvent]) -> Written:
        data = batches.encode(events)
        batch = {"id": lease.run_id, "epoch": lease.epoch, "first": first_number, "count": len(events), "data": data}
        is_special = not events or Paused in map(type, events)
        if is_special or not self._connections.write(_APPEND, batch):
            return self._append_rest(lease, first_number, events)
        self._maintenance.wrote(len(data))
        return Stored(len(data))

    def _append_rest(self, lease: Lease, first_number: int, events: Sequence[DocumentEvent]) -> Written:
        """Some of the events are stored already, the lease is not valid any more, or there are calls to store."""
        with self._connections.writing() as connection:
            place = _place(connection, lease)
            if isinstance(place, Fenced):
                return place
            rest = _rest(place, first_number, events)
            if rest and place.state != "running":
                return Fenced("ended")
            size = _add_events(connection, place, rest)
            _add_calls(connection, place, rest)
        self._maintenance.wrote(size)
        return Stored(size)

    def end_run(self, lease: Lease, first_number: int, events: Sequence[DocumentEvent], end: RunEnd) -> Written:
        with self._connections.writing() as connection:
            place = _place(connection, lease)
            if isinstance(place, Fenced):
                return place
            rest = _rest(place, first_number, events)
            if place.state != "running":
                return Fenced("ended") if rest else Stored(0)
            size = _add_events(connection, place, rest)
            prompts = _end(connection, place, end)
        self._indexer.note(place.run, Note(lease.run_id, searchable([*prompts, *end.words]), is_whole=True))
        self._maintenance.wrote(size)
        return Stored(size)

    def run(self, id: str, owner: str) -> RunRecord | None:
        found = self._select(f"{_RUNS} WHERE runs.id = ? AND conversations.owner = ?", (repair(id), owner))
        return run_of(found[0]) if found else None

    def runs_of(self, conversation_id: str, owner: str) -> list[RunRecord]:
        where = "WHERE conversations.owner = ? AND conversations.id = ? ORDER BY runs.key"
        return [run_of(row) for row in self._select(f"{_RUNS} {where}", (owner, repair(conversation_id)))]

    def recent_runs(self, owner: str, limit: int) -> list[tuple[RunRecord, str, str]]:
        runs = _RUNS.replace("SELECT ", f"SELECT conversations.title, {_PROMPT} AS prompt, ", 1)
        rows = self._select(f"{runs} WHERE conversations.owner = ? ORDER BY runs.key DESC LIMIT ?", (owner, limit))
        titled = [(row.pop("title"), row.pop("prompt") or "", row) for row in rows]
        return [(run_of(row), title, title_of(prompt)) for title, prompt, row in titled]

    def unfinished_runs(self) -> list[RunRecord]:
        where = "WHERE runs.state = 'running' AND conversations.owner IS NOT NULL"  # in any order: the index is small
        return [run_of(row) for row in self._select(f"{_RUNS} {where}", ())]

    def find_run_by_calls(self, owner: str, call_ids: Iterable[str]) -> RunRecord | None:
        for id in call_ids:
            where = (
                "JOIN calls ON calls.run = runs.key WHERE calls.owner = ? AND calls.id = ? AND conversations.owner = ?"
            )
            if found := self._select(f"{_RUNS} {where}", (owner, repair(id), owner)):
                return run_of(found[0])
        return None

    def find_run_by_idempotency(self, owner: str, key: str) -> IdempotentRun | None:
        found = self._select(_IDEMPOTENT, (owner, repair(key)))
        return msgspec.convert(found[0], IdempotentRun) if found else None

    def name_reply(self, owner: str, key: str, reply: IdempotentRun, now_ms: int) -> None:
        values = (repair(key), reply.body_hash, now_ms, reply.after, reply.run_id, owner)
        with self._connections.writing() as connection:
            connection.execute(_NAME_REPLY, values)
        self._maintenance.wrote(0)

    def keep_request(self, run_id: str, owner: str, after: int, data: bytes) -> None:
        with self._connections.writing() as connection:
            connection.execute(
                f"INSERT OR IGNORE INTO requests (run, after, data) SELECT key, ?, ? FROM ({_OWN_RUN})",
                (after, data, repair(run_id), owner),
            )
        self._maintenance.wrote(len(data))

    def kept_request(self, run_id: str, owner: str, after: int) -> bytes | None:
        found = self._select(
            f"SELECT data FROM requests WHERE run = ({_OWN_RUN}) AND after = ?", (repair(run_id), owner, after)
        )
        return found[0]["data"] if found else None

    def forget_request(self, run_id: str, owner: str, after: int) -> bool:
        with self._connections.writing() as connection:
            deleted = connection.execute(
                f"DELETE FROM requests WHERE run = ({_OWN_RUN}) AND after = ?", (repair(run_id), owner, after)
            )
        self._maintenance.wrote(0)
        return deleted.rowcount > 0

    def events(self, run_id: str, owner: str, *, after: int = 0, max_bytes: int = 1_000_000) -> EventPage:
        next = min(max(after, 0), _LAST_NUMBER - 1) + 1
        found: list[tuple[int, bytes]] = []
        with self._connections.reading() as connection:
            key = connection.execute(_OWN_RUN, (repair(run_id), owner)).fetchone()
            if key is not None:
                found = _up_to(connection.execute(_EVENTS_AFTER, {"run": key[0], "next": next}), max_bytes)
        # The first batch contains event `next`, so its first events may have to be skipped.
        events = [event for _, data in found for event in batches.decode(data)]
        skipped = next - found[0][0] if found else 0
        return EventPage(next, events[skipped:])

    # --- conversations ------------------------------------------------------------------------------

    def conversation(self, id: str, owner: str) -> ConversationRecord | None:
        found = self._select(f"{_CONVERSATIONS} WHERE owner = ? AND id = ?", (owner, repair(id)))
        return conversation_of(found[0]) if found else None

    def messages(self, conversation_id: str, owner: str) -> list[MessageRecord]:
        return msgspec.convert(self._select(_MESSAGES, (owner, repair(conversation_id))), list[MessageRecord])

    def conversations(
        self, owner: str, *, limit: int = 20, before: str | None = None, query: str | None = None
    ) -> ConversationPage:
        if query is None or not query.strip():
            return self._newest(owner, limit, before)
        words = query_words(query)
        return self._matching(owner, limit, before, words) if words else ConversationPage([], None)

    def find_by_fingerprint(self, owner: str, fingerprint: str) -> list[ConversationRecord]:
        where = "WHERE owner = ? AND fingerprint = ? AND NOT is_running ORDER BY updated_ms DESC LIMIT ?"
        rows = self._select(f"{_CONVERSATIONS} {where}", (owner, fingerprint, _SAME_FINGERPRINT))
        return [conversation_of(row) for row in rows]

    def pinned_conversations(self, owner: str) -> list[ConversationRecord]:
        where = "WHERE owner = ? AND pinned = 1 ORDER BY updated_ms DESC LIMIT ?"
        return [conversation_of(row) for row in self._select(f"{_CONVERSATIONS} {where}", (owner, _MOST_PINNED))]

    def change_conversation(self, id: str, owner: str, title: str | None, is_pinned: bool | None) -> bool:
        with self._connections.writing() as connection:
            changed = connection.execute(
                "UPDATE conversations SET title = coalesce(?, title), pinned = coalesce(?, pinned)"
                " WHERE owner = ? AND id = ?",
                (title, is_pinned, owner, id),
            )
        self._maintenance.wrote(0)
        return changed.rowcount > 0

    def set_session(self, conversation_id: str, owner: str, session_id: str | None, fingerprint: str | None) -> None:
        with self._connections.writing() as connection:
            connection.execute(
                "UPDATE conversations SET session_id = ?, fingerprint = ? WHERE owner = ? AND id = ?",
                (session_id, fingerprint, owner, conversation_id),
            )
        self._maintenance.wrote(0)

    def unknown_conversations(self, ids: Sequence[str]) -> list[str]:
        with self._connections.reading() as connection:
            known = "SELECT 1 FROM conversations WHERE id = ? AND owner IS NOT NULL"
            return [id for id in ids if connection.execute(known, (repair(id),)).fetchone() is None]

    # --- deleting -----------------------------------------------------------------------------------

    def delete_conversation(self, id: str, owner: str) -> bool:
        with self._connections.writing() as connection:
            key = connection.execute(
                "SELECT key FROM conversations WHERE owner = ? AND id = ?", (owner, repair(id))
            ).fetchone()
            if key is None:
                return False
            _hide(connection, [key])
        self._maintenance.sweep_soon()
        return True

    def prune(
        self,
        max_age_seconds: float | None,
        max_bytes: int | None,
        now_ms: int,
        file_sizes: Mapping[str, int] | None = None,
    ) -> int:
        hidden = 0
        if max_age_seconds is not None:
            while some := self._hide_oldest(now_ms - int(max_age_seconds * 1000), _HIDDEN_AT_ONCE):
                hidden += some
        self._maintenance.sweep()
        if max_bytes is not None:
            while some := self._hide_oldest(MOST, self._surplus(max_bytes, self._size_of_files(file_sizes or {}))):
                hidden += some
                self._maintenance.sweep()  # completely: words of deleted runs take space until then
        return hidden

    def prune_owners(self, max_bytes: int) -> int:
        stored: Counter[str] = Counter()
        old: list[tuple[int]] = []
        with self._connections.reading() as connection:
            for key, owner, size in connection.execute(_SIZES):
                stored[owner] += size
                if stored[owner] > max_bytes:
                    old.append((key,))
        running, hidden = "SELECT 1 FROM runs WHERE conversation = ? AND state = 'running'", 0
        for first in range(0, len(old), _HIDDEN_AT_ONCE):
            with self._connections.writing() as connection:
                some = old[first : first + _HIDDEN_AT_ONCE]
                some = [key for key in some if connection.execute(running, key).fetchone() is None]
                _hide(connection, some)
                hidden += len(some)
        self._maintenance.sweep()
        return hidden

    def _size_of_files(self, file_sizes: Mapping[str, int]) -> int:
        deleted = set(self.unknown_conversations(list(file_sizes)))
        return sum(size for id, size in file_sizes.items() if id not in deleted)

    def size(self) -> int:
        with self._connections.reading() as connection:
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            (page,) = connection.execute("PRAGMA page_size").fetchone()
        try:
            log = self._connections.path.with_name(f"{FILE}-wal").stat().st_size
        except FileNotFoundError:
            log = 0
        return int(pages * page) + log

    def _used(self) -> int:
        """The size of the file without its free pages."""
        with self._connections.reading() as connection:
            numbers = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count")]
            (page,) = connection.execute("PRAGMA page_size").fetchone()
        return int((numbers[0] - numbers[1]) * page)

    def _surplus(self, max_bytes: int, other_bytes: int) -> int:
        """How many conversations to delete next, assuming equal sizes; the caller repeats until it returns 0."""
        used = self._used() + other_bytes
        if used <= max_bytes:
            return 0
        with self._connections.reading() as connection:
            (count,) = connection.execute("SELECT count(*) FROM conversations WHERE owner IS NOT NULL").fetchone()
        return max(1, int(count * (1 - max_bytes / used) * _CAUTION))

    def _hide_oldest(self, until_ms: int, most: int) -> int:
        with self._connections.writing() as connection:
            keys = connection.execute(_OLDEST, (until_ms, most)).fetchall()
            _hide(connection, keys)
        return len(keys)

    # --- lists --------------------------------------------------------------------------------------

    def _newest(self, owner: str, limit: int, before: str | None) -> ConversationPage:
        where, values = "WHERE owner = ?", list[int | str]([owner])
        if before is not None:
            place = place_of(before, ByTime)
            where += " AND (updated_ms, id) < (?, ?)"
            values += [place.updated_ms, repair(place.id)]
        rows = self._select(f"{_CONVERSATIONS} {where} ORDER BY updated_ms DESC, id DESC LIMIT ?", (*values, limit + 1))
        page = [conversation_of(row) for row in rows[:limit]]
        last = page[-1] if page and len(rows) > limit else None
        return ConversationPage(
            [FoundConversation(conversation) for conversation in page],
            None if last is None else opaque(ByTime(last.updated_ms, last.id)),
        )

    def _matching(self, owner: str, limit: int, before: str | None, words: list[str]) -> ConversationPage:
        """A conversation ranks by its newest matching run. The index returns runs by key, newest first, and lazily, so
        a page costs the same however many matches there are."""
        self._indexer.catch_up()
        place = START if before is None else place_of(before, ByRun)
        query = search_tokens.query(words)
        match = expression(query, owner_scope(owner))
        page: dict[int, int] = {}  # conversations, and their runs
        shown: set[int] = set()
        more = False
        with self._connections.reading() as connection:
            for run, conversation in connection.execute(_MATCHES, (match, place.last, owner)):
                if conversation in page or conversation in shown:
                    continue
                if place is not START and _was_shown(connection, conversation, query, place):
                    shown.add(conversation)
                    continue
                if len(page) == limit:
                    more = True
                    break
                page[conversation] = run
            found = [_found(connection, key, run, words) for key, run in page.items()]
        runs = list(page.values())
        top = runs[0] if runs and place is START else place.top
        return ConversationPage(found, opaque(ByRun(top, runs[-1])) if more else None)

    def _select(self, sql: str, values: Sequence[Any]) -> list[dict[str, Any]]:
        with self._connections.reading() as connection:
            return _rows(connection.execute(sql, values))


# --- within a transaction ---------------------------------------------------------------------------


class _Place(NamedTuple):
    run: int
    conversation: int
    epoch: int
    state: str
    stored: int


def _place(connection: sqlite3.Connection, lease: Lease) -> _Place | Fenced:
    row = connection.execute(_PLACE, (lease.run_id,)).fetchone()
    if row is None:
        return Fenced("deleted")
    place = _Place._make(row)
    return place if place.epoch == lease.epoch else Fenced("claimed")


def _rest(place: _Place, first_number: int, events: Sequence[DocumentEvent]) -> Sequence[DocumentEvent]:
    """The events that are not stored yet."""
    known = place.stored + 1 - first_number
    if known < 0:
        raise ValueError(f"events before number {first_number} are missing: {-known} of them")
    return events[known:] if known else events


def _add_events(connection: sqlite3.Connection, place: _Place, events: Sequence[DocumentEvent]) -> int:
    if not events:
        return 0
    data = batches.encode(events)
    connection.execute(_ADD_EVENTS, (place.run, place.stored + 1, len(events), data))
    return len(data)


def _add_calls(connection: sqlite3.Connection, place: _Place, events: Sequence[DocumentEvent]) -> None:
    paused = [event.envelope.metadata for event in events if isinstance(event, Paused)]
    calls = [(call.tool_call_id, place.run, place.conversation) for one in paused for call in one.waiting_for or ()]
    connection.executemany(_ADD_CALL, calls)


def _conversation_of(connection: sqlite3.Connection, new: NewRun) -> int:
    """The key of the run's conversation, which is created if missing."""
    found = connection.execute(
        "SELECT key FROM conversations WHERE owner = ? AND id = ?", (new.owner, new.conversation_id)
    ).fetchone()
    if found is not None:
        key = int(found[0])
        connection.execute(
            "UPDATE conversations SET mode = ?, model = ?, updated_ms = max(updated_ms, ?) WHERE key = ?",
            (new.mode, new.model, new.started_ms, key),
        )
        return key
    prompts = [message.text for message in new.messages if message.role == "user"]
    title = title_of(repair(prompts[0] if prompts else ""))
    values = (new.conversation_id, new.owner, title, new.workspace, new.mode, new.model, new.started_ms, new.started_ms)
    created = connection.execute(_ADD_CONVERSATION, values).lastrowid
    assert created is not None
    return created


def _add_messages(
    connection: sqlite3.Connection, conversation: int, run: int | None, messages: Iterable[tuple[str, str]], now_ms: int
) -> None:
    """Appends messages, each a role and a text, in order."""
    last = "SELECT coalesce(max(number), 0) FROM messages WHERE conversation = ?"
    (number,) = connection.execute(last, (conversation,)).fetchone()
    rows = [(conversation, place, role, text, run, now_ms) for place, (role, text) in enumerate(messages, number + 1)]
    connection.executemany(_ADD_MESSAGE, rows)


def _end(connection: sqlite3.Connection, place: _Place, end: RunEnd) -> list[str]:
    """Returns the run's prompts."""
    envelope, usage = end.envelope, end.envelope.usage
    state = "completed" if envelope.status == "completed" else "error"
    cached, estimated = (None if value is UNSET else value for value in (usage.cached_tokens, usage.estimated))
    connection.execute(
        _END_RUN,
        (
            *(state, envelope.model, end.first_event_ms, end.ended_ms),
            *(usage.prompt_tokens, usage.completion_tokens, usage.total_tokens, cached, estimated),
            *(end.failure_code, end.tool_uses, place.run),
        ),
    )
    connection.execute("INSERT OR IGNORE INTO unindexed (run) VALUES (?)", (place.run,))
    connection.execute("DELETE FROM calls WHERE run = ?", (place.run,))
    if end.frees_key:
        # A key without a hash names a question, whose next repetition decides for itself; see `runs.repeats`.
        connection.execute("DELETE FROM idempotency WHERE run = ? AND body_hash != ''", (place.run,))
    connection.execute(_END_TURN, (envelope.model, end.ended_ms, end.session_id, end.fingerprint, place.conversation))
    prompts = [text for (text,) in connection.execute("SELECT text FROM messages WHERE run = ?", (place.run,))]
    if end.answer:
        messages = [("assistant", repair(end.answer))]
        _add_messages(connection, place.conversation, place.run, messages, end.ended_ms)
    return prompts


def _hide(connection: sqlite3.Connection, keys: Iterable[tuple[int]]) -> None:
    """Hides conversations from every query; their rows are removed later."""
    keys = list(keys)
    for table in ("idempotency", "requests", "calls"):
        connection.executemany(f"DELETE FROM {table} WHERE run IN (SELECT key FROM runs WHERE conversation = ?)", keys)
    connection.executemany(
        "UPDATE conversations SET owner = NULL, title = '', workspace = '', session_id = NULL, fingerprint = NULL"
        " WHERE key = ?",
        keys,
    )


# --- rows to values ---------------------------------------------------------------------------------


def _rows(cursor: sqlite3.Cursor) -> list[dict[str, Any]]:
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def _up_to(rows: Iterable[tuple[int, bytes]], max_bytes: int) -> list[tuple[int, bytes]]:
    found, size = [], 0
    for first_number, data in rows:
        found.append((first_number, data))
        size += len(data)
        if size >= max_bytes:
            break
    return found


def _was_shown(connection: sqlite3.Connection, conversation: int, query: Query, place: ByRun) -> bool:
    """Whether it is on an earlier page: then it has a newer matching run."""
    match = expression(query, conversation_scope(conversation))
    return connection.execute(_NEWER_MATCH, (match, place.top, place.last)).fetchone() is not None


def _found(connection: sqlite3.Connection, key: int, run: int, words: list[str]) -> FoundConversation:
    (row,) = _rows(connection.execute(f"{_CONVERSATIONS} WHERE key = ?", (key,)))
    (text,) = connection.execute("SELECT text FROM search WHERE rowid = -?", (run,)).fetchone()
    return FoundConversation(conversation_of(row), snippet(text, words))
