"""Fold document events into the response: for non-streaming answers, storage and tests."""

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
from cursor_gateway.model.documents import ChatResponse, Document, Envelope, whole_response


class Transcript:
    """Documents are in the order of their starts; one that has not ended is left out."""

    def __init__(self) -> None:
        self._documents: dict[str, Document | None] = {}
        self._envelope: Envelope | None = None

    def push(self, event: DocumentEvent, /) -> None:
        match event:
            case DocumentStarted(id=id):
                self._documents[id] = None
            case DocumentEnded(document=document):
                self._documents[document.id] = document
            case Done(envelope=envelope):
                self._envelope = envelope
            case ContentDelta() | ToolCallStarted() | ToolCallArguments() | ToolCallEnded() | Reasoning() | Paused():
                pass  # an end repeats them all
            case TerminalOutput():
                pass

    @property
    def documents(self) -> list[Document]:
        return [document for document in self._documents.values() if document is not None]

    def response(self) -> ChatResponse | None:
        """None until the run is done."""
        return whole_response(self._envelope, self.documents) if self._envelope is not None else None
