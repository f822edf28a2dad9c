"""The client's side of the documents dialect: decode Server-Sent Events of `POST /v1/chat` as document events.

With them a client folds and renders a remote run as if it were its own. What the dialect does not say is not there:
thinking that is no document, and the agent's source where it differs from a document's content.
"""

from typing import TypeVar

import msgspec
from msgspec import Struct

from cursor_gateway.errors import AgentCrashed, Failure, UnusableInput, errors_by_code
from cursor_gateway.model import document_events
from cursor_gateway.model.documents import METADATA_TYPES, Envelope, ErrorDocument, make_document
from cursor_gateway.wire.sse import SseEvent

_PROSE = frozenset({"text", "code_reference", "code_block"})  # whose content is the agent's own text
_ERRORS = errors_by_code()


# --- payloads ---------------------------------------------------------------------------------------


class _AnyStart(Struct, frozen=True):
    """Of a document whose type may be newer than this reader."""

    id: str
    type: str


class _End(Struct, frozen=True, rename="camel"):
    """The type of the metadata is that of the document's start."""

    document_id: str
    metadata: msgspec.Raw
    final_content: str | None = None


_Payload = TypeVar("_Payload")


class DocumentEventReader:
    """Push each frame; None is a frame that says nothing new, or something that only newer readers know."""

    def __init__(self) -> None:
        # None: of a type that is newer than this reader
        self._open: dict[str, document_events.DocumentStartPayload | None] = {}
        self._error: ErrorDocument | None = None  # the last one; of a run that failed it says why

    def push(self, event: SseEvent, /) -> document_events.DocumentEvent | None:
        """Raises `UnusableInput` for a frame of a known name that is not as the documents dialect has it."""
        match event.event:
            case "content_delta":
                delta = _read(event, document_events.ContentDeltaPayload)
                if start := self._start_of(delta.document_id, event):
                    return document_events.ContentDelta(start.id, delta.delta, raw=None if start.type in _PROSE else "")
            case "terminal_output":
                output = _read(event, document_events.TerminalOutputPayload)
                if start := self._start_of(output.document_id, event):
                    return document_events.TerminalOutput(start.id, output.text)
            case "document_start":
                return self._started(event)
            case "tool_call_start":
                call = _read(event, document_events.ToolCallStartPayload)
                if start := self._start_of(call.document_id, event):
                    return document_events.ToolCallStarted(start.id, call.tool_name, call.tool_call_id)
            case "tool_call_arguments":
                update = _read(event, document_events.ToolCallArgumentsPayload)
                if start := self._start_of(update.document_id, event):
                    return document_events.ToolCallArguments(start.id, update.arguments)
            case "tool_result":
                ended = _read(event, document_events.ToolResultPayload)
                if start := self._start_of(ended.document_id, event):
                    return document_events.ToolCallEnded(start.id, ended.result)
            case "document_end":
                return self._ended(event)
            case "done":
                envelope = _read(event, Envelope)
                if envelope.status == "streaming":
                    return document_events.Paused(envelope)
                return document_events.Done(envelope, self._failure() if envelope.status == "error" else None)
            case _:  # the dialect may grow
                pass
        return None

    def _started(self, event: SseEvent) -> document_events.DocumentStarted | None:
        known = _read(event, _AnyStart)
        if known.type not in METADATA_TYPES:
            self._open[known.id] = None
            return None
        start = _read(event, document_events.DocumentStartPayload)
        self._open[start.id] = start
        return document_events.DocumentStarted(start.id, start.type, start.sequence, start.metadata or None)

    def _ended(self, event: SseEvent) -> document_events.DocumentEnded | None:
        end = _read(event, _End)
        start = self._start_of(end.document_id, event)
        del self._open[end.document_id]
        if start is None:
            return None
        metadata = _decoded(event, end.metadata, METADATA_TYPES[start.type])
        document = make_document(start.id, start.sequence, end.final_content, metadata)
        if isinstance(document, ErrorDocument):
            self._error = document
        return document_events.DocumentEnded(document)

    def _start_of(self, id: str, event: SseEvent) -> document_events.DocumentStartPayload | None:
        if id not in self._open:
            raise UnusableInput(
                f"The server's `{event.event}` is about `{id[:100]}`, which is not open; read the stream from the "
                "start."
            )
        return self._open[id]

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
