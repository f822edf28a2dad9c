"""The calls of a `Store` that every SQL engine answers with the same statements.

The engines have tables and columns of the same names. Values are written as `:name` in the statements here. An engine
adds how its statements are executed, and the parts in which its SQL differs.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from cursor_gateway.errors import HistoryDamaged, StoreUnavailable
from cursor_gateway.model.document_events import DocumentEvent
from cursor_gateway.model.documents import Usage
from cursor_gateway.store.archive import CONVERSATION_COLUMNS, RUN_COLUMNS
from cursor_gateway.store.base import (
    PAGE_BYTES,
    ConversationPage,
    ConversationRecord,
    EventPage,
    FoundConversation,
    IdempotentRun,
    MessageRecord,
    RunRecord,
    Store,
)
from cursor_gateway.store.cursors import START, ByRun, ByTime, decode_cursor, encode_cursor
from cursor_gateway.store.search import query_words
from cursor_gateway.store.titles import title_of

_A = TypeVar("_A")
_T = TypeVar("_T")

DELETED_AT_ONCE = 20  # conversations per transaction

_LAST_NUMBER = 2**31 - 1  # of an event
_SAME_FINGERPRINT = 10  # conversations; more are never needed to choose from
_MOST_PINNED = 100
_MOST_LINKED = 100
_SHORT_REQUEST = 64 * 1024  # bytes that are written in less time than passing them to another thread takes

IS_RUNNING = "EXISTS (SELECT 1 FROM runs WHERE runs.conversation = conversations.key AND runs.state = 'running')"
OWN_RUN = """
    SELECT runs.key FROM runs JOIN conversations ON conversations.key = runs.conversation
    WHERE runs.id = :id AND conversations.owner = :owner
"""
_PROMPT = "(SELECT text FROM messages WHERE run = runs.key AND role = 'user' ORDER BY number DESC LIMIT 1)"
_MESSAGES = """
    SELECT messages.number, messages.role, messages.text, runs.id AS run_id, messages.created_ms, messages.images
    FROM conversations
        JOIN messages ON messages.conversation = conversations.key
        JOIN runs ON runs.key = messages.run
    WHERE conversations.owner = :owner AND conversations.id = :id ORDER BY messages.number
"""
_IDEMPOTENT = """
    SELECT runs.id AS run_id, idempotency.body_hash, idempotency.after
    FROM idempotency JOIN runs ON runs.key = idempotency.run
    WHERE idempotency.owner = :owner AND idempotency.key = :key
"""
_NAME_REPLY = f"""
    INSERT INTO idempotency (owner, key, run, body_hash, created_ms, after)
    SELECT :owner, :key, own.key, :hash, :now, :after FROM ({OWN_RUN}) AS own WHERE true
    ON CONFLICT (owner, key) DO UPDATE SET run = excluded.run, body_hash = excluded.body_hash,
        created_ms = excluded.created_ms, after = excluded.after
"""
_KEEP_REQUEST = f"""
    INSERT INTO requests (run, after, data) SELECT own.key, :after, :data FROM ({OWN_RUN}) AS own WHERE true
    ON CONFLICT (run, after) DO NOTHING
"""
_CHANGE_CONVERSATION = """
    UPDATE conversations SET title = coalesce(:title, title), pinned = coalesce(:is_pinned, pinned)
    WHERE owner = :owner AND id = :id
"""
_SET_LINK = """
    UPDATE conversations SET link_hash = :hash, linked_ms = :now WHERE owner = :owner AND id = :id
"""
_SET_SESSION = """
    UPDATE conversations SET session_id = :session_id, fingerprint = :fingerprint WHERE owner = :owner AND id = :id
"""


def select_runs(event_count: str) -> str:
    """The beginning of a statement whose rows `run_of` takes. `event_count` is an expression."""
    columns = ", ".join(f"runs.{name}" for name in RUN_COLUMNS)
    return f"""
        SELECT {columns}, conversations.id AS conversation_id, conversations.owner, {event_count} AS event_count
        FROM runs JOIN conversations ON conversations.key = runs.conversation
    """


def select_conversations(*more_columns: str) -> str:
    """The beginning of a statement whose rows `conversation_of` takes."""
    return f"""
        SELECT {", ".join(("key", *CONVERSATION_COLUMNS, "linked_ms", *more_columns))}, {IS_RUNNING} AS is_running,
            (
                SELECT needs_decision FROM runs WHERE runs.conversation = conversations.key
                ORDER BY runs.key DESC LIMIT 1
            ) AS needs_decision
        FROM conversations
    """


# --- rows to records: columns are named like the fields, and flags may be numbers --------------------

UNREADABLE_PART = "This part of the history is damaged; restart the gateway to recover what can be read, or delete it."
UNREADABLE = (msgspec.MsgspecError, AssertionError, IndexError, TypeError, ValueError)  # for a damaged row


def run_of(row: dict[str, Any]) -> RunRecord:
    figures = {name: row.pop(name, None) for name in Usage.__struct_fields__}  # reasoning tokens are only in events
    known = {name: value for name, value in figures.items() if value is not None}
    if "estimated" in known:
        known["estimated"] = bool(known["estimated"])
    if not all(isinstance(value, int) for value in known.values()):
        raise TypeError("tokens are not numbers")
    usage = Usage(**known) if "total_tokens" in known else None
    include = msgspec.json.decode(row.pop("include"))
    return msgspec.convert({**row, "include": include, "usage": usage}, RunRecord)


def conversation_of(row: dict[str, Any]) -> ConversationRecord:
    flags = {
        "is_running": bool(row["is_running"]),
        "is_pinned": bool(row["pinned"]),
        "needs_decision": bool(row["needs_decision"]),
    }
    return msgspec.convert({**row, **flags}, ConversationRecord)


def message_of(row: dict[str, Any]) -> MessageRecord:
    return msgspec.convert({**row, "images": row["images"].split()}, MessageRecord)


class SqlStore(Store, ABC):
    _runs: str  # as by `select_runs`
    _conversations: str  # as by `select_conversations`
    _is_pinned: str  # a condition that the index of pinned conversations has
    _sizes: str  # a statement: key, owner and bytes of events of all conversations, newest first

    @abstractmethod
    async def _select(
        self, sql: str, values: Mapping[str, object], *, is_short: bool = False
    ) -> list[dict[str, Any]]: ...

    @abstractmethod
    async def _execute(self, sql: str, values: Mapping[str, object], *, is_short: bool = False) -> int:
        """Returns the number of rows. A short statement changes a single small row."""
        ...

    @abstractmethod
    async def _events(self, run_id: str, owner: str, next: int, max_bytes: int) -> list[DocumentEvent]:
        """The events of whole batches, from the event `next` on."""
        ...

    @abstractmethod
    async def _matches(
        self, owner: str, words: list[str], place: ByRun, limit: int
    ) -> tuple[list[int], list[FoundConversation]]:
        """The keys of the newest runs that match, one for each conversation, and one more than the limit if there are
        more; and the conversations, up to the limit."""
        ...

    @abstractmethod
    async def _delete_idle(self, keys: Sequence[int]) -> int:
        """Deletes those of the conversations that have no running run. Returns how many."""
        ...

    @abstractmethod
    async def _delete_oldest(self, until_ms: int) -> int:
        """Deletes some of the oldest conversations that have no running run. Returns how many."""
        ...

    @abstractmethod
    async def _shrink(self, max_bytes: int | None, file_sizes: Mapping[str, int]) -> int:
        """Deletes the oldest conversations until the rest takes no more than that. Returns how many."""
        ...

    # --- damaged rows -------------------------------------------------------------------------------

    def _found_damage(self, error: Exception) -> HistoryDamaged:
        """Tells the operator, and returns what to tell the caller."""
        self.health.failed("damage", StoreUnavailable(UNREADABLE_PART, details=str(error)))
        return HistoryDamaged(UNREADABLE_PART, details=str(error))

    def _all(self, read: Callable[[_A], _T], rows: Iterable[_A]) -> list[_T]:
        """Raises `HistoryDamaged` if one is unreadable."""
        try:
            return [read(row) for row in rows]
        except UNREADABLE as error:
            raise self._found_damage(error) from error

    def _readable(self, read: Callable[[_A], _T], rows: Iterable[_A]) -> list[_T]:
        """For lists: one unreadable row must not hide the others."""
        found = []
        for row in rows:
            with suppress(HistoryDamaged):
                found += self._all(read, [row])
        return found

    # --- runs ---------------------------------------------------------------------------------------

    def _run_of(self, row: dict[str, Any]) -> RunRecord:
        return run_of(row)

    def _titled(self, row: dict[str, Any]) -> tuple[RunRecord, str, str]:
        title, prompt = str(row.pop("title")), str(row.pop("prompt") or "")
        return self._run_of(row), title, title_of(prompt)

    async def run(self, id: str, owner: str) -> RunRecord | None:
        where = "WHERE runs.id = :id AND conversations.owner = :owner"
        found = await self._select(f"{self._runs} {where}", {"id": id, "owner": owner}, is_short=True)
        return self._all(self._run_of, found)[0] if found else None

    async def runs_of(self, conversation_id: str, owner: str) -> list[RunRecord]:
        where = "WHERE conversations.owner = :owner AND conversations.id = :id ORDER BY runs.key"
        values = {"owner": owner, "id": conversation_id}
        return self._all(self._run_of, await self._select(f"{self._runs} {where}", values, is_short=True))

    async def recent_runs(self, owner: str, limit: int) -> list[tuple[RunRecord, str, str]]:
        runs = self._runs.replace("SELECT ", f"SELECT conversations.title, {_PROMPT} AS prompt, ", 1)
        where = "WHERE conversations.owner = :owner ORDER BY runs.key DESC LIMIT :limit"
        rows = await self._select(f"{runs} {where}", {"owner": owner, "limit": limit})
        return self._readable(self._titled, rows)

    async def unfinished_runs(self) -> list[RunRecord]:
        where = "WHERE runs.state = 'running' AND conversations.owner IS NOT NULL"  # in any order: the index is small
        return self._readable(self._run_of, await self._select(f"{self._runs} {where}", {}))

    async def find_run_by_idempotency(self, owner: str, key: str) -> IdempotentRun | None:
        found = await self._select(_IDEMPOTENT, {"owner": owner, "key": key}, is_short=True)
        return self._all(lambda row: msgspec.convert(row, IdempotentRun), found)[0] if found else None

    async def name_reply(self, owner: str, key: str, reply: IdempotentRun, now_ms: int) -> None:
        values = {"id": reply.run_id, "owner": owner, "key": key, "hash": reply.body_hash, "after": reply.after}
        await self._execute(_NAME_REPLY, {**values, "now": now_ms}, is_short=True)

    async def keep_request(self, run_id: str, owner: str, after: int, data: bytes) -> None:
        values = {"id": run_id, "owner": owner, "after": after, "data": data}
        await self._execute(_KEEP_REQUEST, values, is_short=len(data) <= _SHORT_REQUEST)

    async def kept_request(self, run_id: str, owner: str, after: int) -> bytes | None:
        kept = f"SELECT data FROM requests WHERE run = ({OWN_RUN}) AND after = :after"
        found = await self._select(kept, {"id": run_id, "owner": owner, "after": after})
        return self._all(lambda row: bytes(row["data"]), found)[0] if found else None

    async def set_decided(self, run_id: str, owner: str) -> None:
        decided = f"UPDATE runs SET needs_decision = false WHERE key = ({OWN_RUN})"
        await self._execute(decided, {"id": run_id, "owner": owner})

    async def events(self, run_id: str, owner: str, *, after: int = 0, max_bytes: int = PAGE_BYTES) -> EventPage:
        next = min(max(after, 0), _LAST_NUMBER - 1) + 1
        try:
            return EventPage(next, await self._events(run_id, owner, next, max_bytes))
        except UNREADABLE as error:
            raise self._found_damage(error) from error

    # --- conversations ------------------------------------------------------------------------------

    async def conversation(self, id: str, owner: str) -> ConversationRecord | None:
        where = "WHERE owner = :owner AND id = :id"
        found = await self._select(f"{self._conversations} {where}", {"owner": owner, "id": id}, is_short=True)
        return self._all(conversation_of, found)[0] if found else None

    async def messages(self, conversation_id: str, owner: str) -> list[MessageRecord]:
        rows = await self._select(_MESSAGES, {"owner": owner, "id": conversation_id})
        return self._all(message_of, rows)

    async def conversations(
        self,
        owner: str,
        *,
        limit: int = 20,
        before: str | None = None,
        query: str | None = None,
        clients: Sequence[str] | None = None,
    ) -> ConversationPage:
        if query is None or not query.strip():
            return await self._newest(owner, limit, before, clients)
        words = query_words(query)
        return await self._matching(owner, limit, before, words) if words else ConversationPage([], None)

    async def _newest(
        self, owner: str, limit: int, before: str | None, clients: Sequence[str] | None
    ) -> ConversationPage:
        where, values = "WHERE owner = :owner", dict[str, object](owner=owner, limit=limit + 1)
        if before is not None:
            place = decode_cursor(before, ByTime)
            where += " AND (updated_ms, id) < (:updated_ms, :id)"
            values |= {"updated_ms": place.updated_ms, "id": place.id}
        if clients is not None:
            names = {f"client{number}": name for number, name in enumerate(clients)}
            begun = f"client IN ({', '.join(f':{name}' for name in names)})"
            where += f" AND ({begun} OR key IN (SELECT conversation FROM runs WHERE state = 'running'))"
            values |= names
        order = "ORDER BY updated_ms DESC, id DESC LIMIT :limit"
        rows = await self._select(f"{self._conversations} {where} {order}", values)
        page = self._readable(conversation_of, rows[:limit])
        next = encode_cursor(ByTime(page[-1].updated_ms, page[-1].id)) if page and len(rows) > limit else None
        return ConversationPage([FoundConversation(conversation) for conversation in page], next)

    async def _matching(self, owner: str, limit: int, before: str | None, words: list[str]) -> ConversationPage:
        """A conversation ranks by its newest matching run."""
        place = START if before is None else decode_cursor(before, ByRun)
        runs, page = await self._matches(owner, words, place, limit)
        if len(runs) <= limit:
            return ConversationPage(page, None)
        top = runs[0] if place is START else place.top
        return ConversationPage(page, encode_cursor(ByRun(top, runs[limit - 1])))

    async def find_by_fingerprint(self, owner: str, fingerprint: str) -> list[ConversationRecord]:
        where = f"WHERE owner = :owner AND fingerprint = :fingerprint AND NOT {IS_RUNNING}"
        order = f"ORDER BY updated_ms DESC LIMIT {_SAME_FINGERPRINT}"
        values = {"owner": owner, "fingerprint": fingerprint}
        rows = await self._select(f"{self._conversations} {where} {order}", values, is_short=True)
        return self._readable(conversation_of, rows)

    async def pinned_conversations(self, owner: str) -> list[ConversationRecord]:
        where = f"WHERE owner = :owner AND {self._is_pinned} ORDER BY updated_ms DESC LIMIT {_MOST_PINNED}"
        return self._readable(conversation_of, await self._select(f"{self._conversations} {where}", {"owner": owner}))

    async def set_link(self, id: str, owner: str, hash: str | None, now_ms: int) -> bool:
        values = {"id": id, "owner": owner, "hash": hash, "now": None if hash is None else now_ms}
        only = "" if hash is not None else " AND link_hash IS NOT NULL"
        return await self._execute(f"{_SET_LINK}{only}", values) > 0

    async def linked_conversations(self, owner: str) -> list[ConversationRecord]:
        where = "WHERE owner = :owner AND link_hash IS NOT NULL"
        order = f"ORDER BY linked_ms DESC, key DESC LIMIT {_MOST_LINKED}"
        rows = await self._select(f"{self._conversations} {where} {order}", {"owner": owner})
        return self._readable(conversation_of, rows)

    async def find_by_link(self, hash: str) -> ConversationRecord | None:
        where = "WHERE link_hash = :hash AND owner IS NOT NULL"  # without an owner, it is being deleted
        found = await self._select(f"{self._conversations} {where}", {"hash": hash}, is_short=True)
        return self._all(conversation_of, found)[0] if found else None

    async def change_conversation(self, id: str, owner: str, title: str | None, is_pinned: bool | None) -> bool:
        values = {"id": id, "owner": owner, "title": title, "is_pinned": is_pinned}
        return await self._execute(_CHANGE_CONVERSATION, values) > 0

    async def set_session(
        self, conversation_id: str, owner: str, session_id: str | None, fingerprint: str | None
    ) -> None:
        values = {"id": conversation_id, "owner": owner, "session_id": session_id, "fingerprint": fingerprint}
        await self._execute(_SET_SESSION, values, is_short=True)

    # --- deleting -----------------------------------------------------------------------------------

    async def prune(
        self,
        max_age_seconds: float | None,
        max_bytes: int | None,
        now_ms: int,
        file_sizes: Mapping[str, int] | None = None,
    ) -> int:
        deleted = 0
        if max_age_seconds is not None:
            while some := await self._delete_oldest(now_ms - int(max_age_seconds * 1000)):
                deleted += some
        return deleted + await self._shrink(max_bytes, file_sizes or {})

    async def prune_owners(self, max_bytes: int) -> int:
        rows = await self._select(self._sizes, {})
        old = await asyncio.to_thread(_beyond, rows, max_bytes)  # there may be many
        deleted = 0
        for first in range(0, len(old), DELETED_AT_ONCE):
            deleted += await self._delete_idle(old[first : first + DELETED_AT_ONCE])
        return deleted

    async def _size_of_files(self, file_sizes: Mapping[str, int]) -> int:
        """Without those of conversations that are deleted."""
        deleted = set(await self.unknown_conversations(list(file_sizes)))
        return sum(size for id, size in file_sizes.items() if id not in deleted)


def _beyond(rows: Iterable[Mapping[str, Any]], max_bytes: int) -> list[int]:
    """The keys of the conversations, newest first, with which their owner has more than that."""
    stored: Counter[str] = Counter()
    keys = []
    for row in rows:
        stored[row["owner"]] += row["size"]
        if stored[row["owner"]] > max_bytes:
            keys.append(row["key"])
    return keys
