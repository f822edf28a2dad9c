"""A run with its caller's tools: an agent that used a tool of its own has failed, however its output is cut."""

import pytest

from cursor_gateway.model.actions import Command, Outcome
from cursor_gateway.model.agent_events import AgentEvent, ToolEnded, ToolStarted
from cursor_gateway.model.caller_tools import Offer, Tool
from cursor_gateway.model.document_events import DocumentEnded, Done
from cursor_gateway.model.documents import TerminalCommandDocument
from cursor_gateway.runs.caller_tools import CallerTools
from cursor_gateway.runs.run import Run
from cursor_gateway.runs.waiting import Waiting, WaitLimits
from tests.runs.scripted import ENDLESS, FINISHED, LOOPS, STARTED, Loop, ScriptedSource, info, say, turn

RAN = Command(tool="shell", command="touch x", exit_code=0)
EVENTS: list[AgentEvent] = [
    ToolStarted("1", RAN),
    ToolEnded("1", RAN, Outcome()),
    *say("All is done."),
    FINISHED,
]


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
def test_a_command_that_ran_here_fails_the_run(loop: Loop, reads: list[list[AgentEvent]]) -> None:
    async def live() -> None:
        waiting = Waiting(WaitLimits())
        caller = CallerTools(Offer(tools=[Tool("weather")]), waiting, run_id="chat_1")
        run = Run(info(), turn(), "me", waiting=waiting, caller=caller)
        run.start(ScriptedSource([[STARTED], *reads]), ENDLESS, (), lambda: None)
        await run.gone()
        assert run.done is not None
        assert run.done.failure is not None
        assert run.done.failure.code == "agent_unconfined"
        assert [isinstance(event, Done) for event in run.log.events].count(True) == 1
        shown = [event.document for event in run.log.events if isinstance(event, DocumentEnded)]
        assert isinstance(shown[0], TerminalCommandDocument)

    loop(live())
