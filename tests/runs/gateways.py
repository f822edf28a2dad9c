"""Gateways of one machine that share a history and its queue, in one process, with a scripted agent."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import time_ns

from cursor_gateway.fair_places import Shares
from cursor_gateway.runs.admission import Runs
from cursor_gateway.runs.conversations import Conversations
from cursor_gateway.runs.queue import QueueLimits, RunQueue
from cursor_gateway.runs.run_service import Defaults
from cursor_gateway.runs.service import LocalRunService
from cursor_gateway.runs.starter import RunParts
from cursor_gateway.sources.router import routed
from cursor_gateway.store.sqlite.store import SqliteStore
from cursor_gateway.workspace.roots import Workspaces
from tests.runs.scripted import ENDLESS, ScriptedSource


class Gateway:
    """One of several processes that share a history."""

    def __init__(self, folder: Path, source: ScriptedSource, name: str = "one", max_runs: int = 4) -> None:
        (folder / "work").mkdir(parents=True, exist_ok=True)
        self.store = SqliteStore(folder)
        runs, defaults = Runs(source, ENDLESS, Shares(max_runs=max_runs)), Defaults(model="auto")
        limits = QueueLimits(max_queued_per_key=3)
        queue = RunQueue(self.store.queue, self.store, runs, limits, defaults, name, lambda instance: True)
        self.service = LocalRunService(
            RunParts(
                routed(source),
                runs,
                self.store,
                Conversations(self.store, folder / "conversations"),
                Workspaces(folder / "work", []),
                defaults,
                name,
                lambda: time_ns() // 1_000_000,
                queue=queue,
            )
        )


@asynccontextmanager
async def gateway(folder: Path, source: ScriptedSource, name: str = "one", max_runs: int = 4) -> AsyncIterator[Gateway]:
    made = Gateway(folder, source, name, max_runs)
    await made.store.open(0)
    assert made.service.queue is not None
    made.service.queue.start(made.service.start_queued)
    try:
        yield made
    finally:
        await made.service.close()
        await made.store.close()
