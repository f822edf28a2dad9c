"""Cursor's agent as ordered, typed documents.

>>> from cursor_gateway import RunInfo, read_response
>>> line = b'{"type":"assistant","message":{"content":[{"type":"text","text":"Hello!"}]}}'
>>> done = b'{"type":"result","subtype":"success","result":"Hello!","duration_ms":12}'
>>> response = read_response([line, b"\\n", done], RunInfo(id="chat_1", created="2026-02-23T10:30:00Z"))
>>> response.status, response.documents[0].content
('completed', 'Hello!')
"""

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
    source_text,
)
from cursor_gateway.core.documents import (
    ChatResponse,
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
)
from cursor_gateway.core.run_info import RunInfo
from cursor_gateway.core.transcript import Transcript
from cursor_gateway.dialects.documents import NdjsonEncoder, SseEncoder, encode_response
from cursor_gateway.dialects.openai_chat import ChunkEncoder, CompletionFold, CompletionHead
from cursor_gateway.dialects.text import TextEncoder
from cursor_gateway.errors import AgentError, Failure, GatewayError
from cursor_gateway.reader import DocumentReader, aread_events, read_events, read_response
from cursor_gateway.wire.sse import SseDecoder, SseEvent

__all__ = [
    "AgentError",
    "ChatResponse",
    "ChunkEncoder",
    "ClarificationDocument",
    "CodeBlockDocument",
    "CodeReferenceDocument",
    "CompletionFold",
    "CompletionHead",
    "ContentDelta",
    "Document",
    "DocumentEnded",
    "DocumentEvent",
    "DocumentReader",
    "DocumentStarted",
    "Done",
    "ErrorDocument",
    "Failure",
    "FileEditDocument",
    "GatewayError",
    "NdjsonEncoder",
    "PlanDocument",
    "Reasoning",
    "RunInfo",
    "SseDecoder",
    "SseEncoder",
    "SseEvent",
    "TerminalCommandDocument",
    "TextDocument",
    "TextEncoder",
    "ThinkingDocument",
    "TodoUpdateDocument",
    "ToolCallArguments",
    "ToolCallDocument",
    "ToolCallEnded",
    "ToolCallStarted",
    "Transcript",
    "aread_events",
    "encode_response",
    "read_events",
    "read_response",
    "source_text",
]
