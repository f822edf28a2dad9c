"""The history in a PostgreSQL database, as a `Store`.

Every call is one transaction, and may be repeated when its connection is lost: see `connections.py`. A batch of events
is on the server's disk before `append` returns. Deleting a conversation removes all its rows at once.
"""

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from psycopg.rows import dict_row

from cursor_gateway.model.document_events import DocumentEvent, Paused
from cursor_gateway.stages import search_tokens
from cursor_gateway.store import batches
from cursor_gateway.store.base import (
    Begun,
    ConversationPage,
    ConversationRecord,
    EventPage,
    FoundConversation,
    IdempotentRun,
    Lease,
    MessageRecord,
    NewRun,
    Refused,
    RunEnd,
    RunRecord,
    Stored,
    Written,
)
from cursor_gateway.store.cursors import START, ByRun, ByTime, opaque, place_of
from cursor_gateway.store.postgres import folding, schema, searching, writing
from cursor_gateway.store.postgres.appending import Appender, Batch
from cursor_gateway.store.postgres.connections import Connection, Connections
from cursor_gateway.store.rows import conversation_of, run_of
from cursor_gateway.store.search import query_words, snippet
from cursor_gateway.store.titles import title_of

_LAST_NUMBER = 2**31 - 1  # of an event
_SMALLEST_BATCH = 32  # bytes: so a page has at most so many batches
_SAME_FINGERPRINT = 10  # conversations; more are never needed to choose from
_MOST_PINNED = 100
_DELETED_AT_ONCE = 20  # conversations per transaction
_DELETE_SECONDS = 25  # a conversation may have a hundred thousand batches
_TABLES = ["conversations", "runs", "messages", "events", "idempotency", "requests", "calls", "search"]

# --- statements -------------------------------------------------------------------------------------

_CLAIM = "UPDATE runs SET epoch = epoch + 1, claim = %s WHERE id = %s AND epoch = %s AND state = 'running'"
_CLAIMED = "SELECT FROM runs WHERE id = %s AND epoch = %s AND claim = %s"
RUNS = """
    SELECT runs.id, conversations.id AS conversation_id, conversations.owner, runs.instance, runs.epoch, runs.state,
        runs.model, runs.mode, runs.created, runs.fences, runs.include, runs.started_ms, runs.first_event_ms,
        runs.ended_ms, runs.prompt_tokens, runs.completion_tokens, runs.total_tokens, runs.cached_tokens,
        runs.estimated, runs.failure_code, runs.tool_uses, runs.last AS event_count
    FROM runs JOIN conversations ON conversations.key = runs.conversation
"""
_IS_RUNNING = "EXISTS (SELECT FROM runs WHERE runs.conversation = conversations.key AND runs.state = 'running')"
_CONVERSATIONS = f"""
    SELECT id, owner, title, workspace, mode, model, created_ms, updated_ms, session_id, fingerprint, pinned, volume,
        {_IS_RUNNING} AS is_running,
        (
            SELECT needs_decision FROM runs WHERE runs.conversation = conversations.key ORDER BY runs.key DESC LIMIT 1
        ) AS needs_decision
    FROM conversations
"""
_PROMPT = "(SELECT text FROM messages WHERE run = runs.key AND role = 'user' ORDER BY number DESC LIMIT 1)"
_OWN_RUN = """
    SELECT runs.key FROM runs JOIN conversations ON conversations.key = runs.conversation
    WHERE runs.id = %(id)s AND conversations.owner = %(owner)s
"""
# The batch with event `next` and those after it, until they have `size` bytes.
_EVENTS_AFTER = f"""
    SELECT first, data, deflated FROM (
        SELECT first, data, deflated, sum(size) OVER (ORDER BY first) - size AS before
        FROM (
            SELECT first, data, deflated,
                CASE WHEN deflated THEN {folding.ROW_BYTES} ELSE octet_length(data) END AS size
            FROM events, ({_OWN_RUN}) AS own
            WHERE events.run = own.key AND first >= coalesce(
                (SELECT max(first) FROM events WHERE events.run = own.key AND first <= %(next)s), 0
            )
            ORDER BY first LIMIT %(most)s
        ) AS page
    ) AS sized
    WHERE before < %(size)s ORDER BY first
"""
_MESSAGES = """
    SELECT messages.number, messages.role, messages.text, runs.id AS run_id, messages.created_ms
    FROM conversations
        JOIN messages ON messages.conversation = conversations.key
        JOIN runs ON runs.key = messages.run
    WHERE conversations.owner = %s AND conversations.id = %s ORDER BY messages.number
"""
_PROMPTS = """
    SELECT conversations.owner, messages.text
    FROM runs
        JOIN conversations ON conversations.key = runs.conversation
        LEFT JOIN messages ON messages.run = runs.key
    WHERE runs.id = %s ORDER BY messages.number
"""
_FOUND = f"{_CONVERSATIONS.replace('SELECT ', 'SELECT key, ', 1)} WHERE key = ANY(%s)"
_IDEMPOTENT = """
    SELECT runs.id AS run_id, idempotency.body_hash, idempotency.after
    FROM idempotency JOIN runs ON runs.key = idempotency.run
    WHERE idempotency.owner = %s AND idempotency.key = %s
"""
_NAME_REPLY = f"""
    INSERT INTO idempotency (owner, key, run, body_hash, created_ms, after)
    SELECT %(owner)s, %(key)s, own.key, %(hash)s, %(now)s, %(after)s FROM ({_OWN_RUN}) AS own
    ON CONFLICT (owner, key) DO UPDATE SET run = excluded.run, body_hash = excluded.body_hash,
        created_ms = excluded.created_ms, after = excluded.after
"""
_KEEP_REQUEST = f"""
    INSERT INTO requests (run, after, data) SELECT own.key, %(after)s, %(data)s FROM ({_OWN_RUN}) AS own
    ON CONFLICT (run, after) DO NOTHING
"""
_UNKNOWN = """
    SELECT given.place FROM unnest(%s::text[]) WITH ORDINALITY AS given (id, place)
    WHERE NOT EXISTS (SELECT FROM conversations WHERE conversations.id = given.id) ORDER BY given.place
"""
# Bytes of a conversation's events, and of everything about it: the index takes about four times the text.
_BYTES = """
    (SELECT coalesce(sum(bytes), 0)::bigint FROM runs WHERE conversation = conversations.key)
"""
_ALL_BYTES = f"""
    1000 + {_BYTES}
    + (SELECT coalesce(sum(octet_length(text)), 0) FROM messages WHERE conversation = conversations.key)
    + 4 * (
        SELECT coalesce(sum(octet_length(search.text)), 0) FROM search JOIN runs ON runs.key = search.run
        WHERE runs.conversation = conversations.key
    )
"""
_OLDEST = f"""
    SELECT key, id, {_ALL_BYTES} AS size FROM conversations
    WHERE updated_ms <= %s AND NOT {_IS_RUNNING} ORDER BY updated_ms LIMIT {_DELETED_AT_ONCE}
"""


class PostgresStore:
    def __init__(self, url: str) -> None:
        self.url = url  # it may contain a password
        self.connections = self._connections = Connections(url)
        self.written: Callable[[str, int], None] = lambda run_id, last: None  # called after each commit of events
        self.appender = self._appender = Appender(self._connections)
        self._folding = folding.Folding(self._connections)

    async def open(self, now_ms: int) -> str | None:
        """Checks the tables. Optional. Returns no warning.

        Raises `SettingsError` for what only the operator can fix, `StoreUnavailable` for what may be temporary.
        """
        await self._connections.run(_check)
        self._folding.start()
        return None

    async def close(self) -> None:
        await self._folding.close()
        await self._appender.close()
        await self._connections.close()

    # --- runs ---------------------------------------------------------------------------------------

    async def begin_run(self, new: NewRun) -> Begun:
        entry = await searching.entry_of([message.text for message in new.messages])
        return await self._connections.run(lambda connection: writing.begin(connection, new, entry))

    async def begin_with(self, new: NewRun, events: Sequence[DocumentEvent], end: RunEnd | None) -> Refused | Written:
        """In two transactions: each is short, and the run may be seen in between."""
        begun = await self.begin_run(new)
        if not isinstance(begun, Lease):
            return begun
        return await (self.append(begun, 1, events) if end is None else self.end_run(begun, 1, events, end))

    async def claim_run(self, run_id: str, epoch: int) -> Lease | None:
        claim = secrets.token_hex(8)

        async def work(connection: Connection) -> bool:
            if (await connection.execute(_CLAIM, [claim, run_id, epoch])).rowcount:
                return True
            return bool((await connection.execute(_CLAIMED, [run_id, epoch + 1, claim])).rowcount)

        return Lease(run_id, epoch + 1) if await self._connections.run(work) else None

    async def append(self, lease: Lease, first_number: int, events: Sequence[DocumentEvent]) -> Written:
        if events and Paused not in map(type, events):
            data = batches.encode(events)
            if await self._appender.append(Batch(lease.run_id, lease.epoch, first_number, len(events), data)):
                self.written(lease.run_id, first_number + len(events) - 1)
                return Stored(len(data))
        written = await self._connections.transaction(
            lambda connection: writing.append(connection, lease, first_number, events)
        )
        self._report(written, lease, first_number + len(events) - 1)
        return written

    async def end_run(self, lease: Lease, first_number: int, events: Sequence[DocumentEvent], end: RunEnd) -> Written:
        owner, prompts = await self._begun(lease.run_id, end)
        entry = await searching.entry_of([*prompts, *end.words])
        written = await self._connections.run(
            lambda connection: writing.end(connection, lease, first_number, events, end, owner, entry)
        )
        self._report(written, lease, first_number + len(events) - 1)
        return written

    async def _begun(self, run_id: str, end: RunEnd) -> tuple[str, list[str]]:
        """The run's owner, and what it was asked."""
        if end.begun is not None:
            return end.begun.owner, [message.text for message in end.begun.messages]
        rows = await self._select(_PROMPTS, [run_id])
        return (rows[0]["owner"] if rows else ""), [row["text"] for row in rows if row["text"] is not None]

    def _report(self, written: Written, lease: Lease, last: int) -> None:
        if isinstance(written, Stored):
            self.written(lease.run_id, last)

    async def run(self, id: str, owner: str) -> RunRecord | None:
        found = await self._select(f"{RUNS} WHERE runs.id = %s AND conversations.owner = %s", [id, owner])
        return run_of(found[0]) if found else None

    async def runs_of(self, conversation_id: str, owner: str) -> list[RunRecord]:
        where = "WHERE conversations.owner = %s AND conversations.id = %s ORDER BY runs.key"
        return [run_of(row) for row in await self._select(f"{RUNS} {where}", [owner, conversation_id])]

    async def recent_runs(self, owner: str, limit: int) -> list[tuple[RunRecord, str, str]]:
        runs = RUNS.replace("SELECT ", f"SELECT conversations.title, {_PROMPT} AS prompt, ", 1)
        where = "WHERE conversations.owner = %s ORDER BY runs.key DESC LIMIT %s"
        rows = await self._select(f"{runs} {where}", [owner, limit])
        titled = [(row.pop("title"), row.pop("prompt") or "", row) for row in rows]
        return [(run_of(row), title, title_of(prompt)) for title, prompt, row in titled]

    async def unfinished_runs(self) -> list[RunRecord]:
        return [run_of(row) for row in await self._select(f"{RUNS} WHERE runs.state = 'running'", [])]

    async def find_run_by_calls(self, owner: str, call_ids: Iterable[str]) -> RunRecord | None:
        joined = f"{RUNS} JOIN calls ON calls.run = runs.key WHERE calls.owner = %s AND calls.id = ANY(%s) LIMIT 1"
        found = await self._select(joined, [owner, list(call_ids)])
        return run_of(found[0]) if found else None

    async def find_run_by_idempotency(self, owner: str, key: str) -> IdempotentRun | None:
        found = await self._select(_IDEMPOTENT, [owner, key])
        return msgspec.convert(found[0], IdempotentRun) if found else None

    async def name_reply(self, owner: str, key: str, reply: IdempotentRun, now_ms: int) -> None:
        values = {"id": reply.run_id, "owner": owner, "key": key, "hash": reply.body_hash, "after": reply.after}
        await self._execute(_NAME_REPLY, {**values, "now": now_ms})

    async def keep_request(self, run_id: str, owner: str, after: int, data: bytes) -> None:
        await self._execute(_KEEP_REQUEST, {"id": run_id, "owner": owner, "after": after, "data": data})

    async def kept_request(self, run_id: str, owner: str, after: int) -> bytes | None:
        found = await self._select(
            f"SELECT data FROM requests WHERE run = ({_OWN_RUN}) AND after = %(after)s",
            {"id": run_id, "owner": owner, "after": after},
        )
        return bytes(found[0]["data"]) if found else None

    async def forget_request(self, run_id: str, owner: str, after: int) -> bool:
        which, values = f"run = ({_OWN_RUN}) AND after = %(after)s", {"id": run_id, "owner": owner, "after": after}
        was_there = False

        async def work(connection: Connection) -> bool:
            nonlocal was_there
            found = await connection.execute(f"SELECT FROM requests WHERE {which} FOR UPDATE", values)
            if not found.rowcount:
                return was_there  # the answer to the first try was lost
            was_there = True
            await connection.execute(f"DELETE FROM requests WHERE {which}", values)
            return True

        return await self._connections.transaction(work)

    async def set_decided(self, run_id: str, owner: str) -> None:
        change = f"UPDATE runs SET needs_decision = false WHERE key = ({_OWN_RUN})"
        await self._execute(change, {"id": run_id, "owner": owner})

    async def events(self, run_id: str, owner: str, *, after: int = 0, max_bytes: int = 1_000_000) -> EventPage:
        next = min(max(after, 0), _LAST_NUMBER - 1) + 1
        most = max_bytes // _SMALLEST_BATCH + 1
        values = {"id": run_id, "owner": owner, "next": next, "size": max_bytes, "most": most}
        found = await self._select(_EVENTS_AFTER, values)
        # The first batch contains event `next`, so its first events may have to be skipped.
        events = [event for row in found for event in folding.decode(row["data"], is_deflated=row["deflated"])]
        skipped = next - found[0]["first"] if found else 0
        return EventPage(next, events[skipped:])

    # --- conversations ------------------------------------------------------------------------------

    async def conversation(self, id: str, owner: str) -> ConversationRecord | None:
        found = await self._select(f"{_CONVERSATIONS} WHERE owner = %s AND id = %s", [owner, id])
        return conversation_of(found[0]) if found else None

    async def messages(self, conversation_id: str, owner: str) -> list[MessageRecord]:
        return msgspec.convert(await self._select(_MESSAGES, [owner, conversation_id]), list[MessageRecord])

    async def conversations(
        self, owner: str, *, limit: int = 20, before: str | None = None, query: str | None = None
    ) -> ConversationPage:
        if query is None or not query.strip():
            return await self._newest(owner, limit, before)
        words = query_words(query)
        return await self._matching(owner, limit, before, words) if words else ConversationPage([], None)

    async def find_by_fingerprint(self, owner: str, fingerprint: str) -> list[ConversationRecord]:
        where = f"WHERE owner = %s AND fingerprint = %s AND NOT {_IS_RUNNING} ORDER BY updated_ms DESC LIMIT %s"
        rows = await self._select(f"{_CONVERSATIONS} {where}", [owner, fingerprint, _SAME_FINGERPRINT])
        return [conversation_of(row) for row in rows]

    async def pinned_conversations(self, owner: str) -> list[ConversationRecord]:
        where = "WHERE owner = %s AND pinned ORDER BY updated_ms DESC LIMIT %s"
        rows = await self._select(f"{_CONVERSATIONS} {where}", [owner, _MOST_PINNED])
        return [conversation_of(row) for row in rows]

    async def change_conversation(self, id: str, owner: str, title: str | None, is_pinned: bool | None) -> bool:
        change = """
            UPDATE conversations SET title = coalesce(%s, title), pinned = coalesce(%s, pinned)
            WHERE owner = %s AND id = %s
        """
        return await self._execute(change, [title, is_pinned, owner, id]) > 0

    async def set_session(
        self, conversation_id: str, owner: str, session_id: str | None, fingerprint: str | None
    ) -> None:
        await self._execute(
            "UPDATE conversations SET session_id = %s, fingerprint = %s WHERE owner = %s AND id = %s",
            [session_id, fingerprint, owner, conversation_id],
        )

    async def unknown_conversations(self, ids: Sequence[str]) -> list[str]:
        return [ids[row["place"] - 1] for row in await self._select(_UNKNOWN, [list(ids)])]

    # --- deleting -----------------------------------------------------------------------------------

    async def delete_conversation(self, id: str, owner: str) -> bool:
        was_there = False

        async def work(connection: Connection) -> bool:
            nonlocal was_there
            found = await connection.execute("SELECT key FROM conversations WHERE owner = %s AND id = %s", [owner, id])
            row = await found.fetchone()
            if row is None:
                return was_there  # the answer to the first try was lost
            was_there = True
            await _delete(connection, [row[0]])
            return True

        return await self._connections.transaction(work)

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
        if max_bytes is not None:
            deleted += await self._shrink(max_bytes, file_sizes or {})
        return deleted

    async def prune_owners(self, max_bytes: int) -> int:
        sizes = f"SELECT key, owner, {_BYTES} AS size, {_IS_RUNNING} AS is_running FROM conversations"
        stored: Counter[str] = Counter()
        old: list[int] = []
        for row in await self._select(f"{sizes} ORDER BY updated_ms DESC", []):
            stored[row["owner"]] += row["size"]
            if stored[row["owner"]] > max_bytes and not row["is_running"]:
                old.append(row["key"])
        deleted = 0
        for first in range(0, len(old), _DELETED_AT_ONCE):
            some = old[first : first + _DELETED_AT_ONCE]
            deleted += await self._connections.transaction(partial(_delete_idle, keys=some))
        return deleted

    async def size(self) -> int:
        sizes = "SELECT sum(pg_total_relation_size(name::regclass))::bigint AS size FROM unnest(%s::text[]) AS name"
        return int((await self._select(sizes, [_TABLES]))[0]["size"])

    async def _delete_oldest(self, until_ms: int) -> int:
        async def work(connection: Connection) -> int:
            found = await connection.execute(_OLDEST, [until_ms])
            return await _delete_idle(connection, [key for key, _, _ in await found.fetchall()])

        return await self._connections.transaction(work)

    async def _shrink(self, max_bytes: int, file_sizes: Mapping[str, int]) -> int:
        """By what the rows take, not the files: the server gives their space back later."""
        deleted_ids = set(await self.unknown_conversations(list(file_sizes)))
        files = sum(size for id, size in file_sizes.items() if id not in deleted_ids)
        (total,) = await self._select(f"SELECT coalesce(sum({_ALL_BYTES}), 0)::bigint AS size FROM conversations", [])
        surplus, deleted = total["size"] + files - max_bytes, 0
        while surplus > 0:
            some = await self._select(_OLDEST, [2**62])
            keys: list[int] = []
            for row in some:
                if surplus > 0:
                    keys.append(row["key"])
                    surplus -= int(row["size"]) + file_sizes.get(row["id"], 0)
            if not keys:
                break
            deleted += await self._connections.transaction(partial(_delete_idle, keys=keys))
        return deleted

    # --- lists --------------------------------------------------------------------------------------

    async def _newest(self, owner: str, limit: int, before: str | None) -> ConversationPage:
        where, values = "WHERE owner = %s", list[int | str]([owner])
        if before is not None:
            place = place_of(before, ByTime)
            where += " AND (updated_ms, id) < (%s, %s)"
            values += [place.updated_ms, place.id]
        rows = await self._select(
            f"{_CONVERSATIONS} {where} ORDER BY updated_ms DESC, id DESC LIMIT %s", [*values, limit + 1]
        )
        page = [conversation_of(row) for row in rows[:limit]]
        last = page[-1] if page and len(rows) > limit else None
        return ConversationPage(
            [FoundConversation(conversation) for conversation in page],
            None if last is None else opaque(ByTime(last.updated_ms, last.id)),
        )

    async def _matching(self, owner: str, limit: int, before: str | None, words: list[str]) -> ConversationPage:
        """A conversation ranks by its newest matching run."""
        place = START if before is None else place_of(before, ByRun)
        query = search_tokens.query(words)

        async def work(connection: Connection) -> tuple[list[tuple[int, int]], dict[int, Any], dict[int, str]]:
            found = await searching.find(connection, owner, query, place, limit + 1)
            rows = await rows_of(connection, _FOUND, [[conversation for conversation, _ in found[:limit]]])
            texts = await rows_of(
                connection,
                "SELECT run, text FROM search WHERE part = 0 AND run = ANY(%s)",
                [[run for _, run in found[:limit]]],
            )
            return found, {row.pop("key"): row for row in rows}, {row["run"]: row["text"] for row in texts}

        found, rows, texts = await self._connections.transaction(work)
        page = [
            FoundConversation(conversation_of(rows[key]), snippet(texts[run], words))
            for key, run in found[:limit]
            if key in rows and run in texts  # not deleted in the meantime
        ]
        if len(found) <= limit:
            return ConversationPage(page, None)
        top = found[0][1] if place is START else place.top
        return ConversationPage(page, opaque(ByRun(top, found[limit - 1][1])))

    async def _select(self, sql: str, values: Sequence[Any] | Mapping[str, Any]) -> list[dict[str, Any]]:
        return await self._connections.run(lambda connection: rows_of(connection, sql, values))

    async def _execute(self, sql: str, values: Sequence[Any] | Mapping[str, Any]) -> int:
        async def work(connection: Connection) -> int:
            return (await connection.execute(sql, values)).rowcount

        return await self._connections.run(work)


async def _check(connection: Connection) -> None:
    schema.check_server(connection)
    await schema.check(connection)


async def rows_of(connection: Connection, sql: str, values: Sequence[Any] | Mapping[str, Any]) -> list[dict[str, Any]]:
    async with connection.cursor(row_factory=dict_row, binary=True) as cursor:
        await cursor.execute(sql, values)
        return await cursor.fetchall()


async def _delete(connection: Connection, keys: Sequence[int]) -> None:
    await connection.execute(f"SET LOCAL statement_timeout = '{_DELETE_SECONDS}s'")
    await connection.execute("DELETE FROM conversations WHERE key = ANY(%s)", [list(keys)])


async def _delete_idle(connection: Connection, keys: Sequence[int]) -> int:
    """Those of them that have no running run, locked against one that begins."""
    locked = await connection.execute(
        "SELECT key FROM conversations WHERE key = ANY(%s) ORDER BY key FOR UPDATE", [list(keys)]
    )
    await locked.fetchall()
    idle = await connection.execute(
        f"SELECT key FROM conversations WHERE key = ANY(%s) AND NOT {_IS_RUNNING}", [list(keys)]
    )
    found = [key for (key,) in await idle.fetchall()]
    await _delete(connection, found)
    return len(found)
