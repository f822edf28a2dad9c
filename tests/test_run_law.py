"""The law of runs holds for recordings and for events in any order; and where it is broken, that is found."""

from collections.abc import Iterable

import pytest
from hypothesis import given

from cursor_gateway.model.agent_events import AgentEvent
from cursor_gateway.model.document_events import ContentDelta, DocumentEvent, DocumentStarted
from cursor_gateway.model.requests import RunInfo
from cursor_gateway.runs.machine import RunMachine
from cursor_gateway.sources.cli.decoder import CursorDecoder
from cursor_gateway.stages.assembler import Assembler
from cursor_gateway.stages.run_state import RunState
from tests.laws.agent import Recording
from tests.laws.strategies import agent_events, recordings, runs
from tests.run_law import Follower
from tests.runs.scripted import UnstoredLog, info
from tests.scenarios.golden import Scenario, scenarios
from tests.strategies import examples


def follow(events: Iterable[AgentEvent], run: RunInfo) -> None:
    """As a driver and its log: after each of the agent's events."""
    assembler, state = Assembler(run), RunState()
    follower = Follower(state)
    follower.machine = RunMachine(state, assembler)
    for event in events:
        out = assembler.push(event)
        follower.follow(state.push_all(out), out)
    out = assembler.flush()
    follower.follow(state.push_all(out), out)
    assert state.done is not None


def decoded(lines: Iterable[bytes]) -> list[AgentEvent]:
    decoder = CursorDecoder()
    return [*decoder.push(list(lines)), *decoder.flush(None)]


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.name)
def test_it_holds_in_every_scenario(scenario: Scenario) -> None:
    follow(decoded(scenario.lines), scenario.run)


@examples(100)
@given(recordings, runs)
def test_it_holds_in_any_recording(recording: Recording, run: RunInfo) -> None:
    follow(decoded(recording.data.splitlines(keepends=True)), run)


@examples(300)
@given(agent_events, runs)
def test_it_holds_for_events_in_any_order(events: list[AgentEvent], run: RunInfo) -> None:
    follow(events, run)


async def test_a_log_that_does_not_fold_to_the_state_is_found() -> None:
    log = UnstoredLog()
    log.add([DocumentStarted("doc_001", "text", 1)])
    log.state.said.append("Nobody said this.")
    with pytest.raises(AssertionError, match="does not fold"):
        log.add([ContentDelta("doc_001", "Hello")])
    log.add([ContentDelta("doc_001", " again")])  # reported once, so that the run can end


def test_an_assembler_that_knows_something_else_is_found() -> None:
    state = RunState()
    follower = Follower(state)
    follower.machine = RunMachine(state, Assembler(info()))  # whose assembler has no open document
    events: list[DocumentEvent] = [DocumentStarted("doc_001", "text", 1)]
    with pytest.raises(AssertionError):
        follower.follow(state.push_all(events), events)
