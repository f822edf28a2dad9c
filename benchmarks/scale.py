"""Measured costs and a demand in; how many cells, cores and bytes that takes, and which limit comes first, out.

A cell is one PostgreSQL server with its runners and fronts; conversations belong to one cell, so cells share nothing.
The model is arithmetic over measured figures: it does not know about a disk that is shared, a network, or a vacuum that
falls behind. `python -m benchmarks.scale` measures on this machine, checks the model against a measurement, and
`--write` writes the tables of docs/scale.md.
"""

import asyncio
import os
import re
import tempfile
import time
from contextlib import ExitStack
from datetime import date
from pathlib import Path

import click
from msgspec import Struct

from benchmarks.cluster import EVENTS, deployed, flush_seconds, measure_appends
from benchmarks.contenders import DOCUMENTS, Contender
from benchmarks.field import Field
from benchmarks.machine import busy, kind
from benchmarks.processes import cpu_seconds
from benchmarks.served import idle_kilobytes
from cursor_gateway.store.postgres.connections import PostgresConnection, connect
from cursor_gateway.store.postgres.schema import migrate
from tools import postgres

PAGE = Path(__file__).parent.parent / "docs" / "scale.md"
_SECTION = re.compile(r"(<!-- scale -->\n).*?(<!-- /scale -->)", re.DOTALL)
_DAY = 24 * 3600
_CHECK_SECONDS = 3.0
_STATEMENT_CPU = 0.0003  # seconds of a small statement, in the server and its client


class Costs(Struct, frozen=True, kw_only=True):
    """What one machine measured."""

    flush: float  # seconds of one write to the disk
    database_cpu: float  # seconds of the server for one batch, of many in a statement
    batch_bytes: float  # of a batch in the table, with its index
    folded: float = 0.12  # of them, when a run has ended and its rows are compressed
    reader_bytes: float  # of an idle stream, in a front
    reader_cpu: float  # seconds of a front for one event of one reader
    connections: int = 7  # to the database, of each process: at most four for work, and three of their own


class Demand(Struct, frozen=True, kw_only=True):
    runners: int
    readers: int
    runs: int = 4  # at once, of each runner
    batches: float = 8  # a second, of each run: reads of the agent's output
    flushes: float = 33  # a second at most, of each runner: see `Pace` in `store/batches.py`
    events: float = 8  # a second that each reader is shown


class Limits(Struct, frozen=True, kw_only=True):
    """Of one PostgreSQL server: what an operator would give it."""

    connections: int = 2000
    cores: float = 8  # half of sixteen: the rest is for reads, folding and vacuum
    log_bytes: float = 100e6  # a second, to its write-ahead log
    notifying_runners: int = 100  # busy ones, whose hints PostgreSQL carries to ten or twenty fronts


class Projection(Struct, frozen=True, kw_only=True):
    cells: int
    first_limit: str  # the one that decides how many cells there are
    needed: dict[str, float]  # cells, by limit
    commits: float  # a second, in each cell
    batches: float
    bytes: float  # a second, in each cell
    database_cores: float
    front_cores: float  # in all
    front_bytes: float


def commits(writers: int, flush: float, cpu: float, cores: float) -> float:
    """A second, of so many writers that each wait for the last one.

    Commits that arrive while the log is flushed share the next flush: each waits half a flush for it, and one for its
    own. More than the cores can prepare there never are.
    """
    return min(writers / (1.5 * flush + cpu), cores / cpu)


def project(costs: Costs, demand: Demand, limits: Limits) -> Projection:
    batches = demand.runners * demand.runs * demand.batches
    flushes = demand.runners * min(demand.flushes, demand.runs * demand.batches)
    bytes = batches * costs.batch_bytes
    cores = batches * costs.database_cpu
    front_cores = demand.readers * demand.events * costs.reader_cpu
    fronts = max(1.0, front_cores)  # one process for each core
    needed = {
        "connections": (demand.runners + fronts) * costs.connections / limits.connections,
        "cores": cores / limits.cores,
        "write-ahead log": bytes / limits.log_bytes,
        "hints": demand.runners / limits.notifying_runners,
    }
    first = max(needed, key=lambda name: needed[name])
    cells = max(1, -int(-needed[first] // 1))
    return Projection(
        cells=cells,
        first_limit=first,
        needed=needed,
        commits=flushes / cells,
        batches=batches / cells,
        bytes=bytes / cells,
        database_cores=cores / cells,
        front_cores=front_cores,
        front_bytes=demand.readers * costs.reader_bytes,
    )


# --- measuring ------------------------------------------------------------------------------------------


class Check(Struct, frozen=True):
    """So many connections that commit one after the other: what the model says, and what was measured."""

    writers: int
    modelled: float
    measured: float


def measure(rounds: int = 3) -> tuple[Costs, list[Check]]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        field = Field(Path(folder), stack)
        with postgres.running(fsync="on", full_page_writes="on") as server:
            flush = flush_seconds(server.folder)
            appends = measure_appends(server, field.folder, rounds)
            checks = asyncio.run(_checks(server.create_database("commits"), flush))
            with deployed(field, server) as running:
                reader_cpu = _reader_cpu(field, Contender(running.fronts[0], DOCUMENTS))
                used, count = idle_kilobytes(field, running.fronts[0])  # last: its readers take a while to leave
    costs = Costs(
        flush=flush,
        database_cpu=appends.database_cpu,
        batch_bytes=appends.bytes,
        reader_bytes=used * 1024 / count,
        reader_cpu=reader_cpu,
    )
    return costs, checks


def _reader_cpu(field: Field, front: Contender, streams: int = 8, events: int = 200, rate: int = 50) -> float:
    field.load.ask(front, "paced 2 50", stamps=2)  # loads what is loaded on first use
    before = cpu_seconds(front.server.pid)
    field.load.ask(front, f"paced {events} {rate}", concurrency=streams, count=streams, stamps=streams * events)
    return (cpu_seconds(front.server.pid) - before) / (streams * events)


async def _checks(url: str, flush: float) -> list[Check]:
    await migrate(url)
    found = []
    for writers in (1, 4, 16):
        connections = [await connect(url) for _ in range(writers)]
        await connections[0].execute("CREATE TABLE IF NOT EXISTS written (number bigint)")
        began = time.perf_counter()
        counts = await asyncio.gather(*(_commit(one, began + _CHECK_SECONDS) for one in connections))
        rate = sum(counts) / (time.perf_counter() - began)
        for connection in connections:
            await connection.close()
        cores = os.cpu_count() or 1
        found.append(Check(writers, commits(writers, flush, _STATEMENT_CPU, cores), rate))
    return found


async def _commit(connection: PostgresConnection, until: float) -> int:
    done = 0
    while time.perf_counter() < until:
        await connection.execute("INSERT INTO written VALUES (1)")
        done += 1
    return done


# --- the page -------------------------------------------------------------------------------------------

DEMANDS = {
    "a team": Demand(runners=10, readers=1_000),
    "a company": Demand(runners=500, readers=50_000),
    "10,000 runners, 1,000,000 readers": Demand(runners=10_000, readers=1_000_000),
}


def section(costs: Costs, checks: list[Check], machine: str, today: date) -> str:
    return "\n".join(
        [
            f"Measured on {today.day} {today:%B %Y}: {machine}",
            "",
            "| cost | measured |",
            "|---|--:|",
            f"| one flush to the disk | {costs.flush * 1e3:.1f} ms |",
            f"| database CPU for a batch of {EVENTS} events | {costs.database_cpu * 1e6:.0f} µs |",
            f"| a batch in the database, with its index | {costs.batch_bytes:,.0f} bytes |",
            f"| the same after its run has ended | {costs.batch_bytes * costs.folded:,.0f} bytes |",
            f"| an idle stream on a front | {costs.reader_bytes / 1024:.1f} kB |",
            f"| front CPU per event, for the only reader of a run | {costs.reader_cpu * 1e6:.0f} µs |",
            "",
            "| | " + " | ".join(DEMANDS) + " |",
            "|---|" + "--:|" * len(DEMANDS),
            *_rows(costs),
            "",
            "The model compared with a measurement on this machine: commits per second for a number of connections,",
            "each of which waits for its previous commit.",
            "",
            "| writers | model | measured |",
            "|--:|--:|--:|",
            *(f"| {check.writers} | {check.modelled:,.0f} | {check.measured:,.0f} |" for check in checks),
            "",
        ]
    )


def _rows(costs: Costs) -> list[str]:
    found = [project(costs, demand, Limits()) for demand in DEMANDS.values()]
    rows = {
        "cells (PostgreSQL servers)": [f"{one.cells}" for one in found],
        "first limit reached": [one.first_limit for one in found],
        **{
            f"cells for {name} alone": [f"{one.needed[name]:,.2f}" for one in found]
            for name in ("hints", "connections", "write-ahead log", "cores")
        },
        "commits/s per cell": [f"{one.commits:,.0f}" for one in found],
        "batches/s per cell": [f"{one.batches:,.0f}" for one in found],
        "written per cell": [f"{one.bytes / 1e6:,.1f} MB/s" for one in found],
        "stored per cell and day": [f"{one.bytes * _DAY * costs.folded / 1e9:,.0f} GB" for one in found],
        "cores for appends, per cell": [f"{one.database_cores:.1f}" for one in found],
        "front cores, total": [f"{one.front_cores:,.1f}" for one in found],
        "memory for streams, total": [f"{one.front_bytes / 1e9:,.2f} GB" for one in found],
    }
    return [f"| {name} | {' | '.join(values)} |" for name, values in rows.items()]


@click.command()
@click.option("--write", is_flag=True, help="Write the tables of docs/scale.md.")
def main(write: bool) -> None:
    """Measure the costs of a cluster, and project them."""
    costs, checks = measure()
    text = section(costs, checks, f"{kind()}. {busy() or ''}".strip(), date.today())
    click.echo(text)
    if write:
        PAGE.write_text(_SECTION.sub(lambda found: found[1] + text + found[2], PAGE.read_text()))


if __name__ == "__main__":
    main()
