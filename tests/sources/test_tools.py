"""Every tool of the agent's protocol: its payloads in, what they mean out."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.model.agent_events import Action, Command, FileEdit, OtherTool, Outcome, Plan, Question, TodoUpdate
from cursor_gateway.model.documents import (
    ClarificationAnswer,
    ClarificationOption,
    ClarificationQuestion,
    Diff,
    PlanTodo,
    TodoChange,
)
from cursor_gateway.sources.cursor import tools
from cursor_gateway.sources.cursor.tools import read_call, read_named, read_outcome, read_result, snake, timed
from tests.strategies import examples


def other(tool: str, arguments: dict[str, Any], data: Any) -> OtherTool:
    return OtherTool(tool=tool, arguments=arguments, data=data)


TODOS = [
    {"id": "a", "content": "Read", "status": "TODO_STATUS_COMPLETED", "createdAt": "17", "dependencies": []},
    {"id": "b", "content": "Write", "status": "TODO_STATUS_IN_PROGRESS", "dependencies": ["a"]},
]
TODOS_READ = [
    PlanTodo(id="a", content="Read", status="completed", dependencies=[]),
    PlanTodo(id="b", content="Write", status="in_progress", dependencies=["a"]),
]
QUESTIONS = [{"id": "q", "prompt": "Which?", "options": [{"id": "x", "label": "X"}], "allowMultiple": True}]
QUESTIONS_READ = [
    ClarificationQuestion(id="q", text="Which?", options=[ClarificationOption(id="x", label="X")], allow_multiple=True)
]
TREE = {
    "absPath": "/w",
    "childrenDirs": [{"absPath": "/w/src", "childrenDirs": [], "childrenFiles": [{"name": "a.py"}]}],
    "childrenFiles": [{"name": "README"}, {"name": "x", "terminalMetadata": {}}],
    "numFiles": 3,
}
TREE_READ = {
    "path": "/w",
    "directories": [{"path": "/w/src", "directories": [], "files": ["a.py"]}],
    "files": ["README", "x"],
}
GREP = {
    "pattern": "x",
    "outputMode": "content",
    "workspaceResults": {
        "/w": {
            "content": {
                "matches": [
                    {
                        "file": "a.py",
                        "matches": [
                            {"lineNumber": 3, "content": "x = 1", "isContextLine": False},
                            {"lineNumber": "4", "content": "y", "isContextLine": True},
                        ],
                    }
                ]
            }
        },
        "/v": {"files": {"files": ["b.py"], "totalFiles": 1}},
        "/u": {"count": {"counts": [{"file": "c.py", "count": 2}]}},
    },
    "activeEditorResult": {"files": {"files": ["open.py"]}},
}
GREP_READ = [
    {"file": "a.py", "line": 3, "content": "x = 1"},
    {"file": "a.py", "line": 4, "content": "y", "context": True},
    "b.py",
    {"file": "c.py", "count": 2},
    "open.py",
]
REFERENCES = [{"title": "T", "url": "https://example.com", "chunk": "…"}]

Row = tuple[str, dict[str, Any], dict[str, Any], Action]

SUCCESSES: list[Row] = [
    (
        "shell",
        {"command": "ls", "workingDirectory": "/w", "timeout": 30000, "isBackground": False},
        {"command": "ls", "workingDirectory": "", "exitCode": 0, "stdout": "a\n", "interleavedOutput": "a\nb\n"},
        Command(tool="run_terminal_cmd", command="ls", working_directory="/w", exit_code=0, output="a\nb\n"),
    ),
    (
        "edit",
        {"path": "/w/a.py", "streamContent": "…"},
        {"path": "/w/a.py", "beforeFullFileContent": "a\nb\nc\n", "afterFullFileContent": "a\nB\nc\n"},
        FileEdit(
            tool="edit_file",
            path="/w/a.py",
            operation="edit",
            content="B",
            diff=Diff(old_string="b", new_string="B", start_line=2, end_line=2),
        ),
    ),
    (
        "write",
        {"path": "a.txt", "fileText": "one\n", "toolCallId": "t"},
        {"path": "/w/a.txt", "linesCreated": 1, "fileSize": 4},
        FileEdit(tool="write_file", path="a.txt", operation="create", content="one\n"),
    ),
    (
        "delete",
        {"path": "a.txt", "toolCallId": "t"},
        {"path": "a.txt", "deletedFile": "/w/a.txt", "fileSize": "4", "prevContent": "one\n"},
        FileEdit(tool="delete_file", path="a.txt", operation="delete"),
    ),
    (
        "rename",
        {"oldPath": "a.txt", "newPath": "b.txt"},
        {},
        FileEdit(tool="rename_file", path="b.txt", operation="rename", old_path="a.txt"),
    ),
    (
        "createPlan",
        {"name": "Login", "overview": "Two steps", "plan": "# Login\n", "todos": TODOS, "isProject": False},
        {},
        Plan(tool="create_plan", title="Login", overview="Two steps", markdown="# Login\n", todos=TODOS_READ),
    ),
    (
        "askQuestion",
        {"title": "Choose", "questions": QUESTIONS, "runAsync": False, "asyncOriginalToolCallId": ""},
        {"answers": [{"questionId": "q", "selectedOptionIds": ["x"]}]},
        Question(
            tool="ask_question",
            title="Choose",
            questions=QUESTIONS_READ,
            answers=[ClarificationAnswer(question_id="q", selected_option_ids=["x"])],
        ),
    ),
    (
        "updateTodos",
        {"todos": TODOS, "merge": False},
        {"todos": TODOS, "totalCount": 2, "wasMerge": False},
        TodoUpdate(
            tool="todo_write",
            todos=[
                TodoChange(id="a", status="completed", content="Read"),
                TodoChange(id="b", status="in_progress", content="Write"),
            ],
            merge=False,
        ),
    ),
    (
        "read",
        {"path": "/w/a.py", "offset": 2, "limit": 5},
        {"content": "x\n", "isEmpty": False, "totalLines": 1, "path": "/w/a.py"},
        other("read_file", {"target_file": "/w/a.py", "offset": 2, "limit": 5}, "x\n"),
    ),
    (
        "glob",
        {"globPattern": "*.py", "targetDirectory": "/w"},
        {"pattern": "", "path": "/w", "files": ["a.py"], "totalFiles": 1},
        other("glob_file_search", {"glob_pattern": "*.py", "target_directory": "/w"}, ["a.py"]),
    ),
    (
        "grep",
        {"pattern": "x", "outputMode": "content", "caseInsensitive": True, "toolCallId": "t", "sandboxPolicy": {}},
        GREP,
        other("grep", {"pattern": "x", "output_mode": "content", "case_insensitive": True}, GREP_READ),
    ),
    (
        "ls",
        {"path": "/w", "ignore": ["*.pyc"], "toolCallId": "t"},
        {"directoryTreeRoot": TREE},
        other("list_dir", {"target_directory": "/w", "ignore_globs": ["*.pyc"]}, TREE_READ),
    ),
    (
        "readTodos",
        {"statusFilter": ["TODO_STATUS_PENDING"], "idFilter": []},
        {"todos": TODOS, "totalCount": 2},
        other(
            "todo_read",
            {"status_filter": ["TODO_STATUS_PENDING"], "id_filter": []},
            [
                {"id": "a", "content": "Read", "status": "completed", "dependencies": []},
                {"id": "b", "content": "Write", "status": "in_progress", "dependencies": ["a"]},
            ],
        ),
    ),
    (
        "readLints",
        {"paths": ["a.py"]},
        {"fileDiagnostics": [{"path": "a.py", "diagnostics": []}], "totalFiles": 1},
        other("read_lints", {"paths": ["a.py"]}, [{"path": "a.py", "diagnostics": []}]),
    ),
    (
        "mcp",
        {"name": "docs-find", "toolName": "find", "args": {"maxHits": 2}, "providerIdentifier": "docs"},
        {"content": [{"text": {"text": "one"}}, {"text": {"text": "two"}}], "isError": False},
        other("find", {"maxHits": 2}, "one\ntwo"),
    ),
    (
        "getMcpTools",
        {"server": "docs", "toolName": "find"},
        {"tools": [{"name": "find"}]},
        other("get_mcp_tools", {"server": "docs", "tool_name": "find"}, [{"name": "find"}]),
    ),
    (
        "semSearch",
        {"query": "login", "targetDirectories": ["src"], "explanation": "why"},
        {"results": "src/login.py", "codeResults": []},
        other(
            "codebase_search", {"query": "login", "target_directories": ["src"], "explanation": "why"}, "src/login.py"
        ),
    ),
    (
        "webSearch",
        {"searchTerm": "sse", "toolCallId": "t"},
        {"references": REFERENCES},
        other("web_search", {"search_term": "sse"}, REFERENCES),
    ),
    (
        "webFetch",
        {"url": "https://example.com", "toolCallId": "t"},
        {"url": "https://example.com", "markdown": "# Example"},
        other("web_fetch", {"url": "https://example.com"}, "# Example"),
    ),
    (
        "fetch",
        {"url": "https://example.com", "toolCallId": "t"},
        {"url": "https://example.com", "content": "<html>", "statusCode": 200, "contentType": "text/html"},
        other("fetch", {"url": "https://example.com"}, "<html>"),
    ),
    (
        "exaSearch",
        {"query": "sse", "type": "auto", "numResults": 3, "toolCallId": "t"},
        {"references": REFERENCES},
        other("exa_search", {"query": "sse", "type": "auto", "num_results": 3}, REFERENCES),
    ),
    (
        "exaFetch",
        {"ids": ["1"], "toolCallId": "t"},
        {"contents": [{"id": "1"}]},
        other("exa_fetch", {"ids": ["1"]}, [{"id": "1"}]),
    ),
    (
        "task",
        {"description": "Look", "prompt": "…", "subagentType": {"explore": {}}},
        {
            "conversationSteps": [
                {"assistantMessage": {"text": "First."}},
                {"toolCall": {"readToolCall": {}}},
                {"assistantMessage": {"text": "Found it."}},
                {"thinkingMessage": {"text": "Hm."}},
            ],
            "agentId": "x",
        },
        other("task", {"description": "Look", "prompt": "…", "subagent_type": {"explore": {}}}, "Found it."),
    ),
    (
        "listMcpResources",
        {"server": "docs"},
        {"resources": [{"uri": "docs://1"}]},
        other("list_mcp_resources", {"server": "docs"}, [{"uri": "docs://1"}]),
    ),
    (
        "readMcpResource",
        {"server": "docs", "uri": "docs://1", "downloadPath": "/w/x"},
        {"uri": "docs://1", "mimeType": "text/plain", "text": "hi"},
        other("read_mcp_resource", {"server": "docs", "uri": "docs://1", "download_path": "/w/x"}, "hi"),
    ),
    (
        "applyAgentDiff",
        {"agentId": "x"},
        {"appliedChanges": [{"path": "a.py"}]},
        other("apply_agent_diff", {"agent_id": "x"}, [{"path": "a.py"}]),
    ),
    (
        "switchMode",
        {"targetModeId": "plan", "explanation": "why", "toolCallId": "t"},
        {"fromModeId": "agent", "toModeId": "plan"},
        other(
            "switch_mode", {"target_mode_id": "plan", "explanation": "why"}, {"fromModeId": "agent", "toModeId": "plan"}
        ),
    ),
    (
        "generateImage",
        {"description": "a cat", "filePath": "/w/cat.png", "referenceImagePaths": []},
        {"filePath": "/w/cat.png", "imageData": "iVBO"},
        other(
            "generate_image",
            {"description": "a cat", "file_path": "/w/cat.png", "reference_image_paths": []},
            "/w/cat.png",
        ),
    ),
    (
        "recordScreen",
        {"mode": 2, "toolCallId": "t", "saveAsFilename": "demo"},
        {"path": "/w/demo.webm", "recordingDurationMs": "1200"},
        other("record_screen", {"mode": 2, "save_as_filename": "demo"}, "/w/demo.webm"),
    ),
    (
        "computerUse",
        {"toolCallId": "t", "actions": [{"click": {}}]},
        {"actionCount": 1, "durationMs": 5},
        other("computer_use", {"actions": [{"click": {}}]}, {"actionCount": 1, "durationMs": 5}),
    ),
    (
        "writeShellStdin",
        {"shellId": 1, "chars": "y\n"},
        {"shellId": 1, "terminalFileLengthBeforeInputWritten": 9},
        other(
            "write_shell_stdin",
            {"shell_id": 1, "chars": "y\n"},
            {"shellId": 1, "terminalFileLengthBeforeInputWritten": 9},
        ),
    ),
    (
        "reflect",
        {"unexpectedActionOutcomes": "none", "nextSteps": "go on", "toolCallId": "t"},
        {},
        other("reflect", {"unexpected_action_outcomes": "none", "next_steps": "go on"}, {}),
    ),
    (
        "setupVmEnvironment",
        {"installCommand": "make", "startCommand": "make run"},
        {},
        other("setup_vm_environment", {"install_command": "make", "start_command": "make run"}, {}),
    ),
    ("truncated", {}, {}, other("truncated", {}, {})),
    (
        "startGrindExecution",
        {"explanation": "why", "toolCallId": "t"},
        {},
        other("start_grind_execution", {"explanation": "why"}, {}),
    ),
    ("startGrindPlanning", {"toolCallId": "t"}, {}, other("start_grind_planning", {}, {})),
]


def test_every_tool_of_the_protocol_has_a_row() -> None:
    assert {row[0] for row in SUCCESSES} == {*tools._TABLE, *tools._READERS, "mcp"}


@pytest.mark.parametrize(("tool", "args", "value", "expected"), SUCCESSES, ids=[row[0] for row in SUCCESSES])
def test_a_tool_that_succeeded(tool: str, args: dict[str, Any], value: dict[str, Any], expected: Action) -> None:
    action, outcome = read_result(tool, args, {"success": value})
    assert action == expected
    assert (outcome.state, outcome.code, outcome.message) == ("completed", "", "")


@pytest.mark.parametrize(("tool", "args", "value", "expected"), SUCCESSES, ids=[row[0] for row in SUCCESSES])
def test_a_tool_that_starts_already_has_its_own_name(
    tool: str, args: dict[str, Any], value: dict[str, Any], expected: Action
) -> None:
    started = read_call(tool, args)
    assert (type(started), started.tool) == (type(expected), expected.tool)
    if isinstance(started, OtherTool) and isinstance(expected, OtherTool):
        assert started == OtherTool(tool=expected.tool, arguments=expected.arguments, data=None)


# --- How a call ended -----------------------------------------------------------------------------


def failed(code: str, message: str, details: str = "") -> Outcome:
    return Outcome(state="failed", code=code, message=message, details=details)


def rejected(message: str, details: str = "") -> Outcome:
    return Outcome(state="rejected", code="REJECTED", message=message, details=details)


FAILURES: list[tuple[str, dict[str, Any], Outcome]] = [
    (
        "shell",
        {"failure": {"command": "x", "exitCode": 2}},
        failed("COMMAND_FAILED", "The command exited with status 2.", "x"),
    ),
    ("shell", {"failure": {"exitCode": "2"}}, failed("COMMAND_FAILED", "The command exited with status 2.")),
    (
        "shell",
        {"timeout": {"command": "x", "timeoutMs": 5}},
        Outcome(state="timed_out", code="TIMEOUT", message="The tool ran out of time.", details="x"),
    ),
    (
        "shell",
        {"rejected": {"command": "x", "reason": "", "isReadonly": False}},
        rejected("The call was rejected.", "x"),
    ),
    ("shell", {"rejected": {"command": "x", "reason": " Not now. "}}, rejected("Not now.", "x")),
    ("shell", {"spawnError": {"command": "x", "error": "no shell"}}, failed("SPAWN_FAILED", "no shell", "x")),
    ("shell", {"spawnError": {}}, failed("SPAWN_FAILED", "The command could not be started.")),
    (
        "shell",
        {"permissionDenied": {"command": "x", "error": ""}},
        failed("PERMISSION_DENIED", "Permission was denied.", "x"),
    ),
    ("read", {"error": {"errorMessage": "Error: Permission denied"}}, rejected("Error: Permission denied")),
    (
        "read",
        {"error": {"errorMessage": "EACCES: permission denied"}},
        failed("TOOL_ERROR", "EACCES: permission denied"),
    ),
    ("delete", {"fileNotFound": {"path": "a"}}, failed("FILE_NOT_FOUND", "The file does not exist.", "a")),
    ("delete", {"notFile": {"path": "a", "actualType": "dir"}}, failed("NOT_A_FILE", "The path is not a file.", "a")),
    (
        "delete",
        {"permissionDenied": {"path": "a", "clientVisibleError": "read-only"}},
        failed("PERMISSION_DENIED", "read-only", "a"),
    ),
    ("delete", {"fileBusy": {"path": "a"}}, failed("FILE_BUSY", "The file is in use.", "a")),
    ("delete", {"rejected": {"path": "a", "reason": "no"}}, rejected("no", "a")),
    ("delete", {"error": {"path": "a", "error": "disk full"}}, failed("TOOL_ERROR", "disk full", "a")),
    ("edit", {"fileNotFound": {"path": "a"}}, failed("FILE_NOT_FOUND", "The file does not exist.", "a")),
    ("edit", {"readPermissionDenied": {"path": "a"}}, failed("PERMISSION_DENIED", "Permission was denied.", "a")),
    (
        "edit",
        {"writePermissionDenied": {"path": "a", "error": "locked", "isReadonly": True}},
        failed("PERMISSION_DENIED", "locked", "a"),
    ),
    ("edit", {"rejected": {"path": "a", "reason": ""}}, rejected("The call was rejected.", "a")),
    (
        "edit",
        {"error": {"path": "a", "error": "no match", "modelVisibleError": "3 places"}},
        failed("TOOL_ERROR", "no match", "3 places"),
    ),
    ("read", {"error": {"errorMessage": "File not found: a"}}, failed("FILE_NOT_FOUND", "File not found: a")),
    (
        "read",
        {"error": {"errorMessage": "ENOENT: no such file or directory"}},
        failed("FILE_NOT_FOUND", "ENOENT: no such file or directory"),
    ),
    ("read", {"error": {"errorMessage": "a does not exist"}}, failed("FILE_NOT_FOUND", "a does not exist")),
    ("read", {"error": {"errorMessage": "too large"}}, failed("TOOL_ERROR", "too large")),
    (
        "ls",
        {"timeout": {"directoryTreeRoot": TREE}},
        Outcome(state="timed_out", code="TIMEOUT", message="The tool ran out of time."),
    ),
    ("ls", {"rejected": {"path": "a", "reason": "no"}}, rejected("no", "a")),
    ("glob", {"error": {"error": "bad pattern"}}, failed("TOOL_ERROR", "bad pattern")),
    ("grep", {"error": {}}, failed("TOOL_ERROR", "The tool reported error.")),
    ("webSearch", {"rejected": {"reason": "User Rejected"}}, rejected("User Rejected")),
    (
        "fetch",
        {"error": {"url": "https://example.com", "error": "502"}},
        failed("TOOL_ERROR", "502", "https://example.com"),
    ),
    (
        "readMcpResource",
        {"notFound": {"uri": "docs://1"}},
        failed("NOT_FOUND", "Nothing was found under that name.", "docs://1"),
    ),
    (
        "mcp",
        {"rejected": {"reason": "MCP tool execution rejected by user: x", "isReadonly": False}},
        rejected("MCP tool execution rejected by user: x"),
    ),
    ("mcp", {"permissionDenied": {"error": "not allowed"}}, failed("PERMISSION_DENIED", "not allowed")),
    ("mcp", {"error": {"error": "server gone"}}, failed("TOOL_ERROR", "server gone")),
    ("createPlan", {"error": {"error": "no"}, "planUri": ""}, failed("TOOL_ERROR", "no")),
    (
        "askQuestion",
        {"rejected": {"reason": "Questions skipped by the user"}},
        Outcome(state="unanswered", code="UNANSWERED", message="The agent went on without you. You can still answer."),
    ),
    ("askQuestion", {"error": {"errorMessage": "no"}}, failed("TOOL_ERROR", "no")),
    ("applyAgentDiff", {"error": {"error": "no", "appliedChanges": []}}, failed("TOOL_ERROR", "no")),
    ("recordScreen", {"failure": {"error": "no screen"}}, failed("COMMAND_FAILED", "no screen")),
    ("computerUse", {"error": {"error": "no", "actionCount": 1, "log": "…"}}, failed("TOOL_ERROR", "no")),
    ("brandNew", {"quotaError": {}}, failed("TOOL_ERROR", "The tool reported quota error.")),
    ("brandNew", {"error": "boom"}, failed("TOOL_ERROR", "boom")),
    (
        "shell",
        {"failure": {"exitCode": -1, "aborted": True, "abortReason": "SHELL_ABORT_REASON_TIMEOUT"}},
        Outcome(state="timed_out", code="TIMEOUT", message="The command ran out of time."),
    ),
    (
        "shell",
        {"failure": {"exitCode": -1, "aborted": True, "abortReason": 1}},
        Outcome(state="interrupted", code="INTERRUPTED", message="The command was stopped."),
    ),
]


@pytest.mark.parametrize(("tool", "result", "expected"), FAILURES)
def test_a_tool_that_did_not_succeed(tool: str, result: dict[str, Any], expected: Outcome) -> None:
    action, outcome = read_result(tool, {}, result)
    assert outcome == expected
    if isinstance(action, OtherTool):
        assert action.data == expected.message


@pytest.mark.parametrize(
    ("tool", "result"),
    [
        ("askQuestion", {"async": {}}),
        ("recordScreen", {"startSuccess": {"wasPriorRecordingCancelled": False}}),
        ("recordScreen", {"saveSuccess": {"path": "/w/a.webm", "recordingDurationMs": "9"}}),
        ("recordScreen", {"discardSuccess": {}}),
        ("brandNew", {"madeUpSuccess": {}}),
    ],
)
def test_other_words_for_success_are_success(tool: str, result: dict[str, Any]) -> None:
    action, outcome = read_result(tool, {}, result)
    assert outcome == Outcome()
    if isinstance(action, OtherTool):
        (value,) = result.values()
        assert action.data == value.get("path", value)


@pytest.mark.parametrize("result", [None, "done", 7, 1.5, True, [], ["x"]])
def test_a_result_of_no_known_shape_is_a_success_that_carries_itself(result: object) -> None:
    action, outcome = read_result("brandNew", {"a": 1}, result)
    assert outcome == Outcome()
    assert action == other("brand_new", {"a": 1}, result)


def test_an_object_without_an_outcome_is_itself_the_value() -> None:
    assert read_result("brandNew", {}, {"count": 1, "pid": 4})[0] == other("brand_new", {}, {"count": 1})
    assert read_result("brandNew", {}, {})[0] == other("brand_new", {}, None)
    assert read_result("brandNew", {}, {"success": None})[0] == other("brand_new", {}, None)


@pytest.mark.parametrize(
    "sibling", [{"isBackground": False}, {"sandboxPolicy": {"type": 1}}, {"terminalsFolder": "/t"}, {"pid": 1}]
)
def test_what_stands_beside_the_outcome_is_not_the_outcome(sibling: dict[str, Any]) -> None:
    for result in ({**sibling, "failure": {"exitCode": 3}}, {"failure": {"exitCode": 3}, **sibling}):
        assert read_result("shell", {}, result)[1].code == "COMMAND_FAILED"
    assert read_result("shell", {}, sibling)[1].state == "completed"
    assert read_result("createPlan", {}, {"planUri": "", "success": {}})[1].state == "completed"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"executionTime": 1230, "localExecutionTimeMs": 264}, 1230),
        ({"durationMs": "5857"}, 5857),
        ({"durationMs": "soon"}, None),
        ({}, None),
    ],
)
def test_the_duration_is_what_the_agent_measured(value: dict[str, Any], expected: int | None) -> None:
    assert read_result("task", {}, {"success": value})[1].duration_ms == expected


def test_a_command_that_failed_tells_how_long_it_ran() -> None:
    outcome = read_result("shell", {}, {"failure": {"exitCode": 1, "executionTime": 70}})[1]
    assert outcome.duration_ms == 70


@pytest.mark.parametrize("value", [{}, {"signal": "SIGKILL"}, {"exitCode": None}])
def test_a_command_that_failed_without_a_status_does_not_claim_one(value: dict[str, Any]) -> None:
    message = read_result("shell", {}, {"failure": value})[1].message
    assert message
    assert "None" not in message


# --- Commands -------------------------------------------------------------------------------------


def command(args: object, result: object) -> Command:
    action, _ = read_result("shell", args, result)
    assert isinstance(action, Command)
    return action


@pytest.mark.parametrize(
    ("result", "exit_code"),
    [
        ({"success": {"exitCode": 0}}, 0),
        ({"success": {}}, 0),
        ({"success": {"exitCode": "3"}}, 3),
        ({"failure": {"exitCode": 127}}, 127),
        ({"failure": {}}, -1),
        ({"timeout": {"timeoutMs": 5}}, -1),
        ({"rejected": {}}, -1),
        ({"spawnError": {}}, -1),
    ],
)
def test_a_command_that_never_ran_to_an_end_has_the_status_minus_one(result: object, exit_code: int) -> None:
    assert command({}, result).exit_code == exit_code


def test_a_command_that_starts_has_no_status_yet() -> None:
    assert read_call("shell", {"command": "ls", "workingDirectory": "/w"}) == Command(
        tool="run_terminal_cmd", command="ls", working_directory="/w", exit_code=-1
    )


@pytest.mark.parametrize(
    ("value", "output"),
    [
        ({"stdout": "a\n", "stderr": "b\n", "interleavedOutput": "b\na\n"}, "b\na\n"),
        ({"stdout": "a\n", "stderr": "b\n", "interleavedOutput": ""}, "a\nb\n"),
        ({"stdout": "a", "stderr": "b"}, "a\nb"),
        ({"stdout": "a"}, "a"),
        ({"stderr": "b"}, "b"),
        ({}, ""),
    ],
)
def test_the_output_is_interleaved_where_the_agent_says_how(value: dict[str, Any], output: str) -> None:
    assert command({}, {"success": value}).output == output


def test_a_rejected_command_without_arguments_is_named_by_its_result() -> None:
    found = command(None, {"rejected": {"command": "rm x", "workingDirectory": "/w", "reason": ""}})
    assert (found.command, found.working_directory) == ("rm x", "/w")


def test_where_a_command_ran_is_known_best_by_its_result() -> None:
    ran = {"success": {"workingDirectory": "/ran"}}
    assert command({"workingDirectory": "/asked"}, ran).working_directory == "/ran"
    assert command({"workingDirectory": "/asked"}, {"success": {}}).working_directory == "/asked"
    assert command({"cwd": "/asked"}, {"success": {}}).working_directory == "/asked"


@pytest.mark.parametrize(
    ("policy", "permissions"),
    [
        ({"type": "TYPE_INSECURE_NONE"}, ["all"]),
        ({"type": 1}, ["all"]),
        ({"type": "TYPE_WORKSPACE_READWRITE", "networkAccess": True}, ["network"]),
        ({"type": 2, "blockGitWrites": False}, ["git_write"]),
        ({"networkAccess": True, "blockGitWrites": False}, ["network", "git_write"]),
        ({"type": "TYPE_WORKSPACE_READONLY", "networkAccess": False, "blockGitWrites": True}, []),
        ({"networkAccess": "yes"}, []),
        ({}, []),
    ],
)
def test_permissions_follow_from_the_sandbox_policy(policy: dict[str, Any], permissions: list[str]) -> None:
    assert command({}, {"success": {}, "sandboxPolicy": policy}).permissions == permissions
    assert command({"requestedSandboxPolicy": policy}, {"success": {}}).permissions == permissions


def test_the_policy_that_was_applied_beats_the_one_that_was_asked_for() -> None:
    applied = {"success": {}, "sandboxPolicy": {"networkAccess": True}}
    assert command({"requestedSandboxPolicy": {"type": 1}}, applied).permissions == ["network"]


def test_without_a_policy_the_editors_own_list_counts() -> None:
    assert command({"required_permissions": ["network", 7]}, {"success": {}}).permissions == ["network"]


# --- Files ----------------------------------------------------------------------------------------


def edit(args: object, value: object) -> FileEdit:
    action, _ = read_result("edit", args, {"success": value})
    assert isinstance(action, FileEdit)
    return action


PATCH = "--- a/x\n+++ b/x\n@@ -4,2 +4,2 @@\n a\n-b\n+B\n"


def test_a_file_without_a_before_is_new_and_has_no_diff() -> None:
    new = FileEdit(tool="edit_file", path="x", operation="create", content="a\n")
    assert edit({"path": "x"}, {"afterFullFileContent": "a\n"}) == new
    assert edit({"path": "x"}, {"afterFullFileContent": "a\n", "diffString": "--- /dev/null\n+++ b/x\n"}) == new
    assert edit({}, {"path": "x", "afterFullFileContent": "a\n"}) == new


def test_a_patch_without_headers_is_a_change_of_a_known_file_and_all_of_a_new_one() -> None:
    found = edit({"path": "x"}, {"afterFullFileContent": "a\nB\n", "diffString": "-b\n+B"})
    assert found.diff == Diff(old_string="b", new_string="B", start_line=2, end_line=2)
    assert (found.operation, found.content) == ("edit", "B")
    new = edit({"path": "x"}, {"afterFullFileContent": "a\nb\n", "diffString": "+a\n+b\n"})
    assert (new.operation, new.content, new.diff) == ("create", "a\nb\n", None)


def test_an_empty_before_is_a_before() -> None:
    found = edit({"path": "x"}, {"beforeFullFileContent": "", "afterFullFileContent": "a"})
    assert (found.operation, found.content) == ("edit", "a")
    assert found.diff == Diff(old_string="", new_string="a", start_line=1, end_line=1)


@pytest.mark.parametrize("value", [{"diffString": PATCH}, {"diffString": PATCH, "afterFullFileContent": "…"}])
def test_a_patch_is_read_where_the_before_is_missing(value: dict[str, Any]) -> None:
    found = edit({"path": "x"}, value)
    assert (found.operation, found.content) == ("edit", "B")
    assert found.diff == Diff(old_string="b", new_string="B", start_line=5, end_line=5)


@pytest.mark.parametrize(
    "args",
    [
        {"path": "x", "strReplace": {"oldText": "a\nb", "newText": "c"}},
        {"path": "x", "multiStrReplace": {"edits": [{"oldText": "a\nb", "newText": "c"}]}},
        {"path": "x", "old_string": "a\nb", "new_string": "c"},
    ],
)
def test_a_replacement_is_a_change_whose_place_is_not_known(args: dict[str, Any]) -> None:
    found = edit(args, {"resultForModel": "ok"})
    assert (found.operation, found.content) == ("edit", "c")
    assert found.diff == Diff(old_string="a\nb", new_string="c", start_line=1, end_line=2)


def test_several_replacements_are_one_change_with_their_texts_joined() -> None:
    edits = [{"oldText": "a", "newText": "b"}, {"oldText": "c", "newText": "d"}, {"oldText": "no new text"}]
    found = edit({"path": "x", "multiStrReplace": {"edits": edits}}, {})
    assert found.diff == Diff(old_string="a\nc", new_string="b\nd", start_line=1, end_line=2)


def test_a_patch_may_stand_in_the_arguments() -> None:
    found = edit({"path": "x", "applyPatch": {"patchContent": PATCH}}, {"resultForModel": "ok"})
    assert found.diff == Diff(old_string="b", new_string="B", start_line=5, end_line=5)


def test_a_plan_has_the_todos_of_its_phases_too_each_once() -> None:
    phases = [{"name": "one", "todos": [{"id": "a", "content": "again"}, {"id": "b"}, {"content": "nameless"}]}]
    plan = read_call("createPlan", {"name": "P", "todos": [{"id": "a", "content": "first"}], "phases": phases})
    assert isinstance(plan, Plan)
    assert [(todo.id, todo.content) for todo in plan.todos] == [("a", "first"), ("b", ""), ("3", "nameless")]


def test_text_in_mcps_own_shape_is_text() -> None:
    action, _ = read_result("mcp", {"toolName": "t"}, {"success": {"content": [{"type": "text", "text": "hello"}]}})
    assert isinstance(action, OtherTool)
    assert action.data == "hello"


def test_a_result_of_no_known_shape_is_kept_as_it_came() -> None:
    result = {"value": {"why": "x"}, "isBackground": False}
    action, outcome = read_result("newThing", {"a": 1}, result)
    assert outcome == Outcome()
    assert action == other("new_thing", {"a": 1}, {"value": {"why": "x"}})


def test_a_failure_that_names_nothing_is_about_what_the_call_named() -> None:
    _, outcome = read_result("read", {"path": "a.py"}, {"error": {"errorMessage": "File not found"}})
    assert (outcome.code, outcome.details) == ("FILE_NOT_FOUND", "a.py")


def test_a_patch_without_a_hunk_leaves_the_text_that_is_known() -> None:
    known = {"path": "x", "streamContent": "written"}
    assert edit(known, {"diffString": "…", "afterFullFileContent": "after"}).content == "after"
    assert edit(known, {"diffString": "…"}).content == "written"
    assert edit(known, {}).content == "written"
    assert edit({"path": "x"}, {}) == FileEdit(tool="edit_file", path="x", operation="edit")


@pytest.mark.parametrize("name", ["streamContent", "code_edit", "contents", "new_string"])
def test_an_edit_that_starts_shows_what_is_being_written(name: str) -> None:
    assert read_call("edit", {"path": "x", name: ""}) == FileEdit(
        tool="edit_file", path="x", operation="edit", content=""
    )


@pytest.mark.parametrize("tool", ["edit", "write", "delete"])
@pytest.mark.parametrize("name", ["path", "target_file", "file_path"])
def test_a_path_has_several_names(tool: str, name: str) -> None:
    action = read_call(tool, {name: "x"})
    assert isinstance(action, FileEdit)
    assert action.path == "x"


def test_a_path_that_only_the_result_knows_is_used() -> None:
    for tool, value in [("edit", {"path": "x"}), ("write", {"path": "x"}), ("delete", {"deletedFile": "x"})]:
        action, _ = read_result(tool, None, {"success": value})
        assert isinstance(action, FileEdit)
        assert action.path == "x"


@pytest.mark.parametrize(
    ("old", "new"), [("oldPath", "newPath"), ("old_path", "new_path"), ("source", "destination"), ("path", "target")]
)
def test_a_rename_has_several_spellings(old: str, new: str) -> None:
    assert read_call("rename", {old: "a", new: "b"}) == FileEdit(
        tool="rename_file", path="b", operation="rename", old_path="a"
    )


@pytest.mark.parametrize("name", ["fileText", "contents", "content"])
def test_what_is_written_has_several_names(name: str) -> None:
    action = read_call("write", {"path": "x", name: ""})
    assert action == FileEdit(tool="write_file", path="x", operation="create", content="")


# --- Plans, to-dos and questions ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("TODO_STATUS_PENDING", "pending"),
        ("TODO_STATUS_IN_PROGRESS", "in_progress"),
        ("TODO_STATUS_COMPLETED", "completed"),
        ("TODO_STATUS_CANCELLED", "cancelled"),
        ("TODO_STATUS_UNSPECIFIED", "pending"),
        ("in_progress", "in_progress"),
        ("completed", "completed"),
        (0, "pending"),
        (1, "pending"),
        (2, "in_progress"),
        (3, "completed"),
        (4, "cancelled"),
        (99, "pending"),
        ("what?", "pending"),
        (None, "pending"),
        ([], "pending"),
    ],
)
def test_a_status_is_a_name_or_in_old_builds_a_number(status: object, expected: str) -> None:
    action = read_call("updateTodos", {"todos": [{"id": "1", "status": status}]})
    assert isinstance(action, TodoUpdate)
    assert [todo.status for todo in action.todos] == [expected]


def test_a_todo_without_an_id_has_its_number() -> None:
    todos = [{"content": "a"}, "junk", {"content": "b", "dependencies": ["1", 2]}]
    assert read_call("createPlan", {"todos": todos}) == Plan(
        tool="create_plan",
        title="",
        overview="",
        markdown="",
        todos=[
            PlanTodo(id="1", content="a", status="pending", dependencies=[]),
            PlanTodo(id="2", content="b", status="pending", dependencies=["1"]),
        ],
    )


def test_a_plan_in_phases_has_their_todos_in_order() -> None:
    plan = read_call("createPlan", {"title": "T", "phases": [{"todos": TODOS[:1]}, {"todos": TODOS[1:]}]})
    assert isinstance(plan, Plan)
    assert (plan.title, plan.todos) == ("T", TODOS_READ)


def test_an_update_merges_unless_it_says_otherwise() -> None:
    for merge, expected in [(True, True), (False, False), (None, True), ("no", True)]:
        action = read_call("updateTodos", {"todos": [], "merge": merge})
        assert action == TodoUpdate(tool="todo_write", todos=[], merge=expected)


def test_todos_that_only_the_result_knows_are_used() -> None:
    action, _ = read_result("updateTodos", None, {"success": {"todos": [{"status": 3}]}})
    assert action == TodoUpdate(tool="todo_write", todos=[TodoChange(id="1", status="completed")])


def test_questions_and_options_without_ids_have_their_numbers() -> None:
    asked = {"questions": [{"text": "Which?", "options": [{"label": "X"}, {"id": "y", "label": "Y"}]}, {}]}
    assert read_call("askQuestion", asked) == Question(
        tool="ask_question",
        title="",
        questions=[
            ClarificationQuestion(
                id="q1",
                text="Which?",
                options=[ClarificationOption(id="1", label="X"), ClarificationOption(id="y", label="Y")],
            ),
            ClarificationQuestion(id="q2", text="", options=[]),
        ],
    )


# --- Everything else ------------------------------------------------------------------------------


def data(tool: str, value: object) -> Any:
    action, _ = read_result(tool, {}, {"success": value})
    assert isinstance(action, OtherTool)
    return action.data


@pytest.mark.parametrize(
    ("tool", "value", "useful"),
    [
        ("read", {"content": ""}, ""),
        ("read", {"data": "aGk="}, "aGk="),
        ("read", {"contentBlobId": "eA=="}, "eA=="),
        ("read", {"dataBlobId": "eA=="}, "eA=="),
        ("read", {"isEmpty": True}, ""),
        ("read", {"totalLines": 3}, {"totalLines": 3}),
        ("readMcpResource", {"blob": "aGk="}, "aGk="),
        ("generateImage", {"imageData": "iVBO"}, "iVBO"),
        ("semSearch", {"codeResults": ["x"]}, ["x"]),
        ("ls", {"other": 1}, {"other": 1}),
        ("task", {"conversationSteps": [{"toolCall": {}}]}, {"conversationSteps": [{"toolCall": {}}]}),
        ("grep", {"workspaceResults": {}}, []),
        ("read", "plain", "plain"),
    ],
)
def test_the_data_is_the_useful_value_or_else_the_whole(tool: str, value: object, useful: object) -> None:
    assert data(tool, value) == useful


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ([{"text": {"text": "a"}}], "a"),
        ([{"text": {"text": "a"}}, {"text": {"text": ""}}, {"text": {"text": "b"}}], "a\nb"),
        (
            [{"text": {"text": "a"}}, {"image": {"data": "iVBO"}}],
            [{"text": {"text": "a"}}, {"image": {"data": "iVBO"}}],
        ),
        (
            [{"image": {"data": "iVBO", "mimeType": "image/png"}}],
            [{"image": {"data": "iVBO", "mimeType": "image/png"}}],
        ),
        ([], []),
    ],
)
def test_an_mcp_tools_text_is_text_and_its_images_stay_parts(content: list[Any], expected: object) -> None:
    assert data("mcp", {"content": content}) == expected


def test_an_mcp_value_without_content_stays_as_it_is() -> None:
    assert data("mcp", {"structured": 1}) == {"structured": 1}


def test_an_mcp_tool_that_says_it_failed_has_failed() -> None:
    said = {"content": [{"text": {"text": "no such page"}}], "isError": True}
    action, outcome = read_result("mcp", {"toolName": "find", "args": {"q": 1}}, {"success": said})
    assert outcome == failed("TOOL_ERROR", "no such page")
    assert action == other("find", {"q": 1}, "no such page")
    assert read_result("mcp", {}, {"success": {"isError": True}})[1] == failed("TOOL_ERROR", "The MCP tool failed.")


def test_an_mcp_tool_is_called_by_its_own_name() -> None:
    for args, name in [({"toolName": "find", "name": "docs-find"}, "find"), ({"name": "docs-find"}, "docs-find")]:
        assert read_call("mcp", args) == OtherTool(tool=name, arguments={})
    assert read_call("mcp", {}) == OtherTool(tool="mcp", arguments={})


def test_an_unknown_tool_is_described_faithfully() -> None:
    args = {"someThing": [1, {"deepKey": None}], "toolCallId": "t"}
    value = {"anyThing": {"x": [1.5]}}
    action, outcome = read_result("brandNewThing", args, {"success": value})
    assert action == other("brand_new_thing", args, value)
    assert outcome == Outcome()
    assert read_call("", args) == OtherTool(tool="tool", arguments=args)


# --- The editor's names ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("run_terminal_cmd", {"command": "ls"}, Command(tool="run_terminal_cmd", command="ls")),
        (
            "edit_file",
            {"target_file": "x", "code_edit": "y"},
            FileEdit(tool="edit_file", path="x", operation="edit", content="y"),
        ),
        (
            "search_replace",
            {"file_path": "x", "new_string": "y"},
            FileEdit(tool="edit_file", path="x", operation="edit", content="y"),
        ),
        (
            "write",
            {"file_path": "x", "contents": "y"},
            FileEdit(tool="write_file", path="x", operation="create", content="y"),
        ),
        (
            "write_file",
            {"path": "x", "content": "y"},
            FileEdit(tool="write_file", path="x", operation="create", content="y"),
        ),
        ("delete_file", {"target_file": "x"}, FileEdit(tool="delete_file", path="x", operation="delete")),
        (
            "rename_file",
            {"source": "x", "destination": "y"},
            FileEdit(tool="rename_file", path="y", operation="rename", old_path="x"),
        ),
        ("create_plan", {"name": "P"}, Plan(tool="create_plan", title="P", overview="", markdown="", todos=[])),
        ("todo_write", {"todos": [], "merge": True}, TodoUpdate(tool="todo_write", todos=[])),
        ("ask_question", {"title": "T"}, Question(tool="ask_question", title="T", questions=[])),
        ("read_file", {"target_file": "x"}, OtherTool(tool="read_file", arguments={"target_file": "x"})),
        ("my_tool", {"camelCase": 1}, OtherTool(tool="my_tool", arguments={"camelCase": 1})),
    ],
)
def test_an_editors_name_means_the_same_tool(name: str, arguments: dict[str, Any], expected: Action) -> None:
    assert read_named(name, arguments) == expected


# --- Junk -----------------------------------------------------------------------------------------

KNOWN_KEYS = sorted(
    {key for _, args, value, _ in SUCCESSES for key in [*args, *value]}
    | {key for _, result, _ in FAILURES for value in result.values() for key in [*result, *value]}
    | {"success", "async", "todos", "phases", "options", "isError", "text", "matches", "files", "counts", "count"}
    | {"content", "childrenDirs", "childrenFiles", "assistantMessage", "sandboxPolicy", "requestedSandboxPolicy"}
    | {"type", "status", "dependencies", "beforeFullFileContent", "afterFullFileContent", "diffString", "image"}
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", "x", "-1", "@@ -1 +1 @@\n-a"])
junk = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KNOWN_KEYS), inner, max_size=4),
    max_leaves=8,
)


@given(st.sampled_from([*[row[0] for row in SUCCESSES], "", "brandNew"]), junk, junk)
@examples(1000)
def test_no_payload_is_too_strange(tool: str, args: object, result: object) -> None:
    for action in (
        read_call(tool, args),
        *read_result(tool, args, result),
        *read_result(tool, args, {"success": result}),
    ):
        assert msgspec.json.decode(msgspec.json.encode(action)) is not None


@given(
    st.sampled_from(["run_terminal_cmd", "edit_file", "todo_write", "my_tool", ""]), st.dictionaries(st.text(), junk)
)
@examples(300)
def test_no_arguments_are_too_strange(name: str, arguments: dict[str, Any]) -> None:
    assert msgspec.json.encode(read_named(name, arguments))


def test_a_search_that_tells_only_how_much_it_found_keeps_that() -> None:
    counts = {"totalMatches": 3, "truncated": False}
    action, _ = read_result("grep", {"pattern": "x"}, {"success": counts})
    assert isinstance(action, OtherTool)
    assert action.data == counts  # not an empty list, which would say that nothing was found


# --- How a call ended ------------------------------------------------------------------------------

ENDINGS: dict[str, tuple[dict[str, Any], Outcome]] = {
    "a success": ({"pid": 1, "success": {"a": 1}}, Outcome()),
    "a success of its own name": ({"readSuccess": {"a": 1}}, Outcome()),
    "a code without words": (
        {"fileBusy": {"path": "a.py"}},
        Outcome(state="failed", code="FILE_BUSY", message="The file is in use.", details="a.py"),
    ),
    "words": ({"error": "no"}, Outcome(state="failed", code="TOOL_ERROR", message="no")),
    "words that name a missing file": (
        {"error": {"error": "ENOENT: no such file"}},
        Outcome(state="failed", code="FILE_NOT_FOUND", message="ENOENT: no such file"),
    ),
    "a failure that is not known": (
        {"lockDenied": {}},
        Outcome(state="failed", code="TOOL_ERROR", message="The tool reported lock denied."),
    ),
    "an exit status": (
        {"failure": {"exitCode": 3}},
        Outcome(state="failed", code="COMMAND_FAILED", message="The command exited with status 3."),
    ),
    "a signal": (
        {"failure": {"exitCode": 137, "signal": "SIGKILL"}},
        Outcome(state="failed", code="COMMAND_FAILED", message="The command was ended by SIGKILL."),
    ),
    "a status that is none": (
        {"failure": {"exitCode": -1}},
        Outcome(state="failed", code="COMMAND_FAILED", message="The command did not finish."),
    ),
    "no exit status": ({"failure": {}}, Outcome(state="failed", code="COMMAND_FAILED", message="The command failed.")),
    "a timeout by its number": (
        {"failure": {"abortReason": 2}},
        Outcome(state="timed_out", code="TIMEOUT", message="The command ran out of time."),
    ),
    "a user who stops it": (
        {"failure": {"abortReason": "SHELL_ABORT_REASON_USER_ABORT"}},
        Outcome(state="interrupted", code="INTERRUPTED", message="The command was stopped."),
    ),
    "a rejection": ({"rejected": {"reason": "No."}}, Outcome(state="rejected", code="REJECTED", message="No.")),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_the_key_of_a_result_says_how_the_call_ended(name: str) -> None:
    result, expected = ENDINGS[name]
    outcome, value = read_outcome(result)
    assert outcome == expected
    assert value in result.values()


def test_any_other_result_is_a_success_and_kept_whole() -> None:
    assert read_outcome("done") == (Outcome(), "done")
    assert read_outcome({"a": 1, "pid": 2}) == (Outcome(), {"a": 1})
    assert read_outcome({"pid": 2}) == (Outcome(), None)


def test_names_in_snake_case() -> None:
    assert snake("readPermissionDenied") == "read_permission_denied"


def test_a_duration_is_the_tools_own_or_that_of_the_first_whole_clock() -> None:
    assert timed(Outcome(duration_ms=7), (0, 5)) == Outcome(duration_ms=7)
    assert timed(Outcome(), (None, 5), (10, 15.9), (0, 1)) == Outcome(duration_ms=5)
    assert timed(Outcome(), (5, 3)) == Outcome(duration_ms=0)
    assert timed(Outcome(), (None, 5), (5, None)) == Outcome()
