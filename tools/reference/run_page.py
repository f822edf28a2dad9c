"""The table of `runs/machine.py` as a page, with its diagram."""

from cursor_gateway.runs.machine import STAGES, Stage, Start
from tools.reference.markdown import page, table
from tools.reference.open_calls_page import matrix

_INTRODUCTION = """
A run is one or more turns of an agent, and a log of events. `RunMachine` decides what happens next: it gets inputs,
such as a read of the agent's output or the caller's results, and returns commands. `Run` carries them out. So a whole
run can be driven without an event loop, step by step (`tests/runs/test_machine.py`).
"""

_STAGES = {
    Stage.NEW: "It waits for the run before it, or for its folder; no agent was started.",
    Stage.WORKING: "An agent works, or waits for answers to its calls.",
    Stage.RESTARTING: "The agent is being ended, and another one starts when it is gone.",
    Stage.LEAVING: "The agent has called the caller's tools and cannot wait for them: it is being ended.",
    Stage.OWED: "There is no agent. When the caller has sent all results, the next one starts and gets them.",
    Stage.STOPPING: "It was stopped, and the agent is being ended.",
    Stage.HALTED: "The same, because of what the agent did: what it writes now no longer counts.",
    Stage.DONE: "The agent has reported its end; its process may still be there.",
    Stage.OVER: "Nothing is left of it but its log.",
}

_COMMANDS = """
There are six commands: *append* events to the log, *start* the agent, *end* it, *give* an answer to an agent that
waits, *set a timer*, and *keep* what the agent says about its session and the conversation's title. The agent's end is
reported back as "agent is gone", so a new agent never meets the one before it. What the run waits for while its agent
works is the other table: [what a run waits for](open-calls.md).
"""


def run_page() -> str:
    return page(
        "A run",
        _INTRODUCTION,
        "## Its stages",
        _diagram(),
        table(["stage", "what it means"], [[stage.value, _STAGES[stage]] for stage in Stage]),
        "An empty cell is no change, so what comes twice or too late is harmless.",
        matrix(STAGES),
        "## Its commands",
        _COMMANDS,
        "## What an agent is told at its start",
        table(["start", "what"], [[start.name.lower(), start.value] for start in Start]),
    )


def _diagram() -> str:
    arrows = [
        f"    {stage.name} --> {after.name}: {input.value}"
        for stage, row in STAGES.items()
        for input, (after, _) in row.items()
        if after is not stage
    ]
    return "\n".join(["```mermaid", "stateDiagram-v2", "    [*] --> NEW", *arrows, "    OVER --> [*]", "```"])
