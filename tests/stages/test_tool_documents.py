"""Every action, at its start and at its end, as the document that tells of it."""

from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from cursor_gateway.model import agent_events, documents
from cursor_gateway.model.caller_tools import ToolResult
from cursor_gateway.model.document_events import KnownMetadata
from cursor_gateway.model.messages import Image
from cursor_gateway.stages.tool_documents import ToolType, action_of, answered, content_of, metadata_of, started

DIFF = documents.Diff(old_string="a", new_string="b", start_line=1, end_line=1)
TODO = documents.PlanTodo(id="1", content="x", status="pending", dependencies=[])
QUESTION = documents.ClarificationQuestion(id="q", text="Which?", options=[])
ANSWER = documents.ClarificationAnswer(question_id="q", selected_option_ids=["a"])

# action, type, what is known at its start, content, the metadata's JSON at its end
ACTIONS: list[tuple[agent_events.Action, documents.DocumentType, KnownMetadata | None, str | None, dict[str, Any]]] = [
    (
        agent_events.FileEdit(tool="edit_file", path="a.py", operation="edit", content="b", diff=DIFF),
        "file_edit",
        KnownMetadata(file_path="a.py", language="python"),
        "b",
        {
            "filePath": "a.py",
            "operation": "edit",
            "language": "python",
            "diff": {"oldString": "a", "newString": "b", "startLine": 1, "endLine": 1},
        },
    ),
    (
        agent_events.FileEdit(tool="rename_file", path="b", operation="rename", old_path="a"),
        "file_edit",
        KnownMetadata(file_path="b", language="text"),
        None,
        {"filePath": "b", "operation": "rename", "language": "text", "oldPath": "a"},
    ),
    (
        agent_events.Command(
            tool="run_terminal_cmd",
            command="ls",
            working_directory="/w",
            exit_code=0,
            output="a\n",
            permissions=["all"],
        ),
        "terminal_command",
        KnownMetadata(command="ls", working_directory="/w"),
        None,
        {
            "command": "ls",
            "workingDirectory": "/w",
            "exitCode": 0,
            "output": "a\n",
            "duration_ms": 7,
            "permissions": ["all"],
        },
    ),
    (
        agent_events.Command(tool="run_terminal_cmd", command="ls"),
        "terminal_command",
        KnownMetadata(command="ls"),
        None,
        {"command": "ls", "exitCode": -1, "output": "", "duration_ms": 7, "permissions": []},
    ),
    (
        agent_events.Plan(tool="create_plan", title="T", overview="O", markdown="# P", todos=[TODO]),
        "plan",
        KnownMetadata(title="T", overview="O", todos=[TODO]),
        "# P",
        {
            "title": "T",
            "overview": "O",
            "todos": [{"id": "1", "content": "x", "status": "pending", "dependencies": []}],
            "format": "markdown",
        },
    ),
    (
        agent_events.Question(tool="ask_question", title="T", questions=[QUESTION], answers=[ANSWER]),
        "clarification",
        KnownMetadata(questions=[QUESTION]),
        "T",
        {
            "questions": [{"id": "q", "text": "Which?", "options": []}],
            "answers": [{"questionId": "q", "selectedOptionIds": ["a"]}],
        },
    ),
    (
        agent_events.Question(tool="ask_question", title="", questions=[]),
        "clarification",
        KnownMetadata(questions=[]),
        None,
        {"questions": []},
    ),
    (
        agent_events.TodoUpdate(tool="todo_write", todos=[documents.TodoChange(id="1", status="completed")]),
        "todo_update",
        None,
        None,
        {"todos": [{"id": "1", "status": "completed"}]},
    ),
    (
        agent_events.TodoUpdate(tool="todo_write", todos=[], merge=False),
        "todo_update",
        None,
        None,
        {"todos": [], "merge": False},
    ),
    (
        agent_events.OtherTool(tool="grep", arguments={"pattern": "x"}, data=["hit"]),
        "tool_call",
        None,
        None,
        {
            "toolName": "grep",
            "toolCallId": "call_1",
            "arguments": {"pattern": "x"},
            "result": {"status": "success", "data": ["hit"]},
            "duration_ms": 7,
        },
    ),
]


def _json(
    action: agent_events.Action, outcome: agent_events.Outcome, *, agent_call_id: str = "call_1", payload: Any = UNSET
) -> dict[str, Any]:
    metadata = metadata_of(action, outcome, call_id="call_1", agent_call_id=agent_call_id, payload=payload)
    result: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(metadata))
    return result


@pytest.mark.parametrize(("action", "type", "known", "content", "metadata"), ACTIONS)
def test_an_action_is_described_by_its_document(
    action: agent_events.Action,
    type: documents.DocumentType,
    known: KnownMetadata | None,
    content: str | None,
    metadata: dict[str, Any],
) -> None:
    assert started(action) == (type, known)
    assert content_of(action) == content
    assert _json(action, agent_events.Outcome(duration_ms=7)) == metadata
    end = metadata_of(action, agent_events.Outcome(), call_id="c", agent_call_id="c", payload=UNSET)
    assert documents.document_type(end) == type


@pytest.mark.parametrize("action", [action for action, *_ in ACTIONS])
def test_what_did_not_simply_complete_tells_how_it_ended_and_why(action: agent_events.Action) -> None:
    plain = _json(action, agent_events.Outcome(duration_ms=7))
    failed = _json(action, agent_events.Outcome(state="timed_out", code="TIMEOUT", message="Too slow.", duration_ms=7))
    assert (failed.pop("state"), failed.pop("reason")) == ("timed_out", "Too slow.")
    if "result" in failed:
        assert failed.pop("result")["status"] == "error"
        assert plain.pop("result")["status"] == "success"
    assert failed == plain


@pytest.mark.parametrize("action", [action for action, *_ in ACTIONS])
def test_the_agents_payload_is_included_when_it_is_handed_in(action: agent_events.Action) -> None:
    plain = _json(action, agent_events.Outcome())
    assert _json(action, agent_events.Outcome(), payload={"own": 1}) == {**plain, "raw": {"own": 1}}


def test_an_unknown_duration_is_zero() -> None:
    for action in (
        agent_events.Command(tool="run_terminal_cmd", command="ls"),
        agent_events.OtherTool(tool="grep", arguments={}),
    ):
        assert _json(action, agent_events.Outcome())["duration_ms"] == 0


def test_the_agents_call_id_is_included_only_where_it_is_not_ours() -> None:
    call = agent_events.OtherTool(tool="grep", arguments={})
    assert "agentCallId" not in _json(call, agent_events.Outcome())
    assert _json(call, agent_events.Outcome(), agent_call_id="x\ny")["agentCallId"] == "x\ny"


def test_an_interrupted_call_says_so() -> None:
    result = _json(agent_events.OtherTool(tool="grep", arguments={}), agent_events.INTERRUPTED)
    assert (result["state"], result["result"]["status"]) == ("interrupted", "error")
    assert result["reason"]


# --- tools of the caller's --------------------------------------------------------------------------

ASKED = agent_events.OtherTool(tool="look", arguments={"p": 1})
PICTURE = Image(0, "image/png", b"x")
GAVE: dict[str, tuple[ToolResult, Any]] = {
    "a text": (ToolResult(text="seen"), "seen"),
    "nothing": (ToolResult(text=""), ""),
    "a value": (ToolResult(text='{"a":1}', structured={"a": 1}), {"a": 1}),
    "a value that is nothing": (ToolResult(text="null", structured=None), None),
    "an image": (ToolResult(text="see", images=(PICTURE,)), {"text": "see", "images": ["image/png"]}),
}


@pytest.mark.parametrize(("result", "data"), GAVE.values(), ids=GAVE)
def test_a_callers_tool_gives_its_text_or_the_value_that_it_is(result: ToolResult, data: Any) -> None:
    action, outcome = answered(ASKED, result, 7)
    assert action == agent_events.OtherTool(tool="look", arguments={}, data=data)
    assert outcome == agent_events.Outcome(duration_ms=7)


@pytest.mark.parametrize(("text", "expected"), [("No such file.", "No such file."), ("", "The caller's tool failed.")])
def test_a_callers_tool_that_failed_says_why(text: str, expected: str) -> None:
    action, outcome = answered(ASKED, ToolResult(text=text, is_error=True), 7)
    assert outcome == agent_events.Outcome(state="failed", code="TOOL_ERROR", message=expected, duration_ms=7)
    assert _json(action, outcome)["result"] == {"status": "error", "data": expected}


def test_a_call_says_that_the_caller_ran_it() -> None:
    result = metadata_of(ASKED, agent_events.Outcome(), call_id="c", agent_call_id="c", payload=UNSET, by_caller=True)
    assert isinstance(result, documents.ToolCallMetadata)
    assert result.ran_by == "caller"
    assert "ranBy" not in _json(ASKED, agent_events.Outcome())


@pytest.mark.parametrize(
    ("type", "action"),
    [
        ("file_edit", agent_events.FileEdit(tool="", path="a.py", operation="edit", content="text")),
        ("terminal_command", agent_events.Command(tool="", command="ls", working_directory="/w")),
        ("plan", agent_events.Plan(tool="", title="t", overview="o", markdown="text", todos=[TODO])),
        ("clarification", agent_events.Question(tool="", title="text", questions=[QUESTION])),
        ("todo_update", agent_events.TodoUpdate(tool="", todos=[])),
        ("tool_call", agent_events.OtherTool(tool="", arguments={})),
    ],
)
def test_what_is_known_at_the_start_gives_the_action_again(type: ToolType, action: agent_events.Action) -> None:
    begun, known = started(action)
    assert begun == type
    assert action_of(type, known or KnownMetadata(), "text") == action
    nothing = action_of(type, KnownMetadata(), "")
    assert started(nothing)[0] == type
    assert not content_of(nothing)


@pytest.mark.parametrize("outcome", [agent_events.RUNNING, agent_events.WAITING])
def test_a_call_that_has_not_ended_has_a_state_and_no_reason(outcome: agent_events.Outcome) -> None:
    metadata = metadata_of(
        agent_events.OtherTool(tool="t", arguments={}), outcome, call_id="c", agent_call_id="c", payload=UNSET
    )
    assert isinstance(metadata, documents.ToolCallMetadata)
    assert (metadata.state, metadata.reason, metadata.result.data) == (outcome.state, UNSET, None)


def test_a_tool_that_was_rejected_names_the_permission_that_it_needs() -> None:
    wanted = documents.PermissionRequest(subject="npm test", rules=["Shell(npm)"])
    outcome = agent_events.Outcome(state="rejected", message="Not allowed.", permission=wanted)
    action = agent_events.Command(tool="shell", command="npm test")
    metadata = metadata_of(action, outcome, call_id="c", agent_call_id="c", payload=UNSET)
    assert isinstance(metadata, documents.TerminalCommandMetadata)
    assert (metadata.state, metadata.reason, metadata.permission) == ("rejected", "Not allowed.", wanted)
