"""Updates of an ACP session as events: of the capture, of builds that say more, in any pieces."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.errors import AgentCrashed
from cursor_gateway.model.actions import Command, Outcome, Plan, Question, TodoUpdate
from cursor_gateway.model.agent_events import (
    AgentEvent,
    Notice,
    RunFailed,
    RunFinished,
    TextDelta,
    ThinkingDelta,
    ThinkingEnded,
    TokenCounts,
    ToolEnded,
    ToolStarted,
    Unrecognized,
)
from cursor_gateway.sources.acp.decoder import AcpDecoder, counted
from cursor_gateway.sources.cursor.tools import read_call

CAPTURE = Path(__file__).parents[3] / "shared" / "captures" / "2026.08.11-acp-wire.jsonl"
SHELL = "call-aaaa9a3f-33b2-441e-87e9-6afeb6eccde2-0\nfc_1d06cbc2-409c-933a-ab58-55ccbae321a8_0"
END = {"stopReason": "end_turn"}
CRASHED = AgentCrashed().failure()


def text(said: str, kind: str = "agent_message_chunk") -> dict[str, Any]:
    return {"sessionUpdate": kind, "content": {"type": "text", "text": said}}


def call(id: str, **fields: Any) -> dict[str, Any]:
    return {"sessionUpdate": "tool_call", "toolCallId": id, "status": "pending", **fields}


def done(id: str, **fields: Any) -> dict[str, Any]:
    return {"sessionUpdate": "tool_call_update", "toolCallId": id, "status": "completed", **fields}


def pushed(decoder: AcpDecoder, *updates: Any) -> list[AgentEvent]:
    return [event for update in updates for event in decoder.push(update)]


def decoded(*updates: Any) -> list[AgentEvent]:
    decoder = AcpDecoder()
    return [*pushed(decoder, *updates), *decoder.finish(END)]


def end_of(*updates: Any) -> ToolEnded:
    (end,) = (event for event in decoded(*updates) if isinstance(event, ToolEnded))
    return end


def said(events: Iterable[AgentEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


# --- text and thinking ----------------------------------------------------------------------------------


def test_text_and_thoughts_are_pure_deltas() -> None:
    events = decoded(text("Hm.", "agent_thought_chunk"), text("o"), text("k"), text("", "agent_thought_chunk"))
    assert events == [ThinkingDelta("Hm."), ThinkingEnded(), TextDelta("o"), TextDelta("k"), RunFinished()]


def test_thinking_ends_before_a_tool_and_at_the_end() -> None:
    assert ThinkingEnded() in decoded(text("Hm.", "agent_thought_chunk"))
    events = decoded(text("Hm.", "agent_thought_chunk"), call("1", kind="read"))
    assert isinstance(events[1], ThinkingEnded)


@pytest.mark.parametrize("kind", ["agent_message_chunk", "agent_thought_chunk"])
def test_halves_of_a_character_are_joined(kind: str) -> None:
    events = decoded(text("a\ud83d", kind), text("\ude00b\ud83d", kind))
    result = "".join(event.text for event in events if isinstance(event, TextDelta | ThinkingDelta))
    assert result == "a😀b\ufffd"


def test_half_a_character_alone_is_thinking_too() -> None:
    assert decoded(text("\ud83d", "agent_thought_chunk"))[:2] == [ThinkingDelta("\ufffd"), ThinkingEnded()]


def test_half_a_character_before_a_tool_is_said_before_it() -> None:
    events = decoded(text("\ud83d"), call("1", kind="read"))
    assert events[0] == TextDelta("\ufffd")


def test_content_that_is_no_text_is_counted() -> None:
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "image", "data": ""}}
    assert decoded(update)[0] == Unrecognized("content 'image'")


# --- failures that come as text -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trailer", "code"),
    [
        ("RetriableError: [resource_exhausted] Error", "agent_overloaded"),
        ("RetriableError: [unavailable] PING timed out", "agent_unreachable"),
        ("T: [internal] Failed to run step, exceeded max retries", "agent_unreachable"),
        ("ActionRequiredError: You've reached your usage limit", "insufficient_quota"),
        ("You've hit your usage limit\nfallbackModel:\nspendLimitHit: false", "insufficient_quota"),
        ("ConnectError: something new", "agent_failed"),
    ],
)
def test_a_failure_at_the_end_of_the_text_is_a_failure(trailer: str, code: str) -> None:
    whole = f"Some text.\n\nError: {trailer}"
    for updates in ([text(whole)], [text(letter) for letter in whole]):
        events = decoded(*updates)
        assert said(events) == "Some text."
        assert isinstance(events[-1], RunFailed)
        assert events[-1].failure.code == code


@pytest.mark.parametrize(
    "whole",
    [
        "\n\nError: this is what the program prints",
        "\n\nError: RetriableError: [unavailable] x\n\nand then it goes on\n\nError: not one",
        "```\n\nError: Not logged in\n```",
        "\n\nError: TypeError: x is not a function",
        "\n\nError: RetriableError: " + "x" * 5000,
        "\n\nErr",
        "\n\n\n",
    ],
)
def test_other_text_is_text(whole: str) -> None:
    for updates in ([text(whole)], [text(letter) for letter in whole]):
        events = decoded(*updates)
        assert said(events) == whole
        assert events[-1] == RunFinished()


def test_what_a_tool_follows_was_no_failure() -> None:
    events = decoded(text("\n\nError: RetriableError: [unavailable] x"), call("1", kind="read"))
    assert events[0] == TextDelta("\n\nError: RetriableError: [unavailable] x")
    assert events[-1] == RunFinished()


def test_a_failure_that_was_reported_explains_an_end_without_an_answer() -> None:
    decoder = AcpDecoder()
    pushed(decoder, text("\n\nError: RetriableError: [resource_exhausted] Error"))
    (failed,) = decoder.flush(CRASHED)
    assert isinstance(failed, RunFailed)
    assert failed.failure.code == "agent_overloaded"
    assert decoder.finished


def test_an_end_without_an_answer_keeps_what_was_said() -> None:
    decoder = AcpDecoder()
    events = pushed(decoder, text("a\n\n"))
    assert said([*events, *decoder.flush(CRASHED)]) == "a\n\n"


PIECES = st.lists(
    st.sampled_from(
        ["\n", "\n\n", "Error: ", "RetriableError: ", "T: ", "[internal] ", "a", "```", "Not logged in", "é"]
    ),
    max_size=12,
)


@given(PIECES, st.integers(1, 5))
def test_the_pieces_do_not_matter(pieces: list[str], size: int) -> None:
    whole = "".join(pieces)
    at_once = decoded(text(whole))
    cut = decoded(*(text(whole[at : at + size]) for at in range(0, len(whole), size)))
    assert said(cut) == said(at_once)
    assert cut[-1] == at_once[-1]
    assert isinstance(cut[-1], RunFailed) or said(cut) == whole


# --- how it ends ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stop", "code"),
    [("cancelled", "cancelled"), ("refusal", "agent_failed"), ("max_tokens", "agent_failed"),
     ("max_turn_requests", "agent_failed")],
)  # fmt: skip
def test_reasons_to_stop_that_are_no_success(stop: str, code: str) -> None:
    (failed,) = AcpDecoder().finish({"stopReason": stop}, TokenCounts(prompt=1, completion=2))
    assert isinstance(failed, RunFailed)
    assert (failed.failure.code, failed.usage) == (code, TokenCounts(prompt=1, completion=2))


def test_a_reason_that_is_new_is_a_success() -> None:
    assert AcpDecoder().finish({"stopReason": "tired"}) == [RunFinished()]


def test_figures_are_read_where_they_are() -> None:
    assert counted(END) is None
    figures = {"inputTokens": 5, "outputTokens": 2, "cachedReadTokens": 3, "cachedWriteTokens": 1}
    assert counted({"usage": figures}) == TokenCounts(prompt=9, completion=2, cached=3)


# --- tools ----------------------------------------------------------------------------------------------


def test_a_command_and_its_output() -> None:
    start = call(SHELL, title="`echo hello`", kind="execute", rawInput={"command": "echo hello"})
    decoder = AcpDecoder()
    (started,) = pushed(decoder, start, {**done(SHELL), "status": "in_progress"})
    assert isinstance(started, ToolStarted)
    assert started.action == Command(tool="run_terminal_cmd", command="echo hello")
    (ended,) = pushed(decoder, done(SHELL, rawOutput={"exitCode": 0, "stdout": "hello\n", "stderr": ""}))
    assert isinstance(ended, ToolEnded)
    assert ended.action == Command(tool="run_terminal_cmd", command="echo hello", exit_code=0, output="hello\n")
    assert pushed(decoder, done(SHELL)) == []  # once is enough


def test_a_call_that_only_ends_starts_first() -> None:
    events = decoded(done("1", kind="execute", title="`ls`", rawOutput={"exitCode": 0, "stdout": ""}))
    assert [type(event) for event in events] == [ToolStarted, ToolEnded, RunFinished]


def test_how_long_a_call_took_is_seen_from_outside() -> None:
    decoder = AcpDecoder()
    decoder.push(call("1", kind="read"), 1000.0)
    _, end = decoder.push(done("1"), 1250.5)
    assert isinstance(end, ToolEnded)
    assert end.outcome.duration_ms == 250
    assert decoder.finish(END, duration_ms=300) == [RunFinished(duration_ms=300)]


def test_a_call_without_an_id_and_one_too_deep_are_counted() -> None:
    deep: Any = {}
    for _ in range(200):
        deep = {"a": deep}
    assert decoded({"sessionUpdate": "tool_call"}, call("1", rawInput=deep))[:2] == [
        Unrecognized("update 'tool_call'"),
        Unrecognized("nested too deeply"),
    ]


def test_todos_that_are_nested_too_deeply_are_counted_and_a_question_is_asked_without_its_payload() -> None:
    """Found by fuzzing: written into a document, one level deeper, they could not be encoded."""
    deep: Any = {}
    for _ in range(200):
        deep = {"a": deep}
    decoder = AcpDecoder()
    todos = {"todos": [{"id": "1", "content": "x", "more": deep}]}
    assert decoder.extension("cursor/update_todos", todos) == [Unrecognized("nested too deeply")]
    assert pushed(decoder, {"sessionUpdate": "plan", "entries": [deep]}) == [Unrecognized("nested too deeply")]
    question = Question(tool="ask_question", title="", questions=[])
    assert decoder.ask("1", question, deep) == [ToolStarted("1", question, waits=True)]


def test_a_call_that_we_denied_was_rejected() -> None:
    decoder = AcpDecoder()
    assert pushed(decoder, call("1", kind="read")) == []  # it does not run yet
    refused = Outcome(state="rejected", message="no")
    start, end = decoder.deny("1", refused)
    assert decoder.deny("1", refused) == decoder.deny("unknown", refused) == []
    assert decoder.call("1") is not None
    assert decoder.call("unknown") is None
    assert isinstance(start, ToolStarted)
    assert isinstance(end, ToolEnded)
    assert end.outcome == refused
    assert pushed(decoder, done("1", rawOutput={"content": "x"})) == []


def test_a_call_runs_when_it_is_allowed_or_in_progress() -> None:
    decoder = AcpDecoder()
    assert pushed(decoder, call("1", kind="execute", rawInput={"command": "ls"})) == []
    (start,) = decoder.begin("1")
    assert isinstance(start, ToolStarted)
    assert decoder.begin("1") == decoder.begin("unknown") == []
    assert decoder.deny("1", Outcome(state="rejected"))[0].call_id == "1"  # type: ignore[union-attr] # it is a `ToolEnded`
    assert pushed(decoder, call("2", kind="execute")) == []
    (start,) = pushed(decoder, {"sessionUpdate": "tool_call_update", "toolCallId": "2", "status": "in_progress"})
    assert isinstance(start, ToolStarted)


def test_updates_that_mean_nothing_here_and_those_that_are_new() -> None:
    known = ["session_info_update", "available_commands_update", "current_mode_update", "user_message_chunk"]
    assert decoded(*({"sessionUpdate": name} for name in known)) == [RunFinished()]
    assert decoded({"sessionUpdate": "weather"}, 7)[:2] == [Unrecognized("update 'weather'"), Unrecognized("update ''")]


# --- the caller's server --------------------------------------------------------------------------------


def test_what_went_well_with_the_callers_server_is_left_out() -> None:
    decoder = AcpDecoder("caller")
    title = {"kind": "other", "title": "caller-weather: weather"}
    assert pushed(decoder, call("1", **title), done("1", rawOutput={"content": []})) == []
    assert pushed(decoder, call("2", **title), done("2")) == []  # whatever came of it, the server knows
    assert pushed(decoder, call("3", rawInput={"_toolName": "getMcpTools"}), done("3")) == []
    (failed,) = pushed(decoder, call("4", **title), done("4", rawOutput={"error": "timed out"}))
    assert isinstance(failed, ToolEnded)
    assert pushed(decoder, call("5", **title)) == []
    (denied,) = decoder.deny("5", Outcome(state="rejected"))
    assert isinstance(denied, ToolEnded)
    assert len(pushed(decoder, call("6", kind="other", title="their-tool: tool"), done("6", rawOutput={"a": 1}))) == 2


# --- questions, plans and todos -------------------------------------------------------------------------


def test_what_is_asked_is_reported_and_then_settled_once() -> None:
    decoder = AcpDecoder()
    question = read_call("askQuestion", {"questions": [{"id": "q", "prompt": "Which?", "options": []}]})
    assert isinstance(question, Question)
    result = pushed(decoder, text("Hm."), call("1", kind="other", title="Ask Question"))
    assert result == [TextDelta("Hm.")]  # its own message says more
    assert decoder.ask("1", question, {}) == [ToolStarted("1", question, payload={}, waits=True)]
    assert decoder.settle("1", question, Outcome()) == [ToolEnded("1", question, Outcome())]
    assert pushed(decoder, done("1")) == []
    assert decoder.ask("2", question, {}, waits=False) == [ToolStarted("2", question, payload={})]


def test_a_call_that_no_message_followed_is_reported_at_its_end() -> None:
    events = decoded(call("1", kind="other", title="Ask Question"), done("1"))
    assert [type(event) for event in events] == [ToolStarted, ToolEnded, RunFinished]


def test_a_plans_todos_are_not_reported_again() -> None:
    decoder = AcpDecoder()
    plan = read_call("createPlan", {"name": "P", "todos": [{"id": "a", "content": "Find", "status": "pending"}]})
    assert isinstance(plan, Plan)
    decoder.ask("1", plan, {})
    same = {"sessionUpdate": "plan", "entries": [{"content": "Find", "priority": "medium", "status": "pending"}]}
    assert decoder.push(same) == []
    other = {"sessionUpdate": "plan", "entries": [{"content": "Find", "priority": "medium", "status": "completed"}]}
    started, ended = decoder.push(other)
    assert isinstance(started, ToolStarted)
    assert isinstance(ended, ToolEnded)
    assert isinstance(ended.action, TodoUpdate)
    assert [(todo.content, todo.status) for todo in ended.action.todos] == [("Find", "completed")]


def test_todos_are_reported_once_whichever_message_comes_first() -> None:
    todos = [{"id": "a", "content": "Find", "status": "in_progress"}]
    entries = {"sessionUpdate": "plan", "entries": [{"content": "Find", "status": "in_progress"}]}
    decoder = AcpDecoder()
    assert pushed(decoder, call("1", kind="other", title="Update TODOs")) == []
    events = decoder.extension("cursor/update_todos", {"toolCallId": "1", "todos": todos, "merge": False})
    assert [type(event) for event in events] == [ToolStarted, ToolEnded]
    assert [*decoder.push(entries), *pushed(decoder, done("1"))] == []
    change = {"toolCallId": "1", "todos": [{"id": "a", "status": "completed"}], "merge": True}
    again = decoder.extension("cursor/update_todos", change)
    assert isinstance(again[0], ToolStarted)
    assert again[0].call_id == "todos 1"
    decoder = AcpDecoder()
    decoder.push(entries)
    assert decoder.extension("cursor/update_todos", {"toolCallId": "2", "todos": todos, "merge": False}) == []
    assert [*pushed(decoder, call("2", kind="other", title="Update TODOs")), *pushed(decoder, done("2"))] == []


def test_todos_that_a_call_itself_names_are_reported_by_it() -> None:
    todos = [{"id": "a", "content": "Find", "status": "pending"}]
    end = end_of(
        call("1", kind="other", rawInput={"_toolName": "updateTodos", "todos": todos, "merge": False}),
        done("1", rawOutput={"todos": todos}),
        {"sessionUpdate": "plan", "entries": todos},
    )
    assert isinstance(end.action, TodoUpdate)


def test_messages_of_cursors_own() -> None:
    decoder = AcpDecoder()
    assert decoder.extension("cursor/task", {}) == [Notice("background")]
    assert decoder.extension("cursor/weather", {}) == [Unrecognized("method 'cursor/weather'")]


# --- the capture ----------------------------------------------------------------------------------------


@pytest.mark.skipif(not CAPTURE.exists(), reason="the capture stands beside the repository")
def test_the_capture_is_understood() -> None:
    messages = [json.loads(line)["msg"] for line in CAPTURE.read_text().splitlines()]
    updates = [message["params"]["update"] for message in messages if message.get("method") == "session/update"]
    events = decoded(*updates)
    assert not [event for event in events if isinstance(event, Unrecognized)]
    assert said(events) == "ok"
    states = [event.outcome.state for event in events if isinstance(event, ToolEnded)]
    assert states == ["completed", "completed", "completed", "completed"]
