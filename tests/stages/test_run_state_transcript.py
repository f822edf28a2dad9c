"""The fold: documents in the order of their starts, whole once they have ended, a response once the run is done."""

import msgspec

from cursor_gateway.model import document_events
from cursor_gateway.model.documents import (
    Document,
    Envelope,
    ResponseMetadata,
    TextMetadata,
    ToolCallMetadata,
    ToolCallResult,
    Usage,
    make_document,
)
from cursor_gateway.stages.run_state import Transcript

RESULT = ToolCallResult(status="success", data="x")
TOOL = make_document(
    "doc_001",
    1,
    None,
    ToolCallMetadata(tool_name="grep", tool_call_id="c", arguments={"p": 1}, result=RESULT, duration_ms=1),
)
TEXT = make_document("doc_002", 2, "Hi", TextMetadata())
ENVELOPE = Envelope(
    id="chat_1",
    conversation_id="conv_1",
    model="auto",
    mode="ask",
    created="2026-02-23T10:30:00Z",
    status="completed",
    usage=Usage(prompt_tokens=1, completion_tokens=1, total_tokens=2),
    metadata=ResponseMetadata(duration_ms=0, tool_call_count=1, turn_count=1),
)

# what comes, and the documents that are there then
STEPS: list[tuple[document_events.DocumentEvent, list[Document]]] = [
    (document_events.Reasoning("hm", opens=True), []),
    (document_events.DocumentStarted("doc_001", "tool_call", 1), []),
    (document_events.ToolCallStarted("doc_001", "grep", "c"), []),
    (document_events.ToolCallArguments("doc_001", {"p": 1}), []),
    (document_events.TerminalOutput("doc_001", "50%"), []),
    (document_events.DocumentStarted("doc_002", "text", 2), []),
    (document_events.ContentDelta("doc_002", "Hi"), []),
    (document_events.DocumentEnded(TEXT), [TEXT]),
    (document_events.Paused(ENVELOPE), [TEXT]),
    (document_events.ToolCallEnded("doc_001", RESULT), [TEXT]),
    (document_events.DocumentEnded(TOOL), [TOOL, TEXT]),
]


def test_documents_stand_in_the_order_of_their_starts_once_they_have_ended() -> None:
    transcript = Transcript()
    for event, documents in STEPS:
        transcript.push(event)
        assert transcript.documents == documents


def test_there_is_no_response_before_the_run_is_done() -> None:
    transcript = Transcript()
    for event, _ in STEPS:
        assert transcript.response() is None
        transcript.push(event)
    assert transcript.response() is None
    transcript.push(document_events.Done(ENVELOPE))
    assert transcript.response() is not None


def test_the_response_is_the_envelope_with_the_documents() -> None:
    transcript = Transcript()
    for event in [*(event for event, _ in STEPS), document_events.Done(ENVELOPE)]:
        transcript.push(event)
    response = transcript.response()
    assert response is not None
    result = msgspec.structs.asdict(response)
    assert result.pop("documents") == [TOOL, TEXT]
    assert result == msgspec.structs.asdict(ENVELOPE)
