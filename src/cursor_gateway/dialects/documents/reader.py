"""The client's side of the documents dialect: Server-Sent Events of `POST /v1/chat` in, document events out.

With them a client folds and renders a remote run as if it were its own. What the dialect does not say is not there:
thinking that is no document, and the agent's source where it differs from a document's content.
"""

from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from cursor_gateway.errors import AgentCrashed, Failure, GatewayError, UnusableInput
from cursor_gateway.model.document_events import (
    ContentDelta,
    DocumentEnded,
    DocumentEvent,
    DocumentStarted,
    Done,
    KnownMetadata,
    Paused,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
)
from cursor_gateway.model.documents import (
    ClarificationMetadata,
    CodeBlockMetadata,
    CodeReferenceMetadata,
    DocumentType,
    Envelope,
    ErrorDocument,
    ErrorMetadata,
    FileEditMetadata,
    Metadata,
    PlanMetadata,
    TerminalCommandMetadata,
    TextMetadata,
    ThinkingMetadata,
    TodoUpdateMetadata,
    ToolCallMetadata,
    ToolCallResult,
    make_document,
)
from cursor_gateway.wire.sse import SseEvent

_METADATA: dict[str, type[Metadata]] = {
    "text": TextMetadata,
    "code_reference": CodeReferenceMetadata,
    "code_block": CodeBlockMetadata,
    "file_edit": FileEditMetadata,
    "tool_call": ToolCallMetadata,
    "terminal_command": TerminalCommandMetadata,
    "plan": PlanMetadata,
    "clarification": ClarificationMetadata,
    "error": ErrorMetadata,
    "todo_update": TodoUpdateMetadata,
    "thinking": ThinkingMetadata,
}
_PROSE = frozenset({"text", "code_reference", "code_block"})  # whose content is the agent's own text


def _kinds(of: type[GatewayError]) -> Iterator[type[GatewayError]]:
    for kind in of.__subclasses__():
        yield kind
        yield from _kinds(kind)


_ERRORS = {kind.code: kind for kind in _kinds(GatewayError) if hasattr(kind, "code")}


# --- payloads ---------------------------------------------------------------------------------------


class _AnyStart(Struct, frozen=True):
    """Of a document whose type may be newer than this reader."""

    id: str
    type: str


class _Start(Struct, frozen=True):
    id: str
    type: DocumentType
    sequence: int
    metadata: KnownMetadata | None = None


class _About(Struct, frozen=True, rename="camel"):
    document_id: str


class _Delta(_About, frozen=True):
    delta: str


class _CallStart(_About, frozen=True, rename="camel"):
    tool_name: str
    tool_call_id: str


class _CallArguments(_About, frozen=True):
    arguments: dict[str, Any]


class _CallResult(_About, frozen=True):
    result: ToolCallResult


class _End(_About, frozen=True, rename="camel"):
    metadata: msgspec.Raw
    final_content: str | None = None


_Payload = TypeVar("_Payload")


class DocumentEventReader:
    """Push each frame; None is a frame that says nothing new, or something that only newer readers know."""

    def __init__(self) -> None:
        self._open: dict[str, _Start | None] = {}  # None: of a type that is newer than this reader
        self._error: ErrorDocument | None = None  # the last one; of a run that failed it says why

    def push(self, event: SseEvent, /) -> DocumentEvent | None:
        """Raises `UnusableInput` for a frame of a known name that is not as the documents dialect has it."""
        match event.event:
            case "content_delta":
                delta = _read(event, _Delta)
                if start := self._start_of(delta, event):
                    return ContentDelta(start.id, delta.delta, raw=None if start.type in _PROSE else "")
            case "document_start":
                return self._started(event)
            case "tool_call_start":
                call = _read(event, _CallStart)
                if start := self._start_of(call, event):
                    return ToolCallStarted(start.id, call.tool_name, call.tool_call_id)
            case "tool_call_arguments":
                update = _read(event, _CallArguments)
                if start := self._start_of(update, event):
                    return ToolCallArguments(start.id, update.arguments)
            case "tool_result":
                ended = _read(event, _CallResult)
                if start := self._start_of(ended, event):
                    return ToolCallEnded(start.id, ended.result)
            case "document_end":
                return self._ended(event)
            case "done":
                envelope = _read(event, Envelope)
                if envelope.status == "streaming":
                    return Paused(envelope)
                return Done(envelope, self._failure() if envelope.status == "error" else None)
            case _:  # the dialect may grow
                pass
        return None

    def _started(self, event: SseEvent) -> DocumentStarted | None:
        known = _read(event, _AnyStart)
        if known.type not in _METADATA:
            self._open[known.id] = None
            return None
        start = _read(event, _Start)
        self._open[start.id] = start
        return DocumentStarted(start.id, start.type, start.sequence, start.metadata)

    def _ended(self, event: SseEvent) -> DocumentEnded | None:
        end = _read(event, _End)
        start = self._start_of(end, event)
        del self._open[end.document_id]
        if start is None:
            return None
        metadata = _decoded(event, end.metadata, _METADATA[start.type])
        document = make_document(start.id, start.sequence, end.final_content, metadata)
        if isinstance(document, ErrorDocument):
            self._error = document
        return DocumentEnded(document)

    def _start_of(self, about: _About, event: SseEvent) -> _Start | None:
        if about.document_id not in self._open:
            raise UnusableInput(
                f"The server's `{event.event}` is about `{about.document_id[:100]}`, which is not open; read the "
                "stream from the start."
            )
        return self._open[about.document_id]

    def _failure(self) -> Failure:
        """The stream has no event for it: a run that failed ends with an `error` document."""
        if self._error is None:
            return AgentCrashed().failure()
        error = self._error.metadata
        kind = _ERRORS.get(error.error_code.lower(), AgentCrashed)
        return Failure(
            code=error.error_code.lower(),
            message=self._error.content,
            status=kind.status,
            retryable=kind.retryable,
            details=error.details,
            source=error.source,
            retry_after=kind.retry_after,
        )


def _read(event: SseEvent, shape: type[_Payload]) -> _Payload:
    return _decoded(event, event.data, shape)


def _decoded(event: SseEvent, data: str | msgspec.Raw, shape: type[_Payload]) -> _Payload:
    try:
        return msgspec.json.decode(data, type=shape)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UnusableInput(
            f"The server's `{event.event}` cannot be read: {error}; check that the address is that of a "
            "cursor-gateway, and that its version matches.",
            details=event.data[:2000],
        ) from None
