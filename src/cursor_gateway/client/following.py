"""A run that is read to its end, however often the connection breaks: each event once, in order."""

from msgspec.structs import replace

from cursor_gateway.client.calls import cancel_request, events_request
from cursor_gateway.client.failures import CallFailed, run_failure
from cursor_gateway.client.steps import (
    Asking,
    Close,
    Head,
    Link,
    Lost,
    Pause,
    Reply,
    Request,
    Telling,
    Told,
    Tries,
    body_of,
    once,
    opened,
    piece,
    unreadable,
)
from cursor_gateway.core.document_events import ContentDelta, DocumentEvent, Done, source_text
from cursor_gateway.core.documents import ChatResponse
from cursor_gateway.core.transcript import Transcript
from cursor_gateway.dialects.documents_reader import DocumentEventReader
from cursor_gateway.errors import UnusableInput
from cursor_gateway.wire.sse import SseDecoder, SseEvent

_LEAVE_SECONDS = 5.0  # whoever goes does not want to wait

Numbered = tuple[int, DocumentEvent]


class Following:
    def __init__(self, link: Link, *, start: Request | None = None, id: str = "", after: int = 0) -> None:
        """`start` begins a run, which is then ours to stop; without it, the run `id` is only read, after that event."""
        self.id, self.conversation_id, self.request_id = id, "", ""
        self.done: Done | None = None
        self.error: CallFailed | None = None
        self.stops_when_left = start is not None
        self._link, self._start, self._after = link, start, after
        self._number = 0  # of the last event that arrived
        self._was_sent = False  # so there may be a run, even if its id is not known
        self._sse, self._reader, self._transcript = SseDecoder(), DocumentEventReader(), Transcript()

    # --- reading ------------------------------------------------------------------------------------

    def follow(self) -> Telling[Numbered]:
        """Tells nothing as soon as there is a run to read, then its events. Raises `CallFailed`."""
        try:
            yield from self._follow()
        except CallFailed as error:
            error.chat_id = error.chat_id or self.id
            self.error = error
            raise

    def _follow(self) -> Telling[Numbered]:
        tries = Tries(self._link)
        while True:
            # A reader who missed the start of a document cannot read its end: `after` is for the ears alone.
            request = events_request(self.id, self._number) if self.id else self._start
            assert request is not None
            head = yield from self._opened(request)
            if isinstance(head, Head) and head.status == 200:
                self._begin(head)
                yield Told[Numbered]([])
                trouble: Lost | Reply = yield from self._read(tries)
                if self.done is not None:
                    yield Close()
                    return
            elif isinstance(head, Head) and head.status == 204:
                raise unreadable(self._link, f"it knows no end of the run {self.id}", 204)
            else:
                trouble = head if isinstance(head, Lost) else (yield from body_of(head))
            yield Close()
            yield Pause(tries.pause_after(trouble))

    def _opened(self, request: Request) -> Asking[Head | Lost]:
        self._was_sent = True
        head = yield from opened(request)
        if isinstance(head, Lost) and not head.was_connected and not self.id:
            self._was_sent = False
        return head

    def _begin(self, head: Head) -> None:
        if not head.headers.get("content-type", "").startswith("text/event-stream"):
            raise unreadable(self._link, "it is no stream of events")
        self.id = head.headers.get("x-chat-id") or self.id
        if not self.id:
            raise unreadable(self._link, "the run has no id")
        self.conversation_id = head.headers.get("x-conversation-id", self.conversation_id)
        self.request_id = head.headers.get("x-request-id", "")
        self._sse.flush()  # what the last connection left unfinished comes again

    def _read(self, tries: Tries) -> Telling2:
        while True:
            read = yield from piece()
            if isinstance(read, Lost):
                return read
            if not read:
                return Lost("the reply ended without its end")
            tries.heard()
            events = [event for frame in self._sse.push(read) for event in self._understood(frame)]
            if events:
                yield Told(events)
            if self.done is not None:
                return Lost("")
