"""Reads a run to its end, however often the connection breaks: each event once, in order."""

from collections import deque
from collections.abc import Generator, Iterator
from typing import TypeAlias

from msgspec.structs import replace

from cursor_gateway.client import steps
from cursor_gateway.client.calls import cancel_request, events_request
from cursor_gateway.client.failures import CallFailed, run_failure
from cursor_gateway.dialects.documents.reader import DocumentEventReader
from cursor_gateway.errors import UnusableInput
from cursor_gateway.model.document_events import ContentDelta, DocumentEvent, Done, source_text
from cursor_gateway.model.documents import ChatResponse
from cursor_gateway.stages.run_state import Transcript
from cursor_gateway.wire.sse import SseDecoder, SseEvent

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
