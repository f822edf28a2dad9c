"""The queue of a cluster: its commands that no process waits for. Runners claim them like all others (`cluster.py`)."""

from collections.abc import Mapping
from typing import Any

from cursor_gateway.errors import Failure, RunnerLost
from cursor_gateway.store.postgres.connections import PostgresConnections
from cursor_gateway.store.queue import (
    KEPT_SECONDS,
    LAST,
    Candidate,
    Entry,
    NamedWork,
    about_of,
    encode_failure,
    failure_of,
    order,
)

HAS_BEGUN = "EXISTS (SELECT FROM runs WHERE runs.id = commands.run_id)"
_ENTRIES = """
    SELECT run_id, owner, conversation AS conversation_id, dedupe AS key, body_hash, priority,
        CASE state WHEN 'done' THEN 'failed' WHEN 'queued' THEN 'waiting' ELSE state END AS state,
        (extract(epoch FROM created) * 1000)::bigint AS created_ms,
        (extract(epoch FROM due) * 1000)::bigint AS due_ms, (extract(epoch FROM expires) * 1000)::bigint AS expires_ms,
        extract(epoch FROM now() - due)::double precision AS age_seconds, about, failure
    FROM commands
"""
_OPEN = "due IS NOT NULL AND state <> 'done'"
_DUE = """
    SELECT run_id, owner, priority, (extract(epoch FROM due) * 1000)::bigint AS due_ms
    FROM commands WHERE state = 'waiting' AND due <= now() ORDER BY key
"""
_HELD = """
    SELECT conversations.owner, count(*) AS places
    FROM runs JOIN conversations ON conversations.key = runs.conversation
    WHERE runs.state = 'running' GROUP BY conversations.owner
"""
_NAMED = f"""
    SELECT owner, dedupe AS key, run_id,
        CASE state WHEN 'done' THEN 'failed' WHEN 'queued' THEN 'waiting' ELSE state END AS state, body_hash
    FROM commands
    WHERE due IS NOT NULL AND NOT {HAS_BEGUN} AND dedupe >= %(beginning)s AND dedupe < %(end)s
    UNION ALL
    SELECT idempotency.owner, idempotency.key, runs.id, runs.state, idempotency.body_hash
    FROM runs JOIN idempotency ON idempotency.run = runs.key
    WHERE runs.state = 'running' AND idempotency.key >= %(beginning)s AND idempotency.key < %(end)s
"""
_FAIL = "UPDATE commands SET state = 'done', body = '', failure = %(failure)s, ended = now()"
_GIVEN_UP = RunnerLost("The request was given up before it started; send it again.").failure()


class PostgresQueue:
    def __init__(self, connections: PostgresConnections) -> None:
        self._connections = connections

    async def entry(self, run_id: str, owner: str) -> Entry | None:
        where = f"WHERE run_id = %(id)s AND owner = %(owner)s AND due IS NOT NULL AND NOT {HAS_BEGUN}"
        return await self._first(where, {"id": run_id, "owner": owner})

    async def kept_request(self, run_id: str, owner: str) -> bytes | None:
        where = f"run_id = %s AND owner = %s AND due IS NOT NULL AND kept <> '' AND NOT {HAS_BEGUN}"
        found = await self._connections.select(f"SELECT kept FROM commands WHERE {where}", [run_id, owner])
        return next((bytes(row["kept"]) for row in found), None)

    async def entry_of_key(self, owner: str, key: str) -> Entry | None:
        where = f"WHERE owner = %(owner)s AND dedupe = %(key)s AND {_OPEN}"
        return await self._first(where, {"owner": owner, "key": key})

    async def entries(self, owner: str | None, limit: int) -> list[Entry]:
        where = f"WHERE {_OPEN} AND owner = coalesce(%(owner)s, owner) AND NOT {HAS_BEGUN} ORDER BY due, key"
        found = await self._entries(where, {"owner": owner})
        places = {id: place for place, id in enumerate(await self._ordered())}
        found.sort(key=lambda one: (places.get(one.run_id, -1 if one.state == "claimed" else len(places)), one.due_ms))
        return found[:limit]

    async def named(self, beginning: str) -> list[NamedWork]:
        values = {"beginning": beginning, "end": beginning + LAST}
        return [NamedWork(**row) for row in await self._connections.select(_NAMED, values)]

    async def is_awaited(self, owner: str, conversation_id: str) -> bool:
        where = f"owner = %s AND conversation = %s AND {_OPEN} AND due <= now() AND NOT {HAS_BEGUN}"
        return bool(
            await self._connections.select(f"SELECT FROM commands WHERE {where} LIMIT 1", [owner, conversation_id])
        )

    async def position(self, run_id: str) -> int | None:
        ordered = await self._ordered()
        return ordered.index(run_id) + 1 if run_id in ordered else None

    async def _ordered(self) -> list[str]:
        waiting = [Candidate(**row) for row in await self._connections.select(_DUE)]
        held = {row["owner"]: row["places"] for row in await self._connections.select(_HELD)} if waiting else {}
        return order(waiting, held)

    async def cancel(self, run_id: str, owner: str, why: Failure) -> bool:
        values = {"id": run_id, "owner": owner, "failure": encode_failure(why)}
        where = "run_id = %(id)s AND owner = %(owner)s AND due IS NOT NULL"
        cancelled = f"SELECT FROM commands WHERE {where} AND state = 'done' AND failure = %(failure)s"
        cancel = f"{_FAIL} WHERE {where} AND state IN ('waiting', 'queued')"
        return await self._connections.change(cancel, values, cancelled, values)

    async def forget(self, run_id: str, owner: str) -> bool:
        forget = f"DELETE FROM commands WHERE run_id = %s AND owner = %s AND due IS NOT NULL AND NOT {HAS_BEGUN}"
        return await self._connections.execute(forget, [run_id, owner]) > 0

    async def expire(self, why: Failure) -> int:
        """Old ones are removed with all other commands."""
        where = "WHERE state = 'waiting' AND expires <= now()"
        return await self._connections.execute(f"{_FAIL} {where}", {"failure": encode_failure(why)})

    async def _first(self, where: str, values: Mapping[str, object]) -> Entry | None:
        return next(iter(await self._entries(f"{where} ORDER BY key DESC LIMIT 1", values)), None)

    async def _entries(self, where: str, values: Mapping[str, object]) -> list[Entry]:
        return [_entry(row) for row in await self._connections.select(f"{_ENTRIES} {where}", values)]


# A request that was not started is shown for a day after its end and its time: a schedule must not send it again. One
# that was started is a run.
FORGET = f"""
    DELETE FROM commands WHERE state = 'done' AND ended < now() - interval '10 minutes'
        AND (due IS NULL OR {HAS_BEGUN} OR greatest(ended, due) < now() - interval '{KEPT_SECONDS} seconds')
"""


def _entry(row: dict[str, Any]) -> Entry:
    failure = row.pop("failure")
    if row["state"] == "failed":
        failure = failure_of(failure) if failure is not None else _GIVEN_UP
    return Entry(**{**row, "about": about_of(row["about"])}, failure=failure)
