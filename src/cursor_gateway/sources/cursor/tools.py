"""Read Cursor's tool calls (name, arguments, result) as actions and outcomes.

One table lists every tool of the agent's protocol; a tool that is not in it becomes an `OtherTool` with its
arguments and its result unchanged. Payloads are protobuf-JSON: messages may have unknown fields, an enum is its
name (in old builds its number), and a result is an object with one of several keys.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec import UNSET, Struct, structs
from msgspec.structs import replace

from cursor_gateway.model import documents
from cursor_gateway.model.agent_events import Action, Command, FileEdit, OtherTool, Outcome, Plan, Question, TodoUpdate
from cursor_gateway.stages.diffs import line_diff, patch_diff
from cursor_gateway.wire.payload import Fields, clamped

_SUBJECTS = ("path", "target_file", "command", "url", "uri", "globPattern", "pattern", "query", "searchTerm")
# What a rule or a hook that denies a read says (2026.10.01). A file that cannot be opened has a result of its own.
_REFUSED_READS = ("Error: Permission denied", "Permission denied")
_NOTHING = Fields({})
# The agent's own reason is that the user skipped the question, who may never have seen it.
_UNANSWERED = Outcome(
    state="unanswered", code="UNANSWERED", message="The agent went on without you. You can still answer."
)


class CursorCall(Struct, frozen=True):
    """One tool call. `value` is what the result has under its outcome key; until the call ends it is empty."""

    args: Fields
    value: Fields
    result: Fields
    state: documents.State


def read_call(tool: str, args: object) -> Action:
    """A call as it starts. `tool` is the protocol's name without its suffix: `shell` for `shellToolCall`."""
    return _action(tool, _started(args), None)


def _started(args: object) -> CursorCall:
    return CursorCall(Fields(args), _NOTHING, _NOTHING, "interrupted")


def read_result(tool: str, args: object, result: object) -> tuple[Action, Outcome]:
    """A call as it ended."""
    outcome, value = read_outcome(result)
    call = CursorCall(Fields(args), Fields(value), Fields(result), outcome.state)
    if tool == "mcp" and call.value.flag("isError"):
        outcome = Outcome(state="failed", code="TOOL_ERROR", message=_mcp_text(call.value) or "The MCP tool failed.")
    if tool == "askQuestion" and outcome.state == "rejected":
        outcome = _UNANSWERED
    if tool == "read" and outcome.message in _REFUSED_READS:
        outcome = structs.replace(outcome, state="rejected", code="REJECTED")
    if outcome.state != "completed" and not outcome.details:
        outcome = structs.replace(outcome, details=call.args.text(*_SUBJECTS))
    milliseconds = call.value.integer("executionTime") or call.value.integer("durationMs")
    if milliseconds is not None:
        outcome = structs.replace(outcome, duration_ms=milliseconds)
    return _action(tool, call, value if outcome.state == "completed" else outcome.message), outcome


def read_named(name: str, arguments: dict[str, Any]) -> Action:
    """A call by the name that Cursor's editor uses."""
    tool = _EDITOR_NAMES.get(name)
    return OtherTool(tool=name, arguments=arguments) if tool is None else read_call(tool, arguments)


def _action(tool: str, call: CursorCall, value: Any) -> Action:
    if reader := _READERS.get(tool):
        return reader(call)
    if tool == "mcp":
        name, arguments = call.args.text("toolName", "name") or "mcp", call.args.object("args").all
        read_data: Callable[[Fields], Any] = _mcp_data
    elif entry := _TABLE.get(tool):
        name, arguments, read_data = entry.name, entry.arguments(call.args), entry.data
    else:
        name, arguments, read_data = snake(tool) or "tool", call.args.all, _whole
    data = read_data(call.value) if call.state == "completed" and isinstance(value, dict) else value
    return OtherTool(tool=name, arguments=arguments, data=data)


# --- Tools with a document of their own -------------------------------------------------------------


def _edit(call: CursorCall) -> Action:
    path = call.args.text("path", "target_file", "file_path") or call.value.text("path")
    before = call.value.maybe_text("beforeFullFileContent")
    after = call.value.maybe_text("afterFullFileContent")
    patch = call.value.text("diffString")
    written = call.args.maybe_text("streamContent", "code_edit", "contents", "new_string")
    patch = patch or call.args.object("applyPatch").text("patchContent", "patch")
    if after is not None and before is not None:
        change = line_diff(before, after)
        return FileEdit(tool="edit_file", path=path, operation="edit", content=change.new_string, diff=change)
    if after is not None and (not patch or patch.startswith(("--- /dev/null", "@@ -0,0 "))):
        return FileEdit(tool="edit_file", path=path, operation="create", content=after)
    if patch and (found := patch_diff(patch, after)):
        if after is not None and not found.old_string and found.new_string.rstrip("\n") == after.rstrip("\n"):
            return FileEdit(tool="edit_file", path=path, operation="create", content=after)
        return FileEdit(tool="edit_file", path=path, operation="edit", content=found.new_string, diff=found)
    if after is None and (replaced := _replacement(call.args)):
        return FileEdit(tool="edit_file", path=path, operation="edit", content=replaced.new_string, diff=replaced)
    return FileEdit(tool="edit_file", path=path, operation="edit", content=written if after is None else after)


def _replacement(args: Fields) -> documents.Diff | None:
    """An edit as builds of 2025 and the editor report it: old and new text, without a position."""
    edits = [args.object("strReplace"), *args.object("multiStrReplace").objects("edits"), args]
    texts = [
        (edit.maybe_text("oldText", "oldString", "old_string"), edit.maybe_text("newText", "newString", "new_string"))
        for edit in edits
    ]
    pairs = [(old, new) for old, new in texts if old is not None and new is not None]
    if not pairs:
        return None
    old_text, new_text = "\n".join(old for old, _ in pairs), "\n".join(new for _, new in pairs)
    end_line = 1 + old_text.removesuffix("\n").count("\n")
    return documents.Diff(old_string=old_text, new_string=new_text, start_line=1, end_line=end_line)


def _write(call: CursorCall) -> Action:
    path = call.args.text("path", "target_file", "file_path") or call.value.text("path")
    content = call.args.maybe_text("fileText", "contents", "content")
    return FileEdit(tool="write_file", path=path, operation="create", content=content)


def _delete(call: CursorCall) -> Action:
    path = call.args.text("path", "target_file", "file_path") or call.value.text("path", "deletedFile")
    return FileEdit(tool="delete_file", path=path, operation="delete")


def _rename(call: CursorCall) -> Action:
    old = call.args.text("oldPath", "old_path", "source", "path")
    new = call.args.text("newPath", "new_path", "destination", "target")
    return FileEdit(tool="rename_file", path=new, operation="rename", old_path=old)


def _shell(call: CursorCall) -> Action:
    exit_code = call.value.integer("exitCode")
    if exit_code is None:
        exit_code = 0 if call.state == "completed" else -1  # protobuf-JSON may omit a zero
    policy = call.result.all.get("sandboxPolicy") or call.args.all.get("requestedSandboxPolicy")
    return Command(
        tool="run_terminal_cmd",
        command=call.value.text("command") or call.args.text("command"),  # a hook may have changed it
        working_directory=call.value.text("workingDirectory") or call.args.text("workingDirectory", "cwd"),
        exit_code=exit_code,
        output=call.value.text("interleavedOutput") or _both_outputs(call.value),
        permissions=(policy and _permissions(Fields(policy))) or call.args.texts("required_permissions"),
    )


def _both_outputs(value: Fields) -> str:
    stdout, stderr = value.text("stdout"), value.text("stderr")
    between = "\n" if not stdout.endswith("\n") else ""
    return f"{stdout}{between}{stderr}" if stdout and stderr else stdout or stderr


def _permissions(policy: Fields) -> list[str]:
    if policy.all.get("type") in ("TYPE_INSECURE_NONE", 1):
        return ["all"]
    granted = {"network": policy.flag("networkAccess") is True, "git_write": policy.flag("blockGitWrites") is False}
    return [name for name, is_granted in granted.items() if is_granted]


_TODO_STATUS: dict[str, documents.TodoStatus] = {
    "IN_PROGRESS": "in_progress", "COMPLETED": "completed", "CANCELLED": "cancelled",
    "2": "in_progress", "3": "completed", "4": "cancelled",
}  # fmt: skip


def _todo_status(todo: Fields) -> documents.TodoStatus:
    name = str(todo.all.get("status")).upper().removeprefix("TODO_STATUS_")
    return _TODO_STATUS.get(name, "pending")


def _plan_todos(todos: list[Fields]) -> list[documents.PlanTodo]:
    return [
        documents.PlanTodo(
            id=todo.text("id") or str(number),
            content=todo.text("content"),
            status=_todo_status(todo),
            dependencies=todo.texts("dependencies"),
        )
        for number, todo in enumerate(todos, 1)
    ]


def _update_todos(call: CursorCall) -> Action:
    todos = call.args.objects("todos") or call.value.objects("todos")
    return TodoUpdate(
        tool="todo_write",
        todos=[
            documents.TodoChange(
                id=todo.text("id") or str(number),
                status=_todo_status(todo),
                content=todo.text("content") or UNSET,
            )
            for number, todo in enumerate(todos, 1)
        ],
        merge=call.args.flag("merge") is not False,
    )


def _create_plan(call: CursorCall) -> Action:
    todos = call.args.objects("todos")
    known = {todo.text("id") for todo in todos}
    phases = [todo for phase in call.args.objects("phases") for todo in phase.objects("todos")]
    todos += [todo for todo in phases if not todo.text("id") or todo.text("id") not in known]
    return Plan(
        tool="create_plan",
        title=call.args.text("name", "title"),
        overview=call.args.text("overview"),
        markdown=call.args.text("plan"),
        todos=_plan_todos(todos),
        is_accepted=call.value.flag("accepted") is True,
    )


def _ask_question(call: CursorCall) -> Action:
    return Question(
        tool="ask_question",
        title=call.args.text("title"),
        questions=[
            documents.ClarificationQuestion(
                id=question.text("id") or f"q{number}",
                text=question.text("prompt", "text"),
                options=[
                    documents.ClarificationOption(id=option.text("id") or str(position), label=option.text("label"))
                    for position, option in enumerate(question.objects("options"), 1)
                ],
                allow_multiple=question.flag("allowMultiple") or UNSET,
            )
            for number, question in enumerate(call.args.objects("questions"), 1)
        ],
        answers=[
            documents.ClarificationAnswer(
                question_id=answer.text("questionId"),
                selected_option_ids=answer.texts("selectedOptionIds"),
                text=answer.text("text", "freeText") or UNSET,
            )
            for answer in call.value.objects("answers")
        ],
    )


_READERS: dict[str, Callable[[CursorCall], Action]] = {
    "askQuestion": _ask_question,
    "createPlan": _create_plan,
    "delete": _delete,
    "edit": _edit,
    "rename": _rename,
    "shell": _shell,
    "updateTodos": _update_todos,
    "write": _write,
}

_EDITOR_NAMES = {
    "write": "write",
    **{reader(_started({})).tool: tool for tool, reader in _READERS.items()},
    "search_replace": "edit",
}


# --- Tools that become a `tool_call` --------------------------------------------------------------


def _whole(value: Fields) -> Any:
    return value.all


class Entry(Struct, frozen=True):
    """How a tool is reported: its name, arguments that are not just converted to snake_case, and its useful data."""

    name: str
    renamed: dict[str, str] = {}
    data: Callable[[Fields], Any] = _whole

    def arguments(self, args: Fields) -> dict[str, Any]:
        return {self.renamed.get(key) or snake(key): value for key, value in args.all.items() if key not in _PLUMBING}


_PLUMBING = {"toolCallId", "sandboxPolicy"}  # metadata of the call, not arguments


def _first(*names: str) -> Callable[[Fields], Any]:
    """The value of the first of these fields that is present; else the whole value."""
    return lambda value: next((value.all[name] for name in names if name in value.all), value.all)


def _read_content(value: Fields) -> Any:
    if value.flag("isEmpty") and "content" not in value.all:
        return ""
    return _first("content", "data", "contentBlobId", "dataBlobId")(value)


def _grep_hits(value: Fields) -> Any:
    if "workspaceResults" not in value.all and "activeEditorResult" not in value.all:
        return value.all  # only counts, over ACP
    hits: list[Any] = []
    groups = [Fields(group) for group in value.object("workspaceResults").all.values()]
    for group in [*groups, value.object("activeEditorResult")]:
        hits += group.object("files").texts("files")
        hits += [count.all for count in group.object("count").objects("counts")]
        for file in group.object("content").objects("matches"):
            for match in file.objects("matches"):
                line = {
                    "file": file.text("file"),
                    "line": match.integer("lineNumber"),
                    "content": match.text("content"),
                }
                hits.append({**line, "context": True} if match.flag("isContextLine") else line)
    return hits


def _tree(node: Fields) -> dict[str, Any]:
    return {
        "path": node.text("absPath"),
        "directories": [_tree(child) for child in node.objects("childrenDirs")],
        "files": [file.text("name") for file in node.objects("childrenFiles")],
    }


def _listing(value: Fields) -> Any:
    return _tree(value.object("directoryTreeRoot")) if "directoryTreeRoot" in value.all else value.all


def _last_message(value: Fields) -> Any:
    """A sub-agent's answer is its last message."""
    texts = [step.object("assistantMessage").text("text") for step in value.objects("conversationSteps")]
    return next((text for text in reversed(texts) if text), value.all)


def _todos(value: Fields) -> Any:
    return [structs.asdict(todo) for todo in _plan_todos(value.objects("todos"))]


def _mcp_text(value: Fields) -> str:
    texts = [part.object("text").text("text") or part.text("text") for part in value.objects("content")]
    return "\n".join(text for text in texts if text)


def _mcp_data(value: Fields) -> Any:
    """Text alone becomes a string; any other content is kept as its parts."""
    parts = value.items("content")
    if parts and all(isinstance(part, dict) and "text" in part for part in parts):
        return _mcp_text(value)
    return value.all.get("content", value.all)


_TABLE: dict[str, Entry] = {
    "applyAgentDiff": Entry("apply_agent_diff", data=_first("appliedChanges")),
    "computerUse": Entry("computer_use"),
    "exaFetch": Entry("exa_fetch", data=_first("contents")),
    "exaSearch": Entry("exa_search", data=_first("references")),
    "fetch": Entry("fetch", data=_first("content")),
    "generateImage": Entry("generate_image", data=_first("filePath", "imageData")),
    "getMcpTools": Entry("get_mcp_tools", data=_first("tools")),
    "glob": Entry("glob_file_search", data=_first("files")),
    "grep": Entry("grep", data=_grep_hits),
    "listMcpResources": Entry("list_mcp_resources", data=_first("resources")),
    "ls": Entry("list_dir", {"path": "target_directory", "ignore": "ignore_globs"}, _listing),
    "read": Entry("read_file", {"path": "target_file"}, _read_content),
    "readLints": Entry("read_lints", data=_first("fileDiagnostics")),
    "readMcpResource": Entry("read_mcp_resource", data=_first("text", "blob")),
    "readTodos": Entry("todo_read", data=_todos),
    "recordScreen": Entry("record_screen", data=_first("path")),
    "reflect": Entry("reflect"),
    "semSearch": Entry("codebase_search", data=_first("results", "codeResults")),
    "setupVmEnvironment": Entry("setup_vm_environment"),
    "startGrindExecution": Entry("start_grind_execution"),
    "startGrindPlanning": Entry("start_grind_planning"),
    "switchMode": Entry("switch_mode"),
    "task": Entry("task", data=_last_message),
    "truncated": Entry("truncated"),
    "webFetch": Entry("web_fetch", data=_first("markdown", "content")),
    "webSearch": Entry("web_search", data=_first("references")),
    "writeShellStdin": Entry("write_shell_stdin"),
}


# --- How a call ended: a result is an object with one of several keys ------------------------------

_BESIDE_THE_OUTCOME = {"isBackground", "sandboxPolicy", "terminalsFolder", "pid", "planUri"}


class Ending(NamedTuple):
    code: str
    message: str = ""  # if the agent has none
    state: documents.State = "failed"


_NO_FILE = Ending("FILE_NOT_FOUND", "The file does not exist.")
_DENIED = Ending("PERMISSION_DENIED", "Permission was denied.")
_INTERRUPTED = Ending("INTERRUPTED", "The command was stopped.", "interrupted")
_OUT_OF_TIME = Ending("TIMEOUT", "The command ran out of time.", "timed_out")
_ENDINGS = {
    "failure": Ending("COMMAND_FAILED"),
    "fileBusy": Ending("FILE_BUSY", "The file is in use."),
    "fileNotFound": _NO_FILE,
    "notFile": Ending("NOT_A_FILE", "The path is not a file."),
    "notFound": Ending("NOT_FOUND", "Nothing was found under that name."),
    "permissionDenied": _DENIED,
    "readPermissionDenied": _DENIED,
    "rejected": Ending("REJECTED", "The call was rejected.", "rejected"),
    "spawnError": Ending("SPAWN_FAILED", "The command could not be started."),
    "timeout": Ending("TIMEOUT", "The tool ran out of time.", "timed_out"),
    "writePermissionDenied": _DENIED,
}
CODES = {key: ending.code for key, ending in _ENDINGS.items()}
_ABORTED = {
    "SHELL_ABORT_REASON_USER_ABORT": _INTERRUPTED, "1": _INTERRUPTED,
    "SHELL_ABORT_REASON_TIMEOUT": _OUT_OF_TIME, "2": _OUT_OF_TIME,
}  # fmt: skip

_MISSING_FILE = re.compile(r"\bfile not found|no such file|does not exist|ENOENT", re.IGNORECASE)
_FAILURE = re.compile(r"(?:error|denied|notFound|failure|rejected|timeout|busy)$", re.IGNORECASE)


def read_outcome(result: object) -> tuple[Outcome, Any]:
    """And the value under the key of the outcome. A result of unknown shape counts as a success and is kept whole."""
    if not isinstance(result, dict):
        return Outcome(), result
    fields = {key: value for key, value in result.items() if key not in _BESIDE_THE_OUTCOME}
    for key, value in fields.items():
        if key == "success" or key == "async" or key.endswith("Success"):
            return Outcome(), value
    for key, value in fields.items():
        if key in CODES or _FAILURE.search(key):
            return _failure(key, Fields({"error": value} if isinstance(value, str) else value)), value
    return Outcome(), fields or None


def _failure(key: str, value: Fields) -> Outcome:
    message = value.text("error", "errorMessage", "clientVisibleError", "reason", "message").strip()
    details = value.text("modelVisibleError", "details", "path", "command", "url", "uri")
    ending = _ENDINGS.get(key)
    if ending is None:
        is_missing = _MISSING_FILE.search(f"{message} {details}")
        ending = _NO_FILE if is_missing else Ending("TOOL_ERROR", f"The tool reported {snake(key).replace('_', ' ')}.")
    ending = _ABORTED.get(value.text("abortReason") or str(value.integer("abortReason")), ending)
    if ending.code == "COMMAND_FAILED" and not message:
        message = _how_it_failed(value.integer("exitCode"), value.text("signal"))
    return Outcome(state=ending.state, code=ending.code, message=message or ending.message, details=details)


def _how_it_failed(status: int | None, signal: str) -> str:
    if signal:
        return f"The command was ended by {signal}."
    if status is None:
        return "The command failed."
    return f"The command exited with status {status}." if status >= 0 else "The command did not finish."


def timed(outcome: Outcome, *clocks: tuple[float | None, float | None]) -> Outcome:
    """Prefers the tool's own measurement, then the first clock that has both times, in milliseconds."""
    if outcome.duration_ms is not None:
        return outcome
    for clock in clocks:
        if (took := elapsed(*clock)) is not None:
            return replace(outcome, duration_ms=took)
    return outcome


def elapsed(since_ms: float | None, until_ms: float | None) -> int | None:
    """None if one of the times is unknown."""
    return None if since_ms is None or until_ms is None else max(0, clamped(until_ms) - clamped(since_ms))


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
