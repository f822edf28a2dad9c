"""The document types: one per metadata, the same after JSON, and nothing of ours in it unless it says something."""

from typing import Any, get_args

import msgspec
import pytest

from cursor_gateway.model.documents import (
    MODES,
    ChatResponse,
    ClarificationAnswer,
    ClarificationMetadata,
    ClarificationOption,
    ClarificationQuestion,
    CodeBlockMetadata,
    CodeReferenceMetadata,
    Diff,
    Document,
    DocumentType,
    Envelope,
    ErrorMetadata,
    FileEditMetadata,
    Metadata,
    PermissionRequest,
    PlanMetadata,
    PlanTodo,
    ResponseMetadata,
    TerminalCommandMetadata,
    TextMetadata,
    ThinkingMetadata,
    TodoChange,
    TodoUpdateMetadata,
    ToolCallMetadata,
    ToolCallResult,
    ToolTrace,
    Usage,
    document_type,
    is_refused,
    is_tool_use,
    make_document,
    whole_response,
)

# Each type as the specification has it: the metadata, and its JSON.
PLAIN: dict[str, tuple[Metadata, dict[str, Any]]] = {
    "text": (TextMetadata(), {"format": "markdown"}),
    "code_reference": (
        CodeReferenceMetadata(file_path="src/main.py", start_line=12, end_line=14, language="python"),
        {"filePath": "src/main.py", "startLine": 12, "endLine": 14, "language": "python"},
    ),
    "code_block": (
        CodeBlockMetadata(language="python", purpose="new_code"),
        {"language": "python", "purpose": "new_code"},
    ),
    "file_edit": (
        FileEditMetadata(
            file_path="a.py",
            operation="edit",
            language="python",
            diff=Diff(old_string="a", new_string="b", start_line=1, end_line=1),
        ),
        {
            "filePath": "a.py",
            "operation": "edit",
            "language": "python",
            "diff": {"oldString": "a", "newString": "b", "startLine": 1, "endLine": 1},
        },
    ),
    "tool_call": (
        ToolCallMetadata(
            tool_name="read_file",
            tool_call_id="call_1",
            arguments={"target_file": "a.py"},
            result=ToolCallResult(status="success", data="x"),
            duration_ms=5,
        ),
        {
            "toolName": "read_file",
            "toolCallId": "call_1",
            "arguments": {"target_file": "a.py"},
            "result": {"status": "success", "data": "x"},
            "duration_ms": 5,
        },
    ),
    "terminal_command": (
        TerminalCommandMetadata(command="ls", exit_code=0, output="a\n", duration_ms=5, permissions=["network"]),
        {"command": "ls", "exitCode": 0, "output": "a\n", "duration_ms": 5, "permissions": ["network"]},
    ),
    "plan": (
        PlanMetadata(
            title="T", overview="O", todos=[PlanTodo(id="1", content="a", status="in_progress", dependencies=["0"])]
        ),
        {
            "title": "T",
            "overview": "O",
            "todos": [{"id": "1", "content": "a", "status": "in_progress", "dependencies": ["0"]}],
            "format": "markdown",
        },
    ),
    "clarification": (
        ClarificationMetadata(
            questions=[ClarificationQuestion(id="q", text="?", options=[ClarificationOption(id="x", label="X")])]
        ),
        {"questions": [{"id": "q", "text": "?", "options": [{"id": "x", "label": "X"}]}]},
    ),
    "error": (
        ErrorMetadata(error_code="FILE_NOT_FOUND", source="read_file", details="a.py"),
        {"errorCode": "FILE_NOT_FOUND", "source": "read_file", "details": "a.py"},
    ),
    "todo_update": (
        TodoUpdateMetadata(todos=[TodoChange(id="1", status="completed")]),
        {"todos": [{"id": "1", "status": "completed"}]},
    ),
    "thinking": (ThinkingMetadata(), {"format": "markdown"}),
}

# The same with every field of ours set, and the names that then appear in the JSON.
WITH_OURS: list[tuple[Metadata, dict[str, Any]]] = [
    (CodeReferenceMetadata(file_path="a", start_line=1, end_line=1, language="text", indent=3), {"indent": 3}),
    (CodeBlockMetadata(language="text", purpose="example", indent=2), {"indent": 2}),
    (
        FileEditMetadata(
            file_path="b", operation="rename", language="text", old_path="a", state="failed", reason="no", raw={"x": 1}
        ),
        {"oldPath": "a", "state": "failed", "reason": "no", "raw": {"x": 1}},
    ),
    (
        ToolCallMetadata(
            tool_name="x",
            tool_call_id="call_1",
            arguments={},
            result=ToolCallResult(status="error", data=None),
            duration_ms=0,
            agent_call_id="call_x\nfc_y",
            state="interrupted",
        ),
        {"agentCallId": "call_x\nfc_y", "state": "interrupted"},
    ),
    (
        TerminalCommandMetadata(
            command="x",
            working_directory="/w",
            exit_code=-1,
            output="",
            duration_ms=0,
            permissions=[],
            state="timed_out",
        ),
        {"workingDirectory": "/w", "state": "timed_out"},
    ),
    (
        PlanMetadata(title="", overview="", todos=[], state="rejected", reason="no"),
        {"state": "rejected", "reason": "no"},
    ),
    (
        ClarificationMetadata(
            questions=[ClarificationQuestion(id="q", text="?", options=[], allow_multiple=True)],
            answers=[ClarificationAnswer(question_id="q", selected_option_ids=["a"])],
        ),
        {
            "questions": [{"id": "q", "text": "?", "options": [], "allowMultiple": True}],
            "answers": [{"questionId": "q", "selectedOptionIds": ["a"]}],
        },
    ),
    (
        TodoUpdateMetadata(todos=[TodoChange(id="1", status="pending", content="a")], merge=False),
        {"todos": [{"id": "1", "status": "pending", "content": "a"}], "merge": False},
    ),
]

NEVER_NULL = {"text", "code_reference", "code_block", "plan", "error", "thinking"}
ALWAYS_NULL = {"tool_call", "terminal_command", "todo_update"}


def response(documents: list[Document], usage: Usage, metadata: ResponseMetadata) -> ChatResponse:
    return ChatResponse(
        id="chat_1",
        conversation_id="conv_1",
        model="auto",
        mode="agent",
        created="2026-02-23T10:30:00Z",
        status="completed",
        documents=documents,
        usage=usage,
        metadata=metadata,
    )


USAGE = Usage(prompt_tokens=3, completion_tokens=2, total_tokens=5)
FIGURES = ResponseMetadata(duration_ms=12, tool_call_count=1, turn_count=1)


def test_every_type_has_a_row() -> None:
    assert list(PLAIN) == list(get_args(DocumentType))
    assert {type(metadata) for metadata, _ in PLAIN.values()} == set(get_args(Metadata))


@pytest.mark.parametrize("name", PLAIN)
def test_the_type_follows_from_the_metadata(name: str) -> None:
    metadata, _ = PLAIN[name]
    assert document_type(metadata) == name
    document = make_document("doc_001", 1, None, metadata)
    assert msgspec.to_builtins(document)["type"] == name
    assert document.metadata is metadata


@pytest.mark.parametrize("name", PLAIN)
def test_a_document_as_the_specification_has_it(name: str) -> None:
    metadata, expected = PLAIN[name]
    content = None if name in ALWAYS_NULL else "said"
    assert msgspec.json.decode(msgspec.json.encode(make_document("doc_004", 4, "said", metadata))) == {
        "type": name,
        "id": "doc_004",
        "sequence": 4,
        "content": content,
        "metadata": expected,
    }


@pytest.mark.parametrize("name", PLAIN)
def test_a_missing_content_is_null_only_where_the_specification_allows_it(name: str) -> None:
    document = make_document("doc_001", 1, None, PLAIN[name][0])
    assert document.content == ("" if name in NEVER_NULL else None)


@pytest.mark.parametrize(("metadata", "expected"), WITH_OURS)
def test_what_is_ours_appears_when_it_is_set(metadata: Metadata, expected: dict[str, Any]) -> None:
    found = msgspec.to_builtins(metadata)
    assert found.items() >= expected.items()


@pytest.mark.parametrize(
    "metadata", [*(metadata for metadata, _ in PLAIN.values()), *(metadata for metadata, _ in WITH_OURS)]
)
@pytest.mark.parametrize("content", [None, "", "é\u2028\n```"])
def test_a_response_is_the_same_after_json(metadata: Metadata, content: str | None) -> None:
    whole = response([make_document("doc_001", 1, content, metadata)], USAGE, FIGURES)
    assert msgspec.json.decode(msgspec.json.encode(whole), type=ChatResponse) == whole


def test_a_response_with_every_type_is_the_same_after_json() -> None:
    documents = [make_document(f"doc_{n:03}", n, "x", metadata) for n, (metadata, _) in enumerate(PLAIN.values(), 1)]
    whole = response(
        documents,
        Usage(prompt_tokens=1, completion_tokens=1, total_tokens=2, cached_tokens=1, estimated=True),
        ResponseMetadata(duration_ms=1, tool_call_count=1, turn_count=1, unrecognized=2, result_differs=True),
    )
    assert msgspec.json.decode(msgspec.json.encode(whole), type=ChatResponse) == whole


def test_the_response_has_the_specifications_names_only() -> None:
    assert msgspec.json.decode(msgspec.json.encode(response([], USAGE, FIGURES))) == {
        "id": "chat_1",
        "conversationId": "conv_1",
        "model": "auto",
        "mode": "agent",
        "created": "2026-02-23T10:30:00Z",
        "status": "completed",
        "documents": [],
        "usage": {"promptTokens": 3, "completionTokens": 2, "totalTokens": 5},
        "metadata": {"duration_ms": 12, "toolCallCount": 1, "turnCount": 1},
    }


def test_the_text_of_a_response_is_what_the_agent_said() -> None:
    code = CodeBlockMetadata(language="python", purpose="example")
    reference = CodeReferenceMetadata(file_path="a.py", start_line=1, end_line=2, language="python")
    command = TerminalCommandMetadata(command="ls", exit_code=0, output="a.py", duration_ms=1, permissions=[])
    result: list[tuple[str | None, Metadata]] = [
        ("Look:", TextMetadata()),
        ("print('```')", code),
        (None, command),
        ("x = 1", reference),
    ]
    documents = [make_document(f"doc_{n}", n, content, metadata) for n, (content, metadata) in enumerate(result)]
    whole = response(documents, USAGE, FIGURES)
    assert whole._repr_markdown_() == whole.text
    assert whole.text == "Look:\n\n````python\nprint('```')\n````\n\n```1:2:a.py\nx = 1\n```"


def test_an_envelope_is_a_response_without_its_documents() -> None:
    fields = [field.encode_name for field in msgspec.structs.fields(ChatResponse)]
    fields.remove("documents")
    assert [field.encode_name for field in msgspec.structs.fields(Envelope)] == fields
    whole = response([], USAGE, FIGURES)
    result = msgspec.structs.asdict(whole)
    del result["documents"]
    assert whole_response(Envelope(**result), []) == whole


def test_some_documents_tell_of_something_that_was_done() -> None:
    done = {type for type, (metadata, _) in PLAIN.items() if is_tool_use(make_document("doc_001", 1, None, metadata))}
    assert done == {"tool_call", "terminal_command", "file_edit"}


DATE = PermissionRequest(subject="date", rules=["Shell(date)"])


@pytest.mark.parametrize(
    ("trace", "needs"),
    [
        (ToolTrace(), False),
        (ToolTrace(state="rejected"), False),
        (ToolTrace(permission=DATE), False),
        (ToolTrace(state="rejected", permission=DATE), True),
    ],
)
def test_a_command_that_was_rejected_for_want_of_permission_needs_a_decision(trace: ToolTrace, needs: bool) -> None:
    assert trace.needs_decision is needs


def test_the_modes_are_the_specifications() -> None:
    assert MODES == ("agent", "plan", "ask", "debug")


@pytest.mark.parametrize(
    "broken",
    [
        b'{"type":"poem","id":"doc_001","sequence":1,"content":"x","metadata":{}}',
        b'{"type":"text","id":"doc_001","sequence":1,"content":null,"metadata":{}}',
        b'{"type":"text","id":"doc_001","content":"x","metadata":{}}',
        b'{"type":"tool_call","id":"doc_001","sequence":1,"content":"x","metadata":{}}',
        b'{"type":"code_block","id":"doc_001","sequence":1,"content":"x","metadata":{"language":"py","purpose":"fun"}}',
    ],
)
def test_what_is_no_document_is_not_read_as_one(broken: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(broken, type=Document)


@pytest.mark.parametrize(("state", "expected"), [("rejected", True), ("failed", False), (msgspec.UNSET, False)])
def test_what_was_refused_is_a_tool_that_was_not_run(state: Any, expected: bool) -> None:
    command = TerminalCommandMetadata(command="", exit_code=-1, output="", duration_ms=0, permissions=[], state=state)
    assert is_refused(make_document("doc_001", 1, None, command)) is expected
    plan = PlanMetadata(title="", overview="", todos=[], state=state)
    assert not is_refused(make_document("doc_001", 1, None, plan))
