"""Write the agent's plain text, byte for byte."""

from cursor_gateway.model.document_events import DocumentEvent, source_text


class TextEncoder:
    def push(self, event: DocumentEvent, /) -> bytes:
        return source_text(event).encode()
