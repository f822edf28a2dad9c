"""Processes of a cluster, in one process: each a whole node with a scripted agent, on one real database."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from cursor_gateway.cluster.front import FrontLimits
from cursor_gateway.cluster.members import Timing
from cursor_gateway.cluster.node import Node, NodeOptions
from cursor_gateway.fair_places import Shares
from cursor_gateway.model.messages import UserMessage
from cursor_gateway.runs.admission import Runs
from cursor_gateway.runs.conversations import Conversations
from cursor_gateway.runs.run_service import Defaults, RunRequest
from cursor_gateway.runs.service import LocalRunService
from cursor_gateway.runs.starter import RunParts
from cursor_gateway.sources.router import routed
from cursor_gateway.store.cluster import Member
from cursor_gateway.store.postgres.cluster import PostgresCluster
from cursor_gateway.store.postgres.store import PostgresStore
from cursor_gateway.workspace.roots import Workspaces
from tests.runs.scripted import ENDLESS, ScriptedSource

SECONDS = 60
TIMING = Timing(beat_seconds=0.2, lease_seconds=2.0)
LIMITS = FrontLimits(queue_seconds=5, max_runs_per_key=0)
ME = "me"


class Running(Struct, frozen=True, eq=False):
    node: Node
    store: PostgresStore
    cluster: PostgresCluster
    service: LocalRunService | None


def asked(text: str = "hello", **more: Any) -> RunRequest:
    """A run that needs nobody to read it."""
    return RunRequest(owner=ME, messages=[UserMessage(text)], when_client_leaves="finish", **more)


@asynccontextmanager
async def node(
    database: str,
    folder: Path,
    member: Member,
    source: ScriptedSource | None = None,
    timing: Timing = TIMING,
    limits: FrontLimits = LIMITS,
) -> AsyncIterator[Running]:
    """Without a source, it is a front."""
    async with AsyncExitStack() as stack:
        store = PostgresStore(database)
        stack.push_async_callback(store.close)
        cluster = PostgresCluster(store)
        service = _service(store, folder, member, source) if source is not None else None
        options = NodeOptions(own=member, timing=timing, limits=limits, defaults=Defaults(model="auto"))
        made = Node(options, cluster, store, service, lambda: 0)
        stack.push_async_callback(made.close)
        if service is not None:
            stack.push_async_callback(service.starter.close)
            stack.push_async_callback(service.runs.close, 0.0)
        await made.start()
        yield Running(made, store, cluster, service)


def _service(store: PostgresStore, folder: Path, member: Member, source: ScriptedSource) -> LocalRunService:
    volumes = {name: folder / name for name in member.volumes if name != member.host}
    for place in (folder / member.id, *volumes.values()):
        place.mkdir(parents=True, exist_ok=True)
    runs = Runs(source, ENDLESS, Shares(max_runs=4 * member.capacity + 8))  # the database gives the places
    return LocalRunService(
        RunParts(
            routed(source),
            runs,
            store,
            Conversations(store, folder / member.id / "conversations", member.volumes, latest=runs.latest),
            Workspaces(folder / member.id, [], host=member.host, volumes=volumes),
            Defaults(model="auto"),
            member.id,
            lambda: 0,
            must_store_seconds=30,
        )
    )


def stop_beating(one: Running) -> None:
    """As if its process had died."""
    assert one.node.members.heartbeat is not None
    one.node.members.heartbeat.stop()


def runner(id: str, *volumes: str, **more: Any) -> Member:
    return Member(id=id, role="runner", host=id, volumes=[id, *volumes], capacity=4, version="1", **more)


def front(id: str = "front", **more: Any) -> Member:
    return Member(id=id, role="front", host=id, version="1", **more)


def live(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, SECONDS))


async def until(is_true: Callable[[], bool]) -> None:
    while not is_true():
        await asyncio.sleep(0.01)


def texts(events: Sequence[object]) -> str:
    return "".join(getattr(event, "delta", "") for event in events)
