"""Members, commands, watchers and hints of a cluster, in its PostgreSQL database.

As in `store.py`, work may be repeated when its connection is lost, so it first checks what is already stored.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import asdict

from cursor_gateway.errors import Failure, StoreUnavailable
from cursor_gateway.store import batches
from cursor_gateway.store.base import Claim, RunRecord
from cursor_gateway.store.cluster import (
    Alike,
    ClaimedCommand,
    CommandDone,
    Figures,
    Heartbeat,
    Hints,
    LogHead,
    Member,
    NewCommand,
    NewEvents,
    OverLimit,
    Queued,
    Submitted,
    Watchers,
)
from cursor_gateway.store.postgres import writing
from cursor_gateway.store.postgres.connections import MOST_CONNECTIONS, PostgresConnection, rows_of
from cursor_gateway.store.postgres.queue import FORGET, HAS_BEGUN, PostgresQueue
from cursor_gateway.store.postgres.signals import PostgresHeartbeat, PostgresHints
from cursor_gateway.store.postgres.store import RUNS, PostgresStore
from cursor_gateway.store.queue import MOST_BYTES, Full, Queue, encode_about, encode_failure
from cursor_gateway.store.sql import UNREADABLE, UNREADABLE_PART, run_of

CONNECTIONS = MOST_CONNECTIONS + 3  # of a process: those of its store, the heartbeat's, and two for hints
_PAGE = 1000  # numbers of events that one look takes of a run

_JOIN = """
    INSERT INTO members (id, role, host, process, volumes, labels, capacity, busy, version, level, beat, draining)
    VALUES (%(id)s, %(role)s, %(host)s, %(process)s, %(volumes)s, %(labels)s, %(capacity)s, %(busy)s, %(version)s,
        %(level)s, %(beat)s, %(is_draining)s)
    ON CONFLICT (id) DO NOTHING
"""
_MARK_VOLUME = """
    INSERT INTO volumes (name, mark) VALUES (%s, nullif(%s, ''))
    ON CONFLICT (name) DO UPDATE SET mark = coalesce(volumes.mark, excluded.mark)
    RETURNING coalesce(mark, '') AS mark
"""
_ADD_VOLUMES = "INSERT INTO volumes SELECT unnest(%s::text[]) ON CONFLICT (name) DO NOTHING"
_SET_MEMBER = """
    UPDATE members SET draining = coalesce(%(is_draining)s, draining), busy = coalesce(%(busy)s, busy) WHERE id = %(id)s
"""
# No member has such an id, so runs that are not ended now are found again, even if the member has rejoined.
_TAKEN = " (taken over)"
# A run that waits to be resumed has a command. After a while it is given up.
_WAITS = """
    EXISTS (
        SELECT FROM commands
        WHERE commands.run_id = runs.id AND state <> 'done' AND created > now() - interval '5 minutes'
    )
"""
_RESUME = """
    WITH able AS (
        DELETE FROM resumable USING runs, conversations
        WHERE runs.key = resumable.run AND conversations.key = runs.conversation
            AND runs.instance = %s AND runs.state = 'running' AND NOT runs.waiting
            AND EXISTS (
                SELECT FROM members
                WHERE role <> 'front' AND NOT draining AND conversations.volume = ANY(members.volumes)
                    AND resumable.needs <@ members.labels
            )
        RETURNING runs.id, conversations.owner, conversations.volume, resumable.needs, resumable.command
    )
    INSERT INTO commands (id, owner, front, volume, needs, run_id, takes_place, body)
    SELECT 'resume_' || id, owner, '', volume, needs, id, true, command FROM able
"""
_RESUMED = f"""
    UPDATE runs SET instance = %(instance)s, epoch = epoch + 1, claim = %(command)s
    WHERE id = %(id)s AND state = 'running' AND instance LIKE '%%{_TAKEN}'
"""
# The command of a run that nobody has resumed in time, which has ended. No front waits for it.
_GIVE_UP = """
    UPDATE commands SET state = 'done', body = '', ended = now()
    WHERE state = 'queued' AND front = '' AND created < now() - interval '10 minutes'
"""
_ABSENT = f"""
    SELECT DISTINCT id FROM (
        SELECT instance AS id FROM runs WHERE state = 'running' AND NOT {_WAITS}
        UNION SELECT runner FROM commands WHERE state = 'claimed'
        UNION SELECT target FROM commands WHERE state = 'queued' AND target IS NOT NULL
        UNION SELECT front FROM commands WHERE state = 'queued' AND front <> ''
    ) AS named WHERE NOT EXISTS (SELECT FROM members WHERE members.id = named.id)
"""
_SERVER = "extract(epoch FROM pg_postmaster_start_time())::text"
# Whether an entry waits for a runner, and not for its conversation.
_IS_NEXT = """
    NOT EXISTS (
        SELECT FROM conversations JOIN runs ON runs.conversation = conversations.key AND runs.state = 'running'
        WHERE conversations.owner = commands.owner AND conversations.id = commands.conversation
    )
    AND NOT EXISTS (
        SELECT FROM commands AS other
        WHERE commands.conversation <> '' AND other.owner = commands.owner
            AND other.conversation = commands.conversation AND other.due IS NOT NULL
            AND (other.state = 'claimed' OR (
                other.state = 'waiting' AND (other.due, other.key) < (commands.due, commands.key)
            ))
    )
"""
_FIGURES = f"""
    SELECT (SELECT id FROM cluster) AS cluster_id,
        (SELECT coalesce(json_agg(one ORDER BY id), '[]') FROM (
            SELECT *, draining AS is_draining FROM members
        ) AS one) AS members,
        (SELECT coalesce(array_agg(name), '{{}}') FROM volumes) AS volumes,
        (SELECT coalesce(array_agg(id), '{{}}') FROM ({_ABSENT}) AS absent) AS absent,
        (SELECT count(*) FROM members) * {CONNECTIONS} AS connections,
        current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
            AS max_connections,
        coalesce((
            SELECT extract(epoch FROM now() - min(coalesce(due, created))) FROM commands
            WHERE state = 'queued' OR (state = 'waiting' AND due <= now() AND {_IS_NEXT})
        ), 0)::double precision AS queue_seconds,
        (
            SELECT count(*) FROM commands
            WHERE state = 'queued' AND takes_place OR (state = 'waiting' AND due <= now() AND {_IS_NEXT})
        ) AS queue_length,
        (SELECT count(*) FROM runs WHERE state = 'running' AND NOT waiting) AS running,
        pg_notification_queue_usage() AS notification_queue,
        {_SERVER} AS server
"""
_TAKE_RUNS = """
    UPDATE runs SET epoch = epoch + 1, claim = NULL, instance = %s WHERE instance = ANY(%s) AND state = 'running'
"""
_REQUEUE = f"""
    UPDATE commands SET state = CASE WHEN due IS NULL THEN 'queued' ELSE 'waiting' END, runner = NULL, target = NULL,
        epoch = epoch + 1
    WHERE runner = %s AND state = 'claimed' AND NOT {HAS_BEGUN}
"""
_BEGUN = f"SELECT id, run_id FROM commands WHERE runner = %s AND state = 'claimed' AND {HAS_BEGUN} FOR UPDATE"
_ACTIVE = f"""
    (SELECT count(*) FROM runs JOIN conversations ON conversations.key = runs.conversation
        WHERE conversations.owner = %(owner)s AND runs.state = 'running' AND NOT runs.waiting)
    + (SELECT count(*) FROM commands
        WHERE owner = %(owner)s AND state IN ('queued', 'claimed') AND takes_place AND NOT {HAS_BEGUN})
"""
_WATCH = """
    INSERT INTO watchers (run_id, member, readers, read_up_to)
    VALUES (%(run_id)s, %(member)s, %(readers)s, %(read_up_to)s)
    ON CONFLICT (run_id, member) DO UPDATE
        SET readers = excluded.readers, read_up_to = greatest(watchers.read_up_to, excluded.read_up_to)
"""
# Inserts nothing if the command exists, or if one with the same key is not done.
_SUBMIT = """
    WITH submitted AS (
        INSERT INTO commands (id, owner, dedupe, front, target, volume, needs, run_id, takes_place, body, priority)
        VALUES (%(id)s, %(owner)s, %(dedupe)s, %(front)s, %(target)s, %(volume)s, %(needs)s, %(run_id)s,
            %(takes_place)s, %(body)s, %(priority)s)
        ON CONFLICT DO NOTHING RETURNING run_id, front
    ), watched AS (
        INSERT INTO watchers (run_id, member, readers) SELECT run_id, front, 1 FROM submitted WHERE %(watches)s
        ON CONFLICT DO NOTHING
    )
    SELECT FROM submitted
"""
_HAS_ROOM = """
    SELECT count(*) < %(most)s AND coalesce(sum(length(kept) + length(body)), 0) < %(most_bytes)s
    FROM commands WHERE owner = %(owner)s AND state = 'waiting'
"""
_QUEUE = f"""
    INSERT INTO commands (
        id, owner, dedupe, front, volume, needs, run_id, takes_place, body, state, priority, due, expires, conversation,
        body_hash, about, kept
    )
    SELECT %(id)s, %(owner)s, %(dedupe)s, %(front)s, %(volume)s, %(needs)s, %(run_id)s, true, %(body)s, 'waiting',
        %(priority)s, due, due + %(ttl_ms)s * interval '1 millisecond', %(conversation_id)s, %(body_hash)s, %(about)s,
        %(kept)s
    FROM (SELECT greatest(now(), to_timestamp(%(run_at_ms)s::bigint / 1000.0)) AS due) AS given
    WHERE ({_HAS_ROOM})
    ON CONFLICT DO NOTHING
"""
_ALIKE = """
    SELECT id, CASE WHEN due IS NULL THEN '' ELSE run_id END FROM commands
    WHERE id = %(id)s OR (owner = %(owner)s AND dedupe = %(dedupe)s AND state <> 'done')
    ORDER BY id <> %(id)s LIMIT 1
"""
# An entry whose request has started a run by an earlier try, whose answer was lost. No command like it is under way.
_REPEATED = """
    DELETE FROM commands USING idempotency JOIN runs ON runs.key = idempotency.run
    WHERE commands.id = %(id)s AND idempotency.owner = %(owner)s AND idempotency.key = %(dedupe)s
        AND runs.id <> commands.run_id
"""
# Whether the owner of an entry may have one more active run.
_MAY_START = """
    (%(max_active)s = 0 AND NOT EXISTS (SELECT FROM api_keys WHERE name = commands.owner AND max_runs IS NOT NULL)
        OR (
            SELECT count(*) FROM runs JOIN conversations ON conversations.key = runs.conversation
            WHERE conversations.owner = commands.owner AND runs.state = 'running' AND NOT runs.waiting
        ) + (
            SELECT count(*) FROM commands AS other
            WHERE other.owner = commands.owner AND other.state = 'claimed' AND other.takes_place
                AND NOT EXISTS (SELECT FROM runs WHERE runs.id = other.run_id)
        ) < least(nullif(%(max_active)s, 0), (SELECT max_runs FROM api_keys WHERE name = commands.owner)))
"""
# The next place goes to the request with the highest priority, among equals to the owner that holds the fewest, and
# among these to the one that has waited longest. A place that is kept for some owners is for one that has none, as long
# as one of them has none.
#
# Of the queue, each owner takes part with its first entry that can start here. Messages of one conversation start in
# the order in which they were accepted, one after the other.
#
# A process that was removed and does not know it yet gets nothing: it would resume its own runs, while their first
# agents still work.
_CLAIM = f"""
    WITH lost AS MATERIALIZED (
        SELECT key, id, epoch, owner, front, run_id, takes_place, body, due IS NOT NULL AS is_queued FROM commands
        WHERE state = 'claimed' AND runner = %(id)s AND id <> ALL(%(known)s::text[])
    ), held AS MATERIALIZED (
        SELECT conversations.owner, count(*) AS places
        FROM runs JOIN conversations ON conversations.key = runs.conversation
        WHERE runs.state = 'running' GROUP BY conversations.owner
    ), active AS (
        SELECT conversations.owner FROM runs JOIN conversations ON conversations.key = runs.conversation
        WHERE runs.state = 'running' AND NOT runs.waiting AND conversations.owner IS NOT NULL
        UNION SELECT owner FROM commands WHERE state = 'claimed' AND takes_place
    ), first AS (
        SELECT DISTINCT ON (owner) key FROM commands
        WHERE state = 'waiting' AND due <= now() AND expires > now() AND %(has_room)s AND NOT %(is_draining)s
            AND (volume IS NULL OR volume = ANY(%(volumes)s)) AND needs <@ %(labels)s::text[]
            AND {_IS_NEXT} AND {_MAY_START}
        ORDER BY owner, priority DESC, due, key
    ), mine AS (
        SELECT key FROM commands LEFT JOIN held USING (owner)
        WHERE (state = 'queued' OR (state = 'waiting' AND key IN (SELECT key FROM first)))
            AND EXISTS (SELECT FROM members WHERE members.id = %(id)s)
            AND NOT EXISTS (SELECT FROM lost) AND id <> ALL(%(known)s::text[])
            AND (target = %(id)s OR (
                target IS NULL AND NOT %(is_draining)s AND (volume IS NULL OR volume = ANY(%(volumes)s))
                AND needs <@ %(labels)s::text[]
            ))
            AND (%(has_room)s OR NOT takes_place)
            AND (NOT takes_place OR target = %(id)s OR cardinality(%(kept_for)s::text[]) = 0 OR {HAS_BEGUN}
                OR owner NOT IN (SELECT owner FROM active)
                OR %(kept_for)s::text[] <@ (SELECT array_agg(owner) FROM active)
            )
        ORDER BY takes_place, CASE WHEN takes_place THEN -priority END,
            CASE WHEN takes_place THEN coalesce(held.places, 0) END,
            CASE WHEN takes_place THEN coalesce(due, created) END, key
        LIMIT %(most)s FOR UPDATE OF commands SKIP LOCKED
    ), claimed AS (
        UPDATE commands SET state = 'claimed', runner = %(id)s, epoch = epoch + 1
        FROM mine WHERE commands.key = mine.key
        RETURNING commands.key, id, epoch, owner, front, run_id, takes_place, body, due IS NOT NULL AS is_queued
    )
    SELECT id, epoch, owner, front, run_id, takes_place, body, is_queued
    FROM (SELECT * FROM lost UNION ALL SELECT * FROM claimed) AS found ORDER BY key
"""
_FINISH = """
    UPDATE commands SET state = 'done', outcome = %s, failure = %s, body = '', ended = now()
    WHERE id = %s AND epoch = %s AND state = 'claimed'
"""
# The member that has the run needs no place for it.
_RELEASE = """
    UPDATE commands SET state = CASE WHEN due IS NULL THEN 'queued' ELSE 'waiting' END, runner = NULL,
        target = %(target)s, epoch = epoch + 1,
        takes_place = takes_place AND %(target)s::text IS NULL
    WHERE id = %(id)s AND epoch = %(epoch)s AND state = 'claimed'
"""
# Planned each time: a plan that was made when there were hardly any events would read all of them. `OFFSET 0` keeps the
# subqueries subqueries: as parts of the join, all runs would be read, and all events of a run before the limits of
# their numbers are checked.
_HEADS = """
    SELECT given.id, runs.last, runs.state = 'running', given.after, found.first, found.data
    FROM (SELECT key AS id, value::integer AS after FROM json_each_text(%s)) AS given
        JOIN LATERAL (SELECT key, last, state FROM runs WHERE runs.id = given.id OFFSET 0) AS runs ON true
        LEFT JOIN LATERAL (
            SELECT first, data FROM events
            WHERE run = runs.key AND NOT deflated AND first + count > given.after + 1 AND first <= given.after + %s
                AND first >= coalesce((
                    SELECT max(first) FROM events WHERE run = runs.key AND first <= given.after + 1
                ), 0)
            OFFSET 0
        ) AS found ON true
    ORDER BY given.id, found.first
"""
_WAITING = """
    SELECT conversations.id AS conversation, calls.id AS call FROM conversations
        JOIN runs ON runs.conversation = conversations.key AND runs.state = 'running' AND runs.waiting
        JOIN calls ON calls.run = runs.key
    WHERE conversations.id = ANY(%s)
"""


class PostgresCluster:
    def __init__(self, store: PostgresStore) -> None:
        self._store, self._connections = store, store.connections
        self._hints = PostgresHints(store.url)
        self.hints: Hints = self._hints
        self.queue: Queue = PostgresQueue(self._connections)

    def on_written(self, call: Callable[[NewEvents], None]) -> None:
        self._store.written = call

    async def figures(self) -> Figures:
        (found,) = await self._connections.select(_FIGURES)
        appender = self._store.appender
        return Figures(
            **{**found, "members": msgspec.convert(found["members"], list[Member])},
            commits=appender.commits,
            batches=appender.batches,
            append_seconds=appender.seconds,
            waiting_bytes=appender.waiting_bytes,
            rewinds=appender.rewinds,
            reconnections=self._hints.reconnections,
            skipped_hints=self._hints.skipped,
            losses=self._connections.losses,
        )

    # --- members ------------------------------------------------------------------------------------

    async def join(self, member: Member) -> None:
        async def work(connection: PostgresConnection) -> None:
            await connection.execute(_JOIN, _values(member))
            await connection.execute(_ADD_VOLUMES, [sorted(member.volumes)])

        await self._connections.transaction(work)

    async def volume_mark(self, name: str, mark: str) -> str:
        (row,) = await self._connections.select(_MARK_VOLUME, [name, mark])
        return str(row["mark"])

    def beat(self, id: str, seconds: float, turns: Callable[[], bool], missed: Callable[[], None]) -> Heartbeat:
        return PostgresHeartbeat(self._store.url, id, seconds, turns, missed)

    async def leave(self, id: str) -> None:
        await self._connections.execute("DELETE FROM members WHERE id = %s", [id])

    async def set_member(self, id: str, *, is_draining: bool | None = None, busy: int | None = None) -> bool:
        return await self._connections.execute(_SET_MEMBER, {"id": id, "is_draining": is_draining, "busy": busy}) > 0

    async def take_over(
        self, id: str, beat: int | None, begun: Callable[[str], bytes], server: str = ""
    ) -> list[RunRecord] | None:
        async def work(connection: PostgresConnection) -> list[RunRecord] | None:
            if server and not (await connection.execute(f"SELECT WHERE {_SERVER} = %s", [server])).rowcount:
                return None
            if beat is not None:
                await connection.execute("DELETE FROM members WHERE id = %s AND beat = %s", [id, beat])
            if (await connection.execute("SELECT FROM members WHERE id = %s", [id])).rowcount:
                return None
            taken = id if id.endswith(_TAKEN) else id + _TAKEN
            await connection.execute(_TAKE_RUNS, [taken, [id, taken]])
            await connection.execute(_REQUEUE, [id])
            for command, run_id in await (await connection.execute(_BEGUN, [id])).fetchall():
                await connection.execute(
                    "UPDATE commands SET state = 'done', outcome = %s, ended = now(), epoch = epoch + 1 WHERE id = %s",
                    [begun(run_id), command],
                )
            await connection.execute("UPDATE commands SET target = NULL WHERE target = %s AND state = 'queued'", [id])
            await connection.execute(
                "UPDATE commands SET state = 'done', ended = now() WHERE front = %s AND state = 'queued'", [id]
            )
            await connection.execute("UPDATE watchers SET readers = 0 WHERE member = %s", [id])
            await connection.execute(_RESUME, [taken])
            # Only those of this name: a run that began in the meantime still belongs to its writer.
            return await _runs_of(connection, taken, f"NOT {_WAITS}")

        return await self._connections.transaction(work)

    async def resume_run(self, claim: Claim, instance: str) -> RunRecord | None:
        async def work(connection: PostgresConnection) -> RunRecord | None:
            if not await writing.holds(connection, claim):
                return None
            values = {"id": claim.run_id, "instance": instance, "command": claim.command_id}
            await connection.execute(_RESUMED, values)
            found = await _runs_of(
                connection, instance, "runs.id = %s AND runs.claim = %s", [claim.run_id, claim.command_id]
            )
            return found[0] if found else None  # also where the answer to the first try was lost

        return await self._connections.transaction(work)

    # --- commands -----------------------------------------------------------------------------------

    async def submit(self, new: NewCommand, max_active: int) -> Submitted | Alike | OverLimit | Full:
        values = {**asdict(new), "needs": list(new.needs)}
        if (entry := new.entry) is not None:
            values = {**asdict(entry), **values, "about": encode_about(entry.about), "most_bytes": MOST_BYTES}

        async def work(connection: PostgresConnection) -> Submitted | Alike | Full:
            submit = _SUBMIT if entry is None else _QUEUE
            while not (await connection.execute(submit, values)).rowcount:
                found = await (await connection.execute(_ALIKE, values)).fetchone()
                if found is not None and found[0] == new.id:  # the answer to the first try was lost
                    break
                if found is not None:
                    return Alike(*found)
                if entry is not None and not (await (await connection.execute(_HAS_ROOM, values)).fetchall())[0][0]:
                    return Full()
            is_repeated = entry is not None and (await connection.execute(_REPEATED, values)).rowcount
            return Alike("") if is_repeated else Submitted()

        async def work_alone(connection: PostgresConnection) -> Submitted | Alike | OverLimit | Full:
            """One at a time per owner: the count must not change until the row is inserted."""
            await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [new.owner])
            found = await (await connection.execute(_ALIKE, values)).fetchone()
            active = await (await connection.execute(f"SELECT {_ACTIVE}", values)).fetchone()
            is_over = found is None and active is not None and active[0] >= max_active
            return OverLimit() if is_over else await work(connection)

        if new.takes_place and max_active and entry is None:
            return await self._connections.transaction(work_alone)
        return await self._connections.run(work)

    async def _api_keys(self) -> list[str]:
        """A runner's role of an older version cannot see which ones were revoked, so they count as well."""
        (may,) = await self._connections.select("SELECT has_column_privilege('api_keys', 'revoked_ms', 'SELECT') AS it")
        which = "WHERE revoked_ms IS NULL" if may["it"] else ""
        return [row["name"] for row in await self._connections.select(f"SELECT name FROM api_keys {which}")]

    async def claim(
        self,
        member: Member,
        *,
        has_room: bool,
        most: int,
        known: Collection[str],
        kept_for: Collection[str] | None = None,
        max_active: int = 0,
    ) -> list[ClaimedCommand]:
        keys = [] if kept_for is None else [*kept_for, *await self._api_keys()]
        lists = {"known": list(known), "kept_for": keys}
        values = {**_values(member), **lists, "has_room": has_room, "most": most, "max_active": max_active}
        return [ClaimedCommand(**row) for row in await self._connections.select(_CLAIM, values)]

    async def finish(self, id: str, epoch: int, outcome: bytes, failure: Failure | None = None) -> bool:
        done = "SELECT FROM commands WHERE id = %s AND epoch = %s AND state = 'done'"
        why = None if failure is None else encode_failure(failure)
        return await self._connections.change(_FINISH, [outcome, why, id, epoch], done, [id, epoch])

    async def release(self, id: str, epoch: int, target: str | None = None) -> None:
        await self._connections.execute(_RELEASE, {"target": target, "id": id, "epoch": epoch})

    async def withdraw(self, id: str) -> bool:
        withdraw = "UPDATE commands SET state = 'done', body = '', ended = now() WHERE id = %s AND state = 'queued'"
        done = "SELECT FROM commands WHERE id = %s AND state = 'done' AND outcome IS NULL"
        return await self._connections.change(withdraw, [id], done, [id])

    async def outcomes(self, ids: Collection[str]) -> dict[str, Queued | CommandDone]:
        states: dict[str, Queued | CommandDone] = {id: CommandDone(None) for id in ids}
        found = "SELECT id, state, outcome FROM commands WHERE id = ANY(%s)"
        for row in await self._connections.select(found, [list(ids)]):
            is_done = row["state"] == "done"
            states[row["id"]] = CommandDone(row["outcome"]) if is_done else Queued(row["state"] == "claimed")
        return states

    async def forget_old(self) -> None:
        await self._connections.execute(_GIVE_UP)
        await self._connections.execute(FORGET)
        await self._connections.execute(
            "DELETE FROM watchers WHERE EXISTS "
            "(SELECT FROM runs WHERE runs.id = watchers.run_id AND runs.state <> 'running')"
        )

    # --- runs ---------------------------------------------------------------------------------------

    async def heads(self, after: Mapping[str, int]) -> dict[str, LogHead]:
        values = [msgspec.json.encode(after).decode(), _PAGE]  # lists would take longer to encode
        heads: dict[str, LogHead] = {}
        unreadable: set[str] = set()

        async def work(connection: PostgresConnection) -> list[tuple[Any, ...]]:
            cursor = connection.cursor(binary=True)
            return await (await cursor.execute(_HEADS, values, prepare=False)).fetchall()

        for id, last, is_running, place, first, data in await self._connections.run(work):
            head = heads.setdefault(id, LogHead(last, is_running, []))
            assert isinstance(head.events, list)
            # Lost events may have been stored again in other batches.
            if data is not None and (known := place + len(head.events) + 1 - first) >= 0:
                try:
                    head.events.extend(batches.decode(data)[known:])
                except UNREADABLE as error:
                    self._store.health.failed("damage", StoreUnavailable(UNREADABLE_PART, details=str(error)))
                    unreadable.add(id)
        return {id: head for id, head in heads.items() if id not in unreadable}

    async def waiting_calls(self, conversation_ids: Collection[str]) -> list[tuple[str, str]]:
        found = await self._connections.select(_WAITING, [list(conversation_ids)])
        return [(row["conversation"], row["call"]) for row in found]

    async def watch(self, watchers: Watchers) -> None:
        await self._connections.execute(_WATCH, asdict(watchers))

    async def watchers(self, run_ids: Collection[str]) -> list[Watchers]:
        watchers = "SELECT run_id, member, readers, read_up_to FROM watchers WHERE run_id = ANY(%s)"
        return [Watchers(**row) for row in await self._connections.select(watchers, [list(run_ids)])]


def _values(member: Member) -> dict[str, Any]:
    return {**asdict(member), "volumes": list(member.volumes), "labels": list(member.labels)}


async def _runs_of(
    connection: PostgresConnection, instance: str, also: str = "true", values: Sequence[object] = ()
) -> list[RunRecord]:
    where = f"WHERE runs.instance = %s AND runs.state = 'running' AND {also}"
    return [run_of(row) for row in await rows_of(connection, f"{RUNS} {where}", [instance, *values])]
