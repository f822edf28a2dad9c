"""Streams: what an agent writes, and what a gateway sends."""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from cursor_gateway.client.failures import CallFailed
from cursor_gateway.client.following import DocumentEventReader, Following, Numbered
from cursor_gateway.client.steps import Batch, Close, Head, Link, Open, Pause, Read
from cursor_gateway.dialects.deltas import AgentTools
from cursor_gateway.dialects.documents.encoder import SseEncoder, encode_response
from cursor_gateway.errors import AgentCrashed, UnusableInput
from cursor_gateway.model.agent_events import AgentEvent, Outcome
from cursor_gateway.model.document_events import DocumentEvent
from cursor_gateway.model.requests import RunInfo
from cursor_gateway.reader import DocumentReader
from cursor_gateway.sources.acp.calls import call_of, is_allowed, option_for
from cursor_gateway.sources.acp.decoder import AcpDecoder, counted
from cursor_gateway.sources.acp.rpc import Message, error_text, line_of, message_of
from cursor_gateway.sources.cli.decoder import CursorDecoder
from cursor_gateway.sources.sdk.decoder import SdkDecoder
from cursor_gateway.stages.run_state import RunState
from cursor_gateway.wire.lines import LineSplitter
from cursor_gateway.wire.payload import Fields
from cursor_gateway.wire.sse import SseDecoder, SseEvent, frame
from fuzz.target import Target, assert_flat, cuttings, dice, text_of
from tests.client.test_following_reader import assert_the_client_sees_the_same
from tests.laws.agent import Asks, Ends, Notifies, Reconnects, Retries, Says, Starts, StopsThinking, Story, Thinks, play
from tests.laws.laws import (
    assemble,
    assert_chunking_does_not_matter,
    assert_says_exactly,
    assert_the_chunks_fold_to_the_completion,
    assert_the_stream_folds_to_the_response,
    assert_well_formed,
    read,
    response_of,
    response_so_far,
)
from tests.laws.laws import (
    text_of as text_said,
)
from tests.laws.strategies import STRANGE_CALLS, STRANGE_LINES
from tests.scenarios.golden import scenarios
from tests.strategies import outputs

_CRASHED = AgentCrashed().failure()
_RUN = RunInfo(id="chat_1", created="2026-02-23T10:30:00Z")
_RUNS = [
    _RUN,
    msgspec.structs.replace(_RUN, include=frozenset({"thinking", "raw"})),
    msgspec.structs.replace(_RUN, fences="inline", mode="ask"),
]
_AGENT_TOOLS: list[AgentTools] = ["reasoning", "tool_calls", "none"]


# --- the line decoder -------------------------------------------------------------------------------


def lines(data: bytes) -> None:
    roll = dice(data)
    run = roll.choice(_RUNS)
    _assert_lines_are_whole(data)
    assert_chunking_does_not_matter(data, run)
    events = read(data, run)
    _assert_all_laws(events, roll.choice(_AGENT_TOOLS))
    _assert_a_cut_run_ends_well(events[: roll.randrange(len(events))], run)
    reader = DocumentReader(run)
    reader.push(data)
    assert len(reader.stray_text) <= 40 * 2001, "text that is no JSON is kept without bound"
    assert len(encode_response(response_of(events))) <= 60 * len(data) + 20_000, "a short input makes a huge answer"
    CursorDecoder("gateway").push(outputs(LineSplitter(), [data]))


def _assert_lines_are_whole(data: bytes) -> None:
    found = outputs(LineSplitter(), [data])
    assert b"\n".join(found) == data.removesuffix(b"\n")
    assert all(outputs(LineSplitter(), pieces) == found for pieces in cuttings(data, dice(data)))


def _assert_all_laws(events: list[DocumentEvent], agent_tools: AgentTools) -> None:
    assert_well_formed(events)
    assert_says_exactly(text_said(events), events)
    assert_the_stream_folds_to_the_response(events)
    assert_the_chunks_fold_to_the_completion(events, agent_tools=agent_tools, include_usage=True)
    assert_the_client_sees_the_same(events)
    response = response_of(events)
    assert_flat(msgspec.json.decode(encode_response(response)))
    assert min(response.usage.prompt_tokens, response.usage.completion_tokens, response.usage.cached_tokens or 0) >= 0


def _assert_a_cut_run_ends_well(events: list[DocumentEvent], run: RunInfo) -> None:
    """What a gateway that died has left."""
    encode_response(response_so_far(events, run))
    assert_well_formed([*events, *RunState().push_all(events).end(run, "", _CRASHED)])


def _line_seeds() -> Iterator[bytes]:
    for scenario in scenarios():
        yield b"".join(scenario.lines)
        yield from scenario.lines
    for line in STRANGE_LINES.values():
        if len(line) < 2000:
            yield line
    for call, _ in STRANGE_CALLS.values():
        if len(call) < 2000:
            yield call
    story: Story = [
        Thinks("Hm \ud83d"),
        Thinks("\ude00"),
        StopsThinking(),
        Says("ha"),
        Says("ha"),
        Asks(3, approves=False),
        Says("```py\nx\n"),
        Starts(0),
        Retries(forgets=True),
        Ends(0, "error"),
        Reconnects(),
        Notifies(),
        Says("haha"),
    ]
    for partial in (True, False):
        yield play(story, partial=partial).data
    for call_number in range(10):
        yield play([Starts(call_number), Ends(call_number, "success")], partial=True).data


# --- Server-Sent Events -----------------------------------------------------------------------------


def sse(data: bytes) -> None:
    found = SseDecoder().push(data)
    assert found == _plain_sse(data), "another reader of the standard reads it otherwise"
    told = _followed([data])
    for pieces in cuttings(data, dice(data)):
        decoder = SseDecoder()
        assert [event for piece in pieces for event in decoder.push(piece)] == found
        assert _followed(pieces) == told
    reader = DocumentEventReader()
    for event in found:
        try:
            reader.push(event)
        except UnusableInput as error:
            msgspec.json.encode(error.failure())
            break


def _plain_sse(data: bytes) -> list[SseEvent]:
    """As the standard says it (WHATWG HTML §9.2.6), all at once."""
    found: list[SseEvent] = []
    last_id, told, name = "", list[str](), ""
    id = ""
    text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    for line in re.split(r"\r\n|\n|\r", text)[:-1]:
        field, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if not line:
            last_id = id
            if told:
                found.append(SseEvent("\n".join(told), name or "message", last_id))
            told, name = [], ""
        elif field == "data":
            told.append(value)
        elif field == "event":
            name = value
        elif field == "id" and "\0" not in value:
            id = value
    return found


def _followed(pieces: list[bytes]) -> tuple[list[Numbered], str]:
    """What a client is told of such a stream, and what it says of it. The events' grain is that of the frames."""
    following = Following(Link("http://gateway", ()), id="chat_1")
    steps, waiting = following.follow(), [piece for piece in pieces if piece]
    told: list[Numbered] = []
    received: Head | bytes | None = None
    try:
        while True:
            match steps.send(received):
                case Open():
                    received = Head(200, {"content-type": "text/event-stream", "x-chat-id": "chat_1"})
                case Read():
                    received = waiting.pop(0) if waiting else b""
                case Batch(items=items):
                    told += items
                    received = None
                case Close() | Pause():
                    received = None
    except StopIteration:
        return told, ""
    except CallFailed as error:
        return _whole_frames(told, error), str(error)


def _whole_frames(told: list[Numbered], error: CallFailed) -> list[Numbered]:
    """Of a piece with a frame that cannot be used, those before it are not told: how many those are is chance."""
    return told if error.code == "cannot_reach" else []


def _sse_seeds() -> Iterator[bytes]:
    for scenario in scenarios():
        yield b"".join(map(SseEncoder().push, read(b"".join(scenario.lines), scenario.run)))
    yield b"\xef\xbb\xbf: hi\r\nretry: 10\r\nid: 7\r\ndata: a\rdata:b\n\nid: \0\nevent: done\ndata\n\n"
    yield b"data: a\r\ndata: b\r\n\r\ndata: c\r\rdata: d\n\r\n"
    yield b'id: 1\nevent: document_start\ndata: {"id":"doc_001","type":"text","sequence":1}\n\nid: 1\ndata: x\n\n'


def frames(data: bytes) -> None:
    """The input is `id|event|data`, perhaps several times."""
    stream, expected = b"", list[SseEvent]()
    for part in data.split(b"||"):
        id, event, told = ([*map(text_of, part.split(b"|", 2)), "", ""])[:3]
        try:
            stream += frame(told.encode(), event=event, id=id)
        except ValueError:
            assert re.search(r"[\r\n\0]", id) or re.search(r"[\r\n]", event) or "\r" in told
            continue
        last = expected[-1].id if expected else ""
        expected.append(SseEvent(told, event or "message", id or last))
    if data.startswith(b"\xef\xbb\xbf") or stream.startswith(b"\xef\xbb\xbf"):
        return
    assert SseDecoder().push(stream) == expected
    for pieces in cuttings(stream, dice(data)):
        assert outputs(SseDecoder(), pieces) == expected


def _frame_seeds() -> Iterator[bytes]:
    yield b"1|done|{}"
    yield "7|content_delta|a\n\u2028b||8||x".encode()
    yield b" | : |\n\n||9\0|a|b||1|a\rb|c||2|d|\xef\xbb\xbf"


# --- an agent that lives on -------------------------------------------------------------------------

_RULES = ["Shell(git)", "Shell(curl:*)", "Write(src/**)", "Read(**)", "Mcp(gateway:*)", "WebFetch(*.example.com)"]


def acp(data: bytes) -> None:
    for server in ("", "gateway"):
        decoder = AcpDecoder(server)
        events: list[AgentEvent] = []
        for number, line in enumerate(outputs(LineSplitter(), [data])):
            message = message_of(line)
            if message is not None and not decoder.finished:
                line_of(message)
                events += _acp_events(decoder, message, number * 5.0)
        if not decoder.finished:
            events += decoder.flush(_CRASHED)
        _assert_all_laws(assemble(events, _RUNS[1]), "tool_calls")


def _acp_events(decoder: AcpDecoder, message: Message, at_ms: float) -> list[AgentEvent]:
    params = Fields(message.get("params"))
    match message:
        case {"method": "session/update"}:
            return decoder.push(params.all.get("update"), at_ms, params.text("sessionId"))
        case {"method": "session/request_permission"}:
            told = params.object("toolCall")
            if decoder.call(told.text("toolCallId")) is None and told.text("toolCallId"):
                decoder.announce(call_of(told), params.text("sessionId"))
            call = decoder.call(told.text("toolCallId"))
            allowed = call is not None and is_allowed(call, _RULES, "/w")
            line_of({"id": 1, "result": option_for(params.items("options"), allowed)})
            id = told.text("toolCallId")
            return decoder.begin(id) if allowed else decoder.deny(id, Outcome(state="rejected"))
        case {"method": str(method)}:
            return decoder.extension(method, params.all)
        case {"error": error}:
            error_text(Fields(error).text("message"), Fields(error).all.get("data")).encode("utf-8", "replace")
            return []
        case _:
            return decoder.finish(message["result"], counted(message["result"]))


def _acp_seeds() -> Iterator[bytes]:
    def update(**fields: Any) -> bytes:
        return _line({"method": "session/update", "params": {"sessionId": "s", "update": fields}})

    def text(said: str, kind: str = "agent_message_chunk") -> bytes:
        return update(sessionUpdate=kind, content={"type": "text", "text": said})

    def call(id: str, **fields: Any) -> bytes:
        return update(sessionUpdate="tool_call", toolCallId=id, status="pending", **fields)

    def done(id: str, **fields: Any) -> bytes:
        return update(sessionUpdate="tool_call_update", toolCallId=id, status="completed", **fields)

    end = _line({"id": 3, "result": {"stopReason": "end_turn", "usage": {"inputTokens": 1, "outputTokens": "2"}}})
    diff = {"type": "diff", "path": "a.py", "oldText": "-- a/a.py\nx", "newText": "++ b/a.py\ny"}
    todos = [{"id": "1", "content": "x", "status": "pending"}]
    yield text("Hm \ud83d", "agent_thought_chunk") + text("\ude00", "agent_thought_chunk") + text("Hi.") + end
    yield text("Some.") + text("\n\nError: RetriableError: [unavailable] PING timed out") + end
    spawned = update(sessionUpdate="subagent_spawned", subagentSessionId="c", _meta={"cursor": {"toolCallId": "1"}})
    of_child = _line(
        {
            "method": "session/update",
            "params": {
                "sessionId": "c",
                "update": {
                    "sessionUpdate": "tool_call",
                    "toolCallId": "2",
                    "kind": "read",
                    "status": "completed",
                    "rawOutput": {},
                },
            },
        }
    )
    over = update(sessionUpdate="subagent_state_update", subagentSessionId="c", state="completed")
    yield call("1", rawInput={"_toolName": "task"}) + spawned + of_child + over + done("1", rawOutput={}) + end
    yield call("1", kind="execute", title="`git status`") + done("1", rawOutput={"exitCode": 1, "stdout": "x"}) + end
    yield call("1", kind="edit", title="Edit `a.py`") + done("1", content=[diff]) + end
    yield call("1", kind="other", title="gateway-x: x") + done("1", rawOutput={"content": []}) + end
    yield call("1", kind="search", rawInput={"pattern": "x", "_toolName": "grep_tool_call"}) + done("1") + end
    yield call("1", kind="other", title="Update TODOs") + update(sessionUpdate="plan", entries=todos) + end
    yield _line({"method": "cursor/update_todos", "params": {"toolCallId": "1", "todos": todos, "merge": True}}) + end
    yield _line(
        {
            "method": "session/request_permission",
            "id": 1,
            "params": {
                "toolCall": {"toolCallId": "1", "kind": "execute", "rawInput": {"command": "git push; rm x"}},
                "options": [{"optionId": "a", "kind": "allow_once"}, {"optionId": "r", "kind": "reject_once"}],
            },
        }
    ) + done("1")
    yield _line({"id": 1, "error": {"code": -32000, "message": "No", "data": [{"message": "m"}]}})
    yield _line({"method": "cursor/task", "params": {}}) + _line({"id": 1, "result": {"stopReason": "refusal"}})


def sdk(data: bytes) -> None:
    """The input's lines are `[kind, body]`."""
    decoder = SdkDecoder("agent-1", "auto", "Say it.", offers_tools=bool(len(data) % 2))
    events: list[AgentEvent] = []
    for number, line in enumerate(data.split(b"\n")):
        try:
            told = json.loads(line, parse_constant=_refused)
        except (ValueError, RecursionError):
            continue
        match told:
            case [str(kind), dict(body)]:
                decoder.push(kind, body, number * 5.0)
                events += decoder.take() if number % 2 else []
            case _:
                pass
    events += decoder.flush()
    _assert_all_laws(assemble(events, _RUNS[1]), "reasoning")


def _refused(constant: str) -> None:
    raise ValueError(constant)


def _sdk_seeds() -> Iterator[bytes]:
    def update(type: str, **fields: Any) -> bytes:
        return _line(["interaction_update", {"type": type, **fields}])

    def call(end: str, type: str, **fields: Any) -> bytes:
        tool = {"type": type, **fields}
        return update(f"tool-call-{end}", call_id="c1", model_call_id="m1", tool_call=tool)

    def result(status: str = "FINISHED", **fields: Any) -> bytes:
        return _line(["result", {"runId": "r", "status": f"RUN_LIFECYCLE_STATUS_{status}", **fields}])

    def message(type: str, **fields: Any) -> bytes:
        return _line(["sdk_message", {"type": type, **fields}])

    usage = {"inputTokens": "7", "output_tokens": 2, "cacheReadTokens": 1}
    yield (
        message("system", model={"id": "composer-2"})
        + message("user", message={"content": [{"text": "Say it."}]})
        + update("thinking-delta", text="Hm\ud83d")
        + update("thinking-delta", text="\ude00")
        + update("thinking-completed")
        + update("text-delta", text="Hello")
        + update("turn-ended", usage=usage)
        + message("usage", usage=usage)
        + result(result="Hello world", durationMs="12")
    )
    shell = {"command": "ls", "workingDirectory": "/w"}
    yield call("started", "shell", args=shell) + call(
        "completed", "shell", result={"status": "success", "value": {"exitCode": 1, "stdout": "x"}}
    )
    yield call("started", "edit", args={"path": "a.py"}) + call(
        "completed", "edit", result={"status": "success", "value": {"diffString": "--- /dev/null\n+++ b/a.py\n+x"}}
    )
    yield call("started", "updateTodos", args={"todos": [{"content": "x", "status": "inProgress"}]})
    yield call("completed", "createPlan", args={"plan": "# Plan #\ntext"}, result={"status": "error", "error": "no"})
    yield call("completed", "grep", args={"pattern": "x"}, result={"status": "success", "value": {}})
    yield message("status", status="ERROR", message="[unavailable] gone") + message("task") + update("new-thing")
    yield result("ERROR", errorCode="SDK_ERROR_CODE_RATE_LIMIT_EXCEEDED", errorMessage="slow down")


def _line(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


TARGETS = [
    Target(
        "lines",
        "Feeding one byte at a time gives the same result as feeding everything at once; any lines give a "
        "well-formed stream in every dialect; buffers are bounded.",
        lines,
        _line_seeds,
        "lines",
        3000,
    ),
    Target(
        "sse",
        "Any bytes in any chunks are parsed as the standard requires; a client raises only its own errors.",
        sse,
        _sse_seeds,
        "bytes",
        1500,
    ),
    Target("frames", "What is framed is read back unchanged, or was rejected.", frames, _frame_seeds, "text", 1024),
    Target("acp", "Any messages from an ACP agent give a well-formed stream.", acp, _acp_seeds, "lines"),
    Target("sdk", "Any events from the SDK give a well-formed stream.", sdk, _sdk_seeds, "lines"),
]
