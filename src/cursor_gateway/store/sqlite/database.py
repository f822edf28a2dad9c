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
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from cursor_gateway.errors import StoreUnavailable
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
from cursor_gateway.store.search import conversation_scope, owner_scope, query_words, snippet
from cursor_gateway.store.sqlite import writing
from cursor_gateway.store.sqlite.connections import Connections
from cursor_gateway.store.sqlite.indexing import Indexer, expression
from cursor_gateway.store.sqlite.maintenance import Maintenance
from cursor_gateway.store.sqlite.opening import FILE
from cursor_gateway.store.sqlite.writing import APPEND, EVENT_COUNT, Change, Write
from cursor_gateway.store.titles import title_of
from cursor_gateway.wire.surrogates import repair

_T = TypeVar("_T")

_LAST_NUMBER = 2**32 - 1  # of an event: it is one half of a batch's place
_HIDDEN_AT_ONCE = 20  # conversations hidden per transaction
_CAUTION = 0.75  # delete this share of the estimated surplus, then measure again
_SAME_FINGERPRINT = 10  # conversations; more are never needed to choose from

# --- statements -------------------------------------------------------------------------------------

_CLAIM = "UPDATE runs SET epoch = epoch + 1 WHERE id = :id AND epoch = :epoch AND state = 'running'"
_RUNS = f"""
    SELECT runs.id, conversations.id AS conversation_id, conversations.owner, runs.instance, runs.epoch, runs.state,
        runs.model, runs.mode, runs.created, runs.fences, runs.include, runs.started_ms, runs.first_event_ms,
        runs.ended_ms, runs.prompt_tokens, runs.completion_tokens, runs.total_tokens, runs.cached_tokens,
        runs.estimated, runs.failure_code, runs.tool_uses, {EVENT_COUNT} AS event_count
    FROM runs JOIN conversations ON conversations.key = runs.conversation
"""
_CONVERSATIONS = """
    SELECT id, owner, title, workspace, mode, model, created_ms, updated_ms, session_id, fingerprint, pinned,
        EXISTS (
            SELECT 1 FROM runs WHERE runs.conversation = conversations.key AND runs.state = 'running'
        ) AS is_running,
        (
            SELECT needs_decision FROM runs WHERE runs.conversation = conversations.key ORDER BY runs.key DESC LIMIT 1
        ) AS needs_decision
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
        return self.apply(partial(writing.begin, new=new))

    def begin_with(self, new: NewRun, events: Sequence[DocumentEvent], end: RunEnd | None) -> KeyTaken | Busy | Written:
        return self.apply(partial(writing.begin_with, new=new, events=events, run_end=end))

    def append(self, lease: Lease, first_number: int, events: Sequence[DocumentEvent]) -> Written:
        """The usual batch is one statement, which needs no transaction around it."""
        if events and Paused not in map(type, events):
            data = batches.encode(events)
            if self._connections.write(APPEND, writing.batch(lease, first_number, len(events), data)):
                self._maintenance.wrote(len(data))
                return Stored(len(data))
        return self.apply(partial(writing.append_rest, lease=lease, first_number=first_number, events=events))

    def end_run(self, lease: Lease, first_number: int, events: Sequence[DocumentEvent], end: RunEnd) -> Written:
        return self.apply(partial(writing.end, lease=lease, first_number=first_number, events=events, run_end=end))

    def apply(self, write: Write[_T]) -> _T:
        """In a transaction of its own."""
        with self._connections.writing() as connection:
            change = write(connection)
        return self._applied(change)

    def apply_all(self, writes: Sequence[Write[_T]]) -> list[_T | Exception]:
        """All of them in one transaction. If one fails because of a bug, each in its own, so that the others are not
        lost.
        """
        if len(writes) == 1:
            return [self._tried(writes[0])]
        try:
            with self._connections.writing() as connection:
                changes = [write(connection) for write in writes]
        except StoreUnavailable as error:
            return [error] * len(writes)
        except Exception:  # noqa: BLE001 -- tried again, and reported to the caller that waits
            return [self._tried(write) for write in writes]
        return [self._applied(change) for change in changes]

    def _tried(self, write: Write[_T]) -> _T | Exception:
        try:
            return self.apply(write)
        except Exception as error:  # noqa: BLE001 -- reported to the caller that waits
            return error

    def _applied(self, change: Change[_T]) -> _T:
        if change.note is not None:
            self._indexer.note(change.run, change.note)
        if change.size or change.note is not None:
            self._maintenance.wrote(change.size)
        return change.result

    def claim_run(self, run_id: str, epoch: int) -> Lease | None:
        is_claimed = self._connections.write(_CLAIM, {"id": run_id, "epoch": epoch})
        return Lease(run_id, epoch + 1) if is_claimed else None

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

    def set_decided(self, run_id: str, owner: str) -> None:
        with self._connections.writing() as connection:
            connection.execute(f"UPDATE runs SET needs_decision = 0 WHERE key = ({_OWN_RUN})", (repair(run_id), owner))
        self._maintenance.wrote(0)

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
