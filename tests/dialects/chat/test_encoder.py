"""Chat completions: every rule that some client breaks on, in the stream and in the whole."""

import json
from typing import Any

import msgspec
import pytest

from cursor_gateway.dialects.chat.encoder import (
    ChatCompletion,
    ChunkEncoder,
    CompletionFold,
    CompletionHead,
    encode_completion,
)
from cursor_gateway.dialects.deltas import AgentTools
from cursor_gateway.dialects.replies import Resumed
from cursor_gateway.errors import AgentCrashed, Failure
from cursor_gateway.model import documents
from cursor_gateway.model.document_events import (
    ContentDelta,
    DocumentEnded,
    DocumentEvent,
    DocumentStarted,
    Done,
    Paused,
    Reasoning,
)
from cursor_gateway.reader import read_events
from cursor_gateway.stages.cutting import Cutter
from cursor_gateway.wire.sse import SseDecoder
from tests.scenarios.golden import Scenario, scenarios

HEAD = CompletionHead('chatcmpl-0123456789abcdef0123456789abcdef-"7"', 1_771_842_600, "auto é")
CALL = documents.TerminalCommandMetadata(command="ls", exit_code=0, output="", duration_ms=1, permissions=[])


def done(failure: Failure | None = None, raw: str = "", cached: int | None = 3) -> Done:
    usage = documents.Usage(
        prompt_tokens=10,
        completion_tokens=5,
        total_tokens=15,
        cached_tokens=msgspec.UNSET if cached is None else cached,
    )
    envelope = documents.Envelope(
        id="chat_1",
        conversation_id="conv_1",
        model="auto",
        mode="agent",
        created="2026-02-23T10:30:00Z",
        status="error" if failure else "completed",
        usage=usage,
        metadata=documents.ResponseMetadata(duration_ms=5, tool_call_count=0, turn_count=1),
    )
    return Done(envelope, failure, raw)


def paused(
    *calls: str, raw: str = "", prompt: int = 10, completion: int = 5, arguments: dict[str, Any] | None = None
) -> Paused:
    waiting = [
        documents.WaitingCall(tool_call_id=id, tool_name="look", arguments=arguments or {}, document_id="doc_001")
        for id in calls
    ]
    envelope = msgspec.structs.replace(
        done().envelope,
        status="streaming",
        usage=documents.Usage(
            prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion, estimated=True
        ),
        metadata=documents.ResponseMetadata(
            duration_ms=0, tool_call_count=len(calls), turn_count=1, waiting_for=waiting
        ),
    )
    return Paused(envelope, raw)


def one_reply(pause: int) -> ChunkEncoder:
    """Of a run that does not pause."""
    assert pause == 0
    return ChunkEncoder(HEAD, include_usage=True)


def ended(metadata: documents.Metadata, content: str | None = None, raw: str = "") -> DocumentEnded:
    return DocumentEnded(documents.make_document("doc_001", 1, content, metadata), raw)


def stream(events: list[DocumentEvent], agent_tools: AgentTools = "reasoning", *, usage: bool = False) -> list[Any]:
    """The data of each frame; `[DONE]` stays text."""
    encoder = ChunkEncoder(HEAD, include_usage=usage, agent_tools=agent_tools)
    frames = SseDecoder().push(b"".join(encoder.push(event) for event in events))
    return [frame.data if frame.data == "[DONE]" else json.loads(frame.data) for frame in frames]


def deltas(events: list[DocumentEvent], agent_tools: AgentTools = "reasoning") -> list[Any]:
    """Without the first, which has only the role."""
    chunks = [chunk for chunk in stream(events, agent_tools) if chunk != "[DONE]"]
    first, *rest = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert first == {"role": "assistant", "content": ""}
    return rest


def completion(events: list[DocumentEvent], agent_tools: AgentTools = "reasoning") -> Any:
    fold = CompletionFold(HEAD, agent_tools=agent_tools)
    for event in events:
        fold.push(event)
    return json.loads(msgspec.json.encode(fold.completion()))


TEXT: list[DocumentEvent] = [
    DocumentStarted("doc_001", "text", 1, raw="\n"),
    ContentDelta("doc_001", "Hi "),
    ContentDelta("doc_001", 'é "\u2028'),
    ended(documents.TextMetadata(), "Hi é", raw="\n"),
    DocumentStarted("doc_002", "code_block", 2, raw="```py\n"),
    ContentDelta("doc_002", "x", raw="  x"),
    ended(documents.CodeBlockMetadata(language="py", purpose="example"), "x", raw="\n```"),
]
SAID = '\nHi é "\u2028\n```py\n  x\n```'


# --- the stream -------------------------------------------------------------------------------------


def test_the_first_delta_has_the_role_and_comes_with_the_first_event() -> None:
    for event in [*TEXT, Reasoning("hm", opens=True), Reasoning("hm")]:
        encoder = ChunkEncoder(HEAD)
        first, *_ = SseDecoder().push(encoder.push(event))
        assert json.loads(first.data) == {
            "id": HEAD.id,
            "object": "chat.completion.chunk",
            "created": HEAD.created,
            "model": HEAD.model,
            "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}],
        }
        again = SseDecoder().push(encoder.push(ContentDelta("doc_001", "x")))
        assert [json.loads(frame.data)["choices"][0]["delta"] for frame in again] == [{"content": "x"}]


def test_the_content_is_the_agents_own_text() -> None:
    assert "".join(delta["content"] for delta in deltas(TEXT)) == SAID
    assert completion([*TEXT, done()])["choices"][0]["message"]["content"] == SAID


def test_a_finished_run_ends_with_one_finish_reason_and_done() -> None:
    *_, text, finish, end = stream([*TEXT, done(raw="\n")])
    assert text["choices"][0] == {"index": 0, "delta": {"content": "\n"}, "finish_reason": None}
    assert finish["choices"] == [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    assert end == "[DONE]"


def usage_of_done(cached: int) -> dict[str, Any]:
    return {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def test_usage_is_a_chunk_of_its_own_only_when_asked_for() -> None:
    *_, finish, usage, end = stream([done()], usage=True)
    assert finish["choices"][0]["finish_reason"] == "stop"
    assert usage == {
        "id": HEAD.id,
        "object": "chat.completion.chunk",
        "created": HEAD.created,
        "model": HEAD.model,
        "choices": [],
        "usage": usage_of_done(cached=3),
        "cursor": {"usage": usage_of_done(cached=3)},
    }
    assert end == "[DONE]"
    assert all("usage" not in chunk for chunk in stream([done()])[:-1])


def test_a_failed_run_ends_with_an_error_and_done_and_no_finish_reason() -> None:
    for usage in (True, False):
        *chunks, error, end = stream([*TEXT, done(AgentCrashed("It crashed.").failure())], usage=usage)
        assert {chunk["choices"][0]["finish_reason"] for chunk in chunks} == {None}
        assert error == {
            "error": {"message": "It crashed.", "type": "invalid_request_error", "param": None, "code": "agent_crashed"}
        }
        assert end == "[DONE]"


# --- the whole --------------------------------------------------------------------------------------


def test_there_is_no_completion_before_the_run_is_done() -> None:
    fold = CompletionFold(HEAD)
    for event in TEXT:
        fold.push(event)
        assert fold.completion() is None
    with pytest.raises(ValueError, match="not over"):
        fold.body()
    fold.push(done())
    assert fold.body() == encode_completion(msgspec.json.decode(fold.body(), type=ChatCompletion))
    assert fold.error_body(AgentCrashed().failure()) is None  # the error alone


def test_the_completion_has_every_field_that_clients_ask_for() -> None:
    assert completion([*TEXT, done(cached=None)]) == {
        "id": HEAD.id,
        "object": "chat.completion",
        "created": HEAD.created,
        "model": HEAD.model,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": SAID, "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": usage_of_done(cached=0),
        "cursor": {"usage": usage_of_done(cached=0)},
    }


def test_a_failed_runs_completion_keeps_what_had_arrived_beside_the_error() -> None:
    result = completion([*TEXT, done(AgentCrashed("It crashed.").failure())])
    assert result["choices"][0]["finish_reason"] == "length"
    assert result["choices"][0]["message"]["content"] == SAID
    assert result["error"]["code"] == "agent_crashed"


# --- cut short --------------------------------------------------------------------------------------


def words(*texts: str) -> list[DocumentEvent]:
    return [DocumentStarted("doc_001", "text", 1), *(ContentDelta("doc_001", text) for text in texts)]


def test_an_open_question_takes_the_place_of_text() -> None:
    question = documents.ClarificationQuestion(id="q", text="Which?", options=[])
    ask = ended(documents.ClarificationMetadata(questions=[question]))
    assert content([ask, done()]) == "▸\u2063 Which?"
    assert content([*words("Hm."), ask, *words("This ", "one."), done()]) == "Hm.This one."


def content(events: list[DocumentEvent]) -> str:
    """Streamed and whole, which must be the same."""
    streamed = "".join(delta.get("content") or "" for delta in deltas(events, "none"))
    whole: str = completion(events, "none")["choices"][0]["message"]["content"]
    assert streamed == whole
    return whole


def test_after_the_end_nothing_is_sent() -> None:
    encoder, fold = ChunkEncoder(HEAD), CompletionFold(HEAD)
    for event in [*TEXT, done()]:
        assert not encoder.is_over
        assert not fold.is_over
        encoder.push(event)
        fold.push(event)
    assert encoder.is_over
    assert fold.is_over
    result = fold.completion()
    for event in [ContentDelta("doc_001", "x"), Reasoning("x"), *TEXT, done(AgentCrashed().failure())]:
        assert encoder.push(event) == b""
        fold.push(event)
    assert fold.completion() == result


# --- thinking ---------------------------------------------------------------------------------------

THOUGHTS: dict[str, tuple[list[DocumentEvent], str]] = {
    "pieces of one block": ([Reasoning("h", opens=True), Reasoning("m")], "hm"),
    "blocks are told apart": ([Reasoning("a", opens=True), Reasoning("b", opens=True)], "a\n\nb"),
    "blocks that end a line, too": ([Reasoning("a\n", opens=True), Reasoning("b", opens=True)], "a\n\nb"),
    "documents of thinking": (
        [
            DocumentStarted("doc_001", "thinking", 1),
            ContentDelta("doc_001", "a", raw=""),
            ended(documents.ThinkingMetadata(), "a"),
            DocumentStarted("doc_002", "thinking", 2),
            ContentDelta("doc_002", "b", raw=""),
        ],
        "a\n\nb",
    ),
    "other documents are no thoughts": (
        [DocumentStarted("doc_001", "thinking", 1), ContentDelta("doc_002", "a plan", raw="")],
        "",
    ),
}


@pytest.mark.parametrize(("events", "text"), THOUGHTS.values(), ids=THOUGHTS)
def test_thinking_is_reasoning_content(events: list[DocumentEvent], text: str) -> None:
    assert "".join(delta["reasoning_content"] for delta in deltas(events)) == text
    message = completion([*events, done()])["choices"][0]["message"]
    assert message.get("reasoning_content", "") == text
    assert message["content"] == ""


# --- the agent's own tools --------------------------------------------------------------------------


def edit(operation: documents.Operation) -> documents.Metadata:
    return documents.FileEditMetadata(file_path="a.py", operation=operation, language="python")


GREP = documents.ToolCallMetadata(
    tool_name="grep",
    tool_call_id="call_001",
    arguments={"pattern": "é"},
    result=documents.ToolCallResult(status="success", data=[]),
    duration_ms=1,
)
QUESTION = documents.ClarificationQuestion(id="q", text="Which?", options=[])

# metadata, content, the line in the reasoning, the call's id, name and arguments
TOOLS: list[tuple[documents.Metadata, str | None, str, tuple[str, dict[str, Any]]]] = [
    (GREP, None, "Used grep: é\n", ("grep", {"pattern": "é"})),
    (CALL, None, "Ran `ls` (exit status 0)\n", ("run_terminal_cmd", {"command": "ls"})),
    (edit("create"), "x", "Created a.py, 1 line\n", ("write_file", {"target_file": "a.py", "contents": "x"})),
    (edit("edit"), "x", "Edited a.py\n", ("edit_file", {"target_file": "a.py", "contents": "x"})),
    (
        documents.FileEditMetadata(
            file_path="a.py",
            operation="edit",
            language="python",
            diff=documents.Diff(old_string="a", new_string="b", start_line=1, end_line=1),
        ),
        "b",
        "Edited a.py\n",
        ("edit_file", {"target_file": "a.py", "old_string": "a", "new_string": "b"}),
    ),
    (
        documents.FileEditMetadata(file_path="b.py", operation="rename", language="python", old_path="a.py"),
        None,
        "Renamed a.py to b.py\n",
        ("rename_file", {"target_file": "b.py", "old_path": "a.py"}),
    ),
    (edit("delete"), None, "Deleted a.py\n", ("delete_file", {"target_file": "a.py"})),
    (edit("rename"), None, "Renamed a file to a.py\n", ("rename_file", {"target_file": "a.py"})),
    (
        documents.PlanMetadata(title="T", overview="", todos=[]),
        "# Plan",
        "Planned T (0 to-dos)\n\n# Plan\n",
        ("create_plan", {"name": "T", "plan": "# Plan"}),
    ),
    (
        documents.ClarificationMetadata(questions=[QUESTION]),
        None,
        "Asked Which?\n",
        ("ask_question", {"questions": [{"id": "q", "text": "Which?", "options": []}]}),
    ),
    (
        documents.TodoUpdateMetadata(todos=[documents.TodoChange(id="1", status="completed")]),
        None,
        "Updated the to-dos (1 completed)\n",
        ("todo_write", {"todos": [{"id": "1", "status": "completed"}]}),
    ),
]


@pytest.mark.parametrize(("metadata", "content", "line", "call"), TOOLS)
def test_a_tool_is_one_line_of_reasoning(
    metadata: documents.Metadata, content: str | None, line: str, call: tuple[str, dict[str, Any]]
) -> None:
    events: list[DocumentEvent] = [ended(metadata, content)]
    assert deltas(events) == [{"reasoning_content": line}]
    assert completion([*events, done()])["choices"][0]["message"]["reasoning_content"] == line


@pytest.mark.parametrize(("metadata", "content", "line", "call"), TOOLS)
def test_a_tool_is_a_call_where_the_operator_says_so(
    metadata: documents.Metadata, content: str | None, line: str, call: tuple[str, dict[str, Any]]
) -> None:
    name, arguments = call
    id = "call_0123456789abcdef01234567_1"
    events: list[DocumentEvent] = [ended(metadata, content)]
    first, second = deltas(events, "tool_calls")
    opening = {"index": 0, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
    assert first == {"tool_calls": [opening]}
    (later,) = second["tool_calls"]
    assert json.loads(later["function"].pop("arguments")) == arguments
    assert later == {"index": 0, "function": {}}
    (result,) = completion([*events, done()], "tool_calls")["choices"][0]["message"]["tool_calls"]
    assert json.loads(result["function"].pop("arguments")) == arguments
    assert result == {"id": id, "type": "function", "function": {"name": name}}


def test_calls_are_numbered_in_the_order_of_their_ends() -> None:
    found = deltas([ended(CALL), ended(documents.TextMetadata(), "x"), ended(GREP)], "tool_calls")
    assert [delta["tool_calls"][0]["index"] for delta in found] == [0, 0, 1, 1]


# --- calls for the caller ---------------------------------------------------------------------------


def call_deltas(index: int, id: str, *arguments: str) -> list[Any]:
    """As clients need them: id, type and name in the first only, with empty arguments; then the pieces of these."""
    opening = {"index": index, "id": id, "type": "function", "function": {"name": "look", "arguments": ""}}
    pieces = [{"index": index, "function": {"arguments": piece}} for piece in arguments]
    return [{"tool_calls": [call]} for call in (opening, *pieces)]


def test_a_pause_asks_for_its_calls_and_ends_the_reply() -> None:
    *chunks, finish, last = stream([*TEXT, paused("k", "l", arguments={"p": 1})])
    result = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert result[-4:] == [*call_deltas(0, "k", '{"p":1}'), *call_deltas(1, "l", '{"p":1}')]
    assert finish["choices"] == [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]
    assert last == "[DONE]"
    choice = completion([*TEXT, paused("k", "l", arguments={"p": 1})])["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert [(call["id"], call["function"]) for call in choice["message"]["tool_calls"]] == [
        (id, {"name": "look", "arguments": '{"p":1}'}) for id in ("k", "l")
    ]


@pytest.mark.parametrize(("said", "content"), [([], None), (TEXT, '\nHi é "\u2028\n```py\n  x\n```')])
def test_beside_calls_there_may_be_no_text(said: list[DocumentEvent], content: str | None) -> None:
    message = completion([*said, paused("k")])["choices"][0]["message"]
    assert message["content"] == content
    assert completion([*said, done()])["choices"][0]["message"]["content"] == (content or "")


def test_the_agents_text_beside_a_pause_is_said_before_the_calls() -> None:
    assert deltas([paused("k", raw="\n")])[:3] == [{"content": "\n"}, *call_deltas(0, "k", "{}")]


def test_forwarded_calls_have_ids_of_their_own_in_every_run() -> None:
    ids: list[str] = []
    for run in ("1" * 32, "2" * 32):
        fold = CompletionFold(CompletionHead(f"chatcmpl-{run}", 1, "auto"), agent_tools="tool_calls")
        for number in (1, 2, 1000):
            fold.push(DocumentEnded(documents.make_document(f"doc_{number:03d}", number, None, CALL)))
        fold.push(done())
        whole = fold.completion()
        assert whole is not None
        ids += [call.id for call in whole.choices[0].message.tool_calls or ()]
    assert len(set(ids)) == 6
    assert all(id.startswith("call_") and len(id) <= 40 for id in ids)  # OpenAI allows no more


@pytest.mark.parametrize("characters", [1012, 1013, 5000])
def test_long_arguments_come_in_pieces(characters: int) -> None:
    """Of characters, not bytes: a reader decodes each by itself."""
    arguments = {"a": "é" * characters}
    first, *rest = deltas([paused("k", arguments=arguments)])[:-1]
    assert first == call_deltas(0, "k")[0]
    pieces = [delta["tool_calls"][0]["function"]["arguments"] for delta in rest]
    assert json.loads("".join(pieces)) == arguments
    assert [len(piece) for piece in pieces[:-1]] == [1024] * ((characters + 8 - 1) // 1024)
    assert 0 < len(pieces[-1]) <= 1024


TEN_CALLS = documents.Usage(prompt_tokens=240_000, completion_tokens=500, total_tokens=240_500, cached_tokens=216_000)
LAST_CALL = documents.Usage(prompt_tokens=26_000, completion_tokens=3, total_tokens=26_003, estimated=True)


@pytest.mark.parametrize(("cached", "expected"), [(23_400, 23_400), (99_999, 26_000)])
def test_usage_is_the_last_calls_and_the_sum_has_a_field_of_ours(cached: int, expected: int) -> None:
    last = msgspec.structs.replace(LAST_CALL, cached_tokens=cached)
    end = Done(msgspec.structs.replace(done().envelope, usage=TEN_CALLS), last_call=last)
    whole = completion([*TEXT, end])
    assert whole["usage"] == {
        "prompt_tokens": 26_000,
        "completion_tokens": 3,
        "total_tokens": 26_003,
        "prompt_tokens_details": {"cached_tokens": expected},
        "completion_tokens_details": {"reasoning_tokens": 0},
        "estimated": True,
    }
    assert whole["cursor"] == {
        "usage": {
            "prompt_tokens": 240_000,
            "completion_tokens": 500,
            "total_tokens": 240_500,
            "prompt_tokens_details": {"cached_tokens": 216_000},
            "completion_tokens_details": {"reasoning_tokens": 0},
        }
    }
    *_, counted, _ = stream([*TEXT, end], usage=True)
    assert (counted["usage"], counted["cursor"]) == (whole["usage"], whole["cursor"])
    assert all("cursor" not in chunk for chunk in stream([*TEXT, end])[:-1])


def test_a_reply_that_asks_for_tools_tells_the_context_and_no_sum_yet() -> None:
    pause = Paused(msgspec.structs.replace(paused("k").envelope, usage=TEN_CALLS), last_call=LAST_CALL)
    whole = completion([*TEXT, pause])
    assert whole["usage"]["prompt_tokens"] == 26_000
    assert "cursor" not in whole
    *_, counted, _ = stream([*TEXT, pause], usage=True)
    assert counted["usage"] == whole["usage"]
    assert "cursor" not in counted


def test_a_line_about_a_tool_starts_on_a_line_of_its_own() -> None:
    events: list[DocumentEvent] = [
        Reasoning("hm", opens=True),
        ended(CALL),
        Reasoning("so", opens=True),
        Reasoning("\n"),
        ended(CALL),
    ]
    line = "Ran `ls` (exit status 0)\n"
    assert "".join(delta["reasoning_content"] for delta in deltas(events)) == f"hm\n{line}\nso\n{line}"
    assert completion([*events, done()])["choices"][0]["message"]["reasoning_content"] == f"hm\n{line}\nso\n{line}"


# --- a stream that goes on where its reader was ------------------------------------------------------


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.name)
def test_a_reader_who_comes_back_after_any_event_has_all_frames_once(scenario: Scenario) -> None:
    events = list(read_events(scenario.lines, scenario.run))
    whole = SseDecoder().push(b"".join(map(ChunkEncoder(HEAD, include_usage=True).push, events)))
    numbered = Resumed(one_reply, 0, has_numbers=True)
    pieces = [SseDecoder().push(numbered.push(event)) for event in events]
    assert numbered.is_over
    assert [frame.data for piece in pieces for frame in piece] == [frame.data for frame in whole]
    for number, piece in enumerate(pieces, 1):
        assert [frame.id for frame in piece] == ["" for _ in piece[1:]] + [str(number) for _ in piece[:1]]
    for after in range(len(events) + 1):
        again = Resumed(one_reply, after, has_numbers=True)
        rest = [SseDecoder().push(again.push(event)) for event in events]
        assert rest == [[] for _ in pieces[:after]] + pieces[after:]


def test_a_stream_that_may_be_cut_has_no_numbers() -> None:
    """What is held back until it is known to be no `stop` belongs to an event before."""
    encoder = ChunkEncoder(HEAD, cutter=Cutter(("END",)))
    frames = SseDecoder().push(encoder.push_all([*words("a E x"), done()]))
    assert {frame.id for frame in frames} == {""}


def test_events_may_come_together() -> None:
    events: list[DocumentEvent] = [*TEXT, ended(CALL), done()]
    assert ChunkEncoder(HEAD).push_all(events) == b"".join(map(ChunkEncoder(HEAD).push, events))
    one_by_one = Resumed(one_reply, 2, has_numbers=True)
    assert Resumed(one_reply, 2, has_numbers=True).push_all(events) == b"".join(map(one_by_one.push, events))


def test_silence_is_a_comment() -> None:
    assert ChunkEncoder(HEAD).keep_alive() == b": keep-alive\n\n"


def test_a_readable_text_ends_with_what_was_not_run() -> None:
    call = documents.RefusedCall(document="doc_001", subject="npm test", link="/#/c/conv_1/chat_1/doc_001")
    end = done()
    metadata = msgspec.structs.replace(end.envelope.metadata, refused_count=1, refused=[call])
    end = msgspec.structs.replace(end, envelope=msgspec.structs.replace(end.envelope, metadata=metadata))
    encoder = ChunkEncoder(HEAD, text="readable")
    frames = b"".join(encoder.push(event) for event in [*words("Hi"), end])
    assert "not allowed to run `npm test`" in frames.decode()
    assert b'"cursor":{"refused_count":1,"refused":[{"document":"doc_001"' in frames
