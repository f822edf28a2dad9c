"""What a front asks of its runners, and refuses by itself; against a real database, without any other process."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from cursor_gateway.cluster.asking import Asking
from cursor_gateway.cluster.front import Front, FrontLimits
from cursor_gateway.cluster.hub import Hub
from cursor_gateway.cluster.members import Members, Timing
from cursor_gateway.errors import NoRunner
from cursor_gateway.model.messages import UserMessage
from cursor_gateway.runs.run_request import Defaults, RunRequest
from cursor_gateway.store.cluster import Member, Role
from cursor_gateway.store.postgres.cluster import PostgresCluster
from cursor_gateway.store.postgres.store import PostgresStore

_TIMING = Timing(beat_seconds=1, lease_seconds=5)


def _member(id: str, *volumes: str) -> Member:
    role: Role = "runner" if volumes else "front"
    return Member(id=id, role=role, host=id, volumes=volumes, capacity=4, version="1")


def _with_front(database: str, test: Callable[[Front, PostgresCluster], Awaitable[None]]) -> None:
    async def live() -> None:
        store = PostgresStore(database)
        cluster = PostgresCluster(store)
        members = Members(cluster, store, _member("front"), _TIMING, lambda: 0)
        limits = FrontLimits(queue_seconds=0.1, max_runs_per_key=0)
        hub, defaults = Hub(cluster, store, "front"), Defaults(model="auto")
        front = Front(store, cluster, members, hub, Asking(cluster), defaults, limits)
        try:
            await test(front, cluster)
        finally:
            await cluster.close()
            await store.close()

    asyncio.run(asyncio.wait_for(live(), 60))


def test_a_volume_whose_runner_left_before_the_front_came_has_no_runner(database: str) -> None:
    async def test(front: Front, cluster: PostgresCluster) -> None:
        await cluster.join(_member("other", "there"))
        await cluster.join(_member("gone", "here", "shared"))
        await cluster.leave("gone")
        for workspace in ("here/project", "shared"):
            with pytest.raises(NoRunner, match="has the volume"):
                await front.start(RunRequest(messages=[UserMessage("hello")], owner="me", workspace=workspace))

    _with_front(database, test)
