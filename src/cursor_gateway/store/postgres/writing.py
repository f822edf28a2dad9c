"""Begin, continue and end a run.

Beginning a run and ending it are a single statement each, because a round trip costs more than the work. Each does
everything or nothing. If it does nothing, the existing rows show why; this is also how a repetition finds what the
first attempt stored. Rows are locked in one order, the conversation before its run.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cursor_gateway.model.document_events import DocumentEvent, Paused
from cursor_gateway.store import batches, sql
from cursor_gateway.store.base import (
    CONTINUATION,
    FIRST_EPOCH,
    Behind,
    Busy,
    Claim,
    Fenced,
    KeyLimit,
    KeyTaken,
    Lease,
    MakeNotices,
    NewRun,
    Refused,
    RunEnd,
    Stored,
    Superseded,
    Written,
)
from cursor_gateway.store.postgres import events as event_rows
from cursor_gateway.store.postgres import searching
from cursor_gateway.store.postgres.connections import PostgresConnection, named
from cursor_gateway.store.postgres.searching import SearchEntry

# Until the run has begun, the command cannot be taken over.
_HELD = "SELECT FROM commands WHERE id = %s AND epoch = %s AND state = 'claimed' FOR SHARE"
_TODAY = "(now() AT TIME ZONE 'UTC')::date"
_ACTIVE = """
    (SELECT count(*) FROM runs JOIN conversations ON conversations.key = runs.conversation
        WHERE conversations.owner = %(owner)s AND runs.state = 'running')
"""
_RUNNING = """
    SELECT runs.id FROM conversations JOIN runs ON runs.conversation = conversations.key AND runs.state = 'running'
    WHERE conversations.owner = %(owner)s AND conversations.id = %(conversation_id)s
"""
_ADD_MESSAGES = """
    INSERT INTO messages (conversation, number, role, text, run, created_ms, images)
    SELECT run.conversation, last.number + given.place, given.role, given.text, run.key, %(now)s, given.images
    FROM run, unnest(%(roles)s::text[], %(texts)s::text[], %(images)s::text[]) WITH ORDINALITY
            AS given (role, text, images, place),
        LATERAL (
            SELECT coalesce(max(number), 0) AS number FROM messages WHERE messages.conversation = run.conversation
        ) AS last
"""
# All of it or nothing: what follows `may` is done for its row, if there is one. Two processes that begin a run in one
# conversation at once see no run in it; then `one_running_run` refuses the second, which looks again.
#
# An owner whose key is not in the database has no limits. Runs of one owner are counted one after the other, since each
# locks the row of the day; but the number of active runs is certain only if the others were locked out before
# (`is_alone`).
_BEGIN = f"""
    WITH held AS MATERIALIZED (
        SELECT needs FROM commands WHERE id = %(command)s AND epoch = %(epoch)s AND state = 'claimed' FOR UPDATE
    ), may AS MATERIALIZED (
        SELECT
        WHERE (%(command)s::text IS NULL OR EXISTS (SELECT FROM held))
            AND NOT EXISTS (SELECT FROM runs WHERE id = %(id)s)
            AND NOT EXISTS (SELECT FROM idempotency WHERE owner = %(owner)s AND key = %(key)s)
            AND NOT EXISTS ({_RUNNING})
            AND NOT EXISTS (
                SELECT FROM api_keys
                WHERE name = %(owner)s AND max_runs IS NOT NULL AND (NOT %(is_alone)s OR {_ACTIVE} >= max_runs)
            )
    ), counted AS (
        INSERT INTO key_usage AS used (name, day, runs)
        SELECT name, {_TODAY}, 1 FROM may, api_keys
        WHERE name = %(owner)s AND coalesce(runs_per_day, 1) > 0 AND coalesce(tokens_per_day, 1) > 0
        ON CONFLICT (name, day) DO UPDATE SET runs = used.runs + 1
            WHERE EXISTS (
                SELECT FROM api_keys
                WHERE name = used.name AND used.runs < coalesce(runs_per_day, used.runs + 1)
                    AND used.tokens < coalesce(tokens_per_day, used.tokens + 1)
            )
        RETURNING name
    ), conversation AS (
        INSERT INTO conversations AS known (
            id, owner, title, workspace, volume, client, mode, model, created_ms, updated_ms
        )
        SELECT %(conversation_id)s, %(owner)s, %(title)s, %(workspace)s, %(volume)s, %(client)s, %(mode)s, %(model)s,
            %(now)s, %(now)s
        FROM may WHERE EXISTS (SELECT FROM counted) OR NOT EXISTS (SELECT FROM api_keys WHERE name = %(owner)s)
        ON CONFLICT (owner, id) DO UPDATE SET mode = excluded.mode, model = excluded.model,
            updated_ms = greatest(known.updated_ms, excluded.updated_ms)
        RETURNING key
    ), run AS (
        INSERT INTO runs (id, conversation, instance, model, mode, created, fences, include, started_ms)
        SELECT %(id)s, key, %(instance)s, %(model)s, %(mode)s, %(created)s, %(fences)s, %(include)s, %(now)s
        FROM conversation RETURNING key, conversation
    ), done AS (
        UPDATE commands SET state = 'done', outcome = %(outcome)s, kept = '', body = '', ended = now()
        FROM run WHERE id = %(command)s AND %(outcome)s::bytea <> ''
    ), resumable AS (
        INSERT INTO resumable (run, command, needs)
        SELECT run.key, %(resumption)s, held.needs FROM run, held WHERE %(resumption)s::bytea <> ''
    ), said AS ({_ADD_MESSAGES}
    ), named AS (
        INSERT INTO idempotency (owner, key, run, body_hash, created_ms)
        SELECT %(owner)s, %(key)s, key, %(hash)s, %(now)s FROM run WHERE %(key)s::text IS NOT NULL
    ), kept AS (
        INSERT INTO requests (run, after, data) SELECT key, after, data
        FROM run, (VALUES (0, %(request)s::bytea), ({CONTINUATION}, %(continuation)s)) AS given (after, data)
        WHERE data <> ''
    ), indexed AS ({searching.ADD})
    SELECT FROM run
"""
_WHY_NOT = f"""
    SELECT
        (SELECT instance = %(instance)s AND epoch = 1 AND state = 'running' FROM runs WHERE id = %(id)s) AS is_mine,
        (SELECT state FROM commands WHERE id = %(command)s AND epoch = %(epoch)s) AS command,
        EXISTS (SELECT FROM idempotency WHERE owner = %(owner)s AND key = %(key)s) AS is_taken,
        ({_RUNNING}) AS running, limits.max_runs, limits.runs_per_day, limits.tokens_per_day,
        coalesce(used.runs, 0), coalesce(used.tokens, 0), {_ACTIVE}
    FROM (SELECT) AS one LEFT JOIN api_keys AS limits ON limits.name = %(owner)s
        LEFT JOIN key_usage AS used ON used.name = limits.name AND used.day = {_TODAY}
"""
_ALONE = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
# Only if the lease and the number of the last event match what the writer expects. Otherwise it does nothing.
_END = f"""
    WITH locked AS MATERIALIZED (
        SELECT key, owner FROM conversations WHERE key = (SELECT conversation FROM runs WHERE id = %(id)s)
        FOR NO KEY UPDATE
    ), run AS (
        UPDATE runs SET last = runs.last + %(count)s, bytes = runs.bytes + octet_length(%(data)s::bytea),
            waiting = false, state = %(state)s, model = %(model)s, first_event_ms = %(first_event_ms)s,
            ended_ms = %(now)s, prompt_tokens = %(prompt_tokens)s, completion_tokens = %(completion_tokens)s,
            total_tokens = %(total_tokens)s, cached_tokens = %(cached_tokens)s, estimated = %(estimated)s,
            failure_code = %(failure_code)s, tool_uses = %(tool_uses)s, needs_decision = %(needs_decision)s
        FROM locked
        WHERE id = %(id)s AND epoch = %(epoch)s AND last = %(first)s - 1 AND state = 'running'
        RETURNING runs.key, runs.conversation, locked.owner
    ), added AS (
        INSERT INTO events (run, first, count, epoch, data)
        SELECT key, %(first)s, %(count)s, %(epoch)s, %(data)s FROM run WHERE %(count)s > 0
    ), closed AS (
        DELETE FROM calls USING run WHERE calls.run = run.key
    ), resumable AS (
        DELETE FROM resumable USING run WHERE resumable.run = run.key
    ), continued AS (
        DELETE FROM requests USING run
        WHERE requests.run = run.key AND after = {CONTINUATION} AND %(state)s::text = 'completed'
    ), freed AS (
        -- A key without a hash names a question, whose next repetition decides for itself; see `runs.repeats`.
        DELETE FROM idempotency USING run WHERE idempotency.run = run.key AND body_hash <> '' AND %(frees_key)s
    ), turn AS (
        UPDATE conversations SET model = %(model)s, updated_ms = greatest(updated_ms, %(now)s),
            session_id = coalesce(%(session_id)s, session_id), fingerprint = coalesce(%(fingerprint)s, fingerprint),
            title = CASE WHEN title = %(made_title)s THEN %(new_title)s ELSE title END
        FROM run WHERE conversations.key = run.conversation
    ), said AS ({_ADD_MESSAGES}
    ), counted AS (
        INSERT INTO key_usage AS used (name, day, tokens)
        SELECT name, {_TODAY}, %(total_tokens)s FROM run JOIN api_keys ON api_keys.name = run.owner
        ON CONFLICT (name, day) DO UPDATE SET tokens = used.tokens + excluded.tokens
    ), spent AS (
        INSERT INTO token_usage AS used (owner, day, model, runs, prompt_tokens, completion_tokens, cached_tokens)
        SELECT owner, %(day)s, %(model)s, 1, %(prompt_tokens)s, %(completion_tokens)s,
            coalesce(%(cached_tokens)s::bigint, 0)
        FROM run
        ON CONFLICT (owner, day, model) DO UPDATE SET runs = used.runs + 1,
            prompt_tokens = used.prompt_tokens + excluded.prompt_tokens,
            completion_tokens = used.completion_tokens + excluded.completion_tokens,
            cached_tokens = used.cached_tokens + excluded.cached_tokens
    ), indexed AS ({searching.REPLACE}
    ), surplus AS (
        DELETE FROM search USING run WHERE search.run = run.key AND search.part >= cardinality(%(parts)s::text[])
    )
    SELECT FROM run
"""
_PLACE = "SELECT key, conversation, epoch, state, last FROM runs WHERE id = %s FOR NO KEY UPDATE"
_STORED_FROM = "SELECT first, data, deflated FROM events WHERE run = %s AND first + count > %s ORDER BY first"
_ADD_EVENTS = "INSERT INTO events (run, first, count, epoch, data) VALUES (%s, %s, %s, %s, %s)"
_COUNT_EVENTS = "UPDATE runs SET last = last + %s, bytes = bytes + %s, waiting = %s WHERE key = %s"
_ADD_CALL = """
    INSERT INTO calls (owner, id, run) SELECT owner, %s, %s FROM conversations WHERE key = %s
    ON CONFLICT (owner, id) DO UPDATE SET run = excluded.run
"""

_OWNER = "SELECT owner FROM conversations WHERE key = %s"
NOW_MS = "(extract(epoch FROM now()) * 1000)::bigint"
_ADD_NOTICE = named(sql.add_notice(NOW_MS))


class _WhyNot(NamedTuple):
    """What was found instead of a run that should begin."""

    is_mine: bool | None  # this run, which has begun; None: it has not
    command: str | None  # its state; None: it is another process's
    is_taken: bool  # the idempotency key
    running: str | None  # in the conversation
    max_runs: int | None
    runs_per_day: int | None
    tokens_per_day: int | None
    runs: int  # today
    tokens: int
    active: int


async def begin(connection: PostgresConnection, new: NewRun, entry: SearchEntry) -> Lease | Refused:
    values = _begin_values(new, entry)
    while True:
        if (await connection.execute(_BEGIN, {**values, "is_alone": False})).rowcount:
            return Lease(new.id, FIRST_EPOCH)
        row = await (await connection.execute(_WHY_NOT, values)).fetchone()
        assert row is not None
        found = _WhyNot._make(row)
        if (known := _known(new, found)) is not None:
            return known
        if found.max_runs is not None:
            async with connection.transaction():
                await connection.execute(_ALONE, [new.owner])
                if (await connection.execute(_BEGIN, {**values, "is_alone": True})).rowcount:
                    return Lease(new.id, FIRST_EPOCH)


def _known(new: NewRun, found: _WhyNot) -> Lease | Refused | None:
    """None: the obstacle is gone."""
    if found.is_mine is not None:  # the answer to the first try was lost, or it was begun with an earlier claim
        is_held = new.claim is None or (found.is_mine and found.command is not None)
        return Lease(new.id, FIRST_EPOCH) if is_held else Superseded()
    if new.claim is not None and found.command != "claimed":
        return Superseded()
    if found.is_taken:
        return KeyTaken()
    if found.running is not None:
        return Busy(found.running)
    if found.runs_per_day is not None and found.runs >= found.runs_per_day:
        return KeyLimit("runs_per_day", found.runs_per_day)
    if found.tokens_per_day is not None and found.tokens >= found.tokens_per_day:
        return KeyLimit("tokens_per_day", found.tokens_per_day)
    if found.max_runs is not None and found.active >= found.max_runs:
        return KeyLimit("max_runs", found.max_runs)
    return None


def _begin_values(new: NewRun, entry: SearchEntry) -> dict[str, Any]:
    return {
        **sql.begin_values(new),
        "command": None if new.claim is None else new.claim.command_id,
        "epoch": 0 if new.claim is None else new.claim.epoch,
        "resumption": b"" if new.claim is None else new.claim.resumption,
        "outcome": b"" if new.claim is None else new.claim.outcome,
        "roles": [message.role for message in new.messages],
        "texts": [message.text for message in new.messages],
        "images": [" ".join(message.images) for message in new.messages],
        **entry.values(new.owner),
    }


async def holds(connection: PostgresConnection, claim: Claim) -> bool:
    return (await connection.execute(_HELD, [claim.command_id, claim.epoch])).rowcount > 0


async def append(
    connection: PostgresConnection,
    lease: Lease,
    first_number: int,
    events: Sequence[DocumentEvent],
    make_notices: MakeNotices | None = None,
) -> Written:
    found = await _rest(connection, lease, first_number, events)
    if isinstance(found, Fenced | Behind):
        return found
    place, rest = found
    if rest and place.state != "running":
        return Fenced("ended")
    size = await _add_events(connection, place, rest)
    await _add_calls(connection, place, rest)
    if make_notices is not None and Paused in map(type, rest):
        row = await (await connection.execute(_OWNER, [place.conversation])).fetchone()
        assert row is not None
        await _add_notices(connection, sql.notice_values(make_notices, sql.waiting_news(row[0], place.last + 1, rest)))
    return Stored(size)


async def end(
    connection: PostgresConnection,
    lease: Lease,
    first_number: int,
    events: Sequence[DocumentEvent],
    data: bytes,
    end: RunEnd,
    owner: str,
    entry: SearchEntry,
    make_notices: MakeNotices | None = None,
) -> Written:
    values = _end_values(lease, end, owner, entry)
    first, rest = first_number, events
    while True:
        given = {"first": first, "count": len(rest), "data": data}
        if (await connection.execute(_END, {**values, **given})).rowcount:
            if make_notices is not None:
                await _add_notices(connection, sql.notice_values(make_notices, [sql.end_news(owner, end)]))
            return Stored(len(data))
        found = await _rest(connection, lease, first_number, events)
        if isinstance(found, Fenced | Behind):
            return found
        place, missing = found
        if place.state != "running":
            return Fenced("ended") if missing else Stored(0)
        first, rest = place.last + 1, missing
        data = batches.encode(rest) if rest else b""


def _end_values(lease: Lease, end: RunEnd, owner: str, entry: SearchEntry) -> dict[str, Any]:
    return {
        **sql.end_values(end),
        "id": lease.run_id,
        "epoch": lease.epoch,
        "roles": ["assistant"] if end.answer else [],
        "texts": [end.answer] if end.answer else [],
        "images": [""] if end.answer else [],
        **entry.values(owner),
    }


async def _rest(
    connection: PostgresConnection, lease: Lease, first_number: int, events: Sequence[DocumentEvent]
) -> tuple[sql.RunPosition, Sequence[DocumentEvent]] | Fenced | Behind:
    """Where the run is, and the events that are not stored yet."""
    row = await (await connection.execute(_PLACE, [lease.run_id])).fetchone()
    checked = sql.check_lease(lease, row, first_number, events)
    if isinstance(checked, Fenced | Behind):
        return checked
    place, known = checked
    if known:
        found = await (await connection.execute(_STORED_FROM, [place.run, first_number])).fetchall()
        stored = [(first, event_rows.decode(data, is_deflated=deflated)) for first, data, deflated in found]
        batches.check_repeated(first_number, known, stored)
    return place, events[len(known) :]


async def _add_events(connection: PostgresConnection, place: sql.RunPosition, events: Sequence[DocumentEvent]) -> int:
    if not events:
        return 0
    data = batches.encode(events)
    await connection.execute(_ADD_EVENTS, [place.run, place.last + 1, len(events), place.epoch, data])
    await connection.execute(_COUNT_EVENTS, [len(events), len(data), isinstance(events[-1], Paused), place.run])
    return len(data)


async def _add_notices(connection: PostgresConnection, notices: Sequence[Mapping[str, object]]) -> None:
    for values in notices:
        await connection.execute(_ADD_NOTICE, values)


async def _add_calls(connection: PostgresConnection, place: sql.RunPosition, events: Sequence[DocumentEvent]) -> None:
    for id in sql.open_calls(events):
        await connection.execute(_ADD_CALL, [id, place.run, place.conversation])
