"""Runs that are stored as running, and that no process drives any more."""

import asyncio
import errno
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from cursor_gateway.cluster.members import Members
from cursor_gateway.errors import HostExhausted, InvalidRequest
from cursor_gateway.model.agent_events import AgentEvent, Outcome, Question, ToolEnded, ToolStarted
from cursor_gateway.model.answers import QuestionAnswers
from cursor_gateway.model.documents import ClarificationAnswer, ClarificationQuestion
from cursor_gateway.runs.run_service import Asker
from cursor_gateway.runs.starter import TurnBuilder
from cursor_gateway.store.base import Stored
from cursor_gateway.store.postgres.cluster import PostgresCluster
from cursor_gateway.store.postgres.store import PostgresStore
from tests.cluster.nodes import ME, asked, front, node, runner, stop_beating, until
from tests.runs.scripted import FINISHED, STARTED, ScriptedSource, forever, say
from tests.store.making import new_run


async def test_a_run_that_its_process_gave_up_is_ended(database: str, tmp_path: Path) -> None:
    """Its process lives, so no other one would end it."""
    source = ScriptedSource([[STARTED, *say("Hello")], forever()])
    async with node(database, tmp_path, runner("one"), source) as one:
        assert one.node.runner is not None
        assert one.service is not None
        driven = await one.service.start(asked())
        lost = replace(new_run("lost"), instance="one")
        await one.store.begin_run(lost)
        suspects = await one.node.runner.end_lost_runs({driven.id})
        assert suspects == {"lost"}
        assert await one.node.runner.end_lost_runs(suspects) == {"lost"}
        assert await one.node.runner.end_lost_runs(suspects) == set()
        ended = await one.store.run("lost", lost.owner)
        assert ended is not None
        assert (ended.state, ended.failure_code, ended.epoch) == ("error", "runner_lost", 2)


async def test_a_repeated_answer_to_a_run_that_has_ended_needs_no_runner(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that has the volume may have died just now."""
    question = Question(tool="ask", title="", questions=[ClarificationQuestion(id="q", text="Which?", options=[])])
    first: list[AgentEvent] = [
        STARTED,
        ToolStarted("a", question),
        ToolEnded("a", question, Outcome(state="rejected")),
        FINISHED,
    ]
    source = ScriptedSource([first], [[STARTED, *say("done"), FINISHED]])
    async with node(database, tmp_path, runner("a"), source), node(database, tmp_path, front()) as one:
        run = (await one.node.front.take(asked())).run
        await until(lambda: run.done is not None)
        answers = [ClarificationAnswer(question_id=id, selected_option_ids=[], text="notes.txt") for id in ("q", "x")]
        given, wrong = (QuestionAnswers([answer]) for answer in answers)
        answered = (await one.node.front.answer(run.id, Asker(owner=ME), given)).run
        await until(lambda: answered.done is not None)
        monkeypatch.setattr(one.node.front, "_ask", None)
        again = await one.node.front.answer(run.id, Asker(owner=ME), given)
        assert (again.run.id, again.is_repeat) == (answered.id, True)
        with pytest.raises(InvalidRequest, match="questionId"):
            await one.node.front.answer(run.id, Asker(owner=ME), wrong)


async def test_a_takeover_ends_only_what_it_has_claimed(database: str) -> None:
    """A run may begin while its process is being taken over. Its writer has the same epoch as before, so whoever ended
    it without a claim would write into the middle of its log."""
    store = PostgresStore(database)
    cluster = PostgresCluster(store)
    try:
        await cluster.join(runner("one"))
        with psycopg.connect(database) as beside:
            beside.execute("INSERT INTO watchers (run_id, member, readers) VALUES ('other', 'one', 1)")
            beside.commit()
            beside.execute("SELECT FROM watchers WHERE member = 'one' FOR UPDATE")
            taking = asyncio.create_task(cluster.take_over("one", 0, str.encode))
            with psycopg.connect(database, autocommit=True) as looking:
                waits = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%watchers%'"
                while not looking.execute(waits).rowcount:
                    await asyncio.sleep(0.01)
            begun = await store.begin_run(replace(new_run("late"), instance="one"))
        assert await taking == []
        assert [run.epoch for run in await store.unfinished_runs("one")] == [1]
        assert begun == Stored(0)
        assert (await cluster.figures()).absent == ["one"]  # so it is taken over next
    finally:
        await cluster.hints.close()
        await store.close()


async def test_a_process_that_wakes_up_shows_what_others_made_of_its_runs(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that saw the end elsewhere would be refused, if it were shown the run as this process left it."""
    source = ScriptedSource([[STARTED, *say("Hello")], forever()])
    both = replace(runner("one"), role="all")
    async with node(database, tmp_path, both, source) as one, node(database, tmp_path, front()) as other:
        begun = await one.node.front.start(asked())
        assert await one.node.front.find(begun.id, ME) is begun
        stop_beating(one)
        monkeypatch.setattr(Members, "beat_age", 100.0)
        assert await one.node.front.find(begun.id, ME) is begun  # nobody has taken it
        (silent,) = [member for member in (await other.cluster.figures()).members if member.id == "one"]
        await other.node.members._take_over("one", silent.beat)
        found = await one.node.front.find(begun.id, ME)
        assert found.done is not None
        assert found.count > begun.count


async def test_a_run_that_began_and_cannot_start_its_agent_ends_with_the_reason(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its outcome is stored with its beginning, so its client reads the run, and must not wait for a lease."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    source = ScriptedSource([[STARTED, *say("Hello")]])
    async with node(database, tmp_path, runner("one"), source), node(database, tmp_path, front()) as at_front:
        monkeypatch.setattr(TurnBuilder, "initial", full)
        continued = await at_front.node.front.take(asked())
        await until(lambda: continued.run.done is not None)
        assert continued.run.done is not None
        assert continued.run.done.failure is not None
        assert continued.run.done.failure.code == HostExhausted.code


async def test_a_run_whose_process_was_removed_while_it_began_starts_no_agent(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to its beginning arrives when others have ended the run, and this process is a member again."""
    committed, answered = asyncio.Event(), asyncio.Event()
    begin = PostgresStore.begin_run

    async def slowly(store: PostgresStore, *values: Any, **more: Any) -> Any:
        begun = await begin(store, *values, **more)
        committed.set()
        await answered.wait()
        return begun

    source = ScriptedSource([[STARTED, *say("Hello")]])
    async with node(database, tmp_path, runner("one"), source) as one, node(database, tmp_path, front()) as other:
        monkeypatch.setattr(PostgresStore, "begin_run", slowly)
        continued = await other.node.front.take(asked())
        await committed.wait()
        (member,) = [member for member in (await other.cluster.figures()).members if member.id == "one"]
        await other.node.members._take_over("one", member.beat)
        await until(lambda: one.node.members.times_removed == 1)
        while not any(member.id == "one" for member in (await other.cluster.figures()).members):
            await asyncio.sleep(0.01)
        answered.set()
        await until(lambda: continued.run.done is not None)
        monkeypatch.setattr(PostgresStore, "begin_run", begin)
        again = await other.node.front.take(asked("again"))
        await until(lambda: again.run.done is not None)
        assert [turn.run_id for turn in source.turns] == [again.run.id]
