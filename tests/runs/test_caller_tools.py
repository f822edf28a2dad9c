"""A run with its caller's tools: an agent that used a tool of its own has failed, however its output is cut."""

import asyncio

import pytest

from cursor_gateway.model.agent_events import AgentEvent, Command, Outcome, ToolEnded, ToolStarted
from cursor_gateway.model.caller_tools import Offer, Tool, ToolResult
from cursor_gateway.model.document_events import DocumentEnded, Done, source_text
from cursor_gateway.model.documents import TerminalCommandDocument
from cursor_gateway.model.messages import AssistantMessage
from cursor_gateway.runs.caller_tools import CallerTools
from cursor_gateway.runs.log import LiveLog
from cursor_gateway.runs.machine import WaitLimits
from cursor_gateway.runs.run import Run, RunPlan
from tests.runs.scripted import (
    FINISHED,
    LOOPS,
    STARTED,
    Loop,
    ScriptedSource,
    UnstoredLog,
    driven_by,
    forever,
    info,
    say,
    true,
    turn,
)

RAN = Command(tool="shell", command="touch x", exit_code=0)
EVENTS: list[AgentEvent] = [ToolStarted("1", RAN), ToolEnded("1", RAN, Outcome()), *say("All is done."), FINISHED]


def with_tools(log: LiveLog | None = None) -> Run:
    caller = CallerTools(Offer(tools=[Tool("weather")]), run_id="chat_1")
    plan = RunPlan(waits=WaitLimits(quiet_seconds=0.01))
    return Run(info(), log or UnstoredLog(), plan, caller=caller)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    "reads",
    [
        [EVENTS],
        [EVENTS[:1], EVENTS[1:]],
        [EVENTS[:2], EVENTS[2:]],
        [EVENTS[:3], EVENTS[3:]],
        [[event] for event in EVENTS],
    ],
    ids=["one read", "after the start", "after the end", "before the result", "one by one"],
)
async def test_a_command_that_ran_here_fails_the_run(loop: Loop, reads: list[list[AgentEvent]]) -> None:
    run = with_tools()
    run.start(turn(), driven_by(ScriptedSource([[STARTED], *reads])))
    await run.gone()
    assert run.done is not None
    assert run.done.failure is not None
    assert run.done.failure.code == "agent_unconfined"
    assert [isinstance(event, Done) for event in run.log.events].count(True) == 1
    shown = [event.document for event in run.log.events if isinstance(event, DocumentEnded)]
    assert isinstance(shown[0], TerminalCommandDocument)


class SlowLog(UnstoredLog):
    """Takes nothing until it may."""

    def __init__(self, may_store: asyncio.Event) -> None:
        super().__init__()
        self._may_store = may_store

    async def try_again(self) -> bool:
        await self._may_store.wait()
        return await super().try_again()


@pytest.mark.parametrize("loop", LOOPS)
async def test_what_the_agent_wrote_before_a_call_precedes_it_however_slow_the_store_is(loop: Loop) -> None:
    """Its output is not read while the store is slow, but its calls arrive."""
    may_store = asyncio.Event()
    run = with_tools(SlowLog(may_store))
    source = ScriptedSource([[STARTED], say("One. "), say("Two."), forever()])
    run.start(turn(), driven_by(source))
    while not run.is_storing:
        await asyncio.sleep(0)
    call = asyncio.ensure_future(run.call("weather", {}))
    await asyncio.sleep(0.1)
    shown = run.machine.calls.shown
    may_store.set()
    assert not shown
    while not run.log.state.paused_at:
        await asyncio.sleep(0.001)
    await run.log.flush()
    text = "".join(map(source_text, run.log.events[: run.log.state.paused_at]))
    assert text == "One. Two."
    await run.abandon()
    await asyncio.wait([call])


async def test_repeated_results_get_the_reply_after_the_last_pause_that_waited_for_one_of_them() -> None:
    """As from a stored run. What came before is no reply to the request that had them all."""
    run = with_tools()
    run.start(turn(), driven_by(ScriptedSource([[STARTED], say("I look. \n"), forever()])))
    calls = [asyncio.ensure_future(run.call("weather", {"place": place})) for place in "ab"]
    await true(lambda: len(run.machine.calls.shown) == 2)
    first, second = run.machine.calls.shown
    results = {first: ToolResult(text="rain"), second: ToolResult(text="sun")}
    pauses = [run.take_results({first: results[first]})]
    await true(lambda: len(run.log.state.pauses) == 2)
    pauses += [run.take_results(results), run.take_results(results), run.take_results({first: results[first]})]
    assert pauses == [run.log.state.pauses[number].number for number in (0, 1, 1, 0)]
    assert run.log.state.reply_text(0) == "I look. \n"
    said = [message.text for message in run.machine.history() if isinstance(message, AssistantMessage)]
    assert said == ["I look. \n"], "with what the assembler had held back"
    await run.abandon()
    await asyncio.wait(calls)
