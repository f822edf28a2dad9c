"""Show a document as the tool call that it stands for, with its arguments and its result as text.

For dialects that show what the agent did itself: its commands, edits, searches, plans and to-dos.
"""

from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct

from cursor_gateway.model import documents
from cursor_gateway.stages.diffs import diff_lines, split_lines

ActionDisplay: TypeAlias = Literal["thinking", "text", "native", "none"]  # of the Messages API

_FILE_TOOLS = {"create": "write_file", "edit": "edit_file", "delete": "delete_file", "rename": "rename_file"}


class ToolAction(Struct, frozen=True):
    """A tool that the agent ran itself."""

    name: str
    arguments: dict[str, Any]
    output: str
    error: str | None = None  # why it did not complete


def action_of(document: documents.Document) -> ToolAction | None:
    """None for documents that are no tool's, and for tools that the caller ran."""
    match document:
        case documents.ToolCallDocument(metadata=metadata):
            if metadata.ran_by == "caller":
                return None
            error = _error(metadata) or ("The tool failed." if metadata.result.status == "error" else None)
            return ToolAction(metadata.tool_name, metadata.arguments, _text(metadata.result.data), error)
        case documents.TerminalCommandDocument(metadata=metadata):
            error = _error(metadata)
            if error is None and metadata.exit_code != 0:
                error = f"Exit status {metadata.exit_code}"
            return ToolAction("run_terminal_cmd", {"command": metadata.command}, metadata.output, error)
        case documents.FileEditDocument(metadata=metadata, content=content):
            name = _FILE_TOOLS[metadata.operation]
            return ToolAction(name, _file_arguments(metadata, content), _changes(metadata, content), _error(metadata))
        case documents.PlanDocument(metadata=metadata, content=content):
            return ToolAction("create_plan", {"name": metadata.title, "plan": content}, content, _error(metadata))
        case documents.ClarificationDocument(metadata=metadata):
            answers = _text(metadata.answers) if metadata.answers else ""
            return ToolAction("ask_question", {"questions": metadata.questions}, answers, _error(metadata))
        case documents.TodoUpdateDocument(metadata=metadata):
            return ToolAction("todo_write", {"todos": metadata.todos}, "", _error(metadata))
        case (
            documents.TextDocument()
            | documents.CodeBlockDocument()
            | documents.CodeReferenceDocument()
            | documents.ErrorDocument()
            | documents.ThinkingDocument()
        ):
            return None


def _error(trace: documents.ToolTrace) -> str | None:
    if trace.state is UNSET:
        return None
    return trace.reason or trace.state.replace("_", " ").capitalize()


def _text(data: Any) -> str:
    if data is None:
        return ""
    return data if isinstance(data, str) else msgspec.json.encode(data).decode()


def _file_arguments(metadata: documents.FileEditMetadata, content: str | None) -> dict[str, Any]:
    arguments: dict[str, Any] = {"target_file": metadata.file_path}
    if metadata.old_path:
        arguments["old_path"] = metadata.old_path
    if metadata.diff:
        return {**arguments, "old_string": metadata.diff.old_string, "new_string": metadata.diff.new_string}
    return arguments if content is None else {**arguments, "contents": content}


def _changes(metadata: documents.FileEditMetadata, content: str | None) -> str:
    """A unified diff, as far as the change is known."""
    path = metadata.file_path
    if metadata.diff:
        diff = metadata.diff
        old, new = diff_lines(diff, diff.old_string, diff.new_string)
        is_of_empty_file = diff.start_line == 1 and not diff.old_string
        return _diff(path, path, [] if is_of_empty_file else old, new, diff.start_line)
    match metadata.operation:
        case "create" if content:
            return _diff("/dev/null", path, [], split_lines(content), 1)
        case "rename":
            return f"rename from {metadata.old_path or ''}\nrename to {path}\n"
        case "create" | "edit" | "delete":
            return ""


def _diff(before: str, after: str, old: list[str], new: list[str], first: int) -> str:
    """One hunk that replaces all old lines by all new ones: comparing them could take quadratic time."""
    hunk = f"@@ -{_range(first, len(old))} +{_range(first, len(new))} @@"
    lines = [f"--- {before}", f"+++ {after}", hunk, *(f"-{line}" for line in old), *(f"+{line}" for line in new)]
    return "\n".join([*lines, ""])


def _range(first: int, count: int) -> str:
    return f"{first if count else first - 1},{count}"
