"""How often a run asks the database: a few statements, whatever it says. Each is a round trip of a process."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psycopg
import pytest

from cursor_gateway.cluster import asking, hub, runner
from cursor_gateway.cluster.members import Timing
from tests.cluster.nodes import asked, front, node, until
from tests.cluster.nodes import runner as runner_member
from tests.runs.scripted import FINISHED, STARTED, ScriptedSource, say

RUNS = 5
EARLIER = 2  # statements of what happened before these runs
LATER = 1000.0  # seconds: nobody looks by itself, only after hints
# By what only they have in them.
STATEMENTS = {
    "submit": "INTO commands",
    "claim": "SKIP LOCKED",
    "begin": "INTO runs",
    "append": "WITH given",
    "end": "WITH locked",
    "look": "LEFT JOIN LATERAL",
    "hint": "pg_notify",
    "connect": "set_config",
    "connect to hint": "synchronous_commit",
}


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    seen: list[str] = []
    execute, transaction = psycopg.AsyncCursor.execute, psycopg.AsyncConnection.transaction

    def executed(self: Any, query: str, *values: Any, **more: Any) -> Any:
        seen.append(query)
        return execute(self, query, *values, **more)

    def begun(self: Any, *values: Any, **more: Any) -> Any:
        seen.append("a transaction")
        return transaction(self, *values, **more)

    monkeypatch.setattr(asking, "_FIRST_SECONDS", LATER)
    monkeypatch.setattr(asking, "_LOOK_SECONDS", LATER)
    monkeypatch.setattr(hub, "_LOOK_SECONDS", LATER)
    monkeypatch.setattr(runner, "_LOOK_SECONDS", (LATER, LATER))
    with ExitStack() as stack:
        stack.enter_context(patch.object(psycopg.AsyncCursor, "execute", executed))
        stack.enter_context(patch.object(psycopg.AsyncConnection, "transaction", begun))
        yield seen


async def test_a_short_run_takes_few_statements(database: str, tmp_path: Path, statements: list[str]) -> None:
    says = [[STARTED, *say("Hello"), FINISHED]]
    timing = Timing(beat_seconds=LATER, lease_seconds=5 * LATER)
    async with (
        node(database, tmp_path, runner_member("one", "shared"), ScriptedSource(says), timing),
        node(database, tmp_path, runner_member("two", "shared"), ScriptedSource(says), timing),
        node(database, tmp_path, front(), timing=timing) as serving,
    ):
        await _ask(serving.node)
        statements.clear()
        for _ in range(RUNS):
            await _ask(serving.node)
        counted = Counter(_kind(statement) for statement in statements)
        commits = counted["append"] + counted["end"]
        assert counted.keys() <= STATEMENTS.keys(), statements
        assert (counted["submit"], counted["begin"], counted["end"]) == (RUNS, RUNS, RUNS)
        assert RUNS <= counted["claim"] <= RUNS + EARLIER  # and none by the other runner
        assert counted["append"] <= RUNS
        assert counted["look"] == 0  # hints bring the events
        assert counted["hint"] <= 2 * RUNS + commits + EARLIER


async def _ask(serving: Any) -> None:
    run = await serving.front.start(asked())
    with run.reader() as reader:
        while not reader.at_end:
            await reader.next()
    await until(lambda: run.log.readers == 0)


def _kind(statement: str) -> str:
    return next((kind for kind, part in STATEMENTS.items() if part in statement), statement)
