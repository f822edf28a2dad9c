"""What the SDK reports as plain data of the agent's protocol: parsed by the SDK itself, and payloads of tools."""

from typing import Any

import pytest
from cursor_sdk import RunStreamEvent

from cursor_gateway.model.agent_events import Command, FileEdit, OtherTool, Outcome, TodoUpdate
from cursor_gateway.sources.cursor.tools import read_result
from cursor_gateway.sources.sdk.payloads import plain, protocol_arguments, protocol_result, size_of


def read(tool: str, args: Any, result: Any) -> tuple[Any, Outcome]:
    return read_result(tool, protocol_arguments(tool, args), protocol_result(tool, result))


def success(value: Any) -> dict[str, Any]:
    return {"status": "success", "value": value}


def test_a_command_that_fails_is_no_success() -> None:
    value = {"exitCode": 2, "signal": "", "stdout": "", "stderr": "no\n", "executionTime": 4}
    action, outcome = read("shell", {"command": "false"}, success(value))
    assert action == Command(tool="run_terminal_cmd", command="false", exit_code=2, output="no\n")
    assert (outcome.state, outcome.code, outcome.duration_ms) == ("failed", "COMMAND_FAILED", 4)
    assert outcome.message == "The command exited with status 2."
    _, outcome = read("shell", {"command": "false"}, success({"signal": "SIGKILL", "stdout": "", "stderr": ""}))
    assert (outcome.state, outcome.message) == ("failed", "The command was ended by SIGKILL.")


def test_a_tool_that_fails_says_why() -> None:
    action, outcome = read("read", {"path": "/a"}, {"status": "error", "error": {"message": "no such file"}})
    assert action == OtherTool(tool="read_file", arguments={"target_file": "/a"}, data="no such file")
    assert (outcome.state, outcome.code) == ("failed", "FILE_NOT_FOUND")
    assert read("read", {}, {"status": "error", "error": "plainly"})[1].message == "plainly"
    assert read("read", {}, {"status": "error"})[1].state == "failed"


def test_a_result_of_no_known_shape_is_left_as_it_is() -> None:
    assert protocol_result("read", None) is None
    assert protocol_result("read", {"success": {}}) == {"success": {}}


def test_a_plan_has_the_title_of_its_first_heading() -> None:
    assert protocol_arguments("createPlan", {"plan": "x\n## The plan ##\n"})["name"] == "The plan"
    assert protocol_arguments("createPlan", {"plan": "x"})["name"] == ""
    assert protocol_arguments("createPlan", {"plan": "# A", "name": "B"})["name"] == "B"


@pytest.mark.parametrize(
    ("status", "meant"),
    [("pending", "pending"), ("inProgress", "in_progress"), ("completed", "completed"), ("cancelled", "cancelled")],
)
def test_todos_have_the_states_that_they_have(status: str, meant: str) -> None:
    todos = {"todos": [{"content": "a", "status": status}]}
    action, _ = read("updateTodos", todos, success({**todos, "totalCount": 1}))
    assert isinstance(action, TodoUpdate)
    assert not action.merge
    assert [(todo.id, todo.content, todo.status) for todo in action.todos] == [("1", "a", meant)]
    from_result, _ = read("updateTodos", {}, success(todos))
    assert isinstance(from_result, TodoUpdate)
    assert from_result.todos == action.todos


def test_an_edit_is_described_by_its_patch() -> None:
    patch = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n a\n-b\n+c"
    action, _ = read("edit", {"path": "/x"}, success({"diffString": patch}))
    assert isinstance(action, FileEdit)
    assert (action.operation, action.content) == ("edit", "c")
    assert action.diff is not None
    assert (action.diff.old_string, action.diff.start_line, action.diff.end_line) == ("b", 2, 2)


@pytest.mark.parametrize("head", ["--- /dev/null\n+++ b/x\n@@ -1 +1,2 @@\n-", "@@ -0,0 +1,2 @@"])
def test_a_new_file_is_described_whole(head: str) -> None:
    action, _ = read("edit", {"path": "/x"}, success({"diffString": f"{head}\n+a\n+b"}))
    assert action == FileEdit(tool="edit_file", path="/x", operation="create", content="a\nb\n")


def test_the_lines_of_a_new_file_may_look_like_a_patch() -> None:
    patch = "--- /dev/null\n+++ b/x\n@@ -0,0 +1,3 @@\n+++ x\n+-- y\n+@@ z\n\\ No newline at end of file"
    action, _ = read("edit", {"path": "/x"}, success({"diffString": patch}))
    assert action == FileEdit(tool="edit_file", path="/x", operation="create", content="++ x\n-- y\n@@ z")


def test_hits_of_a_search_are_lines_files_or_counts() -> None:
    match = {"file": "a", "lineNumber": 3, "line": "hit", "beforeContext": ["b"], "afterContext": ["c", "d"]}
    found = {
        "/w": {"type": "content", "output": {"matches": [match], "totalMatches": 1}},
        "/f": {"type": "files", "output": {"files": ["x"], "count": 1}},
        "/c": {"type": "count", "output": {"counts": [{"file": "y", "count": 2}], "total": 2}},
    }
    action, _ = read("grep", {"pattern": "h"}, success({"workspaceResults": found}))
    assert isinstance(action, OtherTool)
    assert action.data == [
        {"file": "a", "line": 2, "content": "b", "context": True},
        {"file": "a", "line": 3, "content": "hit"},
        {"file": "a", "line": 4, "content": "c", "context": True},
        {"file": "a", "line": 5, "content": "d", "context": True},
        "x",
        {"file": "y", "count": 2},
    ]
    nowhere = {"activeEditorResult": {"type": "content", "output": {"matches": [{"file": "a", "line": "hit"}]}}}
    action, _ = read("grep", {"pattern": "h"}, success(nowhere))
    assert isinstance(action, OtherTool)
    assert action.data == [{"file": "a", "line": None, "content": "hit"}]


def test_a_search_whose_lines_were_lost_still_names_the_files() -> None:
    """SDK 1.1.0 drops them, and counts nothing."""
    matches = [{"file": "./a"}, {"file": "./b"}, {"file": "./a"}]
    lost = {"/w": {"type": "content", "output": {"matches": matches, "totalMatches": 0}}}
    action, outcome = read("grep", {"pattern": "h"}, success({"workspaceResults": lost}))
    assert isinstance(action, OtherTool)
    assert (action.data, outcome.state) == (["./a", "./b"], "completed")


def test_a_reason_that_was_lost_is_not_shown_as_one() -> None:
    _, outcome = read("read", {"path": "/a"}, {"status": "error", "error": {"message": "error"}})
    assert outcome.message == "The tool failed; Cursor's SDK does not say why."
    _, outcome = read(
        "shell", {"command": "ls"}, {"status": "error", "error": {"message": "Blocked: no", "command": "ls"}}
    )
    assert outcome.message == "Blocked: no"


@pytest.mark.parametrize(
    ("tool", "name", "state", "message"),
    [
        ("ls", "rejected", "rejected", "The call was rejected."),
        ("delete", "notFile", "failed", "The path is not a file."),
        ("delete", "fileNotFound", "failed", "The file does not exist."),
        ("delete", "permissionDenied", "failed", "Permission was denied."),
    ],
)
def test_an_outcome_of_which_only_the_name_is_left(tool: str, name: str, state: str, message: str) -> None:
    _, outcome = read(tool, {"path": "/a"}, {"status": "error", "error": {"message": name, "path": "/a"}})
    assert (outcome.state, outcome.message, outcome.details) == (state, message, "/a")


def test_a_call_that_a_hook_blocks_was_rejected() -> None:
    error = {"message": "No rule allows it.\n\nAgent note: try something else", "command": "ls"}
    action, outcome = read("shell", {"command": "ls"}, {"status": "error", "error": error})
    assert isinstance(action, Command)
    assert (outcome.state, outcome.message) == ("rejected", "No rule allows it.")
    error = {"message": "Command execution was blocked by a hook: not today", "command": "ls"}
    _, outcome = read("shell", {"command": "ls"}, {"status": "error", "error": error})
    assert (outcome.state, outcome.message) == ("rejected", error["message"])


@pytest.mark.parametrize(
    ("tool", "args", "value", "data"),
    [
        ("read", {"path": "/a"}, {"content": "x", "totalLines": 1, "fileSize": 1}, "x"),
        ("glob", {"globPattern": "*"}, {"files": ["a"], "totalFiles": 1}, ["a"]),
        ("semSearch", {"query": "q"}, {"results": "text"}, "text"),
        ("task", {"prompt": "p"}, {"conversationSteps": [{"assistantMessage": {"text": "done"}}]}, "done"),
        ("mcp", {"toolName": "t", "args": {}}, {"content": [{"text": {"text": "y"}}], "isError": False}, "y"),
        ("readLints", {"paths": []}, {"fileDiagnostics": [], "totalFiles": 0}, []),
        ("webFetch", {"url": "u"}, {"markdown": "m"}, "m"),
    ],
)
def test_the_others_are_as_the_protocol_has_them(tool: str, args: Any, value: Any, data: Any) -> None:
    action, outcome = read(tool, args, success(value))
    assert isinstance(action, OtherTool)
    assert action.data == data
    assert outcome.state == "completed"


def of(**wire: Any) -> Any:
    return plain(RunStreamEvent.from_json(wire))


@pytest.mark.parametrize(
    ("update", "meant"),
    [
        ({"type": "text-delta", "text": "a"}, {"type": "text-delta", "text": "a"}),
        ({"type": "weather", "sky": 1}, {"type": "weather", "update": {"type": "weather", "sky": 1}}),
        (
            {"type": "tool-call-started", "callId": "c", "modelCallId": "m", "toolCall": {"type": "read"}},
            {"type": "tool-call-started", "call_id": "c", "model_call_id": "m", "tool_call": {"type": "read"}},
        ),
        ({"type": "turn-ended"}, {"type": "turn-ended", "usage": None}),
    ],
)
def test_updates(update: dict[str, Any], meant: dict[str, Any]) -> None:
    assert of(interactionUpdate={"type": update["type"], "update": update}) == meant


def message(type: str, **fields: Any) -> Any:
    return of(sdkMessage={"type": type, "message": {"type": type, "agent_id": "a", "run_id": "r", **fields}})


def test_messages() -> None:
    user = message("user", message={"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "x"}]})
    assert user["message"] == {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "x"}]}
    assert message("system", model={"id": "m"})["model"] == {"id": "m", "params": []}
    assert message("usage", usage={"inputTokens": "3"})["usage"]["input_tokens"] == 3
    assert message("weather", sky=1) == {"type": "weather", "agent_id": "a", "run_id": "r", "sky": 1}


@pytest.mark.parametrize("type", ["assistant", "thinking", "tool_call"])
def test_of_what_the_deltas_have_sent_only_the_kind_is_kept(type: str) -> None:
    assert message(type, text="long", args={"a": 1}) == {"type": type}


def test_results_and_the_rest() -> None:
    assert of(result={"status": "X", "errorCode": "e", "result": {"status": "Y"}}) == {"status": "Y", "errorCode": "e"}
    assert of(result={"status": "X"}) == {"status": "X"}
    assert of() == {}
    assert of(done={}) == {}


def test_an_update_is_as_large_as_what_it_says() -> None:
    delta = {"type": "text-delta", "text": "x" * 1000}
    assert size_of(of(interactionUpdate={"type": "text-delta", "update": delta})) in range(1000, 1100)
    nested: Any = "x" * 1000
    for _ in range(10_000):
        nested = [{"a": nested}]
    assert size_of({"result": nested, "count": 1}) in range(11_000, 11_100)
    content = {"role": "user", "content": [{"type": "text", "text": "x" * 1000}]}
    event = RunStreamEvent.from_json({"sdkMessage": {"type": "user", "message": {"type": "user", "message": content}}})
    assert size_of({"message": event.sdk_message}) in range(1000, 1200)
