"""What is done within a transaction: begin, continue and end a run.

Rows are locked in one order, the conversation before its run. Each function may be repeated: it looks first at what is
there.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from msgspec import UNSET

from cursor_gateway.model.document_events import DocumentEvent, Paused
from cursor_gateway.store import batches
from cursor_gateway.store.base import (
    Behind,
    Busy,
    Claim,
    Fenced,
    KeyLimit,
    KeyTaken,
    Lease,
    NewRun,
    Refused,
    RunEnd,
    Stored,
    Superseded,
    Written,
)
from cursor_gateway.store.postgres import folding
from cursor_gateway.store.postgres.connections import Connection
from cursor_gateway.store.postgres.searching import Entry, put
from cursor_gateway.store.titles import title_of
from cursor_gateway.wire.surrogates import repair

_KNOWN = """
    SELECT EXISTS (SELECT FROM runs WHERE id = %s), EXISTS (SELECT FROM idempotency WHERE owner = %s AND key = %s)
"""
_MINE = "SELECT FROM runs WHERE id = %s AND instance = %s AND epoch = 1 AND state = 'running'"
# Until the run has begun, the command cannot be taken over.
_HELD = "SELECT FROM commands WHERE id = %s AND epoch = %s AND state = 'claimed' FOR SHARE"
_CONVERSATION = """
    INSERT INTO conversations AS known (id, owner, title, workspace, volume, mode, model, created_ms, updated_ms)
    VALUES (%(conversation_id)s, %(owner)s, %(title)s, %(workspace)s, %(volume)s, %(mode)s, %(model)s, %(now)s, %(now)s)
    ON CONFLICT (owner, id) DO UPDATE
        SET mode = excluded.mode, model = excluded.model, updated_ms = greatest(known.updated_ms, excluded.updated_ms)
    RETURNING key
"""
_ADD_RUN = """
    INSERT INTO runs (id, conversation, instance, model, mode, created, fences, include, started_ms)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s) RETURNING key
"""
_MAY_RESUME = """
    INSERT INTO resumable (run, command, needs) SELECT %s, %s, needs FROM commands WHERE id = %s
"""
_ADD_MESSAGES = """
    INSERT INTO messages (conversation, number, role, text, run, created_ms)
    SELECT %(conversation)s::bigint, last.number + given.place, given.role, given.text, %(run)s, %(now)s
    FROM unnest(%(roles)s::text[], %(texts)s::text[]) WITH ORDINALITY AS given (role, text, place),
        (SELECT coalesce(max(number), 0) AS number FROM messages WHERE conversation = %(conversation)s) AS last
"""
_ADD_KEY = "INSERT INTO idempotency (owner, key, run, body_hash, created_ms) VALUES (%s, %s, %s, %s, %s)"
# Both do nothing for an owner whose key is not in the database. The row of the day is locked until the transaction
# ends, so two runs of one owner are counted one after the other.
_COUNT_RUN = """
    WITH counted AS (
        INSERT INTO key_usage (name, day, runs)
        SELECT name, (now() AT TIME ZONE 'UTC')::date, 1 FROM api_keys WHERE name = %s
        ON CONFLICT (name, day) DO UPDATE SET runs = key_usage.runs + 1
        RETURNING name, runs, tokens
    )
    SELECT counted.runs, counted.tokens, max_runs, runs_per_day, tokens_per_day FROM counted JOIN api_keys USING (name)
"""
_COUNT_TOKENS = """
    INSERT INTO key_usage (name, day, tokens)
    SELECT name, (now() AT TIME ZONE 'UTC')::date, %s FROM api_keys WHERE name = %s
    ON CONFLICT (name, day) DO UPDATE SET tokens = key_usage.tokens + excluded.tokens
"""
_ACTIVE = """
    SELECT count(*) FROM runs JOIN conversations ON conversations.key = runs.conversation
    WHERE conversations.owner = %s AND runs.state = 'running'
"""
_LOCK_CONVERSATION = """
    SELECT owner FROM conversations WHERE key = (SELECT conversation FROM runs WHERE id = %s) FOR NO KEY UPDATE
"""
_PLACE = "SELECT key, conversation, epoch, state, last FROM runs WHERE id = %s FOR NO KEY UPDATE"
_STORED_FROM = "SELECT first, data, deflated FROM events WHERE run = %s AND first + count > %s ORDER BY first"
_ADD_EVENTS = "INSERT INTO events (run, first, count, epoch, data) VALUES (%s, %s, %s, %s, %s)"
_COUNT_EVENTS = "UPDATE runs SET last = last + %s, bytes = bytes + %s, waiting = %s WHERE key = %s"
_ADD_CALL = """
    INSERT INTO calls (owner, id, run) SELECT owner, %s, %s FROM conversations WHERE key = %s
    ON CONFLICT (owner, id) DO UPDATE SET run = excluded.run
"""
_END_RUN = """
    UPDATE runs SET state = %s, model = %s, first_event_ms = %s, ended_ms = %s, prompt_tokens = %s,
        completion_tokens = %s, total_tokens = %s, cached_tokens = %s, estimated = %s, failure_code = %s,
        tool_uses = %s, needs_decision = %s
    WHERE key = %s
"""
_END_TURN = """
    UPDATE conversations SET model = %s, updated_ms = greatest(updated_ms, %s), session_id = coalesce(%s, session_id),
        fingerprint = coalesce(%s, fingerprint)
    WHERE key = %s
"""


class NotStored(Exception):
    """Rolls the transaction back."""

    def __init__(self, why: Refused) -> None:
        super().__init__(why)
        self.why = why


class _Place(NamedTuple):
    run: int
    conversation: int
    epoch: int
    state: str
    last: int


async def begin(connection: Connection, new: NewRun, entry: Entry) -> Lease:
    """Raises `NotStored`."""
    if new.claim is not None and not await holds(connection, new.claim):
        raise NotStored(Superseded())
    key = new.idempotency.key if new.idempotency else None
    known = await (await connection.execute(_KNOWN, [new.id, new.owner, key])).fetchone()
    assert known is not None
    if known[0]:
        if new.claim is not None and not (await connection.execute(_MINE, [new.id, new.instance])).rowcount:
            raise NotStored(Superseded())  # it was begun with an earlier claim, and is over or another's
        return Lease(new.id, 1)
    if known[1]:
        raise NotStored(KeyTaken())
    conversation = await _conversation(connection, new)  # and locks it
    running = await connection.execute(
        "SELECT id FROM runs WHERE conversation = %s AND state = 'running'", [conversation]
    )
    if (found := await running.fetchone()) is not None:
        raise NotStored(Busy(found[0]))
    await _check_limits(connection, new.owner)
    include = msgspec.json.encode(sorted(new.include)).decode()
    values = [new.id, conversation, new.instance, new.model, new.mode, new.created, new.fences, include, new.started_ms]
    added = await (await connection.execute(_ADD_RUN, values)).fetchone()
    assert added is not None
    (run,) = added
    if new.claim is not None and new.claim.resumption:
        await connection.execute(_MAY_RESUME, [run, new.claim.resumption, new.claim.command_id])
    async with connection.pipeline():
        messages = [(message.role, message.text) for message in new.messages]
        await _add_messages(connection, conversation, run, messages, new.started_ms)
        if new.idempotency:
            hashed = new.idempotency.body_hash
            await connection.execute(_ADD_KEY, [new.owner, key, run, hashed, new.started_ms])
        if new.request:
            await connection.execute("INSERT INTO requests (run, after, data) VALUES (%s, 0, %s)", [run, new.request])
        await put(connection, run, new.owner, entry)
    return Lease(new.id, 1)


async def holds(connection: Connection, claim: Claim) -> bool:
    return (await connection.execute(_HELD, [claim.command_id, claim.epoch])).rowcount > 0


async def _check_limits(connection: Connection, owner: str) -> None:
    """Counts the run. Raises `NotStored`, which takes that back."""
    found = await (await connection.execute(_COUNT_RUN, [owner])).fetchone()
    if found is None:
        return
    runs, tokens, max_runs, runs_per_day, tokens_per_day = found
    if runs_per_day is not None and runs > runs_per_day:
        raise NotStored(KeyLimit("runs_per_day", runs_per_day))
    if tokens_per_day is not None and tokens >= tokens_per_day:
        raise NotStored(KeyLimit("tokens_per_day", tokens_per_day))
    if max_runs is not None:
        active = await (await connection.execute(_ACTIVE, [owner])).fetchone()
        if active is None or active[0] >= max_runs:
            raise NotStored(KeyLimit("max_runs", max_runs))


async def append(connection: Connection, lease: Lease, first_number: int, events: Sequence[DocumentEvent]) -> Written:
    place = await _place(connection, lease)
    if isinstance(place, Fenced):
        return place
    rest = await _rest(connection, place, first_number, events)
    if isinstance(rest, Behind):
        return rest
    if rest and place.state != "running":
        return Fenced("ended")
    size = await _add_events(connection, place, rest)
    await _add_calls(connection, place, rest)
    return Stored(size)


async def end(
    connection: Connection,
    lease: Lease,
    first_number: int,
    events: Sequence[DocumentEvent],
    end: RunEnd,
    entry: Entry,
) -> Written:
    whose = await (await connection.execute(_LOCK_CONVERSATION, [lease.run_id])).fetchone()
    place = await _place(connection, lease)
    if isinstance(place, Fenced):
        return place
    rest = await _rest(connection, place, first_number, events)
    if isinstance(rest, Behind):
        return rest
    if place.state != "running":
        return Fenced("ended") if rest else Stored(0)
    assert whose is not None
    async with connection.pipeline():
        size = await _add_events(connection, place, rest)
        await _end(connection, place, end)
        await connection.execute(_COUNT_TOKENS, [end.envelope.usage.total_tokens, whose[0]])
        await put(connection, place.run, whose[0], entry)
    return Stored(size)


async def _conversation(connection: Connection, new: NewRun) -> int:
    prompts = [message.text for message in new.messages if message.role == "user"]
    values = {
        "conversation_id": new.conversation_id,
        "owner": new.owner,
        "title": title_of(repair(prompts[0] if prompts else "")),
        "workspace": new.workspace,
        "volume": new.volume,
        "mode": new.mode,
        "model": new.model,
        "now": new.started_ms,
    }
    row = await (await connection.execute(_CONVERSATION, values)).fetchone()
    assert row is not None
    return int(row[0])


async def _add_messages(
    connection: Connection, conversation: int, run: int, messages: Iterable[tuple[str, str]], now_ms: int
) -> None:
    """Appends messages, each a role and a text, in order."""
    roles, texts = zip(*messages, strict=True) if messages else ((), ())
    values = {"conversation": conversation, "run": run, "roles": list(roles), "texts": list(texts), "now": now_ms}
    await connection.execute(_ADD_MESSAGES, values)


async def _place(connection: Connection, lease: Lease) -> _Place | Fenced:
    row = await (await connection.execute(_PLACE, [lease.run_id])).fetchone()
    if row is None:
        return Fenced("deleted")
    place = _Place._make(row)
    return place if place.epoch == lease.epoch else Fenced("claimed")


async def _rest(
    connection: Connection, place: _Place, first_number: int, events: Sequence[DocumentEvent]
) -> Sequence[DocumentEvent] | Behind:
    """The events that are not stored yet. What is skipped must be what is stored, or the log would lose its end."""
    known = place.last + 1 - first_number
    if known < 0:
        return Behind(place.last)
    if known and events:
        found = await (await connection.execute(_STORED_FROM, [place.run, first_number])).fetchall()
        stored = [(first, folding.decode(data, is_deflated=deflated)) for first, data, deflated in found]
        batches.check_repeated(first_number, events[:known], stored)
    return events[known:] if known else events


async def _add_events(connection: Connection, place: _Place, events: Sequence[DocumentEvent]) -> int:
    if not events:
        return 0
    data = batches.encode(events)
    await connection.execute(_ADD_EVENTS, [place.run, place.last + 1, len(events), place.epoch, data])
    await connection.execute(_COUNT_EVENTS, [len(events), len(data), isinstance(events[-1], Paused), place.run])
    return len(data)


async def _add_calls(connection: Connection, place: _Place, events: Sequence[DocumentEvent]) -> None:
    paused = [event.envelope.metadata for event in events if isinstance(event, Paused)]
    for one in paused:
        for call in one.waiting_for or ():
            await connection.execute(_ADD_CALL, [call.tool_call_id, place.run, place.conversation])


async def _end(connection: Connection, place: _Place, end: RunEnd) -> None:
    envelope, usage = end.envelope, end.envelope.usage
    state = "completed" if envelope.status == "completed" else "error"
    cached, estimated = (None if value is UNSET else value for value in (usage.cached_tokens, usage.estimated))
    await connection.execute(
        _END_RUN,
        [
            *(state, envelope.model, end.first_event_ms, end.ended_ms),
            *(usage.prompt_tokens, usage.completion_tokens, usage.total_tokens, cached, estimated),
            *(end.failure_code, end.tool_uses, end.needs_decision, place.run),
        ],
    )
    await connection.execute("DELETE FROM calls WHERE run = %s", [place.run])
    await connection.execute("DELETE FROM resumable WHERE run = %s", [place.run])
    if end.frees_key:
        # A key without a hash names a question, whose next repetition decides for itself; see `runs.repeats`.
        await connection.execute("DELETE FROM idempotency WHERE run = %s AND body_hash <> ''", [place.run])
    values = [envelope.model, end.ended_ms, end.session_id, end.fingerprint, place.conversation]
    await connection.execute(_END_TURN, values)
    if end.answer:
        await _add_messages(connection, place.conversation, place.run, [("assistant", end.answer)], end.ended_ms)
