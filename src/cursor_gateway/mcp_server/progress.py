"""Report what the agent does, one line for each document event."""

from cursor_gateway.model.document_events import (
    ContentDelta,
    DocumentEnded,
    DocumentEvent,
    DocumentStarted,
    Done,
    Paused,
    Reasoning,
    TerminalOutput,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
)
from cursor_gateway.model.documents import TextDocument
from cursor_gateway.stages.summary import one_line

_WIDTH = 200


def progress_line(event: DocumentEvent) -> str:
    """Empty if there is nothing to report."""
    match event:
        case DocumentStarted(metadata=metadata) if metadata is not None and metadata.command:
            return _line(f"Running `{metadata.command}`")
        case DocumentEnded(document=TextDocument(content=content)):
            return _line(content.strip().partition("\n")[0])
        case DocumentEnded(document=document):
            return _line(one_line(document) or "")
        case Paused():
            return "Waiting for an answer"
        case DocumentStarted() | ContentDelta() | Done():
            return ""
        case ToolCallStarted() | ToolCallArguments() | ToolCallEnded() | Reasoning() | TerminalOutput():
            return ""


def _line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"
