"""A run whose runner is lost goes on with another agent, if its request says so: the same run, for its readers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from cursor_gateway.cluster.front import Receiver
from cursor_gateway.model.caller_tools import Offer, Tool
from cursor_gateway.model.document_events import DocumentEnded, DocumentEvent, Done
from cursor_gateway.model.documents import TextDocument
from cursor_gateway.runs.admission import Runs
from cursor_gateway.runs.handle import RunHandle
from cursor_gateway.runs.run import Run
from cursor_gateway.runs.run_service import RunRequest, RunService
from cursor_gateway.runs.service import LocalRunService
from cursor_gateway.store.base import RunRecord
from cursor_gateway.store.cluster import Member
from tests.cluster.nodes import ME, Running, asked, front, node, runner, stop_beating
from tests.runs.scripted import FINISHED, STARTED, ScriptedSource, forever, say

# Takes commands, and starts no run.
FULL = Member(id="two", role="runner", host="two", volumes=["shared"], capacity=0, version="1")
FINISHES = [[STARTED, *say("I finished."), FINISHED]]


def _unfinished() -> ScriptedSource:
    return ScriptedSource([[STARTED, *say("I began.")], forever()])


async def _all(run: RunHandle) -> list[DocumentEvent]:
    events: list[DocumentEvent] = []
    with run.reader() as reader:
        while not (events and isinstance(events[-1], Done)):
            events += await reader.next() or []
    return events


def _freeze(lost: Running) -> None:
    """It claims nothing, says nothing, and does not learn that it was taken for dead."""
    assert lost.node.runner is not None
    for task in lost.node.runner._tasks:
        task.cancel()
    stop_beating(lost)


async def _take_over(by: Running, id: str) -> None:
    """As who has not seen its beat for a lease. One that is alive may beat in between; then again."""
    before = by.node.members.takeovers
    while by.node.members.takeovers == before:
        (found,) = [member for member in (await by.cluster.figures()).members if member.id == id]
        await by.node.members._take_over(id, found.beat)


@asynccontextmanager
async def _lost_runner(
    database: str, folder: Path, others: dict[str, tuple[Member, ScriptedSource]], request: dict[str, Any]
) -> AsyncIterator[tuple[Running, RunHandle]]:
    """The front, and a run whose runner was just taken over."""
    one = runner("one", "shared", labels=["fast"])
    async with node(database, folder, one, _unfinished()) as lost, node(database, folder, front()) as serving:
        run = await serving.node.front.start(asked("Do it.", workspace="shared", **request))
        while run.count < 2:
            await asyncio.sleep(0.01)
        _freeze(lost)
        async with asyncio.TaskGroup() as group:
            over = asyncio.Event()
            for member, other in others.values():
                is_there = asyncio.Event()
                group.create_task(_stay(database, folder, member, other, is_there, over))
                await is_there.wait()
            await _take_over(serving, "one")
            yield serving, run
            over.set()


async def _stay(
    database: str, folder: Path, member: Member, source: ScriptedSource, is_there: asyncio.Event, over: asyncio.Event
) -> None:
    async with node(database, folder, member, source):
        is_there.set()
        await over.wait()


async def test_a_run_is_resumed_by_another_runner_of_its_volume(database: str, tmp_path: Path) -> None:
    able, elsewhere = ScriptedSource(FINISHES), ScriptedSource(FINISHES)
    others = {"two": (runner("two", "shared", labels=["fast"]), able), "three": (runner("three"), elsewhere)}

    request = {"when_runner_lost": "resume", "needs": ["fast"], "source": "interactive"}
    async with _lost_runner(database, tmp_path, others, request) as (one, run):
        events = await _all(run)
        stored = await one.store.run(run.id, ME)
        assert stored is not None
        assert (stored.state, stored.instance, stored.epoch) == ("completed", "two", 3)
        assert (await one.store.events(run.id, ME)).events == events
        texts = [event.document for event in events if isinstance(event, DocumentEnded)]
        assert [one.content for one in texts if isinstance(one, TextDocument)] == [
            "I began.",
            "(The process that ran the agent was lost. Another agent continues from here.)",
            "I finished.",
        ]
        assert [one.sequence for one in texts] == [1, 2, 3]
        (turn,) = able.turns
        assert turn.session_id is None
        assert turn.prompt.index("Do it.") < turn.prompt.index("I began.") < turn.prompt.index("You were interrupted")
        assert elsewhere.turns == []
        messages = await one.store.messages(stored.conversation_id, ME)
        assert [message.role for message in messages] == ["user", "assistant"]
        assert messages[1].text.startswith("I began.")
        assert messages[1].text.endswith("I finished.")


async def test_a_run_is_resumed_with_the_last_place_although_another_key_has_none(
    database: str, tmp_path: Path
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        for name in (ME, "other"):
            connection.execute("INSERT INTO api_keys (name, hash, created_ms) VALUES (%s, %s, 1)", [name, name])
    able = ScriptedSource(FINISHES)

    others = {"another": (replace(runner("another", "shared"), capacity=1), able)}  # the first one by its name
    async with _lost_runner(database, tmp_path, others, {"when_runner_lost": "resume"}) as (_one, run):
        await _all(run)
        assert len(able.turns) == 1


@pytest.mark.parametrize(
    ("request_", "member"),
    [
        ({}, runner("two", "shared", labels=["fast"])),
        ({"when_runner_lost": "resume"}, runner("two")),
        ({"when_runner_lost": "resume", "needs": ["fast"]}, runner("two", "shared")),
        ({"when_runner_lost": "resume"}, runner("two", "shared", is_draining=True)),
        (
            {"when_runner_lost": "resume", "offer": Offer(tools=[Tool(name="look", parameters={})])},
            runner("two", "shared"),
        ),
    ],
    ids=["not asked for", "another volume", "without the label", "drained", "the caller's tools"],
)
async def test_else_it_ends(database: str, tmp_path: Path, request_: dict[str, Any], member: Member) -> None:
    source = ScriptedSource(FINISHES)
    async with _lost_runner(database, tmp_path, {"two": (member, source)}, request_) as (_one, run):
        events = await _all(run)
        assert isinstance(events[-1], Done)
        assert events[-1].failure is not None
        assert events[-1].failure.code == "runner_lost"
        assert source.turns == []


async def test_it_is_resumed_once(database: str, tmp_path: Path) -> None:
    two = _unfinished()
    member = runner("two", "shared")
    async with _lost_runner(database, tmp_path, {"two": (member, two)}, {"when_runner_lost": "resume"}) as (one, run):
        while not two.turns:
            await asyncio.sleep(0.01)
        await one.cluster.join(runner("three", "shared"))
        await _take_over(one, "two")
        events = await _all(run)
        assert isinstance(events[-1], Done)
        assert events[-1].failure is not None
        assert events[-1].failure.code == "runner_lost"


def _assert_cancelled(done: DocumentEvent) -> None:
    assert isinstance(done, Done)
    assert done.failure is not None
    assert done.failure.code == "cancelled"


async def test_a_run_that_waits_to_be_resumed_can_be_cancelled(database: str, tmp_path: Path) -> None:
    source = ScriptedSource(FINISHES)

    others = {"two": (FULL, source)}
    async with _lost_runner(database, tmp_path, others, {"when_runner_lost": "resume"}) as (one, run):
        envelope = await one.node.front.cancel(run.id, ME)
        assert envelope.status == "error"
        events = await _all(run)
        _assert_cancelled(events[-1])
        assert (await one.store.events(run.id, ME)).events == events
        assert source.turns == []


async def test_a_run_is_cancelled_by_who_has_resumed_it_meanwhile(database: str, tmp_path: Path) -> None:
    """Its runner had died when the front chose another one for the command."""
    two, three = _unfinished(), ScriptedSource(FINISHES)

    others = {"two": (runner("two", "shared"), two), "three": (runner("three"), three)}
    async with _lost_runner(database, tmp_path, others, {"when_runner_lost": "resume"}) as (one, run):
        while not two.turns:
            await asyncio.sleep(0.01)
        to = Receiver(ME, member=runner("three"))
        envelope = await one.node.front.call(to, RunService.cancel, run.id, ME)
        assert envelope.status == "error"
        _assert_cancelled((await _all(run))[-1])
        assert three.turns == []


async def test_a_run_that_is_just_being_resumed_is_cancelled_when_its_agent_has_started(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = _unfinished()
    is_resuming, may_resume = asyncio.Event(), asyncio.Event()
    resume, find = LocalRunService.resume, Runs.find

    async def slowly(service: LocalRunService, request: RunRequest, stored: RunRecord) -> Run:
        is_resuming.set()
        await may_resume.wait()
        return await resume(service, request, stored)

    def found(runs: Runs, id: str, owner: str) -> Run | None:
        run = find(runs, id, owner)
        if is_resuming.is_set() and run is None:
            may_resume.set()  # the command that cancels it has not found it
        return run

    monkeypatch.setattr(LocalRunService, "resume", slowly)
    monkeypatch.setattr(Runs, "find", found)

    others = {"two": (runner("two", "shared"), two)}
    async with _lost_runner(database, tmp_path, others, {"when_runner_lost": "resume"}) as (one, run):
        await is_resuming.wait()
        envelope = await one.node.front.cancel(run.id, ME)
        assert envelope.status == "error"
        _assert_cancelled((await _all(run))[-1])


async def test_what_nobody_resumes_is_given_up(database: str, tmp_path: Path) -> None:
    """Its command waits for a few minutes, by the clock of the database."""

    others = {"two": (FULL, ScriptedSource(FINISHES))}
    async with _lost_runner(database, tmp_path, others, {"when_runner_lost": "resume"}) as (one, run):
        await one.cluster.join(runner("two", "shared"))  # and takes nothing
        with psycopg.connect(database, autocommit=True) as beside:
            assert beside.execute("SELECT FROM resumable").rowcount == 0
            assert (await one.cluster.figures()).absent == []
            beside.execute("UPDATE commands SET created = created - interval '6 minutes'")
            assert (await one.cluster.figures()).absent == ["one (taken over)"]
            await one.node.members._take_over("one (taken over)", None)
            assert isinstance((await _all(run))[-1], Done)
            await one.cluster.forget_old()
            left = "SELECT FROM commands WHERE state <> 'done'"
            assert beside.execute(left).rowcount == 1
            beside.execute("UPDATE commands SET created = created - interval '6 minutes'")
            await one.cluster.forget_old()
            assert beside.execute(left).rowcount == 0
