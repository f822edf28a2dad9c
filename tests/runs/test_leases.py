"""Gateways that share a history: a conversation has one run, and a run has one writer."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cursor_gateway.errors import ConversationBusy, GatewayRestarted, StoreUnavailable
from cursor_gateway.fair_places import Shares
from cursor_gateway.model.messages import UserMessage
from cursor_gateway.runs import service
from cursor_gateway.runs.admission import Runs
from cursor_gateway.runs.conversations import Conversations
from cursor_gateway.runs.handle import end_interrupted_runs
from cursor_gateway.runs.run import Run
from cursor_gateway.runs.run_service import Defaults, RunRequest
from cursor_gateway.runs.service import LocalRunService
from cursor_gateway.runs.starter import RunParts
from cursor_gateway.sources.router import routed
from cursor_gateway.store.base import Lease, RunEnd, Store, Written
from cursor_gateway.store.sqlite.store import SqliteStore
from cursor_gateway.workspace.roots import Workspaces
from tests.runs.scripted import ENDLESS, FINISHED, STARTED, ScriptedSource, Step, Until, forever, say, true
from tests.runs.suspending import suspending
from tests.runs.test_log import Flaky

ANSWERS: list[Step] = [[STARTED], say("All"), [FINISHED]]
WRAPPERS = [lambda store: store, suspending]


@pytest.fixture(params=WRAPPERS, ids=["local", "suspending"])
def wrap(request: pytest.FixtureRequest) -> Callable[[Store], Store]:
    chosen: Callable[[Store], Store] = request.param
    return chosen


class Gateway:
    def __init__(self, folder: Path, name: str, store: Store, source: ScriptedSource, **defaults: Any) -> None:
        self.source, self.store = source, store
        self.alive = True
        self.others: dict[str, Gateway] = {}
        runs = Runs(source, ENDLESS, Shares(max_runs=20))
        self.service = LocalRunService(
            RunParts(
                routed(source),
                runs,
                store,
                Conversations(store, folder / "conversations", latest=runs.latest),
                Workspaces(folder, []),
                Defaults(**{"model": "auto", **defaults}),
                name,
                Clock(),
                is_alive=lambda instance: self.others[instance].alive,
            )
        )

    async def start(self, said: str, conversation_id: str | None = None, **order: Any) -> Run:
        run = await self.service.start(self.request(said, conversation_id, **order))
        assert isinstance(run, Run)
        return run

    def request(self, said: str, conversation_id: str | None = None, **order: Any) -> RunRequest:
        return RunRequest(owner="me", messages=[UserMessage(said)], conversation_id=conversation_id, **order)


class Clock:
    now = 0

    def __call__(self) -> int:
        Clock.now += 1
        return Clock.now


@asynccontextmanager
async def gateways(
    tmp_path: Path, wrap: Callable[[Store], Store], *sources: ScriptedSource, **defaults: Any
) -> AsyncIterator[list[Gateway]]:
    stores = [SqliteStore(tmp_path) for _ in sources]
    made = [
        Gateway(tmp_path, f"gateway{number}", wrap(store), source, **defaults)
        for number, (store, source) in enumerate(zip(stores, sources, strict=True))
    ]
    for gateway in made:
        gateway.others = {f"gateway{number}": other for number, other in enumerate(made)}
    yield made
    for gateway, store in zip(made, stores, strict=True):
        await gateway.service.close(0)
        await store.close()


async def said_in(store: Store, run: Run) -> list[str]:
    return [message.text for message in await store.messages(run.info.conversation_id or "", "me")]


async def test_a_conversation_with_a_run_in_another_gateway_is_busy(
    tmp_path: Path, wrap: Callable[[Store], Store]
) -> None:
    goes = asyncio.Event()
    busy = ScriptedSource(ANSWERS, [[STARTED], say("Al"), Until(goes), say("l"), [FINISHED]])
    async with gateways(tmp_path, wrap, busy, ScriptedSource(ANSWERS)) as (one, two):
        first = await one.start("first")
        await first.gone()
        second = await one.start("second", first.info.conversation_id)
        await true(lambda: second.count)
        with pytest.raises(ConversationBusy):
            await two.start("third", first.info.conversation_id)
        assert two.source.turns == []
        goes.set()
        await second.gone()
        await (await two.start("third", first.info.conversation_id)).gone()
        assert await said_in(two.store, first) == ["first", "All", "second", "All", "third", "All"]


async def test_who_may_wait_for_its_turn_waits_for_other_gateways_as_well(
    tmp_path: Path, wrap: Callable[[Store], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_POLL_SECONDS", 0)
    goes = asyncio.Event()
    busy = ScriptedSource(ANSWERS, [[STARTED], say("Al"), Until(goes), say("l"), [FINISHED]])
    async with gateways(tmp_path, wrap, busy, ScriptedSource(ANSWERS), when_busy="wait") as (one, two):
        first = await one.start("first")
        await first.gone()
        second = await one.start("second", first.info.conversation_id)
        await true(lambda: second.count)
        waiting = asyncio.ensure_future(two.start("third", first.info.conversation_id))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not waiting.done()
        goes.set()
        await (await waiting).gone()
        assert await said_in(two.store, first) == ["first", "All", "second", "All", "third", "All"]


async def test_the_run_of_a_dead_gateway_is_ended_by_whoever_wants_its_conversation(
    tmp_path: Path, wrap: Callable[[Store], Store]
) -> None:
    """And when the gateway was not dead, its run is stopped and stores nothing more."""
    goes = asyncio.Event()
    frozen = ScriptedSource(ANSWERS, [[STARTED], say("Half"), Until(goes), say("More"), forever()])
    async with gateways(tmp_path, wrap, frozen, ScriptedSource(ANSWERS)) as (one, two):
        first = await one.start("first")
        await first.gone()
        second = await one.start("second", first.info.conversation_id)
        await true(lambda: second.count >= 2)
        one.alive = False
        await (await two.start("third", first.info.conversation_id)).gone()
        expected = ["first", "All", "second", "Half", "third", "All"]
        assert await said_in(two.store, first) == expected
        stored = (await two.store.events(second.id, "me")).events
        goes.set()
        await second.gone()
        assert frozen.ended == 2
        done = second.done
        assert done is not None
        assert done.failure is not None
        assert done.failure.code == GatewayRestarted.code
        assert done.envelope.metadata.stored is False
        assert await said_in(two.store, first) == expected
        assert (await two.store.events(second.id, "me")).events == stored


async def test_two_who_recover_at_once_end_each_run_once(tmp_path: Path, wrap: Callable[[Store], Store]) -> None:
    async with gateways(tmp_path, wrap, ScriptedSource([[STARTED], say("Half"), forever()])) as (one,):
        runs = [await one.start("Say it.") for _ in range(5)]
        await true(lambda: all(run.count >= 2 for run in runs))
        opened = SqliteStore(tmp_path)
        another = wrap(opened)
        counts = await asyncio.gather(*(end_interrupted_runs(of, lambda _: False, 1) for of in (one.store, another)))
        assert sum(counts) == 5
        assert await another.unfinished_runs() == []
        for run in runs:
            assert await said_in(another, run) == ["Say it.", "Half"]
        await opened.close()


async def test_a_run_whose_end_the_store_has_lost_does_not_block_its_conversation(tmp_path: Path) -> None:
    """A bug in the store costs the end of the run, which is then ended like that of a dead gateway."""
    store = Flaky(tmp_path)
    gateway = Gateway(tmp_path, "gateway", store, ScriptedSource(ANSWERS))
    first = await gateway.start("first")
    await first.gone()
    store.asked, store.mistake_after = 0, 2
    second = await gateway.start("second", first.info.conversation_id)
    await second.gone()
    assert [run.id for run in await store.unfinished_runs()] == [second.id]
    store.mistake_after = None
    third = await gateway.start("third", first.info.conversation_id)
    await third.gone()
    assert (await said_in(store, first))[-2:] == ["third", "All"]
    assert await store.unfinished_runs() == []
    await store.close()


@pytest.mark.parametrize("key", [None, "key"])
async def test_a_run_that_could_not_be_stored_does_not_block_its_conversation(tmp_path: Path, key: str | None) -> None:
    class Full(Flaky):
        """Nothing can be written, but everything can be read."""

        is_full = False

        async def append(self, lease: Lease, first: int, events: Any, end: RunEnd | None = None) -> Written:
            if self.is_full and end is not None:
                raise StoreUnavailable("The disk is full.")
            return await super().append(lease, first, events, end)

    store = Full(tmp_path)
    gateway = Gateway(tmp_path, "gateway", store, ScriptedSource(ANSWERS))
    first = await gateway.start("first")
    await first.gone()
    store.is_full = True
    second = await gateway.start("second", first.info.conversation_id)
    await second.gone()
    third = await gateway.start("third", first.info.conversation_id, idempotency_key=key)
    await third.gone()
    assert third.done is not None
    assert third.done.failure is None
    assert third.done.envelope.metadata.stored is False
    store.is_full = False
    await gateway.service.close(0)  # what is left is stored at the end, in its order
    assert await said_in(store, first) == ["first", "All", "second", "All", "third", "All"]
    await store.close()


async def test_the_run_after_a_stopped_one_begins_when_that_one_is_stored(
    tmp_path: Path, wrap: Callable[[Store], Store]
) -> None:
    source = ScriptedSource(ANSWERS, [[STARTED], say("Half"), forever()], ANSWERS)
    async with gateways(tmp_path, wrap, source) as (one,):
        first = await one.start("first")
        await first.gone()
        second = await one.start("second", first.info.conversation_id)
        await true(lambda: second.count >= 2)
        second.stop(GatewayRestarted("Stop."))
        third = await one.start("third", first.info.conversation_id, idempotency_key="key")
        await third.gone()
        assert await said_in(one.store, first) == ["first", "All", "second", "Half", "third", "All"]
        assert await one.store.unfinished_runs() == []
