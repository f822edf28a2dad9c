"""Hints go on, whatever one of them brings, and whatever ends the connection."""

import asyncio
from collections.abc import AsyncGenerator
from typing import cast

import pytest

from cursor_gateway.cluster import node as module
from cursor_gateway.cluster.front import FrontLimits
from cursor_gateway.cluster.node import Node, NodeOptions
from cursor_gateway.runs.run_service import Defaults
from cursor_gateway.store.base import Store
from cursor_gateway.store.cluster import ClusterStore, Hint
from tests.cluster.nodes import TIMING, front


class _Broken:
    """Its first connection breaks in a way that nobody thought of."""

    def __init__(self) -> None:
        self.hints = self
        self.listened = 0
        self.is_done = asyncio.Event()

    async def listen(self, member: str) -> AsyncGenerator[Hint, None]:
        self.listened += 1
        yield Hint("outcome", ["command !!!not base64 but nearly"])
        yield Hint("run", ["unknown"])
        if self.listened == 1:
            raise RuntimeError("a fault")
        self.is_done.set()
        await asyncio.Event().wait()


async def test_one_bad_hint_and_one_fault_do_not_end_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AGAIN_SECONDS", 0.0)
    broken, faults = _Broken(), list[Exception]()
    options = NodeOptions(
        own=front(), timing=TIMING, limits=FrontLimits(queue_seconds=1, max_runs_per_key=0), defaults=Defaults(model="")
    )
    node = Node(options, cast(ClusterStore, broken), cast(Store, None), None, lambda: 0, fault=faults.append)
    listening = asyncio.create_task(node._listen())
    async with asyncio.timeout(60):
        await broken.is_done.wait()
    listening.cancel()
    await asyncio.wait([listening])
    assert broken.listened == 2
    assert "a fault" in map(str, faults)
