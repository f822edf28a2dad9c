"""What the documents dialect really sends is what the schema says: for every recording, in all three forms."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import pytest

from cursor_gateway import (
    DocumentEvent,
    DocumentReader,
    NdjsonEncoder,
    RunInfo,
    SseDecoder,
    SseEncoder,
    Transcript,
    encode_response,
    read_events,
)
from cursor_gateway.errors import RunCancelled
from cursor_gateway.model.agent_events import CallerAwaited, CallerToolAnswered, CallerToolAsked, RunFinished
from cursor_gateway.model.caller_tools import CallerCall, ToolResult
from cursor_gateway.model.document_events import Paused, StreamEvent, StreamEventType
from cursor_gateway.model.documents import MODES, DocumentType
from tests.laws.laws import RUN, assemble, response_so_far
from tests.schema.specification import needs_specification
from tests.schema.test_specification import PAYLOADS
from tests.schema.validation import complaints
from tools.reference import examples

CAPTURES = sorted((Path(__file__).parents[3] / "shared" / "captures").glob("*.jsonl"))
NAMES = {**PAYLOADS, "done": "DonePayload"}


def response_of(events: Iterable[DocumentEvent]) -> dict[str, Any]:
    transcript = Transcript()
    for event in events:
        transcript.push(event)
    response = transcript.response()
    assert response is not None
    decoded: dict[str, Any] = json.loads(encode_response(response))
    return decoded


def frames_of(events: Iterable[DocumentEvent]) -> list[tuple[str, Any]]:
    encoder, decoder = SseEncoder(), SseDecoder()
    stream = b"".join(encoder.push(event) for event in events)
    return [(frame.event, json.loads(frame.data)) for frame in decoder.push(stream)]


def lines_of(events: Iterable[DocumentEvent]) -> list[dict[str, Any]]:
    encoder = NdjsonEncoder()
    return [json.loads(line) for line in b"".join(encoder.push(event) for event in events).splitlines()]


def assert_it_is_as_the_schema_says(events: list[DocumentEvent]) -> None:
    assert complaints(response_of(events), "ChatResponse") == []
    for name, data in frames_of(events):
        assert complaints(data, NAMES[name]) == []
    for line in lines_of(events):
        assert complaints(line, "StreamEvent") == []
        if line["type"] == "document_end":
            assert "metadata" in line["data"]  # the schema promises it in words


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
@pytest.mark.parametrize("include", [frozenset(), frozenset({"thinking", "raw"})], ids=["plain", "include"])
def test_every_capture(path: Path, include: Any) -> None:
    run = RunInfo(id="chat_1", created="2026-02-23T10:30:00Z", include=include)
    assert_it_is_as_the_schema_says(list(read_events([path.read_bytes()], run)))


@pytest.mark.parametrize("mode", MODES)
def test_a_recording_with_every_document_type_and_every_event(mode: Any) -> None:
    run = RunInfo(id="chat_1", created="2026-02-23T10:30:00Z", mode=mode, include=frozenset({"thinking", "raw"}))
    events = list(read_events(examples.recording(), run))
    assert_it_is_as_the_schema_says(events)
    assert {document["type"] for document in response_of(events)["documents"]} == set(get_args(DocumentType))
    assert {name for name, _ in frames_of(events)} == set(get_args(StreamEventType)) == set(NAMES)


def test_a_recording_cut_after_any_line() -> None:
    recording = examples.recording()
    for end in range(len(recording)):
        events = list(read_events(recording[:end], examples.RUN))
        assert_it_is_as_the_schema_says(events)
        assert response_of(events)["status"] == "error"


def test_a_cancelled_run() -> None:
    reader = DocumentReader(examples.RUN)
    events = [event for line in examples.recording()[:6] for event in reader.push(line)]
    events += reader.flush(RunCancelled("Stopped on request.").failure())
    assert_it_is_as_the_schema_says(events)


ODD_TOOLS: list[dict[str, Any]] = [
    {"deleteToolCall": {"args": {"path": "a.py"}, "result": {"success": {"path": "a.py"}}}},
    {"renameToolCall": {"args": {"oldPath": "a.py", "newPath": "b.py"}, "result": {"success": {}}}},
    {"writeToolCall": {"args": {"path": "a.py", "fileText": ""}, "result": {"success": {}}}},
    {"editToolCall": {"args": {"path": "a.py"}, "result": {"rejected": {"reason": "no"}}}},
    {"shellToolCall": {"args": {"command": "false"}, "result": {"failure": {"exitCode": 1}}}},
    {"shellToolCall": {"args": {"command": "sleep 9"}, "result": {"timeout": {"timeoutMs": 1}}}},
    {"shellToolCall": {"args": None, "result": None}},
    {
        "mcpToolCall": {
            "args": {"name": "s-t", "toolName": "t", "args": {"x": 1}},
            "result": {"success": {"content": 3}},
        }
    },
    {"brandNewToolCall": {"args": {"someThing": [1, None]}, "result": {"success": {"odd": {}}}}},
    {"createPlanToolCall": {"args": {}, "result": {"success": {}}}},
    {
        "askQuestionToolCall": {
            "args": {"questions": [{"allowMultiple": True}]},
            "result": {"success": {"answers": [1]}},
        }
    },
    {"updateTodosToolCall": {"args": {"todos": [{"status": 9}], "merge": False}, "result": {"success": {}}}},
]


@pytest.mark.parametrize("call", ODD_TOOLS, ids=lambda call: next(iter(call)))
def test_tools_that_go_wrong_or_say_little(call: dict[str, Any]) -> None:
    lines = [
        json.dumps({"type": "tool_call", "subtype": subtype, "call_id": "call_1\nfc_1", "tool_call": call}).encode()
        for subtype in ("started", "completed")
    ]
    for used in (lines, lines[:1], lines[1:]):
        assert_it_is_as_the_schema_says(list(read_events([b"\n".join(used)], examples.RUN)))


def test_the_types_of_the_events_are_the_tags_of_the_union() -> None:
    assert [event.__struct_config__.tag for event in get_args(StreamEvent)] == list(get_args(StreamEventType))


@needs_specification
def test_captures_are_there_where_the_specification_is() -> None:
    assert CAPTURES


def test_a_run_that_waits_for_its_caller_is_as_the_schema_says_at_every_step() -> None:
    call = CallerCall("k", "look", {"p": 1})
    events = assemble(
        [CallerToolAsked(call), CallerAwaited(("k",)), CallerToolAnswered("k", ToolResult(text="seen")), RunFinished()]
    )
    assert_it_is_as_the_schema_says(events)
    for place, event in enumerate(events):
        snapshot = response_so_far(events[:place], RUN)
        assert complaints(json.loads(encode_response(snapshot)), "ChatResponse") == []
        if isinstance(event, Paused):
            (line,) = lines_of([event])
            assert (line["type"], line["data"]["status"]) == ("done", "streaming")
            assert [waiting["toolCallId"] for waiting in line["data"]["metadata"]["waitingFor"]] == ["k"]
