"""Document events in, the response out: the one fold, for non-streaming answers, storage and tests."""

from cursor_gateway.core.document_events import (
    ContentDelta,
    DocumentEnded,
    DocumentEvent,
    DocumentStarted,
    Done,
    Reasoning,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
)
from cursor_gateway.core.documents import ChatResponse, Document, Envelope


class Transcript:
    """Documents stand in the order of their starts; one that has not ended is not there yet."""

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
            case ContentDelta() | ToolCallStarted() | ToolCallArguments() | ToolCallEnded() | Reasoning():
                pass  # an end repeats them all

    @property
    def documents(self) -> list[Document]:
        return [document for document in self._documents.values() if document is not None]

    def response(self) -> ChatResponse | None:
        """None until the run is done."""
        if self._envelope is None:
            return None
        envelope = self._envelope
        return ChatResponse(
            id=envelope.id,
            conversation_id=envelope.conversation_id,
            model=envelope.model,
            mode=envelope.mode,
            created=envelope.created,
            status=envelope.status,
            documents=self.documents,
            usage=envelope.usage,
            metadata=envelope.metadata,
        )
