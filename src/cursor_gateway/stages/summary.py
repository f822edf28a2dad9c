"""Sum up a tool's document in one line, for clients that cannot show documents."""

from collections import Counter
from typing import Any

from msgspec import UNSET

from cursor_gateway.model import documents
from cursor_gateway.stages.diffs import split_lines

_WIDTH = 200  # characters
_MAIN_ARGUMENTS = ("target_file", "query", "pattern", "glob_pattern", "search_term", "url", "path", "target_directory")


def one_line(document: documents.Document) -> str | None:
    """None for documents that are not about a tool."""
    match document:
        case documents.TerminalCommandDocument(metadata=metadata):
            verb = "Did not run" if metadata.state == "rejected" else "Ran"
            return _line(f"{verb} `{metadata.command}`", metadata, f"exit status {metadata.exit_code}")
        case documents.FileEditDocument(metadata=metadata, content=content):
            return _line(_edited(metadata, content), metadata)
        case documents.ToolCallDocument(metadata=metadata):
            about = main_argument(metadata.arguments)
            return _line(f"Used {metadata.tool_name}{f': {about}' if about else ''}", metadata)
        case documents.PlanDocument(metadata=metadata):
            return _line(f"Planned {metadata.title or 'the work'}", metadata, _count(len(metadata.todos), "to-do"))
        case documents.ClarificationDocument(metadata=metadata):
            return _line("Asked " + " / ".join(question.text for question in metadata.questions), metadata)
        case documents.TodoUpdateDocument(metadata=metadata):
            states = Counter(todo.status.replace("_", " ") for todo in metadata.todos)
            counts = ", ".join(f"{number} {state}" for state, number in states.items())
            return _line("Updated the to-dos", metadata, counts)
        case (
            documents.TextDocument()
            | documents.CodeBlockDocument()
            | documents.CodeReferenceDocument()
            | documents.ErrorDocument()
            | documents.ThinkingDocument()
        ):
            return None


def in_one_line(text: str) -> str:
    """Its beginning, if it is long."""
    text = " ".join(text.split())
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


def _line(done: str, trace: documents.ToolTrace, note: str = "") -> str:
    if trace.state is not UNSET:
        reason = f": {trace.reason}" if trace.reason else ""
        note = f"{trace.state.replace('_', ' ')}{reason}"
    text = in_one_line(done)
    return f"{text} ({' '.join(note.split())[:_WIDTH]})" if note else text


def _edited(metadata: documents.FileEditMetadata, content: str | None) -> str:
    if metadata.state is not UNSET:
        verb = "Did not" if metadata.state == "rejected" else "Tried to"
        return f"{verb} {metadata.operation} {metadata.file_path}"
    match metadata.operation:
        case "create":
            return f"Created {metadata.file_path}, {_count(len(split_lines(content or '')), 'line')}"
        case "edit":
            return f"Edited {metadata.file_path}"
        case "delete":
            return f"Deleted {metadata.file_path}"
        case "rename":
            return f"Renamed {metadata.old_path or 'a file'} to {metadata.file_path}"


def main_argument(arguments: dict[str, Any]) -> str:
    """The most informative argument of a call, or "" if none is a string."""
    for value in [*map(arguments.get, _MAIN_ARGUMENTS), *arguments.values()]:
        if value and isinstance(value, str):
            return value
    return ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
