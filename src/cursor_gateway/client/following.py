"""Reads a run to its end, however often the connection breaks: each event once, in order.

Server-Sent Events of `POST /v1/chat` are decoded as document events, with which a client folds and renders a remote run
as if it were its own. What the dialect does not say is not there: thinking that is no document, and the agent's source
where it differs from a document's content.
"""

from collections import deque
from collections.abc import Generator, Iterator
from typing import TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.client import steps
from cursor_gateway.client.calls import cancel_request, events_request
from cursor_gateway.client.failures import CallFailed, run_failure
from cursor_gateway.errors import AgentCrashed, Failure, UnusableInput, errors_by_code
from cursor_gateway.model import document_events
from cursor_gateway.model.document_events import ContentDelta, DocumentEvent, Done, source_text
from cursor_gateway.model.documents import METADATA_TYPES, ChatResponse, Envelope, ErrorDocument, make_document
from cursor_gateway.stages.run_state import Transcript
from cursor_gateway.wire.sse import SseDecoder, SseEvent

# --- document events ----------------------------------------------------------------------------------


_PROSE = frozenset({"text", "code_reference", "code_block"})  # whose content is the agent's own text
_ERRORS = errors_by_code()


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


_LEAVE_SECONDS = 5.0  # closing should not wait long

Numbered: TypeAlias = tuple[int, DocumentEvent]  # with its number in the run


class Following:
    def __init__(self, link: steps.Link, *, start: steps.Request | None = None, id: str = "", after: int = 0) -> None:
        """`start` starts a run, which closing then stops. Otherwise the run `id` is only read, after that event."""
        self.id, self.conversation_id, self.request_id, self.fallback = id, "", "", ""
        self.done: Done | None = None
        self.error: CallFailed | None = None
        self.stops_when_left = start is not None
        self._link, self._start, self._after = link, start, after
        self._number = 0  # of the last event that arrived
        self._was_sent = False  # so there may be a run, even if its id is not known
        self._sse, self._reader, self._transcript = SseDecoder(), DocumentEventReader(), Transcript()

    # --- reading ------------------------------------------------------------------------------------

    def follow(self) -> steps.BatchCall[Numbered]:
        """Yields an empty batch as soon as the run exists, then its events. Raises `CallFailed`."""
        try:
            yield from self._follow()
        except CallFailed as error:
            error.chat_id = error.chat_id or self.id
            self.error = error
            raise

    def _follow(self) -> steps.BatchCall[Numbered]:
        tries = steps.Tries(self._link)
        while True:
            head = yield from self._opened()
            if isinstance(head, steps.Lost):
                trouble: steps.Lost | steps.Reply | None = head
            elif head.status == 200:
                self._begin(head)
                yield steps.Batch[Numbered]([])
                trouble = yield from self._read(tries)
            elif head.status == 204:  # it is over, but its last event never came
                raise steps.unreadable(self._link, f"the run {self.id} is shorter than it was", 204)
            else:
                trouble = yield from steps.body_of(head)
            yield steps.Close()
            if trouble is None:
                return
            yield steps.Pause(tries.pause_after(trouble))

    def _opened(self) -> steps.Call[steps.Head | steps.Lost]:
        request = self._start
        if request is None or self.id:
            request = events_request(self.id, self._number)
        was_sent, self._was_sent = self._was_sent, True  # an interrupt here leaves this unknown
        head = yield from steps.opened(request)
        if isinstance(head, steps.Lost) and not head.was_connected:
            self._was_sent = was_sent
        return head

    def _begin(self, head: steps.Head) -> None:
        headers = head.headers
        self.id = headers.get("x-chat-id") or self.id
        if not headers.get("content-type", "").startswith("text/event-stream") or not self.id:
            raise steps.unreadable(self._link, "it is no run's stream of events")
        self.conversation_id = headers.get("x-conversation-id", "")
        self.request_id = headers.get("x-request-id", "")
        self.fallback = headers.get("x-cursor-gateway-fallback", "")
        self._sse.flush()  # a frame that was cut off is sent again

    def _read(
        self, tries: steps.Tries
    ) -> Generator[steps.Step | steps.Batch[Numbered], steps.Result, steps.Lost | None]:
        """None at the end of the run."""
        while True:
            read = yield from steps.piece()
            if isinstance(read, steps.Lost):
                return read
            if not read:
                return steps.Lost("the reply ended before the run did")
            tries.reset()
            if events := [numbered for frame in self._sse.push(read) for numbered in self._understood(frame)]:
                yield steps.Batch(events)
            if self.done is not None:
                return None

    def _understood(self, frame: SseEvent) -> Iterator[Numbered]:
        number = int(frame.id) if frame.id.isascii() and frame.id.isdigit() and len(frame.id) < 16 else 0
        if number and number <= self._number:  # already delivered
            return
        try:
            event = self._reader.push(frame)
        except UnusableInput as error:
            raise steps.unreadable(self._link, str(error)) from None
        self._number = number or self._number
        if event is None:
            return
        self._transcript.push(event)
        if isinstance(event, Done):
            self.done = event
        # Events that the caller already has are only needed to decode the others: a document's start names its type.
        if number > self._after or not number:
            yield number, event

    # --- what it came to ----------------------------------------------------------------------------

    @property
    def response(self) -> ChatResponse | None:
        """The whole answer. None until the run is over."""
        return self._transcript.response()

    def result(self) -> ChatResponse:
        """Raises `CallFailed` if the run failed, or was not read to its end."""
        response = self.response
        if response is None or self.done is None:
            raise self.error or CallFailed(
                "The stream was left before the run was over; read it with `events`.", code="left", chat_id=self.id
            )
        if self.done.failure is not None:
            raise run_failure(self.done.failure, response, self.request_id)
        return response

    # --- stopping -----------------------------------------------------------------------------------

    def cancel(self) -> steps.Call[None]:
        """The stream then reports how it ended. Raises `CallFailed`."""
        yield from steps.ask(cancel_request(self.id), steps.Tries(self._link))

    def leave(self) -> steps.Call[None]:
        """Stops the run, unless it is over, or not ours to stop, or cannot be reached. Without retries."""
        stops, self.stops_when_left = self.stops_when_left, False
        if not (stops and self._was_sent) or self.done is not None or self.error is not None:
            return
        if not self.id:
            # The reply had not started. Repeating the request with the same key returns the run's id at once.
            assert self._start is not None
            headers = {**self._start.headers, "prefer": "respond-async"}
            head = yield from steps.opened(replace(self._start, headers=headers, seconds=_LEAVE_SECONDS))
            yield steps.Close()
            self.id = "" if isinstance(head, steps.Lost) else head.headers.get("x-chat-id", "")
        if self.id:
            yield from steps.opened(cancel_request(self.id, _LEAVE_SECONDS))
            yield steps.Close()


class PrintableText:
    """The agent's text and code in the events, ready to print."""

    def __init__(self) -> None:
        self._last = ""  # the document that grew last

    def push(self, event: DocumentEvent, /) -> str:
        text = source_text(event)
        if not text or not isinstance(event, ContentDelta):
            return ""
        gap = "\n\n" if self._last not in ("", event.id) else ""
        self._last = event.id
        return gap + text


class BaseStream:
    """The part of a stream that does no I/O; `Stream` and `AsyncStream` add it."""

    def __init__(self, following: Following) -> None:
        self._following = following
        self._steps = following.follow()
        self._pending: deque[Numbered] = deque()
        self.last_event = 0  # the last one read; `client.events(stream.id, after=stream.last_event)` continues there

    @property
    def id(self) -> str:
        """The run's id; empty until the gateway has sent it."""
        return self._following.id

    @property
    def conversation_id(self) -> str:
        return self._following.conversation_id

    @property
    def fallback(self) -> str:
        """The backend that answers in place of one that failed; empty if none did."""
        return self._following.fallback

    @property
    def response(self) -> ChatResponse | None:
        """The whole answer. None until the run is over."""
        return self._following.response

    def let_finish(self) -> None:
        """Lets the run continue when the stream is closed."""
        self._following.stops_when_left = False

    def _take(self, batch: list[Numbered] | None) -> None:
        self._pending.extend(batch or ())

    def _fill(self) -> steps.Call[bool]:
        """Whether there are more events."""
        while not self._pending:
            batch = yield from steps.next_batch(self._steps)
            if batch is None:
                return False
            self._take(batch)
        return True

    def _finish(self) -> steps.Call[ChatResponse]:
        """Raises `CallFailed`, also for a run that failed."""
        while (yield from self._fill()):
            self._all()
        return self._following.result()

    def _next(self) -> DocumentEvent:
        number, event = self._pending.popleft()
        self.last_event = number or self.last_event
        return event

    def _all(self) -> list[DocumentEvent]:
        return [self._next() for _ in range(len(self._pending))]
