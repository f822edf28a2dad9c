"""Starts of calls are held back until they are allowed, or end."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.model.agent_events import (
    Action,
    AgentEvent,
    Command,
    CommandOutput,
    OtherTool,
    Outcome,
    TextDelta,
    ToolEnded,
    ToolStarted,
)
from cursor_gateway.sources.cursor.gated_calls import GatedCalls, is_gated
from cursor_gateway.sources.cursor.permission_questions import REJECTED
from tests.laws.strategies import examples

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
