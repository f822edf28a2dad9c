"""A database in; what its tables held at many moments, and in the end, out.

It asks the database itself, not through any member, and only reads.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import AsyncConnection

from cursor_gateway.dialects.documents.encoder import SseEncoder
from cursor_gateway.model.document_events import Done
from cursor_gateway.stages.run_state import RunState
from cursor_gateway.store.postgres.events import decode
from cursor_gateway.store.queue import failure_of
from cursor_gateway.wire.sse import SseDecoder
from nemesis.history import Command, Facts, Head, Snapshot, State, StoredEvent, StoredRun, Takeover
from nemesis.reader import data_of
from nemesis.witness import QUESTION

_SECONDS = 0.1  # between two snapshots
_HEADS = """
    SELECT runs.id, conversations.id, runs.state, runs.epoch, runs.last
    FROM runs JOIN conversations ON conversations.key = runs.conversation
"""
_RUNS = """
    SELECT runs.key, runs.id, conversations.id, runs.state, runs.epoch,
        (SELECT string_agg(text, ' ') FROM messages WHERE run = runs.key AND role = 'user'),
        runs.last, coalesce(runs.tool_uses, 0),
        (SELECT text FROM messages WHERE run = runs.key AND role = 'assistant' ORDER BY number DESC LIMIT 1)
    FROM runs JOIN conversations ON conversations.key = runs.conversation ORDER BY runs.key
"""
_COMMANDS = "SELECT id, epoch, state = 'done', outcome FROM commands"
_UNSTARTED = """
    SELECT run_id, failure FROM commands
    WHERE due IS NOT NULL AND state = 'done'
        AND (failure IS NOT NULL OR NOT EXISTS (SELECT FROM runs WHERE runs.id = commands.run_id))
"""
_OPEN = """
    SELECT (SELECT count(*) FROM runs WHERE state = 'running' AND NOT waiting)
        + (SELECT count(*) FROM commands WHERE state <> 'done')
"""
_EVENTS = "SELECT first, data, deflated FROM events WHERE run = %s ORDER BY first"
_WRITERS = """
    SELECT first, count, epoch, extract(epoch FROM at)::float8 FROM nemesis_appends WHERE run = %s ORDER BY number
"""
# Each append, in the order of their commits within a run; the events themselves are combined when a run has ended.
TRAIL = """
    CREATE TABLE nemesis_appends (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        run bigint NOT NULL, first integer NOT NULL, count integer NOT NULL, epoch bigint NOT NULL,
        at timestamptz NOT NULL DEFAULT clock_timestamp()
    );
    CREATE FUNCTION nemesis_append() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            INSERT INTO nemesis_appends (run, first, count, epoch) VALUES (NEW.run, NEW.first, NEW.count, NEW.epoch);
            RETURN NULL;
        END
    $$;
    CREATE TRIGGER nemesis_append AFTER INSERT ON events FOR EACH ROW WHEN (NOT NEW.deflated)
        EXECUTE FUNCTION nemesis_append();
"""
PROMOTED = "INSERT INTO nemesis_promotions VALUES (clock_timestamp())"
# When each member's beat arrived, and for how long it had been silent when a run was taken from it. Nobody's beat can
# arrive before the database has started, or a standby has taken over, so the time before that does not count.
BEATS = """
    CREATE TABLE nemesis_beats (member text PRIMARY KEY, at timestamptz NOT NULL);
    CREATE TABLE nemesis_promotions (at timestamptz NOT NULL);
    CREATE TABLE nemesis_takeovers (
        run text NOT NULL, member text NOT NULL, silence float8 NOT NULL, has_restarted boolean NOT NULL
    );
    CREATE FUNCTION nemesis_beat() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            INSERT INTO nemesis_beats VALUES (NEW.id, clock_timestamp())
                ON CONFLICT (member) DO UPDATE SET at = excluded.at;
            RETURN NULL;
        END
    $$;
    CREATE TRIGGER nemesis_beat AFTER INSERT OR UPDATE OF beat ON members FOR EACH ROW EXECUTE FUNCTION nemesis_beat();
    CREATE FUNCTION nemesis_takeover() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            INSERT INTO nemesis_takeovers
                SELECT NEW.id, member, extract(epoch FROM clock_timestamp() - greatest(at, began)), at < began
                FROM nemesis_beats,
                    (SELECT greatest(pg_postmaster_start_time(), max(at)) AS began FROM nemesis_promotions) AS server
                WHERE member = OLD.instance;
            RETURN NULL;
        END
    $$;
    CREATE TRIGGER nemesis_takeover AFTER UPDATE OF epoch ON runs FOR EACH ROW
        WHEN (NEW.epoch > OLD.epoch AND NEW.instance <> OLD.instance) EXECUTE FUNCTION nemesis_takeover();
"""


class Observer:
    def __init__(self, url: Callable[[], str]) -> None:
        """`url`: of the server that is the primary now."""
        self._url = url
        self.snapshots: list[Snapshot] = []

    async def watch(self) -> None:
        """Until it is cancelled. While the database is away there is nothing to see."""
        while True:
            with suppress(psycopg.Error):
                async with await AsyncConnection.connect(self._url(), autocommit=True) as connection:
                    while True:
                        snapshot = await _snapshot(connection)
                        if not self.snapshots or snapshot != self.snapshots[-1]:
                            self.snapshots.append(snapshot)
                        await asyncio.sleep(_SECONDS)
            await asyncio.sleep(_SECONDS)

    async def runs(self) -> list[StoredRun]:
        async with await AsyncConnection.connect(self._url(), autocommit=True) as connection:
            found = await (await connection.execute(_RUNS)).fetchall()
            return [await _stored(connection, *row) for row in found]

    async def unstarted(self) -> dict[str, str]:
        """Requests of the queue that were given up, and the codes of their errors; empty: none."""
        async with await AsyncConnection.connect(self._url(), autocommit=True) as connection:
            found = await (await connection.execute(_UNSTARTED)).fetchall()
            return {run: failure_of(bytes(failure)).code if failure is not None else "" for run, failure in found}

    async def takeovers(self) -> list[Takeover]:
        async with await AsyncConnection.connect(self._url(), autocommit=True) as connection:
            found = await connection.execute("SELECT run, member, silence, has_restarted FROM nemesis_takeovers")
            return [Takeover(*row) for row in await found.fetchall()]

    async def open(self) -> int:
        """How many runs and commands are not done, without those that wait for a client: all of them have gone."""
        async with await AsyncConnection.connect(self._url(), autocommit=True) as connection:
            row = await (await connection.execute(_OPEN)).fetchone()
            assert row is not None
            return int(row[0])


async def _snapshot(connection: AsyncConnection[Any]) -> Snapshot:
    heads = await (await connection.execute(_HEADS)).fetchall()
    commands = await (await connection.execute(_COMMANDS)).fetchall()
    return Snapshot(tuple(Head(*row) for row in heads), tuple(Command(*row) for row in commands))


async def _stored(
    connection: AsyncConnection[Any],
    key: int,
    id: str,
    conversation: str,
    state: State,
    epoch: int,
    prompt: str | None,
    last: int,
    tool_uses: int,
    answer: str | None,
) -> StoredRun:
    """With its events as a reader is shown them."""
    writers: dict[int, tuple[int, float]] = {}  # the epoch and the time of each event
    for first, count, writer, at in await (await connection.execute(_WRITERS, [key])).fetchall():
        writers.update(dict.fromkeys(range(first, first + count), (writer, at)))
    events: list[StoredEvent] = []
    encoder, folded = SseEncoder(), RunState()
    for first, data, deflated in await (await connection.execute(_EVENTS, [key])).fetchall():
        for number, event in enumerate(decode(bytes(data), is_deflated=deflated), first):
            folded.push(event)
            shown = SseDecoder().push(encoder.push(event))
            content = data_of(shown[0]) if shown else b""
            writer, at = writers.get(number, (0, 0.0))
            events.append(StoredEvent(number, writer, content, isinstance(event, Done), at))
    questions = QUESTION.findall(prompt or "")
    question = questions[0] if questions else ""
    return StoredRun(
        id,
        conversation,
        state,
        epoch,
        tuple(events),
        question,
        row=Facts(last, tool_uses, answer or ""),
        folded=Facts(folded.count, folded.words.tool_uses, folded.text),
    )
