"""The documents of a run in; its searchable text, and whether somebody has to decide about a call, out."""

from typing import Any

import msgspec
from msgspec import Struct

from cursor_gateway.model.documents import (
    ClarificationDocument,
    CodeBlockDocument,
    CodeReferenceDocument,
    Document,
    ErrorDocument,
    FileEditDocument,
    PlanDocument,
    TerminalCommandDocument,
    TextDocument,
    ThinkingDocument,
    TodoUpdateDocument,
    ToolCallDocument,
    ToolTrace,
    is_tool_use,
)

LONGEST_TEXT = 250_000  # characters indexed per run, which takes about 50 ms of a background thread
_MOST_VALUES = 5_000  # of a tool's arguments


class Words(Struct):
    """Collected as documents end, so that documents need not be kept."""

    tool_uses: int = 0
    needs_decision: bool = False
    _names: list[str] = []
    _contents: list[str] = []
    _room: list[int] = msgspec.field(default_factory=lambda: [LONGEST_TEXT, LONGEST_TEXT])  # for names, for contents

    def push(self, document: Document) -> None:
        self.tool_uses += is_tool_use(document)
        trace = document.metadata
        self.needs_decision |= isinstance(trace, ToolTrace) and trace.needs_decision
        names, content = _words(document)
        for kept, texts, place in ((self._names, names, 0), (self._contents, [content or ""], 1)):
            for text in texts:
                if text and self._room[place] > 0:
                    kept.append(text[: self._room[place]])
                    self._room[place] -= len(text)

    @property
    def all(self) -> list[str]:
        """Names before contents: a long file must not push out the commands after it."""
        return self._names + self._contents


def _words(document: Document) -> tuple[list[str], str | None]:
    """Commands, paths and titles; and the content. Output of tools and commands is not indexed: it is long, and
    people rarely search for it."""
    match document:
        case TextDocument(content=content) | CodeBlockDocument(content=content) | ThinkingDocument(content=content):
            return [], content
        case ErrorDocument(content=content, metadata=metadata):
            return [metadata.error_code], content
        case CodeReferenceDocument(content=content, metadata=metadata):
            return [metadata.file_path], content
        case FileEditDocument(content=content, metadata=metadata):
            return [metadata.file_path, metadata.old_path or ""], content
        case TerminalCommandDocument(metadata=metadata):
            return [metadata.command], None
        case ToolCallDocument(metadata=metadata):
            return [metadata.tool_name, *_strings(metadata.arguments)], None
        case PlanDocument(content=content, metadata=metadata):
            return [metadata.title, metadata.overview, *(todo.content for todo in metadata.todos)], content
        case ClarificationDocument(content=content, metadata=metadata):
            options = [option.label for question in metadata.questions for option in question.options]
            return [*(question.text for question in metadata.questions), *options], content
        case TodoUpdateDocument(metadata=metadata):
            return [todo.content or "" for todo in metadata.todos], None


def _strings(value: Any) -> list[str]:
    """The strings in a tool's arguments (paths, patterns, queries) at any depth, up to a limit."""
    found, left, seen = [], [value], 0
    while left and seen < _MOST_VALUES:
        seen += 1
        match left.pop():
            case str(text):
                found.append(text)
            case dict(fields):
                left += reversed(fields.values())
            case list(items):
                left += reversed(items)
            case _:
                pass
    return found
