"""The history in a PostgreSQL database, as a `Store`.

Every call is one transaction, and may be repeated when its connection is lost: see `connections.py`. A batch of events
is on the server's disk before `append` returns. Deleting a conversation removes all its rows at once.
"""

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Raw

from cursor_gateway.model.document_events import DocumentEvent, Paused
from cursor_gateway.stages import search_tokens
from cursor_gateway.store import batches
from cursor_gateway.store.base import (
    Behind,
    FoundConversation,
    Lease,
    MakeNotices,
    NewRun,
    Refused,
    RunEnd,
    RunRecord,
    Stored,
    Written,
)
from cursor_gateway.store.cluster import NewEvents
from cursor_gateway.store.postgres import events as event_rows
from cursor_gateway.store.postgres import schema, searching, writing
from cursor_gateway.store.postgres.connections import PostgresConnection, PostgresConnections, named, rows_of
from cursor_gateway.store.postgres.events import AppendBatch, Appender
from cursor_gateway.store.sql import (
    DELETED_AT_ONCE,
    IS_RUNNING,
    MOST,
    OWN_RUN,
    ByRun,
    SqlStore,
    conversation_of,
    run_of,
    select_conversations,
    select_runs,
)
from cursor_gateway.store.texts import snippet

_SMALLEST_BATCH = 32  # bytes: so a page has at most so many batches
_DELETE_SLOWLY = "SET LOCAL statement_timeout = '25s'"  # a conversation may have a hundred thousand batches
_TABLES = ["conversations", "runs", "messages", "events", "idempotency", "requests", "calls", "search"]

# --- statements -------------------------------------------------------------------------------------

_CLAIM = "UPDATE runs SET epoch = epoch + 1, claim = %s WHERE id = %s AND epoch = %s AND state = 'running'"
_CLAIMED = "SELECT FROM runs WHERE id = %s AND epoch = %s AND claim = %s"
RUNS = select_runs("runs.last")
_CONVERSATIONS = select_conversations("volume")
# The batch with event `next` and those after it, until they have `size` bytes.
_EVENTS_AFTER = f"""
    SELECT first, data, deflated FROM (
        SELECT first, data, deflated, sum(size) OVER (ORDER BY first) - size AS before
        FROM (
            SELECT first, data, deflated,
                CASE WHEN deflated THEN {event_rows.ROW_BYTES} ELSE octet_length(data) END AS size
            FROM events, ({OWN_RUN}) AS own
            WHERE events.run = own.key AND first >= coalesce(
                (SELECT max(first) FROM events WHERE events.run = own.key AND first <= :next), 0
            )
            ORDER BY first LIMIT :most
        ) AS page
    ) AS sized
    WHERE before < :size ORDER BY first
"""
_PROMPTS = """
    SELECT conversations.owner, messages.text
    FROM runs
        JOIN conversations ON conversations.key = runs.conversation
        LEFT JOIN messages ON messages.run = runs.key
    WHERE runs.id = %s ORDER BY messages.number
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
    WHERE updated_ms <= %s AND NOT {IS_RUNNING} ORDER BY updated_ms LIMIT {DELETED_AT_ONCE}
"""


class PostgresStore(SqlStore):
    _runs = RUNS
    _conversations = _CONVERSATIONS
    _is_pinned = "pinned"
    _sizes = f"SELECT key, owner, {_BYTES} AS size FROM conversations ORDER BY updated_ms DESC"

    _now_ms, _locked = writing.NOW_MS, "FOR UPDATE SKIP LOCKED"

    def __init__(self, url: str, make_notices: MakeNotices | None = None) -> None:
        self._make_notices = make_notices
        self.url = url  # it may contain a password
        self.connections = PostgresConnections(url)
        self.health = self.connections.health
        self.written: Callable[[NewEvents], None] = lambda events: None  # see `ClusterStore.on_written`
        self.appender = Appender(self.connections)
        self._folding = event_rows.Folding(self.connections)

    async def open(self, now_ms: int) -> str | None:
        """Checks the tables. Optional. Returns no warning.

        Raises `SettingsError` for what only the operator can fix, `StoreUnavailable` for what may be temporary.
        """
        await self.connections.run(schema.check)
        self._folding.start()
        return None

    async def probe(self) -> None:
        await self.connections.execute("SELECT 1")

    async def close(self) -> None:
        await self._folding.close()
        await self.appender.close()
        await self.connections.close()

    # --- runs ---------------------------------------------------------------------------------------

    async def begin_run(
        self, new: NewRun, events: Sequence[DocumentEvent] = (), end: RunEnd | None = None
    ) -> Refused | Written:
        """In two transactions: each is short, and the run may be seen in between."""
        entry = await searching.entry_of([message.text for message in new.messages])
        begun = await self.connections.run(lambda connection: writing.begin(connection, new, entry))
        if not isinstance(begun, Lease):
            return begun
        return await self.append(begun, 1, events, end) if events or end is not None else Stored(0)

    async def claim_run(self, run_id: str, epoch: int) -> Lease | None:
        claim = secrets.token_hex(8)
        values, claimed_values = [claim, run_id, epoch], [run_id, epoch + 1, claim]
        is_claimed = await self.connections.change(_CLAIM, values, _CLAIMED, claimed_values)
        return Lease(run_id, epoch + 1) if is_claimed else None

    async def append(
        self, lease: Lease, first_number: int, events: Sequence[DocumentEvent], end: RunEnd | None = None
    ) -> Written:
        data = batches.encode(events) if events else b""
        if end is not None:
            owner, prompts = await self._begun(lease.run_id, end)
            entry = await searching.entry_of([*prompts, *end.words])
            make = self._make_notices
            call = self.connections.run if make is None else self.connections.transaction
            written = await call(
                lambda connection: writing.end(connection, lease, first_number, events, data, end, owner, entry, make)
            )
        elif (
            events
            and Paused not in map(type, events)
            and await self.appender.append(AppendBatch(lease.run_id, lease.epoch, first_number, len(events), data))
        ):
            written = Stored(len(data))
        else:
            written = await self.connections.transaction(
                lambda connection: writing.append(connection, lease, first_number, events, self._make_notices)
            )
        if isinstance(written, Stored):
            self.written(NewEvents(lease.run_id, first_number, Raw(data or b"[]")))
        elif isinstance(written, Behind):
            self.appender.rewinds += 1
        return written

    async def _begun(self, run_id: str, end: RunEnd) -> tuple[str, list[str]]:
        """The run's owner, and what it was asked."""
        if end.begun is not None:
            return end.begun.owner, [message.text for message in end.begun.messages]
        rows = await self.connections.select(_PROMPTS, [run_id])
        return (rows[0]["owner"] if rows else ""), [row["text"] for row in rows if row["text"] is not None]

    async def find_run_by_calls(self, owner: str, call_ids: Iterable[str]) -> RunRecord | None:
        joined = f"{RUNS} JOIN calls ON calls.run = runs.key WHERE calls.owner = %s AND calls.id = ANY(%s) LIMIT 1"
        found = await self.connections.select(joined, [owner, list(call_ids)])
        return run_of(found[0]) if found else None

    async def _events(self, run_id: str, owner: str, next: int, max_bytes: int) -> list[DocumentEvent]:
        most = max_bytes // _SMALLEST_BATCH + 1
        values = {"id": run_id, "owner": owner, "next": next, "size": max_bytes, "most": most}
        found = await self._select(_EVENTS_AFTER, values)
        return [
            event
            for row in found
            for event in event_rows.decode(row["data"], max(0, next - row["first"]), is_deflated=row["deflated"])
        ]

    async def unknown_conversations(self, ids: Sequence[str]) -> list[str]:
        return [ids[row["place"] - 1] for row in await self.connections.select(_UNKNOWN, [list(ids)])]

    # --- deleting -----------------------------------------------------------------------------------

    async def delete_conversation(self, id: str, owner: str) -> bool:
        delete = """
            WITH queued AS (
                DELETE FROM commands WHERE owner = :owner AND conversation = :id AND due IS NOT NULL
            )
            DELETE FROM conversations WHERE owner = :owner AND id = :id
        """
        return await self._delete_row(delete, {"owner": owner, "id": id})

    async def _delete_row(self, sql: str, values: Mapping[str, object]) -> bool:
        was_there = False

        async def work(connection: PostgresConnection) -> bool:
            nonlocal was_there
            await connection.execute(_DELETE_SLOWLY)
            was_there |= (await connection.execute(named(sql), values)).rowcount > 0
            return was_there

        return await self.connections.transaction(work)

    async def size(self) -> int:
        sizes = "SELECT sum(pg_total_relation_size(name::regclass))::bigint AS size FROM unnest(%s::text[]) AS name"
        return int((await self.connections.select(sizes, [_TABLES]))[0]["size"])

    async def _delete_oldest(self, until_ms: int) -> int:
        async def work(connection: PostgresConnection) -> int:
            found = await connection.execute(_OLDEST, [until_ms])
            return await _delete_idle(connection, [key for key, _, _ in await found.fetchall()])

        return await self.connections.transaction(work)

    async def _delete_idle(self, keys: Sequence[int]) -> int:
        return await self.connections.transaction(partial(_delete_idle, keys=keys))

    async def _shrink(self, max_bytes: int | None, file_sizes: Mapping[str, int]) -> int:
        """By what the rows take, not the files: the server gives their space back later."""
        if max_bytes is None:
            return 0
        (total,) = await self.connections.select(
            f"SELECT coalesce(sum({_ALL_BYTES}), 0)::bigint AS size FROM conversations"
        )
        surplus, deleted = total["size"] + await self._size_of_files(file_sizes) - max_bytes, 0
        while surplus > 0:
            keys: list[int] = []
            for row in await self.connections.select(_OLDEST, [MOST]):
                if surplus > 0:
                    keys.append(row["key"])
                    surplus -= int(row["size"]) + file_sizes.get(row["id"], 0)
            if not keys:
                break
            deleted += await self._delete_idle(keys)
        return deleted

    # --- statements ---------------------------------------------------------------------------------

    async def _matches(
        self, owner: str, words: list[str], place: ByRun, limit: int
    ) -> tuple[list[int], list[FoundConversation]]:
        query = search_tokens.query(words)

        async def work(connection: PostgresConnection) -> tuple[list[tuple[int, int]], dict[int, Any], dict[int, str]]:
            found = await searching.find(connection, owner, query, place, limit + 1)
            keys, runs = [key for key, _ in found[:limit]], [run for _, run in found[:limit]]
            rows = await rows_of(connection, f"{_CONVERSATIONS} WHERE key = ANY(%s)", [keys])
            texts = await rows_of(connection, "SELECT run, text FROM search WHERE part = 0 AND run = ANY(%s)", [runs])
            return found, {row["key"]: row for row in rows}, {row["run"]: row["text"] for row in texts}

        found, rows, texts = await self.connections.transaction(work)
        page = [
            FoundConversation(conversation_of(rows[key]), snippet(texts[run], words))
            for key, run in found[:limit]
            if key in rows and run in texts  # not deleted in the meantime
        ]
        return [run for _, run in found], page

    async def _select(self, sql: str, values: Mapping[str, object], *, is_short: bool = False) -> list[dict[str, Any]]:
        return await self.connections.select(named(sql), values)

    async def _change(self, sql: str, values: Mapping[str, object]) -> list[dict[str, Any]]:
        return await self.connections.select(named(sql), values)

    async def _execute(self, sql: str, values: Mapping[str, object], *, is_short: bool = False) -> int:
        return await self.connections.execute(named(sql), values)


async def _delete_idle(connection: PostgresConnection, keys: Sequence[int]) -> int:
    """Those of them that have no running run, locked against one that begins."""
    await connection.execute("SELECT FROM conversations WHERE key = ANY(%s) ORDER BY key FOR UPDATE", [list(keys)])
    await connection.execute(_DELETE_SLOWLY)
    deleted = await connection.execute(
        f"DELETE FROM conversations WHERE key = ANY(%s) AND NOT {IS_RUNNING} RETURNING owner, id", [list(keys)]
    )
    gone = await deleted.fetchall()
    if gone:
        await connection.execute(
            "DELETE FROM commands USING unnest(%s::text[], %s::text[]) AS gone (owner, id)"
            " WHERE commands.owner = gone.owner AND conversation = gone.id AND due IS NOT NULL",
            [[owner for owner, _ in gone], [id for _, id in gone]],
        )
    return deleted.rowcount
