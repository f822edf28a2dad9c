"""A cluster on PostgreSQL, which flushes every commit to the disk: what its parts cost, next to one process.

The database, fronts and runners are on this machine, so they share its cores: two fronts and two runners cannot be
faster than one process where there are only two.
"""

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from benchmarks.contenders import DOCUMENTS, OPENAI, Contender, Server, gateway
from benchmarks.failing import BenchmarkFailed
from benchmarks.field import Field, median, ratio, rotated
from benchmarks.found import Found, Part
from benchmarks.processes import children, cpu_seconds
from benchmarks.served import AT_ONCE, idle_kilobytes
from cursor_gateway.model.document_events import ContentDelta, DocumentEvent
from cursor_gateway.store.base import FIRST_EPOCH, Lease, NewMessage, NewRun, Stored
from cursor_gateway.store.postgres.schema import migrate
from cursor_gateway.store.postgres.store import PostgresStore
from cursor_gateway.store.sql import SqlStore
from cursor_gateway.store.sqlite.store import SqliteStore
from tools import postgres

RUNS = 32  # that are written at once
EVENTS = 10  # of a batch
_BATCHES = 30  # of each run, in one round
_FLUSHES = 50

Stores: TypeAlias = dict[str, SqlStore]


class Appends(Struct, frozen=True):
    """What a batch costs, with so many runs at once."""

    seconds: dict[str, float]  # by engine
    ratio: float
    database_cpu: float  # seconds, of the server's processes
    bytes: float  # in the table of events, with its index


class Deployed(Struct, frozen=True):
    fronts: list[Server]
    runners: list[Server]


def cluster(field: Field, rounds: int) -> Part:
    with postgres.running(fsync="on", full_page_writes="on") as server:
        flush = flush_seconds(server.folder)
        appends = measure_appends(server, field.folder, rounds)
        took = {name: f"{seconds * 1e6:.0f} µs" for name, seconds in appends.seconds.items()}
        yield "cluster append", Found(appends.ratio, f"{took['postgres']} against {took['sqlite']}")
        with deployed(field, server) as running:
            yield "cluster shown", shown(field, running, rounds, flush)
            used, count = idle_kilobytes(field, running.fronts[0])
            yield "cluster idle", Found(used / count, f"{used / 1024:.0f} MB for {count:,} readers of one silent run")
            yield "cluster sessions", sessions(field, running, rounds)


def flush_seconds(folder: Path) -> float:
    """Of one write to the disk that the database uses."""
    times = []
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        for _ in range(_FLUSHES):
            os.write(file.fileno(), bytes(8192))
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - began)
    return statistics.median(times)


# --- appends ------------------------------------------------------------------------------------------


def measure_appends(server: postgres.Server, folder: Path, rounds: int) -> Appends:
    url = server.create_database("appends")
    with tempfile.TemporaryDirectory(dir=folder) as place:
        return asyncio.run(_measure_appends(server, url, Path(place), rounds))


async def _measure_appends(server: postgres.Server, url: str, folder: Path, rounds: int) -> Appends:
    await migrate(url)
    stores: Stores = {"postgres": PostgresStore(url), "sqlite": SqliteStore(folder)}
    found: list[dict[str, float]] = []
    used = 0.0
    try:
        for turn in range(rounds + 1):  # the first one warms up
            took = {}
            for name, store in stores.items():
                leases = [await _begin(store, f"run-{turn}-{number}") for number in range(RUNS)]
                before = _database_cpu(server)
                took[name] = await _appended(store, leases)
                if name == "postgres" and turn:
                    used += _database_cpu(server) - before
            if turn:
                found.append(took)
        size = await _events_bytes(url)
    finally:
        for store in stores.values():
            await store.close()
    seconds = {name: median(found, name) for name in stores}
    batches = rounds * RUNS * _BATCHES
    return Appends(seconds, ratio(found, "postgres", "sqlite"), used / batches, size / (batches + RUNS * _BATCHES))


async def _begin(store: SqlStore, id: str) -> Lease:
    begun = await store.begin_run(
        NewRun(
            id=id,
            conversation_id=f"conv-{id}",
            owner="bench",
            instance="bench",
            workspace="/w",
            model="auto",
            mode="agent",
            created="2026-02-23T10:30:00Z",
            messages=[NewMessage("user", "Hello")],
            started_ms=0,
        )
    )
    if not isinstance(begun, Stored):
        raise BenchmarkFailed(f"A run did not begin: {begun}")
    return Lease(id, FIRST_EPOCH)


async def _appended(store: SqlStore, leases: Sequence[Lease]) -> float:
    """Seconds for a batch of one run, while all of them write."""
    events: list[DocumentEvent] = [ContentDelta("doc_001", "some words of a reply ") for _ in range(EVENTS)]

    async def write(lease: Lease) -> None:
        for number in range(_BATCHES):
            if not isinstance(await store.append(lease, number * EVENTS + 1, events), Stored):
                raise BenchmarkFailed("A batch was not stored.")

    return await _timed(lambda: asyncio.gather(*map(write, leases))) / (len(leases) * _BATCHES)


async def _timed(action: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await action()
    return time.perf_counter() - began


def _database_cpu(server: postgres.Server) -> float:
    return sum(cpu_seconds(pid) for pid in (server.pid, *children(server.pid)))


async def _events_bytes(url: str) -> int:
    from psycopg import AsyncConnection

    async with await AsyncConnection.connect(url) as connection:
        row = await (await connection.execute("SELECT pg_total_relation_size('events')")).fetchone()
        assert row is not None
        return int(row[0])


# --- processes ----------------------------------------------------------------------------------------


@contextmanager
def deployed(field: Field, server: postgres.Server, fronts: int = 2, runners: int = 2) -> Iterator[Deployed]:
    url = server.create_database("gateway")
    asyncio.run(migrate(url))
    with ExitStack() as stack:

        def started(role: str, number: int) -> Server:
            settings = {"store": url, "role": role}
            return stack.enter_context(gateway(field.agent, field.folder / f"{role}-{number}", settings=settings))

        working = [started("runner", number) for number in range(runners)]
        yield Deployed([started("front", number) for number in range(fronts)], working)


def shown(field: Field, running: Deployed, rounds: int, flush: float) -> Found:
    """How late an event is, from the agent's write to the client of a front, in units of what is allowed."""
    allowed = 3 * flush + 0.025  # a runner stores what arrives within 30 ms together
    streams, events, rate = 4, 150, 50
    one = Contender(running.fronts[0], DOCUMENTS)
    late = []
    for _ in range(max(rounds, 3)):
        summary, _ = field.load.ask(
            one, f"paced {events} {rate}", concurrency=streams, count=streams, stamps=streams * events
        )
        assert summary.delay_us is not None
        late.append(summary.delay_us.p50 / 1e6)
    found = statistics.median(late)
    return Found(found / allowed, f"{found * 1e3:.1f} ms; a flush to the disk takes {flush * 1e3:.1f} ms")


def sessions(field: Field, running: Deployed, rounds: int) -> Found:
    fronts = [Contender(front, OPENAI) for front in running.fronts]
    found = rotated(
        {
            "one": lambda: field.load.ask_all([field.openai], "replay 100", concurrency=AT_ONCE, count=200),
            "cluster": lambda: field.load.ask_all(fronts, "replay 100", concurrency=AT_ONCE // 2, count=100),
        },
        rounds,
    )
    rates = f"{median(found, 'cluster'):,.0f}/s against {median(found, 'one'):,.0f}/s, {os.cpu_count()} cores"
    return Found(ratio(found, "cluster", "one"), rates)
