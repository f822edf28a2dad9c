"""The specification's events: each frame as its section 5 shows it, and the same payloads as NDJSON."""

import json

import msgspec
import pytest

from cursor_gateway.dialects.base import NDJSON, SSE
from cursor_gateway.dialects.documents.encoder import NdjsonEncoder, SseEncoder, encode_response
from cursor_gateway.model import documents
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
from cursor_gateway.wire.sse import SseDecoder, SseEvent

USAGE = documents.Usage(prompt_tokens=1, completion_tokens=2, total_tokens=3)
METADATA = documents.ResponseMetadata(duration_ms=5, tool_call_count=0, turn_count=1)
ENVELOPE = documents.Envelope(
    id="chat_1",
    conversation_id="conv_1",
    model="auto",
    mode="agent",
    created="2026-02-23T10:30:00Z",
    status="completed",
    usage=USAGE,
    metadata=METADATA,
)
TOLD_ENVELOPE = (
    '{"id":"chat_1","conversationId":"conv_1","model":"auto","mode":"agent","created":"2026-02-23T10:30:00Z",'
    '"status":"completed","usage":{"promptTokens":1,"completionTokens":2,"totalTokens":3},'
    '"metadata":{"duration_ms":5,"toolCallCount":0,"turnCount":1}}'
)
WAITING = documents.WaitingCall(tool_call_id="k", tool_name="look", arguments={"p": 1}, document_id="doc_003")
PAUSED = msgspec.structs.replace(
    ENVELOPE, status="streaming", metadata=msgspec.structs.replace(METADATA, waiting_for=[WAITING])
)
TOLD_PAUSE = TOLD_ENVELOPE.replace("completed", "streaming").replace(
    '"turnCount":1',
    '"turnCount":1,"waitingFor":[{"toolCallId":"k","toolName":"look","arguments":{"p":1},"documentId":"doc_003"}]',
)
TEXT = documents.make_document("doc_001", 1, "Hi", documents.TextMetadata())
TODOS = documents.make_document("doc_002", 2, None, documents.TodoUpdateMetadata(todos=[]))

TEXT_STARTS = DocumentStarted("doc_001", "text", 1)

EVENTS: list[tuple[DocumentEvent, str, str, str]] = [  # event, name, document, data
    (
        DocumentStarted("doc_001", "text", 1, raw="\n"),
        "document_start",
        "doc_001",
        '{"id":"doc_001","type":"text","sequence":1}',
    ),
    (
        DocumentStarted("doc_002", "code_reference", 2, KnownMetadata(file_path="a.py", start_line=1)),
        "document_start",
        "doc_002",
        '{"id":"doc_002","type":"code_reference","sequence":2,"metadata":{"filePath":"a.py","startLine":1}}',
    ),
    (
        ContentDelta("doc_001", 'é "\n\u2028'),
        "content_delta",
        "doc_001",
        '{"documentId":"doc_001","delta":"é \\"\\n\u2028"}',
    ),
    (
        DocumentStarted("doc_003", "tool_call", 3, KnownMetadata(state="waiting", ran_by="caller")),
        "document_start",
        "doc_003",
        '{"id":"doc_003","type":"tool_call","sequence":3,"metadata":{"state":"waiting","ranBy":"caller"}}',
    ),
    (ContentDelta("doc_001", "x", raw="  x"), "content_delta", "doc_001", '{"documentId":"doc_001","delta":"x"}'),
    (ContentDelta("doc_002", "y"), "content_delta", "doc_002", '{"documentId":"doc_002","delta":"y"}'),
    (
        ToolCallStarted("doc_003", "read_file", "call_001"),
        "tool_call_start",
        "doc_003",
        '{"documentId":"doc_003","toolName":"read_file","toolCallId":"call_001"}',
    ),
    (
        ToolCallArguments("doc_003", {"target_file": "src/main.py"}),
        "tool_call_arguments",
        "doc_003",
        '{"documentId":"doc_003","arguments":{"target_file":"src/main.py"}}',
    ),
    (
        ToolCallEnded("doc_003", documents.ToolCallResult(status="success", data="import os\n...")),
        "tool_result",
        "doc_003",
        '{"documentId":"doc_003","result":{"status":"success","data":"import os\\n..."}}',
    ),
    (
        DocumentEnded(TEXT, raw="\n"),
        "document_end",
        "doc_001",
        '{"documentId":"doc_001","finalContent":"Hi","metadata":{"format":"markdown"}}',
    ),
    (DocumentEnded(TODOS), "document_end", "doc_002", '{"documentId":"doc_002","metadata":{"todos":[]}}'),
    (Paused(PAUSED, raw="\n"), "done", "", TOLD_PAUSE),
    (Done(ENVELOPE, raw="\n"), "done", "", TOLD_ENVELOPE),
]
SILENT: list[DocumentEvent] = [Reasoning("hm", opens=True), ContentDelta("doc_001", "", raw="  ")]


@pytest.mark.parametrize(("event", "name", "document", "data"), EVENTS)
def test_an_event_is_one_frame_with_its_number_its_name_and_its_data(
    event: DocumentEvent, name: str, document: str, data: str
) -> None:
    assert SseEncoder().push(event) == f"id: 1\nevent: {name}\ndata: {data}\n\n".encode()


@pytest.mark.parametrize(("event", "name", "document", "data"), EVENTS)
def test_a_line_of_ndjson_is_the_same_data_with_its_number_type_and_document(
    event: DocumentEvent, name: str, document: str, data: str
) -> None:
    line = NdjsonEncoder().push(event)
    about = f'"documentId":"{document}",' if document else ""
    assert line == f'{{"id":1,"type":"{name}",{about}"data":{data}}}\n'.encode()


@pytest.mark.parametrize("event", SILENT)
def test_what_the_specification_has_no_event_for_is_not_said(event: DocumentEvent) -> None:
    assert SseEncoder().push(event) == b""
    assert NdjsonEncoder().push(event) == b""


@pytest.mark.parametrize("encoder", [SseEncoder, NdjsonEncoder])
def test_live_output_is_only_for_readers_that_ask_for_it(encoder: type[SseEncoder] | type[NdjsonEncoder]) -> None:
    output = TerminalOutput("doc_001", "a\n")
    assert encoder().push(output) == b""
    assert b'{"documentId":"doc_001","text":"a\\n"}' in encoder(live=True).push(output)
    assert b"terminal_output" in encoder(live=True).push(output)


def test_a_reply_may_end_with_a_pause() -> None:
    sse, ndjson = SseEncoder(7, until_pause=True), NdjsonEncoder(7, until_pause=True)
    assert sse.push(TEXT_STARTS).startswith(b"id: 8\n")
    assert ndjson.push(TEXT_STARTS).startswith(b'{"id":8,')
    assert (sse.is_over, ndjson.is_over) == (False, False)
    assert sse.push(Paused(PAUSED)).startswith(b"id: 9\nevent: done\n")
    assert ndjson.push(Paused(PAUSED)).startswith(b'{"id":9,"type":"done",')
    assert (sse.is_over, ndjson.is_over) == (True, True)
    for event in (TEXT_STARTS, ContentDelta("doc_001", "x"), Done(ENVELOPE)):
        assert sse.push(event) == ndjson.push(event) == b""
    assert (sse.is_cut, ndjson.is_cut) == (False, False), "the run goes on"


@pytest.mark.parametrize("encoder", [SseEncoder, NdjsonEncoder])
def test_events_may_come_together(encoder: type[SseEncoder] | type[NdjsonEncoder]) -> None:
    events = [event for event, *_ in EVENTS]
    assert encoder().push_all(events) == b"".join(map(encoder().push, events))


def test_what_was_encoded_is_decoded_the_same() -> None:
    encoder = SseEncoder()
    stream = b"".join(encoder.push(event) for event, *_ in EVENTS)
    expected = [SseEvent(data, name, str(number)) for number, (_, name, _, data) in enumerate(EVENTS, 1)]
    assert SseDecoder().push(stream) == expected


@pytest.mark.parametrize("data", ["import os\n...", None, {"a": [1, "é\u2028"]}])
def test_a_tools_result_is_the_same_in_its_event_and_at_the_end(data: object) -> None:
    """Its own, also where several calls have ended since."""
    sse, ndjson = SseEncoder(), NdjsonEncoder()
    results = [
        documents.ToolCallResult(status="success", data=data),
        documents.ToolCallResult(status="error", data=data),
    ]
    for result in results:
        sse.push(ToolCallEnded("doc_001", result))
        ndjson.push(ToolCallEnded("doc_001", result))
    for result in reversed(results):
        metadata = documents.ToolCallMetadata(
            tool_name="read_file", tool_call_id="c", arguments={"p": 1}, result=result, duration_ms=1
        )
        end = DocumentEnded(documents.make_document("doc_001", 1, None, metadata))
        (frame,) = SseDecoder().push(sse.push(end))
        assert json.loads(frame.data) == {
            "documentId": "doc_001",
            "metadata": {
                "toolName": "read_file",
                "toolCallId": "c",
                "arguments": {"p": 1},
                "result": {"status": result.status, "data": data},
                "duration_ms": 1,
            },
        }
        assert json.loads(ndjson.push(end))["data"] == json.loads(frame.data)


def test_a_response_is_its_envelope_with_the_documents() -> None:
    response = documents.ChatResponse(
        id="chat_1",
        conversation_id="conv_1",
        model="auto",
        mode="agent",
        created="2026-02-23T10:30:00Z",
        status="completed",
        documents=[TEXT, TODOS],
        usage=USAGE,
        metadata=METADATA,
    )
    assert json.loads(encode_response(response)) == json.loads(TOLD_ENVELOPE) | {
        "documents": [
            {"type": "text", "id": "doc_001", "sequence": 1, "content": "Hi", "metadata": {"format": "markdown"}},
            {"type": "todo_update", "id": "doc_002", "sequence": 2, "content": None, "metadata": {"todos": []}},
        ]
    }


def test_a_silent_stream_is_kept_alive_in_its_form() -> None:
    assert (SseEncoder().keep_alive(), NdjsonEncoder().keep_alive()) == (SSE.keep_alive, NDJSON.keep_alive)


def test_an_encoder_goes_on_where_another_one_of_the_same_place_is() -> None:
    events = [event for event, *_ in EVENTS]
    for encoder in (SseEncoder, NdjsonEncoder):
        one, other = encoder(), encoder()
        assert one.place == other.place
        one.push_all(events[:3])
        assert one.place != other.place
        other.skip(3)
        assert one.place == other.place
        assert one.push_all(events[3:]) == other.push_all(events[3:])
        assert len({encoder().place, encoder(1).place, encoder(live=True).place}) == 3
        assert encoder(until_pause=True).place is None  # it may be over
    assert SseEncoder().place != NdjsonEncoder().place
