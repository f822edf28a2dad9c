"""What a gateway left unfinished when it died: ended with what it had, once, and nobody else's."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.model import agent_events
from cursor_gateway.model.document_events import DocumentEvent, Done, source_text
from cursor_gateway.runs.handle import end_interrupted_runs, run_info
from cursor_gateway.stages.assembler import Assembler
from cursor_gateway.stages.run_state import Transcript
from cursor_gateway.store.sqlite.opening import FILE
from cursor_gateway.store.sqlite.store import SqliteStore
from tests.laws.laws import assert_well_formed
from tests.runs.scripted import info, say
from tests.store.blocking import blocking
from tests.store.making import ME, YOU, lease, new_run, whole_run

SEARCH = agent_events.OtherTool(tool="grep", arguments={"pattern": "x"})
STORY: list[agent_events.AgentEvent] = [
    *say("Look:\n", "\n```py\nx = 1\n", "```\n", "and "),
    agent_events.ThinkingDelta("Hm"),
    agent_events.ToolStarted("1", SEARCH),
    agent_events.ToolEnded("1", SEARCH, agent_events.Outcome()),
    agent_events.ToolStarted("2", agent_events.Command(tool="shell", command="make")),
    agent_events.ToolStarted("3", SEARCH),
    *say("then", "."),
]


def events(story: list[agent_events.AgentEvent], id: str = "run") -> list[DocumentEvent]:
    assembler = Assembler(info(id, "conv"))
    return [event for one in story for event in assembler.push(one)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    made = SqliteStore(tmp_path)
    yield made
    blocking(made).close()


def nobody(instance: str) -> bool:
    return False


@given(cut=st.integers(0, len(events(STORY))), batch=st.integers(1, 5))
def test_wherever_it_was_cut_it_ends_well_formed_and_says_why(
    tmp_path_factory: pytest.TempPathFactory, cut: int, batch: int
) -> None:
    store, result = SqliteStore(tmp_path_factory.mktemp("store")), events(STORY)[:cut]
    blocking(store).begin_run(new_run())
    for at in range(0, cut, batch):
        blocking(store).append(lease("run"), at + 1, result[at : min(at + batch, cut)])
    assert asyncio.run(end_interrupted_runs(store, nobody, 5000)) == 1
    found = blocking(store).events("run", ME).events
    assert found[:cut] == result  # not one event is told otherwise
    assert_well_formed(found)
    done = found[-1]
    assert isinstance(done, Done)
    assert done.failure is not None
    assert (done.envelope.status, done.failure.code) == ("error", "gateway_restarted")
    assert (done.failure.source, done.failure.retryable) == ("gateway", True)
    assert "killed during this run. Send the message again" in done.failure.message
    stored = blocking(store).run("run", ME)
    assert stored is not None
    assert (stored.state, stored.failure_code, stored.ended_ms) == ("error", "gateway_restarted", 5000)
    assert run_info(stored).id == "run"
    fold = Transcript()
    for event in found:
        fold.push(event)
    assert fold.response() is not None
    said = "".join(map(source_text, result))
    assert [message.text for message in blocking(store).messages("conv", ME)] == ["Hello", *([said] if said else [])]
    assert asyncio.run(end_interrupted_runs(store, nobody, 9000)) == 0
    assert blocking(store).events("run", ME).events == found
    blocking(store).close()


def test_only_those_of_a_gateway_that_is_gone(store: SqliteStore) -> None:
    for id, owner in (("mine", ME), ("yours", YOU), ("ended", ME)):
        blocking(store).begin_run(new_run(id, f"conv_{id}", owner=owner))
    whole_run(blocking(store), "done", "conv_done")
    asked: list[str] = []

    def is_alive(instance: str) -> bool:
        asked.append(instance)
        return True

    assert asyncio.run(end_interrupted_runs(store, is_alive, 0)) == 0
    assert asked == ["host:1"] * 3
    assert asyncio.run(end_interrupted_runs(store, nobody, 0)) == 3
    assert blocking(store).unfinished_runs() == []


def test_one_that_is_damaged_does_not_keep_the_others_from_ending(store: SqliteStore, tmp_path: Path) -> None:
    for id in ("first", "second"):
        blocking(store).begin_run(new_run(id, id))
        claimed = blocking(store).claim_run(id, 1)  # so that its events are in the database
        blocking(store).append(claimed, 1, events(STORY, id))
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        connection.execute("UPDATE events SET data = x'ff' WHERE place >> 32 = 1")
        connection.commit()
    assert asyncio.run(end_interrupted_runs(store, nobody, 5000)) == 1
    assert [run.id for run in blocking(store).unfinished_runs()] == ["first"]


def test_the_session_stays_and_a_fingerprint_does_not(store: SqliteStore) -> None:
    """By its id the conversation goes on where the agent was; a client that quotes half an answer does not find it."""
    whole_run(blocking(store), "first", "conv", session_id="session-1", fingerprint="known")
    blocking(store).begin_run(new_run("run", "conv", "and?"))
    blocking(store).append(lease("run"), 1, events(say("Half")))
    assert asyncio.run(end_interrupted_runs(store, nobody, 0)) == 1
    conversation = blocking(store).conversation("conv", ME)
    assert conversation is not None
    assert (conversation.session_id, conversation.is_running) == ("session-1", False)
    assert blocking(store).conversations(ME, fingerprint="known").found == []


def test_a_long_run_is_ended_after_its_last_event(store: SqliteStore) -> None:
    """Though it is read in several pages."""
    blocking(store).begin_run(new_run())
    result = events(say(*("x" * 100_000 for _ in range(30))))
    for number, event in enumerate(result, 1):
        blocking(store).append(lease("run"), number, [event])
    assert asyncio.run(end_interrupted_runs(store, nobody, 0)) == 1
    stored = blocking(store).run("run", ME)
    assert stored is not None
    assert stored.event_count == len(result) + 5  # the text ends; an error begins, says why, ends; done
