"""Responses and documents for tests."""

from typing import Any

from msgspec import Struct

from cursor_gateway.model.documents import (
    ChatResponse,
    Document,
    Envelope,
    Mode,
    ResponseMetadata,
    Status,
    TerminalCommandMetadata,
    Usage,
    WaitingCall,
    make_document,
    whole_response,
)


class Made(Struct, frozen=True):
    envelope: Envelope
    whole: ChatResponse


def response(*documents: Document, status: Status = "completed", mode: Mode = "agent", **metadata: Any) -> Made:
    envelope = Envelope(
        id="chat_1",
        conversation_id="conv_1",
        model="auto",
        mode=mode,
        created="2026-11-17T10:00:00Z",
        status=status,
        usage=Usage(prompt_tokens=1, completion_tokens=1, total_tokens=2),
        metadata=ResponseMetadata(duration_ms=1, tool_call_count=0, turn_count=1, **metadata),
    )
    return Made(envelope, whole_response(envelope, list(documents)))


def command(line: str, **fields: Any) -> Document:
    metadata = TerminalCommandMetadata(
        command=line, exit_code=fields.pop("exit_code", 0), output="", duration_ms=1, permissions=[], **fields
    )
    return make_document("doc_002", 2, None, metadata)


def waiting(document: Document, *others: Document) -> ChatResponse:
    """A run that waits for an answer to this document."""
    call = WaitingCall(tool_call_id="call_1", tool_name="ask", arguments={}, document_id=document.id)
    return response(document, *others, status="streaming", waiting_for=[call]).whole
