"""No question reads a whole table: what is asked for is found by an index, and in its order."""

import json
import re
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from cursor_gateway.model.document_events import Paused
from cursor_gateway.store.base import HistoryLimits, Idempotency, IdempotentRun
from cursor_gateway.store.postgres.cluster import _HEADS, PostgresCluster
from cursor_gateway.store.postgres.connections import PostgresConnection
from cursor_gateway.store.postgres.store import PostgresStore
from tests.store.blocking import Database
from tests.store.making import EVERY_EVENT, ME, deltas, lease, new_run, run_end, whole_run

PAUSED = next(event for event in EVERY_EVENT if isinstance(event, Paused))
QUESTIONS: dict[str, Callable[[Database], object]] = {
    "run": lambda store: store.run("run1", ME),
    "runs_of": lambda store: store.runs_of("conv1", ME),
    "unfinished_runs": lambda store: store.unfinished_runs(),
    "events": lambda store: store.events("run1", ME, after=2),
    "conversation": lambda store: store.conversation("conv1", ME),
    "messages": lambda store: store.messages("conv1", ME),
    "first page": lambda store: store.conversations(ME, limit=2),
    "next page": lambda store: store.conversations(ME, limit=2, before=store.conversations(ME, limit=2).next),
    "of some programs": lambda store: store.conversations(ME, limit=2, clients=["", "curl"]),
    "search": lambda store: store.conversations(ME, limit=2, query="word"),
    "next page of a search": lambda store: store.conversations(
        ME, limit=2, query="word", before=store.conversations(ME, limit=2, query="word").next
    ),
    "with a fingerprint": lambda store: store.conversations(ME, fingerprint="f1"),
    "claim_run": lambda store: store.claim_run("live", 1),
    "append with calls": lambda store: store.append(lease("live"), 1, [PAUSED]),
    "find_run_by_calls": lambda store: store.find_run_by_calls(ME, ["call"]),
    "find_run_by_idempotency": lambda store: store.find_run_by_idempotency(ME, "key"),
    "name_reply": lambda store: store.name_reply(ME, "key", IdempotentRun("live", "hash", 3), 1000),
    "begin_run": lambda store: store.begin_run(new_run("new", "new", idempotency=Idempotency("new", "hash"))),
    "begin_run in a conversation": lambda store: store.begin_run(new_run("new", "conv1")),
    "append": lambda store: store.append(store.claim_run("live", 1), 1, deltas(1)),
    "append with the end": lambda store: store.append(store.claim_run("live", 1), 1, deltas(1), run_end("live")),
    "moving a run": lambda store: (store.append(lease("live"), 1, deltas(1), run_end("live")), store._files.settle()),
    "moving many runs": lambda store: (
        [
            store.begin_run(
                replace(new_run(f"new{number}", f"new{number}"), is_first=True), deltas(1), run_end(f"new{number}")
            )
            for number in range(3)
        ],
        store._files.settle(),
    ),
    "change_conversation": lambda store: store.change_conversation("conv1", ME, title="t", is_pinned=True),
    "pinned conversations": lambda store: store.conversations(ME, is_pinned=True),
    "set_decided": lambda store: store.set_decided("run1", ME),
    "delete_conversation": lambda store: store.delete_conversation("conv1", ME),
    "prune": lambda store: store.prune(HistoryLimits(max_age_seconds=1, max_bytes=10**9), 10**6),
}

# A few rows by their number or their place; the whole of an index that holds only what is asked for.
FINE = re.compile(
    r"SEARCH \w+ USING (COVERING )?(INTEGER PRIMARY KEY|INDEX \w+|PRIMARY KEY)"
    r"|SCAN search VIRTUAL TABLE INDEX \d+:(M\d+|=|[<>])"
    r"|SCAN runs USING (COVERING )?INDEX runs_unfinished|SCAN unindexed|SCAN upkeep"
    r"|SEARCH \w+$|SCAN (\d+ )?CONSTANT ROWS?"
    r"|USING INDEX \w+ FOR IN-OPERATOR|(CORRELATED )?(SCALAR|LIST) SUBQUERY \d+|CO-ROUTINE"
    r"|LIST SUBQUERY|CREATE BLOOM FILTER"
)


@pytest.fixture
def statements(store: Database, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of SQLite from now on, with the values in it."""
    seen: list[str] = []
    for number in range(6):
        whole_run(store, f"run{number}", f"conv{number}", "word", at=1000 + number, fingerprint="f1")
    store.begin_run(new_run("live", "live", "word", idempotency=Idempotency("key", "hash")))
    original = sqlite3.connect

    def connect(*values: object, **named: object) -> sqlite3.Connection:
        # whatever it was called with is passed on
        connection: sqlite3.Connection = original(*values, **named)  # type: ignore[call-overload]
        connection.set_trace_callback(seen.append)
        return connection

    monkeypatch.setattr(sqlite3, "connect", connect)
    with store._connections._turn:  # which the background may have
        store._connections._suspect()  # so that all are made anew
        store._connections._close_writer()
    return seen


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_step_of_the_plan_uses_an_index(
    name: str, store: Database, statements: list[str], tmp_path: Path
) -> None:
    QUESTIONS[name](store)
    asked = [sql for sql in statements if re.match(r"\s*(SELECT|UPDATE|DELETE|INSERT)\b", sql) and "'main'" not in sql]
    asked = [sql for sql in asked if "sqlite_schema" not in sql and "INTO search" not in sql]
    assert asked
    with store._connections.reading() as connection:
        for sql in asked:
            for _, _, _, step in connection.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall():
                assert FINE.match(step), f"{step}: {sql}"


def test_a_table_that_compares_whole_rows_has_no_large_ones(store: Database) -> None:
    """A look-up in a table without a rowid reads the rows that it passes, however large they are."""
    with store._connections.reading() as connection:
        tables = connection.execute("SELECT name FROM sqlite_schema WHERE sql LIKE '%WITHOUT ROWID%'").fetchall()
        found = {column for (table,) in tables for _, column, *_ in connection.execute(f"PRAGMA table_info({table})")}
    assert not found & {"text", "data", "tokens", "title"}, tables


# --- PostgreSQL ---------------------------------------------------------------------------------------

_MANY_RUNS = """
    INSERT INTO runs (id, conversation, instance, state, model, mode, created, fences, include, started_ms)
    SELECT 'run' || number, conversation, instance, 'completed', model, mode, created, fences, include, started_ms
    FROM runs, generate_series(1, 2000) AS number
"""
_MANY_EVENTS = """
    INSERT INTO events (run, first, count, epoch, data)
    SELECT key, number, 1, 1, convert_to(repeat('x', 200), 'UTF8') FROM runs, generate_series(2, 20) AS number
"""


async def test_the_heads_of_runs_are_found_by_an_index_after_an_early_analyze(database: str) -> None:
    """Statistics of a nearly empty table stay for as long as it takes until the next ANALYZE. A plan that is kept from
    that time would read all events of all runs, several times a second on each front."""

    store = PostgresStore(database)
    cluster = PostgresCluster(store)
    try:
        await begin(store, "run0")
        await store.connections.execute("ANALYZE")
        for _ in range(10):  # after five times, psycopg would prepare a statement, and PostgreSQL keep its plan
            assert (await cluster.heads({"run0": 0}))["run0"].last == 1
        await store.connections.execute(_MANY_RUNS)
        await store.connections.execute(_MANY_EVENTS)
        after = {f"run{number}": 90 for number in range(8)}
        explained = "".join(await store.connections.run(lambda connection: plan_of(connection, after)))
        assert "Seq Scan" not in explained, explained
        # Not all events of a run, but those after the last that is known.
        assert re.search(r"Index Scan using events_pkey.*\n *Index Cond: .*run = .*first >= ", explained), explained
        kept = "SELECT statement FROM pg_prepared_statements WHERE statement LIKE '%%LATERAL%%'"
        assert await store.connections.select(kept) == []
    finally:
        await store.close()


async def begin(store: PostgresStore, id: str) -> None:
    await store.begin_run(new_run(id, f"conversation of {id}"))
    await store.append(lease(id), 1, deltas(1))


async def plan_of(connection: PostgresConnection, after: Mapping[str, int]) -> list[str]:
    values = [json.dumps(after), 1000]
    found = await connection.execute(f"EXPLAIN {_HEADS}", values, prepare=False)
    return [f"{line}\n" for (line,) in await found.fetchall()]
