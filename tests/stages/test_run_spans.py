"""Events and times in; spans that start and end, each of them once."""

import json
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.errors import Failure
from cursor_gateway.model import documents
from cursor_gateway.model.agent_events import AgentEvent
from cursor_gateway.model.document_events import (
    ContentDelta,
    DocumentEnded,
    DocumentStarted,
    Done,
    KnownMetadata,
    Paused,
    Reasoning,
    ToolCallStarted,
)
from cursor_gateway.model.requests import RunInfo
from cursor_gateway.stages import run_spans
from tests.laws.laws import assemble
from tests.laws.strategies import agent_events, examples

OLD, LATEST = run_spans.Convention(), run_spans.Convention(is_latest=True)
WITH_TEXT = run_spans.Convention(is_latest=True, has_content=True)
TEXT = DocumentStarted("doc_001", "text", 1)


def envelope(waiting: list[str] | None = None, fallback: str = "", **usage: Any) -> documents.Envelope:
    calls = [
        documents.WaitingCall(tool_call_id="c", tool_name=name, arguments={}, document_id="d") for name in waiting or ()
    ]
    more: dict[str, Any] = {"waiting_for": calls} if waiting else {}
    if fallback:
        more["fallback"] = fallback
    return documents.Envelope(
        id="chat_1",
        conversation_id="conv_1",
        model="Opus",
        mode="plan",
        created="2026-02-23T10:30:00Z",
        status="completed",
        usage=documents.Usage(prompt_tokens=7, completion_tokens=3, total_tokens=10, **usage),
        metadata=documents.ResponseMetadata(duration_ms=5, tool_call_count=2, turn_count=4, **more),
    )


def ended(id: str, metadata: documents.Metadata, content: str | None = None) -> DocumentEnded:
    return DocumentEnded(documents.make_document(id, 1, content, metadata))


def called(status: Literal["success", "error"] = "success", **more: Any) -> documents.ToolCallMetadata:
    result = documents.ToolCallResult(status=status, data={"found": 1})
    return documents.ToolCallMetadata(
        tool_name="grep", tool_call_id="c1", arguments={"q": "x"}, result=result, duration_ms=1, **more
    )


def command(exit_code: int = 0) -> documents.TerminalCommandMetadata:
    return documents.TerminalCommandMetadata(
        command="ls", exit_code=exit_code, output="a\n", duration_ms=1, permissions=[]
    )


def short(changes: list[run_spans.SpanChange]) -> list[tuple[str, str, int]]:
    return [("start" if isinstance(change, run_spans.SpanStart) else "end", change.id, change.at) for change in changes]


def end_of(changes: list[run_spans.SpanChange]) -> run_spans.SpanEnd:
    (end,) = [change for change in changes if isinstance(change, run_spans.SpanEnd)]
    return end


def start_of(changes: list[run_spans.SpanChange]) -> run_spans.SpanStart:
    (start,) = [change for change in changes if isinstance(change, run_spans.SpanStart)]
    return start


def test_a_run_waits_starts_its_agent_and_waits_for_the_model() -> None:
    spans = run_spans.RunSpans(OLD)
    assert short(spans.received(1)) == [("start", "queue", 1)]
    starts = spans.agent_starts("cli", 2)
    assert short(starts) == [("end", "queue", 2), ("start", "start_agent", 2)]
    assert start_of(starts).attributes == {"cursor_gateway.source": "cli"}
    ready = spans.agent_ready(False, 3)
    assert short(ready) == [("end", "start_agent", 3), ("start", "first_content", 3)]
    assert end_of(ready).attributes == {"cursor_gateway.start": "cold"}
    assert spans.agent_ready(False, 3) == []  # it says so once
    assert short(spans.push(TEXT, 4)) == [("end", "first_content", 4)]
    assert spans.push(ContentDelta("doc_001", "a"), 5) == []
    assert spans.push(Reasoning("b"), 5) == spans.end(6) == []


def test_an_agent_that_is_started_again_has_another_span_and_no_first_content_after_content() -> None:
    spans = run_spans.RunSpans(OLD)
    spans.agent_starts("cli", 1)
    assert short(spans.agent_starts("acp", 2)) == [("end", "start_agent", 2), ("start", "start_agent", 2)]
    spans.agent_ready(True, 3)
    assert short(spans.agent_starts("sdk", 4))[0] == ("end", "first_content", 4)
    assert short(spans.push(TEXT, 5)) == [("end", "start_agent", 5)]  # without a word about its start
    spans.agent_starts("cli", 6)
    again = spans.agent_ready(True, 7)
    assert short(again) == [("end", "start_agent", 7)]
    assert end_of(again).attributes == {"cursor_gateway.start": "warm"}


def test_a_tool_call_has_its_name_and_id() -> None:
    spans = run_spans.RunSpans(OLD)
    assert spans.push(DocumentStarted("doc_002", "tool_call", 2), 3) == []
    start = start_of(spans.push(ToolCallStarted("doc_002", "grep", "c1"), 4))
    assert (start.name, start.at, start.parent) == ("execute_tool grep", 3, "")
    assert start.attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "grep",
        "gen_ai.tool.type": "extension",
        "gen_ai.tool.call.id": "c1",
        "cursor_gateway.document.id": "doc_002",
    }
    end = end_of(spans.push(ended("doc_002", called()), 5))
    assert (end.at, end.error, end.attributes) == (5, "", {})


def test_a_tool_of_the_caller_is_a_function_and_one_of_a_sub_agent_is_below_its_task() -> None:
    spans = run_spans.RunSpans(OLD)
    spans.push(DocumentStarted("doc_002", "tool_call", 2, KnownMetadata(ran_by="caller")), 1)
    assert start_of(spans.push(ToolCallStarted("doc_002", "task", "c"), 1)).attributes["gen_ai.tool.type"] == "function"
    inner = spans.push(DocumentStarted("doc_003", "terminal_command", 3, KnownMetadata(parent_id="doc_002")), 2)
    assert (start_of(inner).parent, start_of(inner).name) == ("doc_002", "execute_tool terminal_command")
    orphan = spans.push(DocumentStarted("doc_004", "file_edit", 4, KnownMetadata(parent_id="doc_009")), 2)
    assert start_of(orphan).parent == ""


@pytest.mark.parametrize(
    ("metadata", "error", "attributes"),
    [
        (called("error"), "tool_error", {}),
        (called("error", state="rejected"), "rejected", {"cursor_gateway.tool.state": "rejected"}),
        (called(state="unanswered"), "", {"cursor_gateway.tool.state": "unanswered"}),
        (command(2), "", {"process.exit.code": 2}),
    ],
)
def test_how_a_tool_ends(metadata: documents.Metadata, error: str, attributes: dict[str, Any]) -> None:
    spans = run_spans.RunSpans(OLD)
    spans.push(DocumentStarted("doc_002", "terminal_command", 2), 1)
    end = end_of(spans.push(ended("doc_002", metadata), 2))
    assert (end.error, end.attributes) == (error, attributes)


def test_texts_are_told_only_if_they_are_wanted() -> None:
    edit = documents.FileEditMetadata(file_path="a.py", operation="edit", language="python")
    plan = documents.PlanMetadata(title="secret", overview="", todos=[])
    for metadata, content in ((called(), None), (command(), None), (edit, "x = 1"), (plan, "secret")):
        for convention in (OLD, LATEST, run_spans.Convention(has_content=True), WITH_TEXT):
            spans = run_spans.RunSpans(convention)
            spans.push(DocumentStarted("doc_002", "file_edit", 2), 1)
            found = end_of(spans.push(ended("doc_002", metadata, content), 2)).attributes
            is_told = convention is WITH_TEXT and metadata is not plan
            assert ({"gen_ai.tool.call.arguments", "gen_ai.tool.call.result"} <= found.keys()) == is_told
            assert "secret" not in str(found)


def test_a_pause_lasts_until_the_run_goes_on() -> None:
    spans = run_spans.RunSpans(OLD)
    start = start_of(spans.push(Paused(envelope(["weather", "time"])), 1))
    assert start.attributes == {"cursor_gateway.pause.for": "caller", "cursor_gateway.pause.calls": ["weather", "time"]}
    again = spans.push(Paused(envelope(), goes_on=True), 2)
    assert short(again) == [("end", "pause", 2), ("start", "pause", 2)]
    assert start_of(again).attributes["cursor_gateway.pause.for"] == "person"
    assert short(spans.push(ContentDelta("doc_001", "x"), 3)) == [("end", "pause", 3)]


def test_what_is_open_when_the_run_ends_was_interrupted() -> None:
    spans = run_spans.RunSpans(OLD)
    spans.received(1)
    spans.push(DocumentStarted("doc_002", "file_edit", 2), 2)
    spans.push(DocumentStarted("doc_003", "tool_call", 3), 2)  # and never had a name
    assert spans.push(ended("doc_003", called()), 3) == []
    assert spans.push(ended("doc_001", documents.TextMetadata(), "a"), 3) == []
    assert spans.push(ToolCallStarted("doc_003", "late", "c"), 3) == []
    ends = spans.end(4)
    assert short(ends) == [("end", "doc_002", 4), ("end", "queue", 4)]
    assert {end.error for end in ends if isinstance(end, run_spans.SpanEnd)} == {"interrupted"}


def test_the_run_is_described_by_either_convention() -> None:
    info = RunInfo(id="chat_1", created="", mode="plan", model="auto", conversation_id="conv_1")
    found = run_spans.run_attributes(info, "laptop", "cli", OLD)
    assert found == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.system": "cursor",
        "gen_ai.agent.name": "cursor-agent",
        "gen_ai.request.model": "auto",
        "gen_ai.conversation.id": "conv_1",
        "cursor_gateway.run.id": "chat_1",
        "cursor_gateway.mode": "plan",
        "cursor_gateway.source": "cli",
        "cursor_gateway.owner": "laptop",
    }
    latest = run_spans.run_attributes(RunInfo(id="chat_1", created=""), "", "cli", LATEST)
    assert latest["gen_ai.provider.name"] == "cursor"
    assert {"gen_ai.system", "gen_ai.request.model", "cursor_gateway.owner"}.isdisjoint(latest)


def test_the_end_of_a_run_has_its_figures() -> None:
    done = Done(envelope(fallback="acp", cached_tokens=5, estimated=True, cost=0.25))
    assert run_spans.end_attributes(done, "completed", LATEST) == {
        "cursor_gateway.outcome": "completed",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.response.id": "chat_1",
        "gen_ai.response.model": "Opus",
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.usage.cache_read.input_tokens": 5,
        "cursor_gateway.turns": 4,
        "cursor_gateway.tool_calls": 2,
        "cursor_gateway.cost_usd": 0.25,
        "cursor_gateway.usage.estimated": True,
        "cursor_gateway.fallback": "acp",
    }
    assert "gen_ai.usage.cache_read.input_tokens" not in run_spans.end_attributes(done, "completed", OLD)


def test_a_failure_has_its_code_and_a_cancelled_run_is_no_failure() -> None:
    failure = Failure("agent_crashed", "It crashed.", 502)
    failed = run_spans.end_attributes(Done(envelope(), failure), "failed", OLD)
    assert (failed["error.type"], failed["gen_ai.response.finish_reasons"]) == ("agent_crashed", ["error"])
    cancelled = run_spans.end_attributes(Done(envelope(), failure), "cancelled", OLD)
    assert cancelled["gen_ai.response.finish_reasons"] == ["cancelled"]
    assert "error.type" not in cancelled
    assert run_spans.end_attributes(None, "failed", OLD) == {
        "cursor_gateway.outcome": "failed",
        "gen_ai.response.finish_reasons": ["error"],
    }


def test_messages_are_json() -> None:
    found = run_spans.message_attributes(["Why?"], "Because.", "failed")
    assert json.loads(str(found["gen_ai.input.messages"])) == [
        {"role": "user", "parts": [{"type": "text", "content": "Why?"}]}
    ]
    (answer,) = json.loads(str(found["gen_ai.output.messages"]))
    assert answer["finish_reason"] == "error"
    assert answer["parts"] == [{"type": "text", "content": "Because."}]
    assert '"finish_reason":"stop"' in str(run_spans.message_attributes([], "", "completed")["gen_ai.output.messages"])


@examples(200)
@given(agent_events, st.lists(st.sampled_from(["starts", "ready"]), max_size=3))
def test_the_spans_of_any_events_end_once_and_after_their_start(events: list[AgentEvent], before: list[str]) -> None:
    spans, at = run_spans.RunSpans(OLD), 0
    changes = spans.received(at)
    for step in before:
        at += 1
        changes += spans.agent_starts("cli", at) if step == "starts" else spans.agent_ready(False, at)
    for event in assemble(events):
        at += 1
        changes += spans.push(event, at)
    changes += spans.end(at + 1)
    began: dict[str, int] = {}
    for change in changes:
        match change:
            case run_spans.SpanStart(id=id, parent=parent):
                assert id not in began
                assert not parent or parent in began
                began[id] = change.at
            case run_spans.SpanEnd(id=id):
                assert began.pop(id) <= change.at
    assert not began
    assert spans.end(at + 2) == []
