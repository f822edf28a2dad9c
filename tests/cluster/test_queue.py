"""Requests in the queue of a cluster: accepted by a front, started once by a runner, whoever dies."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from cursor_gateway.cluster.front import FrontLimits
from cursor_gateway.errors import ConversationBusy, IdempotencyMismatch, InvalidRequest, QueueFull
from cursor_gateway.model.documents import ChatResponse
from cursor_gateway.runs.handle import RunHandle, response_of
from cursor_gateway.runs.queue import QueuedRun
from cursor_gateway.runs.run_service import RunRequest
from cursor_gateway.schedules import Schedule
from cursor_gateway.server.schedules import Scheduler, schedule_of
from cursor_gateway.store.base import IdempotentRun
from cursor_gateway.store.cluster import Member
from tests.cluster.nodes import LIMITS, ME, Running, asked, front, node, runner, stop_beating, until
from tests.runs.scripted import FINISHED, STARTED, ScriptedSource, forever, say

QUEUE = FrontLimits(queue_seconds=5, max_runs_per_key=0, queue_ttl_seconds=60, max_queued_per_key=3)
ANSWER = [[STARTED, *say("done"), FINISHED]]


def small(id: str, *volumes: str) -> Member:
    return replace(runner(id, *volumes), capacity=1)


def later(text: str = "hello", **more: Any) -> RunRequest:
    return asked(text, queues=True, **more)


def scripted() -> ScriptedSource:
    """The first turn never ends; all others answer."""
    return ScriptedSource([[STARTED, *say("partial")], forever()], ANSWER)


async def take(one: Running, request: RunRequest) -> RunHandle:
    return (await one.node.front.take(request)).run


async def queue(one: Running, request: RunRequest) -> QueuedRun:
    run = await take(one, request)
    assert isinstance(run, QueuedRun)
    return run


async def occupy(one: Running, **more: Any) -> RunHandle:
    """A run that takes the only place, as soon as it says something and the front knows that the runner is full."""
    run = await take(one, asked("busy", **more))
    await until(lambda: run.count > 1 and all(member.busy for member in one.node.members.runners()))
    return run


async def shown(one: Running, id: str) -> ChatResponse:
    return await response_of(await one.node.front.find(id, ME))


async def ended(one: Running, id: str) -> ChatResponse:
    while (response := await shown(one, id)).status == "streaming":
        await asyncio.sleep(0.05)
    return response


def code_of(response: ChatResponse) -> object:
    return getattr(response.documents[-1].metadata, "error_code", None)


async def test_a_request_waits_while_all_runners_are_busy(database: str, tmp_path: Path) -> None:
    source = scripted()
    async with node(database, tmp_path, small("a"), source), node(database, tmp_path, front(), limits=QUEUE) as one:
        first = await occupy(one)
        queued = [await queue(one, later(str(number))) for number in range(2)]
        places = [(await shown(one, run.id)).metadata.queue for run in queued]
        assert [place.position for place in places if place is not UNSET] == [1, 2]
        assert [entry.run_id for entry in await one.node.front.work.entries(None, 9)] == [run.id for run in queued]
        lengths = ("cluster_queue_length", 2)
        await until(lambda: any((each.name, each.value) == lengths for each in one.node.front.figures()))
        assert len(source.turns) == 1
        await one.node.front.cancel(first.id, ME)
        for run in queued:
            assert (await ended(one, run.id)).status == "completed"
        assert len(source.turns) == 3


async def test_a_request_that_finds_a_free_runner_is_not_queued(database: str, tmp_path: Path) -> None:
    async with (
        node(database, tmp_path, small("a"), ScriptedSource(ANSWER)),
        node(database, tmp_path, front(), limits=QUEUE) as one,
    ):
        await until(lambda: bool(one.node.members.runners()))
        run = await take(one, later())
        assert not isinstance(run, QueuedRun)
        assert (await ended(one, run.id)).status == "completed"


async def test_it_survives_the_front_that_accepted_it_and_the_runner_that_took_it(
    database: str, tmp_path: Path
) -> None:
    async with node(database, tmp_path, front("other"), limits=QUEUE) as other:
        async with (
            node(database, tmp_path, small("a"), scripted()) as a,
            node(database, tmp_path, front(), limits=QUEUE) as one,
        ):
            await occupy(one)
            queued = await queue(one, later())
            stop_beating(a)
            stop_beating(one)
            await until(lambda: len(other.node.members.known) == 1)
        assert (await shown(other, queued.id)).metadata.queue is not UNSET
        source = ScriptedSource(ANSWER)
        async with node(database, tmp_path, small("b"), source):
            assert (await ended(other, queued.id)).status == "completed"
            assert len(source.turns) == 1


async def test_a_claim_of_a_dead_runner_waits_again_and_its_late_start_is_refused(
    database: str, tmp_path: Path
) -> None:
    dead, source = small("dead"), ScriptedSource(ANSWER)
    async with node(database, tmp_path, front(), limits=QUEUE) as one:
        queued = await queue(one, later())
        await one.cluster.join(dead)
        (claimed,) = await one.cluster.claim(dead, has_room=True, most=9, known=[])
        assert claimed.is_queued
        assert (await shown(one, queued.id)).metadata.queue is not UNSET
        assert await one.cluster.take_over("dead", 0, lambda run_id: b"") == []
        assert not await one.cluster.finish(claimed.id, claimed.epoch, b"late")
        async with node(database, tmp_path, small("b"), source):
            assert (await ended(one, queued.id)).status == "completed"
        assert len(source.turns) == 1


async def test_the_same_request_joins_the_one_in_the_queue(database: str, tmp_path: Path) -> None:
    async with node(database, tmp_path, small("a"), scripted()), node(database, tmp_path, front(), limits=QUEUE) as one:
        await occupy(one)
        queued = await queue(one, later(idempotency_key="key", body=b"hello"))
        assert (await take(one, later(idempotency_key="key", body=b"hello"))).id == queued.id
        assert (await take(one, asked(idempotency_key="key", body=b"hello"))).id == queued.id
        with pytest.raises(IdempotencyMismatch):
            await take(one, later(idempotency_key="key", body=b"other"))


async def test_a_question_that_is_asked_twice_is_queued_twice(database: str, tmp_path: Path) -> None:
    async with node(database, tmp_path, small("a"), scripted()), node(database, tmp_path, front(), limits=QUEUE) as one:
        await occupy(one)
        first, again = [await queue(one, later(attempt="first")) for _ in range(2)]
        assert first.id != again.id
        assert (await take(one, later(attempt="retry"))).id == first.id


async def test_a_request_whose_first_try_starts_meanwhile_is_not_queued_again(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to the first try was lost, and its run begins just after the second try has looked for it."""
    async with node(database, tmp_path, small("a"), scripted()), node(database, tmp_path, front(), limits=QUEUE) as one:
        first = await occupy(one, idempotency_key="key", body=b"hello")
        store, looks = one.node.front.store, 0
        find = store.find_run_by_idempotency

        async def late(owner: str, key: str) -> IdempotentRun | None:
            nonlocal looks
            looks += 1
            return None if looks == 1 else await find(owner, key)

        monkeypatch.setattr(store, "find_run_by_idempotency", late)
        for tries in (1, 2):  # the second one finds it at once, although no runner is free
            assert (await take(one, later("busy", idempotency_key="key", body=b"hello"))).id == first.id
            assert looks >= tries
        with pytest.raises(IdempotencyMismatch):
            await take(one, later("busy", idempotency_key="key", body=b"other"))
        assert not await one.node.front.work.entries(None, 9)


async def test_one_key_can_queue_only_so_many(database: str, tmp_path: Path) -> None:
    async with node(database, tmp_path, front(), limits=QUEUE) as one:
        for number in range(3):
            await queue(one, later(str(number)))
        with pytest.raises(QueueFull):
            await take(one, later())


async def test_it_is_cancelled_and_forgotten(database: str, tmp_path: Path) -> None:
    async with node(database, tmp_path, front(), limits=QUEUE) as one:
        queued = await queue(one, later(kept=b"{}"))
        assert await one.node.front.kept_request(queued.id, ME, 0) == b"{}"
        envelope = await one.node.front.cancel(queued.id, ME)
        assert envelope.status == "error"
        assert await one.node.front.cancel(queued.id, ME) == envelope
        assert code_of(await shown(one, queued.id)) == "CANCELLED"
        assert await one.node.front.work.entries(ME, 9) == []
        assert await one.node.front.work.forget(queued.id, ME)
        assert not await one.node.front.work.forget(queued.id, ME)


async def test_it_fails_when_its_time_is_over(database: str, tmp_path: Path) -> None:
    limits = FrontLimits(queue_seconds=5, max_runs_per_key=0, queue_ttl_seconds=1, max_queued_per_key=3)
    async with node(database, tmp_path, front(), limits=limits) as one:
        queued = await queue(one, later())
        assert code_of(await ended(one, queued.id)) == "QUEUE_EXPIRED"


async def test_it_starts_at_its_time(database: str, tmp_path: Path) -> None:
    async with (
        node(database, tmp_path, small("a"), ScriptedSource(ANSWER)),
        node(database, tmp_path, front(), limits=QUEUE) as one,
    ):
        soon = datetime.now(UTC) + timedelta(seconds=1)
        queued = await queue(one, later(run_at=soon.isoformat()))
        assert (await shown(one, queued.id)).metadata.queue.position is UNSET  # type: ignore[union-attr]  # it is queued
        assert (await ended(one, queued.id)).status == "completed"
        assert datetime.now(UTC) >= soon
        with pytest.raises(InvalidRequest):
            await take(one, asked(run_at=soon.isoformat()))


async def test_messages_of_one_conversation_start_one_after_the_other(database: str, tmp_path: Path) -> None:
    async with (
        node(database, tmp_path, runner("a"), scripted()),
        node(database, tmp_path, front(), limits=QUEUE) as one,
    ):
        first = await take(one, asked())
        conversation = first.info.conversation_id
        with pytest.raises(ConversationBusy):
            await take(one, later(conversation_id=conversation))
        named = [conversation, first.id, conversation]
        queued = [await queue(one, later(conversation_id=id, when_busy="wait")) for id in named]
        figures = await one.cluster.figures()
        assert (figures.queue_length, figures.queue_seconds) == (0, 0)  # more runners would not help
        await one.node.front.cancel(first.id, ME)
        for run in queued:
            assert (await ended(one, run.id)).status == "completed"
        runs = await one.store.runs_of(conversation or "", ME)
        assert [run.id for run in runs] == [first.id, *(run.id for run in queued)]


async def test_deleting_a_conversation_empties_its_queue(database: str, tmp_path: Path) -> None:
    async with (
        node(database, tmp_path, runner("a"), ScriptedSource(ANSWER)),
        node(database, tmp_path, front(), limits=QUEUE) as one,
    ):
        conversation = (await ended(one, (await take(one, asked())).id)).conversation_id
        soon = datetime.now(UTC) + timedelta(hours=1)
        queued = await queue(one, later(conversation_id=conversation, run_at=soon.isoformat()))
        await one.node.front.remove(conversation, ME)
        assert await one.cluster.queue.entry(queued.id, ME) is None
        assert await one.store.connections.select("SELECT FROM commands WHERE due IS NOT NULL") == []


@pytest.mark.parametrize("where", ["the same runner", "another one"])
async def test_a_message_interrupts_the_active_run_on_its_runner(database: str, tmp_path: Path, where: str) -> None:
    """Even if that one has no room, and another one has."""
    source, other = scripted(), ScriptedSource(ANSWER)
    async with node(database, tmp_path, small("a", "shared"), source), node(database, tmp_path, front()) as one:
        first = await occupy(one, workspace="shared")
        async with node(database, tmp_path, small("b", "shared"), other):
            request = asked(
                "stop",
                conversation_id=first.info.conversation_id,
                when_busy="interrupt",
                idempotency_key="once",
                queues=where == "another one",
            )
            runs = {(await take(one, request)).id for _ in range(2)}
            (id,) = runs
            assert (await ended(one, id)).status == "completed"
            stopped = await shown(one, first.id)
            assert code_of(stopped) == "CANCELLED"
            assert "partial" in stopped.text
            assert len(source.turns) + len(other.turns) == 2


async def test_a_limit_of_active_runs_holds_for_the_queue(database: str, tmp_path: Path) -> None:
    limits = FrontLimits(queue_seconds=5, max_runs_per_key=1, queue_ttl_seconds=60, max_queued_per_key=9)
    source = scripted()
    async with (
        node(database, tmp_path, runner("a"), source, limits=limits),
        node(database, tmp_path, front(), limits=limits) as one,
    ):
        first = await take(one, asked())
        queued = await queue(one, later())
        other = await take(one, replace(later(), owner="other"))
        assert not isinstance(other, QueuedRun)
        assert (await shown(one, queued.id)).metadata.queue is not UNSET
        await one.node.front.cancel(first.id, ME)
        assert (await ended(one, queued.id)).status == "completed"


async def test_without_a_time_to_live_nothing_is_queued(database: str, tmp_path: Path) -> None:
    async with (
        node(database, tmp_path, runner("a"), ScriptedSource(ANSWER)),
        node(database, tmp_path, front(), limits=LIMITS) as one,
    ):
        await until(lambda: bool(one.node.members.runners()))
        assert not isinstance(await take(one, later()), QueuedRun)
        with pytest.raises(InvalidRequest, match="queue_ttl_seconds"):
            await take(one, later(run_at=datetime.now(UTC).isoformat()))


async def test_the_schedules_of_several_fronts_start_each_run_once(database: str, tmp_path: Path) -> None:
    source, past = ScriptedSource(ANSWER), datetime(2026, 1, 1, 10, 30, tzinfo=UTC)
    hours, reported = [0], list[str]()

    def scheduler(one: Running) -> Scheduler:
        def report(name: str, error: Exception) -> None:
            reported.append(f"{name}: {error}")

        hourly = {"tidy": Schedule(cron="0 * * * *", message="Tidy up.")}
        return Scheduler(one.node.front, hourly, ME, report, lambda: past + timedelta(hours=hours[0]))

    async with (
        node(database, tmp_path, runner("a"), source),
        node(database, tmp_path, runner("b"), source),
        node(database, tmp_path, front("one"), limits=QUEUE) as one,
        node(database, tmp_path, front("two"), limits=QUEUE) as two,
    ):
        schedulers = [scheduler(each) for each in (one, two)]
        for hours[0] in range(3):
            await asyncio.gather(*(each.look() for each in schedulers))
            await until(lambda: len(source.turns) == hours[0] + 1)
            while await one.node.front.work.named("\x1fschedule "):
                await asyncio.sleep(0.02)
            await asyncio.gather(*(each.look() for each in schedulers))
        assert len(source.turns) == 3
        hours[0] = (datetime.now(UTC) - past) // timedelta(hours=1) + 48  # so it waits
        await asyncio.gather(*(each.look() for each in schedulers))
        (work,) = await two.node.front.work.named("\x1fschedule ")
        (entry,) = await two.node.front.work.entries(ME, 9)
        assert (work.run_id, work.state) == (entry.run_id, "waiting")
        assert schedule_of(entry.key) == "tidy"
        assert not reported
