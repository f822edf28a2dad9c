"""The queue of a history in a SQLite file: a table, from which the gateways that share the file take entries."""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from cursor_gateway.errors import Failure
from cursor_gateway.store.queue import (
    KEPT_SECONDS,
    LAST,
    MOST_BYTES,
    Begun,
    Candidate,
    ClaimedEntry,
    Entry,
    Full,
    NamedWork,
    NewEntry,
    Put,
    QueueFigures,
    about_of,
    encode_about,
    encode_failure,
    failure_of,
    order,
)

_COLUMNS = """
    id AS run_id, owner, conversation AS conversation_id, dedupe AS key, body_hash, priority, state, created_ms, due_ms,
    expires_ms, about, failure
"""
_HAS_ROOM = """
    SELECT count(*) < :most AND total(length(kept) + length(body)) < :most_bytes AS it
    FROM queue WHERE owner = :owner AND state = 'waiting'
"""
# Only keys that callers choose have a hash: other requests may be asked again.
_HAS_BEGUN = "SELECT 1 AS it FROM idempotency WHERE owner = :owner AND key = :key AND :body_hash <> ''"
_PUT = f"""
    INSERT OR IGNORE INTO queue (
        id, owner, conversation, dedupe, body_hash, priority, created_ms, due_ms, expires_ms, about, kept, body
    )
    SELECT :id, :owner, :conversation, :key, :body_hash, :priority, :now, :due, :due + :ttl, :about, :kept,
        :body
    WHERE ({_HAS_ROOM}) AND NOT EXISTS ({_HAS_BEGUN})
"""
# Messages of one conversation start in the order in which they were accepted, one after the other.
_CANDIDATE = """
    queue.state = 'waiting' AND queue.due_ms <= :now AND queue.expires_ms > :now
    AND NOT EXISTS (
        SELECT 1 FROM conversations JOIN runs ON runs.conversation = conversations.key AND runs.state = 'running'
        WHERE conversations.owner = queue.owner AND conversations.id = queue.conversation
    )
    AND NOT EXISTS (
        SELECT 1 FROM queue AS other
        WHERE queue.conversation <> '' AND other.owner = queue.owner AND other.conversation = queue.conversation
            AND (other.state = 'claimed' OR (
                other.state = 'waiting' AND (other.due_ms, other.key) < (queue.due_ms, queue.key)
            ))
    )
"""
_CANDIDATES = f"""
    SELECT run_id, owner, priority, due_ms FROM (
        SELECT id AS run_id, owner, priority, due_ms,
            row_number() OVER (PARTITION BY owner ORDER BY priority DESC, due_ms, key) AS place
        FROM queue WHERE {_CANDIDATE}
    ) WHERE place = 1
"""
_FIRST = f"""
    SELECT id, epoch, body FROM queue WHERE owner = :owner AND {_CANDIDATE} ORDER BY priority DESC, due_ms, key LIMIT 1
"""
_DUE = "SELECT id AS run_id, owner, priority, due_ms FROM queue WHERE state = 'waiting' AND due_ms <= :now ORDER BY key"
_HELD = """
    SELECT conversations.owner, count(*) AS places
    FROM runs JOIN conversations ON conversations.key = runs.conversation
    WHERE runs.state = 'running' GROUP BY conversations.owner
"""
# Few runs are active, so their keys are looked up; there may be many keys.
_NAMED = """
    SELECT owner, dedupe AS key, id AS run_id, state, body_hash FROM queue
    WHERE state <> 'begun' AND dedupe >= :beginning AND dedupe < :end
    UNION ALL
    SELECT idempotency.owner, idempotency.key, runs.id AS run_id, runs.state, idempotency.body_hash
    FROM runs CROSS JOIN idempotency ON idempotency.run = runs.key
    WHERE runs.state = 'running' AND idempotency.key >= :beginning AND idempotency.key < :end
"""
_CLAIM = """
    UPDATE queue SET state = 'claimed', instance = :instance, epoch = :epoch + 1
    WHERE id = :id AND epoch = :epoch AND state = 'waiting'
"""
_RELEASE = """
    UPDATE queue SET state = 'waiting', instance = NULL, epoch = epoch + 1
    WHERE id = :id AND epoch = :epoch AND state = 'claimed'
"""
_FAIL = "UPDATE queue SET state = 'failed', body = x'', failure = :failure, ended_ms = :now"


class SqliteQueue:
    def __init__(
        self,
        rows: Callable[[str, Mapping[str, object]], Awaitable[list[dict[str, Any]]]],
        write: Callable[[str, Mapping[str, object]], Awaitable[int]],
        now_ms: Callable[[], int],
    ) -> None:
        """`rows` and `write` execute one statement each, in a transaction of its own."""
        self._rows, self._write, self._now_ms = rows, write, now_ms

    async def put(self, new: NewEntry) -> Put | Entry | Begun | Full:
        now = self._now_ms()
        values = {
            "id": new.run_id,
            "owner": new.owner,
            "conversation": new.conversation_id,
            "key": new.key,
            "body_hash": new.body_hash,
            "priority": new.priority,
            "now": now,
            "due": max(now, new.run_at_ms or 0),
            "ttl": new.ttl_ms,
            "most": new.most,
            "most_bytes": MOST_BYTES,
            "about": encode_about(new.about),
            "kept": new.kept,
            "body": new.body,
        }
        while not await self._write(_PUT, values):
            known = None if new.key is None else await self.entry_of_key(new.owner, new.key)
            if known is not None:
                return known
            if await self._rows(_HAS_BEGUN, values):
                return Begun()
            if not (await self._rows(_HAS_ROOM, values))[0]["it"]:
                return Full()
        return Put()

    # --- looking ------------------------------------------------------------------------------------

    async def entry(self, run_id: str, owner: str) -> Entry | None:
        where = "WHERE id = :id AND owner = :owner AND state <> 'begun'"
        return await self._first(where, {"id": run_id, "owner": owner})

    async def kept_request(self, run_id: str, owner: str) -> bytes | None:
        kept = "SELECT kept FROM queue WHERE id = :id AND owner = :owner AND kept <> x''"
        return next((row["kept"] for row in await self._rows(kept, {"id": run_id, "owner": owner})), None)

    async def entry_of_key(self, owner: str, key: str) -> Entry | None:
        where = "WHERE owner = :owner AND dedupe = :key AND state IN ('waiting', 'claimed')"
        return await self._first(where, {"owner": owner, "key": key})

    async def entries(self, owner: str | None, limit: int) -> list[Entry]:
        where = "WHERE state IN ('waiting', 'claimed') AND owner = coalesce(:owner, owner) ORDER BY due_ms, key"
        found = await self._entries(where, {"owner": owner})
        places = {id: place for place, id in enumerate(await self._ordered())}
        found.sort(key=lambda one: (places.get(one.run_id, -1 if one.state == "claimed" else len(places)), one.due_ms))
        return found[:limit]

    async def named(self, beginning: str) -> list[NamedWork]:
        values = {"beginning": beginning, "end": beginning + LAST}
        return [NamedWork(**row) for row in await self._rows(_NAMED, values)]

    async def is_awaited(self, owner: str, conversation_id: str) -> bool:
        where = "owner = :owner AND conversation = :id AND state IN ('waiting', 'claimed') AND due_ms <= :now"
        values = {"owner": owner, "id": conversation_id, "now": self._now_ms()}
        return bool(await self._rows(f"SELECT 1 AS it FROM queue WHERE {where} LIMIT 1", values))

    async def position(self, run_id: str) -> int | None:
        ordered = await self._ordered()
        return ordered.index(run_id) + 1 if run_id in ordered else None

    async def _ordered(self) -> list[str]:
        waiting = [Candidate(**row) for row in await self._rows(_DUE, {"now": self._now_ms()})]
        held = Counter({row["owner"]: row["places"] for row in await self._rows(_HELD, {})}) if waiting else {}
        return order(waiting, held)

    async def queue_figures(self) -> QueueFigures:
        now = self._now_ms()
        figures = """
            SELECT count(*) FILTER (WHERE due_ms <= :now) AS length, min(due_ms) AS oldest,
                min(due_ms) FILTER (WHERE due_ms > :now) AS next
            FROM queue WHERE state = 'waiting'
        """
        (row,) = await self._rows(figures, {"now": now})
        age = (now - row["oldest"]) / 1000 if row["length"] else 0.0
        return QueueFigures(row["length"], age, None if row["next"] is None else (row["next"] - now) / 1000)

    async def _first(self, where: str, values: Mapping[str, object]) -> Entry | None:
        return next(iter(await self._entries(where, values)), None)

    async def _entries(self, where: str, values: Mapping[str, object]) -> list[Entry]:
        now = self._now_ms()
        return [_entry(row, now) for row in await self._rows(f"SELECT {_COLUMNS} FROM queue {where}", values)]

    # --- taking -------------------------------------------------------------------------------------

    async def candidates(self) -> list[Candidate]:
        return [Candidate(**row) for row in await self._rows(_CANDIDATES, {"now": self._now_ms()})]

    async def claim_entry(self, owner: str, instance: str) -> ClaimedEntry | None:
        while found := await self._rows(_FIRST, {"owner": owner, "now": self._now_ms()}):
            (first,) = found
            if await self._write(_CLAIM, {"id": first["id"], "epoch": first["epoch"], "instance": instance}):
                return ClaimedEntry(first["id"], first["epoch"] + 1, first["body"])
        return None

    async def release(self, run_id: str, epoch: int) -> None:
        await self._write(_RELEASE, {"id": run_id, "epoch": epoch})

    async def claimants(self) -> list[str]:
        claimed = "SELECT DISTINCT instance FROM queue WHERE state = 'claimed'"
        return [row["instance"] for row in await self._rows(claimed, {})]

    async def release_of(self, instances: Collection[str]) -> int:
        released = "UPDATE queue SET state = 'waiting', instance = NULL, epoch = epoch + 1"
        where = "WHERE state = 'claimed' AND instance = :instance"
        return sum([await self._write(f"{released} {where}", {"instance": instance}) for instance in instances])

    # --- ending -------------------------------------------------------------------------------------

    async def fail(self, run_id: str, epoch: int, why: Failure) -> None:
        values = {"id": run_id, "epoch": epoch, "failure": encode_failure(why), "now": self._now_ms()}
        await self._write(f"{_FAIL} WHERE id = :id AND epoch = :epoch AND state = 'claimed'", values)

    async def cancel(self, run_id: str, owner: str, why: Failure) -> bool:
        values = {"id": run_id, "owner": owner, "failure": encode_failure(why), "now": self._now_ms()}
        return await self._write(f"{_FAIL} WHERE id = :id AND owner = :owner AND state = 'waiting'", values) > 0

    async def forget(self, run_id: str, owner: str) -> bool:
        forget = "DELETE FROM queue WHERE id = :id AND owner = :owner AND state <> 'begun'"
        return await self._write(forget, {"id": run_id, "owner": owner}) > 0

    async def expire(self, why: Failure) -> int:
        now = self._now_ms()
        old = {"before": now - KEPT_SECONDS * 1000}
        where = "ended_ms < :before AND due_ms < :before"  # a time that was cancelled must not be scheduled again
        if await self._rows(f"SELECT 1 AS it FROM queue WHERE {where} LIMIT 1", old):
            await self._write(f"DELETE FROM queue WHERE {where}", old)
        late = "state = 'waiting' AND expires_ms <= :now"
        if not await self._rows(f"SELECT 1 AS it FROM queue WHERE {late}", {"now": now}):
            return 0
        return await self._write(f"{_FAIL} WHERE {late}", {"now": now, "failure": encode_failure(why)})


def _entry(row: dict[str, Any], now: int) -> Entry:
    failure = row.pop("failure")
    return Entry(
        **{**row, "about": about_of(row["about"])},
        age_seconds=(now - row["due_ms"]) / 1000,
        failure=failure_of(failure) if failure is not None else None,
    )
