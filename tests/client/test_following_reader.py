"""The client's side: what the server encodes is decoded to events that fold to the same response."""

import json
from collections.abc import Iterable

import pytest
from hypothesis import given

from cursor_gateway.client.following import DocumentEventReader
from cursor_gateway.dialects.documents.encoder import SseEncoder
from cursor_gateway.errors import AgentCrashed, Failure, UnusableInput
from cursor_gateway.model import documents
from cursor_gateway.model.agent_events import AgentEvent
from cursor_gateway.model.document_events import (
    ContentDelta,
    DocumentEnded,
    DocumentEvent,
    DocumentStarted,
    Done,
    KnownMetadata,
    Paused,
    Reasoning,
    TerminalOutput,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
)
from cursor_gateway.model.requests import RunInfo
from cursor_gateway.reader import read_events
from cursor_gateway.wire.sse import SseDecoder, SseEvent
from tests.laws.agent import Recording
from tests.laws.laws import assemble, assert_well_formed, read, response_of
from tests.laws.strategies import agent_events, examples, recordings, runs
from tests.scenarios.golden import Scenario, scenarios


def decoded(frames: Iterable[SseEvent]) -> list[DocumentEvent]:
    reader = DocumentEventReader()
    return [event for frame in frames if (event := reader.push(frame)) is not None]


def over_the_wire(events: Iterable[DocumentEvent]) -> list[DocumentEvent]:
    encoder = SseEncoder(live=True)
    return decoded(SseDecoder().push(b"".join(map(encoder.push, events))))


def assert_the_client_sees_the_same(events: list[DocumentEvent]) -> None:
    found = over_the_wire(events)
    assert response_of(found) == response_of(events)
    assert_well_formed(found)
    assert _said(found) == _said(events)
    (done,), (result,) = ([event for event in side if isinstance(event, Done)] for side in (events, found))
    assert _known(result.failure) == _known(done.failure)


def _said(events: Iterable[DocumentEvent]) -> list[DocumentEvent]:
    """Without what the dialect does not say."""
    said: list[DocumentEvent] = []
    for event in events:
        match event:
            case ContentDelta(id=id, text=text):
                said += [ContentDelta(id, text)] if text else []
            case DocumentStarted(id=id, type=type, sequence=sequence, metadata=metadata):
                said.append(DocumentStarted(id, type, sequence, metadata))
            case DocumentEnded(document=document):
                said.append(DocumentEnded(document))
            case Paused(envelope=envelope):
                said.append(Paused(envelope))
            case Done(envelope=envelope):
                said.append(Done(envelope))
            case ToolCallStarted() | ToolCallArguments() | ToolCallEnded() | TerminalOutput():
                said.append(event)
            case Reasoning():
                pass
    return said


def _known(failure: Failure | None) -> object:
    """What an `error` document tells of a failure."""
    return failure and (failure.code, failure.message, failure.status, failure.retryable, failure.details)


# --- the law --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.name)
def test_a_scenario_is_the_same_for_a_client(scenario: Scenario) -> None:
    assert_the_client_sees_the_same(list(read_events(scenario.lines, scenario.run)))


@examples(200)
@given(recordings, runs)
def test_any_recording_is_the_same_for_a_client(recording: Recording, run: RunInfo) -> None:
    assert_the_client_sees_the_same(read(recording.data, run))


@examples(300)
@given(agent_events, runs)
def test_any_events_are_the_same_for_a_client(events: list[AgentEvent], run: RunInfo) -> None:
    assert_the_client_sees_the_same(assemble(events, run))


# --- event by event -------------------------------------------------------------------------------------

TEXT = DocumentStarted("doc_001", "text", 1)
CALL = DocumentStarted("doc_002", "tool_call", 2)
PLANNED = [documents.PlanTodo(id="1", content="x", status="pending", dependencies=[])]
PLAN = DocumentStarted("doc_003", "plan", 3, KnownMetadata(title="T", overview="o", todos=PLANNED))
RESULT = documents.ToolCallResult(status="success", data={"a": [1, None]})
EVENTS: list[DocumentEvent] = [
    TEXT,
    ContentDelta("doc_001", "Hi"),
    DocumentEnded(documents.make_document("doc_001", 1, "Hi", documents.TextMetadata())),
    CALL,
    ToolCallStarted("doc_002", "grep", "call_001"),
    ToolCallArguments("doc_002", {"query": "x"}),
    ToolCallEnded("doc_002", RESULT),
    DocumentEnded(
        documents.make_document(
            "doc_002",
            2,
            None,
            documents.ToolCallMetadata(
                tool_name="grep", tool_call_id="call_001", arguments={"query": "x"}, result=RESULT, duration_ms=3
            ),
        )
    ),
    PLAN,
    ContentDelta("doc_003", "# T", raw=""),
    DocumentEnded(
        documents.make_document("doc_003", 3, "# T", documents.PlanMetadata(title="T", overview="o", todos=PLANNED))
    ),
]


def envelope(status: str) -> str:
    return json.dumps(
        {
            "id": "chat_1",
            "conversationId": "conv_1",
            "model": "auto",
            "mode": "agent",
            "created": "2026-02-23T10:30:00Z",
            "status": status,
            "usage": {"promptTokens": 1, "completionTokens": 2, "totalTokens": 3},
            "metadata": {"duration_ms": 5, "toolCallCount": 0, "turnCount": 1},
        }
    )


def test_events_come_back_as_they_were_and_only_prose_is_the_agents_own_text() -> None:
    assert over_the_wire(EVENTS) == EVENTS


def test_live_output_is_of_an_open_document() -> None:
    started = DocumentStarted("doc_001", "terminal_command", 1, KnownMetadata(command="make"))
    newer = SseEvent('{"id":"doc_002","type":"newer"}', "document_start")
    output = SseEvent('{"documentId":"doc_002","text":"x"}', "terminal_output")
    assert over_the_wire([started, TerminalOutput("doc_001", "a")]) == [started, TerminalOutput("doc_001", "a")]
    assert decoded([newer, output]) == []


@pytest.mark.parametrize("code", ["SOMETHING_NEWER", "TOOL_ERROR"])
def test_a_failure_that_is_newer_than_the_reader_keeps_its_words(code: str) -> None:
    error = documents.make_document(
        "doc_001", 1, "Oh.", documents.ErrorMetadata(error_code=code, source="moon", details="d")
    )
    encoder = SseEncoder()
    events: list[DocumentEvent] = [DocumentStarted("doc_001", "error", 1), DocumentEnded(error)]
    frames = SseDecoder().push(b"".join(map(encoder.push, events)))
    *_, done = decoded([*frames, SseEvent(envelope("error"), "done")])
    assert isinstance(done, Done)
    assert done.failure == Failure(code.lower(), "Oh.", 502, retryable=True, details="d", source="moon")


def test_a_failure_without_a_word_is_a_crash() -> None:
    (done,) = decoded([SseEvent(envelope("error"), "done")])
    assert isinstance(done, Done)
    assert done.failure == AgentCrashed().failure()


# --- what is new, and what is wrong ---------------------------------------------------------------------


def test_names_fields_and_types_that_are_newer_than_the_reader_are_ignored() -> None:
    frames = [
        SseEvent("not even JSON", "usage"),
        SseEvent("{}"),
        SseEvent('{"id":"doc_001","type":"hologram","sequence":1,"metadata":7}', "document_start"),
        SseEvent('{"documentId":"doc_001","delta":"x"}', "content_delta"),
        SseEvent('{"documentId":"doc_001","toolName":"t","toolCallId":"c"}', "tool_call_start"),
        SseEvent('{"documentId":"doc_001","arguments":{}}', "tool_call_arguments"),
        SseEvent('{"documentId":"doc_001","result":{"status":"success","data":1}}', "tool_result"),
        SseEvent('{"documentId":"doc_001","finalContent":"x","metadata":{}}', "document_end"),
        SseEvent('{"id":"doc_002","type":"text","sequence":2,"colour":"red","metadata":{"new":1}}', "document_start"),
        SseEvent('{"documentId":"doc_002","finalContent":"","metadata":{"new":[1]},"new":2}', "document_end"),
    ]
    assert decoded(frames) == [
        DocumentStarted("doc_002", "text", 2, KnownMetadata()),
        DocumentEnded(documents.make_document("doc_002", 2, "", documents.TextMetadata())),
    ]


START = SseEvent('{"id":"doc_001","type":"plan","sequence":1}', "document_start")


@pytest.mark.parametrize(
    "frame",
    [
        SseEvent("", "done"),
        SseEvent("{}", "done"),
        SseEvent("{}", "document_start"),
        SseEvent('{"id":"doc_002","type":"text","sequence":"two"}', "document_start"),
        SseEvent('{"documentId":"doc_001"}', "content_delta"),
        SseEvent('{"documentId":"doc_001","toolName":"x"}', "tool_call_start"),
        SseEvent('{"documentId":"doc_001","arguments":[]}', "tool_call_arguments"),
        SseEvent('{"documentId":"doc_001","result":{"status":"maybe","data":1}}', "tool_result"),
        SseEvent('{"documentId":"doc_001","metadata":{}}', "document_end"),
        SseEvent('{"documentId":"doc_001","metadata":' + "[" * 100_000, "document_end"),
        SseEvent('{"documentId":"\ud800","delta":"x"}', "content_delta"),
    ],
    ids=lambda frame: f"{frame.event} {frame.data[:40]!a}",
)
def test_a_frame_that_is_not_as_the_dialect_has_it_is_reported(frame: SseEvent) -> None:
    with pytest.raises(UnusableInput, match=f"`{frame.event}` cannot be read: .+cursor-gateway") as caught:
        decoded([START, frame])
    assert caught.value.details == frame.data[:2000]


@pytest.mark.parametrize("name", ["content_delta", "document_end"])
def test_a_frame_about_a_document_that_is_not_open_is_reported(name: str) -> None:
    frame = SseEvent('{"documentId":"doc_009","delta":"x","metadata":{}}', name)
    with pytest.raises(UnusableInput, match=f"`{name}` is about `doc_009`, which is not open"):
        decoded([START, frame])
    end = SseEvent('{"documentId":"doc_001","metadata":{"title":"","overview":"","todos":[]}}', "document_end")
    with pytest.raises(UnusableInput, match="not open"):
        decoded([START, end, end])
