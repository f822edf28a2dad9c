"""Chat completions: every rule that some client breaks on, in the stream and in the whole."""

import json
from typing import Any

import msgspec
import pytest

from cursor_gateway.core.document_events import (
    ContentDelta,
    DocumentEnded,
    DocumentEvent,
    DocumentStarted,
    Done,
    Reasoning,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
)
from cursor_gateway.core.documents import (
    ClarificationMetadata,
    ClarificationQuestion,
    CodeBlockMetadata,
    CodeReferenceMetadata,
    Envelope,
    ErrorMetadata,
    FileEditMetadata,
    Metadata,
    Operation,
    PlanMetadata,
    ResponseMetadata,
    TerminalCommandMetadata,
    TextMetadata,
    ThinkingMetadata,
    TodoChange,
    TodoUpdateMetadata,
    ToolCallMetadata,
    ToolCallResult,
    Usage,
    make_document,
)
from cursor_gateway.dialects.openai_chat import (
    AgentTools,
    ChatCompletion,
    ChunkEncoder,
    CompletionFold,
    CompletionHead,
    encode_completion,
    error_body,
)
from cursor_gateway.errors import (
    AgentCrashed,
    AgentError,
    AgentOverloaded,
    AgentQuotaExhausted,
    AgentUnauthenticated,
    Failure,
    ModelUnavailable,
    RunCancelled,
    WorkspaceUntrusted,
)
from cursor_gateway.wire.sse import SseDecoder

HEAD = CompletionHead('chatcmpl-"1"', 1_771_842_600, "auto é")
CALL = TerminalCommandMetadata(command="ls", exit_code=0, output="", duration_ms=1, permissions=[])


def done(failure: Failure | None = None, raw: str = "", cached: int | None = 3) -> Done:
    usage = Usage(
        prompt_tokens=10,
        completion_tokens=5,
        total_tokens=15,
        cached_tokens=msgspec.UNSET if cached is None else cached,
    )
    envelope = Envelope(
        id="chat_1",
        conversation_id="conv_1",
        model="auto",
        mode="agent",
        created="2026-02-23T10:30:00Z",
        status="error" if failure else "completed",
        usage=usage,
        metadata=ResponseMetadata(duration_ms=5, tool_call_count=0, turn_count=1),
    )
    return Done(envelope, failure, raw)


def ended(metadata: Metadata, content: str | None = None, raw: str = "") -> DocumentEnded:
    return DocumentEnded(make_document("doc_001", 1, content, metadata), raw)


def stream(events: list[DocumentEvent], agent_tools: AgentTools = "reasoning", *, usage: bool = False) -> list[Any]:
    """The data of each frame; `[DONE]` stays text."""
    encoder = ChunkEncoder(HEAD, include_usage=usage, agent_tools=agent_tools)
    frames = SseDecoder().push(b"".join(encoder.push(event) for event in events))
    return [frame.data if frame.data == "[DONE]" else json.loads(frame.data) for frame in frames]


def deltas(events: list[DocumentEvent], agent_tools: AgentTools = "reasoning") -> list[Any]:
    """Without the first, which has only the role."""
    first, *rest = [chunk["choices"][0]["delta"] for chunk in stream(events, agent_tools)]
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
    ended(TextMetadata(), "Hi é", raw="\n"),
    DocumentStarted("doc_002", "code_block", 2, raw="```py\n"),
    ContentDelta("doc_002", "x", raw="  x"),
    ended(CodeBlockMetadata(language="py", purpose="example"), "x", raw="\n```"),
]
SAID = '\nHi é "\u2028\n```py\n  x\n```'


# --- the stream -------------------------------------------------------------------------------------


def test_the_first_delta_has_the_role_and_comes_with_the_first_event() -> None:
    for event in [*TEXT, Reasoning("hm", opens=True), Reasoning("hm"), done()]:
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


def test_all_chunks_have_the_same_head_and_one_choice() -> None:
    *chunks, end = stream([*TEXT, Reasoning("hm", opens=True), ended(CALL), done()])
    assert end == "[DONE]"
    for chunk in chunks:
        assert (chunk["id"], chunk["created"], chunk["model"]) == (HEAD.id, HEAD.created, HEAD.model)
        assert chunk["object"] == "chat.completion.chunk"
        assert [choice["index"] for choice in chunk["choices"]] == [0]


def test_the_content_is_the_agents_own_text() -> None:
    assert "".join(delta["content"] for delta in deltas(TEXT)) == SAID
    assert completion([*TEXT, done()])["choices"][0]["message"]["content"] == SAID


def test_events_without_text_are_no_chunks() -> None:
    silent: list[DocumentEvent] = [
        ToolCallStarted("doc_001", "grep", "c"),
        ToolCallArguments("doc_001", {}),
        ToolCallEnded("doc_001", ToolCallResult(status="success", data=None)),
        DocumentStarted("doc_001", "plan", 1),
        ContentDelta("doc_001", "# Plan", raw=""),
    ]
    assert deltas(silent) == []


def test_a_finished_run_ends_with_one_finish_reason_and_done() -> None:
    *_, text, finish, end = stream([*TEXT, done(raw="\n")])
    assert text["choices"][0] == {"index": 0, "delta": {"content": "\n"}, "finish_reason": None}
    assert finish["choices"] == [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    assert end == "[DONE]"


def test_usage_is_a_chunk_of_its_own_only_when_asked_for() -> None:
    *_, finish, usage, end = stream([done()], usage=True)
    assert finish["choices"][0]["finish_reason"] == "stop"
    assert usage == {
        "id": HEAD.id,
        "object": "chat.completion.chunk",
        "created": HEAD.created,
        "model": HEAD.model,
        "choices": [],
        "usage": {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "total_tokens": 15,
            "prompt_tokens_details": {"cached_tokens": 3},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
    }
    assert end == "[DONE]"
    assert all("usage" not in chunk for chunk in stream([done()])[:-1])


def test_a_failed_run_ends_with_an_error_and_done_and_no_finish_reason() -> None:
    for usage in (True, False):
        *chunks, error, end = stream([*TEXT, done(AgentCrashed("It crashed.").failure())], usage=usage)
        assert {chunk["choices"][0]["finish_reason"] for chunk in chunks} == {None}
        assert error == {
            "error": {"message": "It crashed.", "type": "api_error", "param": None, "code": "agent_crashed"}
        }
        assert end == "[DONE]"


# --- the whole --------------------------------------------------------------------------------------


def test_there_is_no_completion_before_the_run_is_done() -> None:
    fold = CompletionFold(HEAD)
    for event in TEXT:
        fold.push(event)
        assert fold.completion() is None


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
        "usage": {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "total_tokens": 15,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
    }


def test_a_completion_is_encoded_as_it_is() -> None:
    fold = CompletionFold(HEAD)
    fold.push(done())
    whole = fold.completion()
    assert whole is not None
    assert msgspec.json.decode(encode_completion(whole), type=ChatCompletion) == whole


def test_a_failed_runs_completion_keeps_what_had_arrived_beside_the_error() -> None:
    told = completion([*TEXT, done(AgentCrashed("It crashed.").failure())])
    assert told["choices"][0]["finish_reason"] == "length"
    assert told["choices"][0]["message"]["content"] == SAID
    assert told["error"]["code"] == "agent_crashed"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (AgentUnauthenticated, "authentication_error"),
        (WorkspaceUntrusted, "permission_error"),
        (ModelUnavailable, "invalid_request_error"),
        (RunCancelled, "invalid_request_error"),
        (AgentQuotaExhausted, "insufficient_quota"),
        (AgentOverloaded, "rate_limit_error"),
        (AgentCrashed, "api_error"),
    ],
)
def test_an_error_has_openais_shape_and_kind(error: type[AgentError], kind: str) -> None:
    body = json.loads(msgspec.json.encode(error_body(error("It failed.").failure())))
    assert body == {"message": "It failed.", "type": kind, "param": None, "code": error.code}


# --- thinking ---------------------------------------------------------------------------------------

THOUGHTS: dict[str, tuple[list[DocumentEvent], str]] = {
    "pieces of one block": ([Reasoning("h", opens=True), Reasoning("m")], "hm"),
    "blocks are told apart": ([Reasoning("a", opens=True), Reasoning("b", opens=True)], "a\n\nb"),
    "blocks that end a line, too": ([Reasoning("a\n", opens=True), Reasoning("b", opens=True)], "a\n\nb"),
    "documents of thinking": (
        [
            DocumentStarted("doc_001", "thinking", 1),
            ContentDelta("doc_001", "a", raw=""),
            ended(ThinkingMetadata(), "a"),
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


def edit(operation: Operation) -> Metadata:
    return FileEditMetadata(file_path="a.py", operation=operation, language="python")


GREP = ToolCallMetadata(
    tool_name="grep",
    tool_call_id="call_001",
    arguments={"pattern": "é"},
    result=ToolCallResult(status="success", data=[]),
    duration_ms=1,
)
QUESTION = ClarificationQuestion(id="q", text="Which?", options=[])

# metadata, content, the line in the reasoning, the call's id, name and arguments
TOOLS: list[tuple[Metadata, str | None, str, tuple[str, str, dict[str, Any]]]] = [
    (GREP, None, "Used grep: é\n", ("call_001", "grep", {"pattern": "é"})),
    (CALL, None, "Ran `ls` (exit status 0)\n", ("doc_001", "run_terminal_cmd", {"command": "ls"})),
    (edit("create"), "x", "Created a.py, 1 line\n", ("doc_001", "write_file", {"target_file": "a.py"})),
    (edit("edit"), "x", "Edited a.py\n", ("doc_001", "edit_file", {"target_file": "a.py"})),
    (edit("delete"), None, "Deleted a.py\n", ("doc_001", "delete_file", {"target_file": "a.py"})),
    (edit("rename"), None, "Renamed a file to a.py\n", ("doc_001", "rename_file", {"target_file": "a.py"})),
    (
        PlanMetadata(title="T", overview="", todos=[]),
        "# Plan",
        "Planned T (0 to-dos)\n\n# Plan\n",
        ("doc_001", "create_plan", {"name": "T", "plan": "# Plan"}),
    ),
    (
        ClarificationMetadata(questions=[QUESTION]),
        None,
        "Asked Which?\n",
        ("doc_001", "ask_question", {"questions": [{"id": "q", "text": "Which?", "options": []}]}),
    ),
    (
        TodoUpdateMetadata(todos=[TodoChange(id="1", status="completed")]),
        None,
        "Updated the to-dos (1 completed)\n",
        ("doc_001", "todo_write", {"todos": [{"id": "1", "status": "completed"}]}),
    ),
]
NO_TOOLS: list[tuple[Metadata, str]] = [
    (TextMetadata(), "x"),
    (CodeBlockMetadata(language="py", purpose="example"), "x"),
    (CodeReferenceMetadata(file_path="a", start_line=1, end_line=2, language="text"), "x"),
    (ErrorMetadata(error_code="E", source="s", details=""), "x"),
    (ThinkingMetadata(), "x"),
]


@pytest.mark.parametrize(("metadata", "content", "line", "call"), TOOLS)
def test_a_tool_is_one_line_of_reasoning(
    metadata: Metadata, content: str | None, line: str, call: tuple[str, str, dict[str, Any]]
) -> None:
    events: list[DocumentEvent] = [ended(metadata, content)]
    assert deltas(events) == [{"reasoning_content": line}]
    assert completion([*events, done()])["choices"][0]["message"]["reasoning_content"] == line


@pytest.mark.parametrize(("metadata", "content", "line", "call"), TOOLS)
def test_a_tool_is_a_call_where_the_operator_says_so(
    metadata: Metadata, content: str | None, line: str, call: tuple[str, str, dict[str, Any]]
) -> None:
    id, name, arguments = call
    events: list[DocumentEvent] = [ended(metadata, content)]
    first, second = deltas(events, "tool_calls")
    opening = {"index": 0, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
    assert first == {"tool_calls": [opening]}
    (later,) = second["tool_calls"]
    assert json.loads(later["function"].pop("arguments")) == arguments
    assert later == {"index": 0, "function": {}}
    (told,) = completion([*events, done()], "tool_calls")["choices"][0]["message"]["tool_calls"]
    assert json.loads(told["function"].pop("arguments")) == arguments
    assert told == {"id": id, "type": "function", "function": {"name": name}}


@pytest.mark.parametrize(("metadata", "content"), NO_TOOLS)
@pytest.mark.parametrize("agent_tools", ["reasoning", "tool_calls"])
def test_other_documents_are_no_tools(metadata: Metadata, content: str, agent_tools: AgentTools) -> None:
    assert deltas([ended(metadata, content)], agent_tools) == []


def test_tools_are_not_told_where_the_operator_says_so() -> None:
    events: list[DocumentEvent] = [ended(metadata, content) for metadata, content, *_ in TOOLS]
    assert deltas(events, "none") == []
    assert set(completion([*events, done()], "none")["choices"][0]["message"]) == {"role", "content", "refusal"}


def test_calls_are_numbered_in_the_order_of_their_ends() -> None:
    found = deltas([ended(CALL), ended(TextMetadata(), "x"), ended(GREP)], "tool_calls")
    assert [delta["tool_calls"][0]["index"] for delta in found] == [0, 0, 1, 1]


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
