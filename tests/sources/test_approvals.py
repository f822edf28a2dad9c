"""The permissions of one turn: what is allowed at once, what a person decides, and what ends undecided."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.model.agent_events import (
    Action,
    AgentEvent,
    Command,
    CommandOutput,
    OtherTool,
    Outcome,
    Plan,
    Question,
    RunFinished,
    TextDelta,
    ToolEnded,
    ToolStarted,
)
from cursor_gateway.model.answers import Permission
from cursor_gateway.model.documents import ClarificationAnswer
from cursor_gateway.sources.cursor.approvals import REJECTED, Approvals, GatedCalls, HookAnswer, is_gated
from cursor_gateway.sources.cursor.permissions import AskedCall, Policy
from tests.laws.strategies import examples

ALLOW = "allow"


class Asked:
    """A person who decides when the test does."""

    def __init__(self) -> None:
        self.open: dict[str, asyncio.Future[Permission | None]] = {}

    async def permit(self, call_id: str, question: Question) -> Permission | None:
        self.open[call_id] = asyncio.get_running_loop().create_future()
        return await self.open[call_id]

    async def answer(self, call_id: str, question: Question) -> list[ClarificationAnswer] | None:
        raise AssertionError

    async def decide(self, call_id: str, plan: Plan) -> bool | None:
        raise AssertionError


class Turn:
    """A turn with a person, and what its run is shown."""

    def __init__(self, *rules: str) -> None:
        self.person = Asked()
        self.approvals = Approvals(Policy(force=False, data="/data", rules=rules), "/w", self.person)
        self.shown: list[AgentEvent] = []

    def report(self, *events: AgentEvent) -> None:
        self.shown += self.approvals.passed(events)

    async def ask(self, call: AskedCall, *, is_own: bool = True) -> "asyncio.Task[HookAnswer]":
        """As soon as it is asked, or answered."""
        before = len(self.person.open)
        task = asyncio.get_running_loop().create_task(self.approvals.answer(call, is_own=is_own))
        while not task.done() and len(self.person.open) == before:
            await asyncio.sleep(0)
        self.report()
        return task

    async def decide(self, decision: Permission | None) -> None:
        (waiting,) = [future for future in self.person.open.values() if not future.done()]
        waiting.set_result(decision)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.report()

    @property
    def outcomes(self) -> list[Outcome]:
        return [event.outcome for event in self.shown if isinstance(event, ToolEnded)]

    @property
    def starts(self) -> list[str]:
        return [event.call_id for event in self.shown if isinstance(event, ToolStarted)]


def shell(command: str = "touch a") -> AskedCall:
    return AskedCall("session", "Shell", {"command": command, "cwd": ""}, "")


def started(id: str, model_call: str = "m1", command: str = "touch a") -> ToolStarted:
    return ToolStarted(id, Command(tool="run_terminal_cmd", command=command), model_call)


def ended(id: str) -> ToolEnded:
    return ToolEnded(id, Command(tool="run_terminal_cmd", command="touch a"), Outcome(state="failed", message="no"))


async def test_allowed_by_a_rule_nobody_is_asked() -> None:
    turn = Turn("Shell(touch)")
    turn.report(started("1"))
    assert turn.starts == []  # the hook has not asked yet
    assert (await (await turn.ask(shell()))).permission == ALLOW
    assert (turn.starts, turn.person.open) == (["1"], {})


async def test_calls_that_are_not_held_back_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cursor_gateway.sources.cursor.approvals._SHOWN_SECONDS", 1e6)
    assert (await Turn().approvals.answer(AskedCall("s", "Read", {}, "/w/a"), is_own=True)).permission == ALLOW


async def test_allowed_once_it_is_shown_then_and_asked_about_again() -> None:
    turn = Turn()
    turn.report(started("1"))
    answer = await turn.ask(shell())
    assert turn.starts == ["1 permission 1"]
    await turn.decide(Permission("once"))
    assert (await answer).permission == ALLOW
    assert turn.starts == ["1 permission 1", "1"]
    turn.report(ended("1"), started("2"))
    again = await turn.ask(shell())
    await turn.decide(Permission("deny", "No more."))
    reply = await again
    assert (reply.permission, "No more." in reply.user_message) == ("deny", True)
    turn.report(ended("2"))
    assert turn.outcomes[-1] == Outcome(state="rejected", code="NOT_ALLOWED", message="Not run: it was not allowed.")


async def test_allowed_from_now_on_nobody_is_asked_again() -> None:
    turn = Turn()
    turn.report(started("1"))
    answer = await turn.ask(shell())
    await turn.decide(Permission("conversation"))
    assert (await answer).permission == ALLOW
    turn.report(started("2", command="touch b"))
    assert (await (await turn.ask(shell("touch b")))).permission == ALLOW


async def test_undecided_it_can_be_allowed_afterwards() -> None:
    turn = Turn()
    turn.report(started("1"))
    answer = await turn.ask(shell())
    await turn.decide(None)
    assert (await answer).permission == "deny"
    turn.report(ended("1"))
    question, command = turn.outcomes
    assert (question.state, command.state) == ("unanswered", "rejected")
    assert command.permission is not None
    assert command.permission.rules == ["Shell(touch)"]


async def test_a_hook_that_leaves_takes_its_question_along() -> None:
    turn = Turn()
    turn.report(started("1"))
    answer = await turn.ask(shell())
    answer.cancel()
    await asyncio.wait([answer])
    await asyncio.sleep(0)
    turn.report()
    assert [future.cancelled() for future in turn.person.open.values()] == [True]
    assert turn.outcomes[0].message.startswith("The agent no longer waits")


async def test_when_the_turn_is_over_nothing_is_allowed() -> None:
    turn = Turn()
    turn.report(started("1"))
    answer = await turn.ask(shell())
    turn.approvals.close()
    assert (await answer).permission == "deny"
    assert (await turn.approvals.answer(shell("ls"), is_own=False)).permission == "deny"


async def test_a_question_ends_with_the_turn() -> None:
    """Although the agent's hook may still wait."""
    turn = Turn()
    turn.report(started("1"))
    answer = await turn.ask(shell())
    turn.report(RunFinished())
    assert [type(event).__name__ for event in turn.shown] == ["ToolStarted", "ToolEnded", "RunFinished"]
    assert (await answer).permission == "deny"
    await asyncio.sleep(0)
    turn.report()
    assert len(turn.outcomes) == 1


async def test_a_call_that_is_made_again_keeps_its_question() -> None:
    """Of another attempt; two calls of one attempt are two questions."""
    turn = Turn()
    turn.report(started("1"))
    first = await turn.ask(shell())
    turn.report(started("2", "m2"))
    second = asyncio.get_running_loop().create_task(turn.approvals.answer(shell(), is_own=True))
    assert (await first).permission == "deny"  # it is made no more
    assert len(turn.person.open) == 1
    turn.report(started("3", "m2"))
    third = await turn.ask(shell())
    assert len(turn.person.open) == 2
    for future in turn.person.open.values():
        future.set_result(Permission("once"))
    assert [(await one).permission for one in (second, third)] == [ALLOW, ALLOW]
    turn.report()
    assert [id for id in turn.starts if "permission" not in id] == ["2", "3"]


async def test_a_sub_agents_call_is_asked_about_below_it() -> None:
    turn = Turn()
    turn.report(ToolStarted("task", OtherTool(tool="task", arguments={}), payload={"type": "task"}))
    assert turn.approvals.had_tasks
    answer = await turn.ask(shell(), is_own=False)
    (question,) = [event for event in turn.shown if isinstance(event, ToolStarted) and event.waits]
    assert question.parent == "task"
    await turn.decide(Permission("once"))
    assert (await answer).permission == ALLOW


async def test_a_tool_of_a_server_is_known_by_what_the_agent_reports() -> None:
    turn = Turn("Mcp(sums:add)")
    call = AskedCall("session", "MCP:add", {"a": 1}, "")
    args = {"providerIdentifier": "sums", "toolName": "add", "args": {"a": 1}}
    turn.report(ToolStarted("1", OtherTool(tool="add", arguments={}), payload={"type": "mcp", "args": args}))
    assert (await (await turn.ask(call))).permission == ALLOW
    answer = await turn.ask(call, is_own=False)  # of a sub-agent: the server is not known
    await turn.decide(Permission("deny"))
    assert (await answer).permission == "deny"


async def test_a_call_that_may_be_of_several_servers_needs_permission_for_each() -> None:
    """The hook does not tell which one it asks about."""
    turn = Turn("Mcp(test:query)")
    for server in ("test", "production"):
        args = {"providerIdentifier": server, "toolName": "query", "args": {"sql": "x"}}
        turn.report(ToolStarted(server, OtherTool(tool="query", arguments={}), payload={"type": "mcp", "args": args}))
    answer = await turn.ask(AskedCall("session", "MCP:query", {"sql": "x"}, ""))
    await turn.decide(Permission("deny"))
    assert (await answer).permission == "deny"
    (question,) = [event.action for event in turn.shown if isinstance(event, ToolStarted) and event.waits]
    assert isinstance(question, Question)
    assert question.permission is not None
    assert question.permission.rules == ["Mcp(production:query)"]


async def test_without_a_person_it_is_refused_and_says_what_would_allow_it(monkeypatch: pytest.MonkeyPatch) -> None:
    approvals = Approvals(Policy(force=False, data="/data"), "/w", None)
    assert approvals.passed([started("1")]) == [started("1")]
    answer = await approvals.answer(shell(), is_own=True)
    assert (answer.permission, "no rule allows" in answer.user_message) == ("deny", True)
    (end,) = approvals.passed([ended("1")])
    assert isinstance(end, ToolEnded)
    assert end.outcome.permission is not None
    # A call that the agent does not report is refused all the same.
    monkeypatch.setattr("cursor_gateway.sources.cursor.approvals._SHOWN_SECONDS", 0)
    assert (await approvals.answer(shell("rm b"), is_own=True)).permission == "deny"
    read = AskedCall("session", "Write", {}, "/data/x")
    assert (await approvals.answer(read, is_own=True)).user_message == "These files belong to the gateway."


# --- Calls whose starts are held back --------------------------------------------------------------

GIT = Command(tool="run_terminal_cmd", command="git log")
READ = OtherTool(tool="read_file", arguments={})
ADD = OtherTool(tool="add", arguments={"a": 1})
TASK = OtherTool(tool="task", arguments={})
MCP = {"providerIdentifier": "sums", "toolName": "add", "args": {"a": 1}}


def start(id: str, action: Action = GIT, payload: object = None, model_call: str | None = None) -> ToolStarted:
    return ToolStarted(id, action, model_call, payload)


def end(id: str, action: Action = GIT, **outcome: Any) -> ToolEnded:
    return ToolEnded(id, action, Outcome(**outcome))


def test_a_command_is_shown_when_it_is_allowed() -> None:
    calls = GatedCalls(holds=True)
    assert calls.push([TextDelta("Now."), start("1"), start("2", READ)]) == [TextDelta("Now."), start("2", READ)]
    assert calls.claim("Shell", {"command": "git status"}) is None
    claimed = calls.claim("Shell", {"command": "git log", "cwd": "/w"})
    assert claimed is not None
    assert calls.claim("Shell", {"command": "git log"}) is None  # one hook for each call
    assert calls.release(claimed) == [start("1")]
    assert calls.release(claimed) == []
    assert calls.push([end("1"), end("2", READ)]) == [end("1"), end("2", READ)]


def test_a_command_that_nobody_asks_about_is_shown_with_its_end() -> None:
    calls = GatedCalls(holds=True)
    assert calls.push([start("1")]) == []
    assert calls.push([end("1")]) == [start("1"), end("1")]
    assert calls.push([end("1")]) == [end("1")]


def test_a_command_that_writes_has_started() -> None:
    calls = GatedCalls(holds=True)
    calls.push([start("1")])
    assert calls.push([CommandOutput("1", "a")]) == [start("1"), CommandOutput("1", "a")]
    assert calls.push([CommandOutput("1", "b"), CommandOutput("2", "c")]) == [
        CommandOutput("1", "b"),
        CommandOutput("2", "c"),
    ]


def test_what_was_refused_ends_like_that_unless_it_ran() -> None:
    calls = GatedCalls(holds=False)
    for id in ("1", "2"):
        assert calls.push([start(id)]) == [start(id)]
        claimed = calls.claim("Shell", {"command": "git log"})
        assert claimed is not None
        claimed.refused = REJECTED
    failed = end("1", state="failed", message="blocked", duration_ms=3)
    (told,) = calls.push([failed])
    assert isinstance(told, ToolEnded)
    assert (told.outcome.message, told.outcome.duration_ms) == (REJECTED.message, 3)
    assert calls.push([end("2")]) == [end("2")]


def test_tools_of_servers_as_each_backend_reports_them() -> None:
    for payload in ({"type": "mcp", "args": MCP}, {"mcpToolCall": {"args": MCP}}):
        calls = GatedCalls(holds=True)
        assert calls.push([start("1", ADD, payload)]) == []
        assert calls.claim("MCP:add", {"a": 2}) is None
        claimed = calls.claim("MCP:add", {"a": 1})
        assert claimed is not None
        assert claimed.server == "sums"


def test_sub_agents_are_known_until_they_end() -> None:
    calls = GatedCalls(holds=True)
    assert calls.push([start("1", TASK, {"taskToolCall": {}})]) == [start("1", TASK, {"taskToolCall": {}})]
    assert calls.tasks == ["1"]
    calls.push([end("1", TASK)])
    assert calls.tasks == []


def test_which_tools_of_hooks_are_held_back() -> None:
    assert [is_gated(tool) for tool in ("Shell", "MCP:add", "Read", "Write")] == [True, True, False, False]


IDS = st.sampled_from("abc")
EVENTS = st.one_of(
    st.builds(start, IDS, st.sampled_from([GIT, READ, ADD]), st.sampled_from([None, {"type": "mcp", "args": MCP}])),
    st.builds(end, IDS),
    st.builds(TextDelta, st.sampled_from(["x", "y"])),
)


@examples(200)
@given(st.lists(EVENTS, max_size=20, unique_by=repr), st.lists(st.sampled_from(["push", "claim"]), max_size=40))
def test_nothing_is_lost_and_a_start_comes_before_its_end(events: Sequence[AgentEvent], steps: list[str]) -> None:
    """Everything that is not a held start is passed on in its order; every call that ends has been shown."""
    seen: set[str] = set()
    unique = []
    for event in events:  # the agent starts no call twice
        if isinstance(event, ToolStarted):
            if event.call_id in seen:
                continue
            seen.add(event.call_id)
        unique.append(event)
    calls, out = GatedCalls(holds=True), list[AgentEvent]()
    rest = list(unique)
    for step in [*steps, *["push"] * len(unique)]:
        if step == "claim":
            for tool, args in (("Shell", {"command": "git log"}), ("MCP:add", {"a": 1})):
                if (claimed := calls.claim(tool, args)) is not None:
                    out += calls.release(claimed)
        elif rest:
            out += calls.push([rest.pop(0)])
    assert [one for one in out if not isinstance(one, ToolStarted)] == [
        one for one in unique if not isinstance(one, ToolStarted)
    ]
    starts = [one.call_id for one in out if isinstance(one, ToolStarted)]
    assert len(starts) == len(set(starts))
    for place, event in enumerate(unique):
        if isinstance(event, ToolEnded) and any(
            isinstance(one, ToolStarted) and one.call_id == event.call_id for one in unique[:place]
        ):
            assert event.call_id in starts


def test_the_servers_of_calls_that_look_the_same() -> None:
    calls = GatedCalls(holds=True)
    for id, server in (("1", "sums"), ("2", "others")):
        calls.push([start(id, ADD, {"type": "mcp", "args": {**MCP, "providerIdentifier": server}})])
    assert calls.servers("MCP:add", {"a": 1}) == {"sums", "others"}
    assert calls.servers("MCP:add", {"a": 2}) == set()
    calls.push([end("1", ADD)])
    assert calls.servers("MCP:add", {"a": 1}) == {"others"}
