"""What a front asks of its runners, and refuses by itself; against a real database, without any other process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest
from msgspec.structs import replace

from cursor_gateway.cluster.asking import Asking
from cursor_gateway.cluster.front import Front, FrontLimits
from cursor_gateway.cluster.hub import Hub
from cursor_gateway.cluster.members import Members, Timing
from cursor_gateway.errors import NoRunner
from cursor_gateway.model.answers import ToolResults
from cursor_gateway.model.caller_tools import Offer, ToolResult
from cursor_gateway.model.document_events import Done
from cursor_gateway.model.messages import UserMessage
from cursor_gateway.runs.run_service import Asker, Defaults, RunRequest, continuation_of
from cursor_gateway.store.cluster import Member, Role
from cursor_gateway.store.postgres.cluster import PostgresCluster
from cursor_gateway.store.postgres.store import PostgresStore
from tests.store.making import ME, deltas, lease, new_run, run_end

_TIMING = Timing(beat_seconds=1, lease_seconds=5)


def _member(id: str, *volumes: str) -> Member:
    role: Role = "runner" if volumes else "front"
    return Member(id=id, role=role, host=id, volumes=volumes, capacity=4, version="1")


@asynccontextmanager
async def _front(database: str) -> AsyncIterator[tuple[Front, PostgresCluster]]:
    store = PostgresStore(database)
    cluster = PostgresCluster(store)
    members = Members(cluster, store, _member("front"), _TIMING, lambda: 0)
    limits = FrontLimits(queue_seconds=0.1, max_runs_per_key=0)
    hub, defaults = Hub(cluster, store, "front"), Defaults(model="auto")
    try:
        yield Front(store, cluster, members, hub, Asking(cluster), defaults, limits), cluster
    finally:
        await cluster.hints.close()
        await store.close()


async def test_a_volume_whose_runner_left_before_the_front_came_has_no_runner(database: str) -> None:
    async with _front(database) as (front, cluster):
        await cluster.join(_member("other", "there"))
        await cluster.join(_member("gone", "here", "shared"))
        await cluster.leave("gone")
        for workspace in ("here/project", "shared"):
            with pytest.raises(NoRunner, match="has the volume"):
                await front.start(RunRequest(messages=[UserMessage("hello")], owner="me", workspace=workspace))


async def test_an_answer_to_a_run_whose_labels_nobody_has_now_may_be_sent_again(database: str) -> None:
    async with _front(database) as (front, cluster):
        await cluster.join(_member("other", "there"))
        kept = continuation_of(Offer(tools=[]), RunRequest(messages=[], owner=ME, needs=["gpu"]))
        await front.store.begin_run(replace(new_run("run"), continuation=kept))
        end = run_end(status="error")
        await front.store.append(lease("run"), 1, [Done(end.envelope)], end)
        results = ToolResults({"call": ToolResult(text="42")})
        with pytest.raises(NoRunner, match=r"labels of this run \(gpu\); try again later"):
            await front.answer("run", Asker(owner=ME), results)


async def test_what_was_stored_again_in_other_batches_is_read_from_any_number_on(database: str) -> None:
    """A database that has forgotten its last commits gets their events again, in one batch."""
    async with _front(database) as (front, cluster):
        store = front.store
        await store.begin_run(new_run("run"))
        for first, batch in ((1, deltas(1, 2)), (3, deltas(3)), (4, deltas(4, 5, 6, 7))):
            await store.append(lease("run"), first, batch)
        for after in range(8):
            assert (await cluster.heads({"run": after}))["run"].events == deltas(*range(after + 1, 8))


async def test_a_run_that_is_unreadable_does_not_keep_others_from_being_read(database: str) -> None:
    async with _front(database) as (front, cluster):
        for id in ("strange", "plain"):
            await front.store.begin_run(new_run(id, id))
            await front.store.append(lease(id), 1, deltas(1))
        with psycopg.connect(database, autocommit=True) as beside:
            strange = "SELECT key FROM runs WHERE id = 'strange'"
            beside.execute(f"UPDATE events SET data = %s WHERE run = ({strange})", [b'[{"event":"of the future"}]'])
        heads = await cluster.heads({"strange": 0, "plain": 0})
        assert list(heads) == ["plain"]
        assert heads["plain"].events == deltas(1)
        assert "damaged" in front.store.health.problem


async def test_a_front_whose_beats_are_not_stored_is_not_ready(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database can be read, but its disk may be full."""
    async with _front(database) as (front, _):
        assert front.not_ready() == ""
        monkeypatch.setattr(Members, "beat_age", _TIMING.lease_seconds)
        assert "heartbeats" in front.not_ready()
