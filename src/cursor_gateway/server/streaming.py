"""A run and an encoder in; an HTTP reply that grows with the run, or one that waits for its end, out.

One write for each read of the agent's output, and no timer but the keep-alive's.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from cursor_gateway.dialects.base import SSE, Encoder, RunView, StreamForm
from cursor_gateway.dialects.checked import Check, CheckedText
from cursor_gateway.dialects.errors import OWN_ERRORS, Errors
from cursor_gateway.errors import Failure, GatewayError, NotFound, RunCancelled
from cursor_gateway.http1.server import EXCHANGE, Exchange
from cursor_gateway.model.document_events import (
    ContentDelta,
    DocumentEnded,
    DocumentEvent,
    Done,
    Paused,
    Reasoning,
    TerminalOutput,
    says_something,
)
from cursor_gateway.model.messages import UserMessage
from cursor_gateway.runs.handle import Reader, RunHandle
from cursor_gateway.runs.repeats import repair_key
from cursor_gateway.runs.run_service import RunRequest, RunService
from cursor_gateway.server.bodies import SMALL, Starts, UnreadReplies
from cursor_gateway.server.guard import error_response
from cursor_gateway.server.metrics import Metrics
from cursor_gateway.server.rendering import Renderings

_STEP = 256 * 1024  # bytes, about: what is encoded at once of the events that wait
_SHORT = 1024  # bytes, about, of an event without a text
_FEW = 16  # events that are encoded within the step that has made them visible
_TEXTS = (ContentDelta, Reasoning, TerminalOutput)
_RECONNECT = b"retry: 100\n\n"  # at once, and to another process


def stream_headers(form: StreamForm, more: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    headers = {
        "content-type": form.media_type,
        "cache-control": "no-cache, no-transform",
        "x-accel-buffering": "no",  # or nginx waits for more
        **more,
    }
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]


def run_headers(run: RunHandle) -> dict[str, str]:
    """As far as they are known: a fallback to another source may come later."""
    headers = {"x-chat-id": run.id, "x-conversation-id": run.info.conversation_id or ""}
    headers["x-cursor-gateway-source"] = run.source_name
    if run.fallback is not None:
        headers["x-cursor-gateway-fallback"] = run.fallback
    return headers


def view_of(run: RunHandle) -> RunView:
    """The part of a run that a dialect may see."""
    return RunView(run.info, int(datetime.fromisoformat(run.info.created).timestamp()), run.prompt)


class Reading(Struct, frozen=True, kw_only=True):
    """What every reply needs to know."""

    hold_seconds: float
    keep_alive_seconds: float
    metrics: Metrics
    renderings: Renderings = field(default_factory=Renderings)
    unread: UnreadReplies = field(default_factory=UnreadReplies)
    starts: Starts = field(default_factory=Starts)


class EventStream:
    """The 200 is held back until there is output, so that a run that cannot start has its own status.

    A reader that resumes (`after` the event with that number) already had its 200.
    """

    def __init__(
        self,
        run: RunHandle,
        encoder: Encoder,
        form: StreamForm,
        reading: Reading,
        *,
        after: int = 0,
        is_replay: bool = False,
        errors: Errors = OWN_ERRORS,
        headers: Mapping[str, str] | None = None,
        streams_failures: bool = False,
        is_resumable: bool = False,
    ) -> None:
        self._run, self._encoder, self._form, self._reading = run, encoder, form, reading
        self._after, self._is_replay, self._errors = after, is_replay, errors
        self._headers, self._streams_failures = headers or {}, streams_failures
        self._is_resumable = is_resumable or is_replay
        self._silent_since = 0.0  # not only without events: a dialect omits some of them
        self._unsent = b""  # what `_forward` has encoded, and could not send at once

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._reading.unread.opened(self._run.owner)
        self._reading.metrics.stream_opened()
        try:
            with DisconnectWatch(self._run, scope, receive, self._after) as reader:
                reader.may_move = self._is_resumable and self._form is SSE
                events = await self._next(reader, 0) if self._is_replay else await self._first_content(reader)
                if reader.is_lost:
                    raise NotFound("The conversation of this run was deleted; start a new one.", param="id")
                failure = None if self._is_replay else self._early_failure(reader, events)
                if failure is not None and not self._streams_failures:
                    headers = {**run_headers(self._run), **self._headers}
                    await error_response(failure, headers, errors=self._errors)(scope, receive, send)
                else:
                    exchange = None if self._encoder.is_slow else scope.get(EXCHANGE)
                    forward = None if exchange is None else partial(self._forward, reader, exchange)
                    await self._stream(reader, events, send, forward)
        finally:
            self._reading.metrics.stream_closed()
            self._reading.unread.closed(self._run.owner)

    async def _first_content(self, reader: Reader) -> list[DocumentEvent]:
        """A continued reply starts with the ends of its caller's own calls, which are not output yet."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._reading.hold_seconds
        events = await self._next(reader, self._reading.hold_seconds)
        while not (reader.at_end or reader.has_left or any(map(_counts, events))) and (left := until - loop.time()) > 0:
            events += await self._next(reader, left)
        return events

    def _early_failure(self, reader: Reader, events: list[DocumentEvent]) -> Failure | None:
        """Why the run failed before this reply had any content."""
        if self._run.done is None or not reader.at_end or any(map(_counts, events[:-1])):
            return None
        failure = self._run.done.failure
        return failure.final() if failure is not None and self._after else failure

    async def _stream(
        self, reader: Reader, events: list[DocumentEvent], send: Send, forward: Callable[[], bool] | None
    ) -> None:
        if not events:
            await self._run.entered()  # its id is in the headers
        await self._begin(send)
        loop, seconds = asyncio.get_running_loop(), self._reading.keep_alive_seconds
        self._silent_since, is_begun = loop.time(), False
        while not reader.has_left:
            step, events = _split(events)
            data, self._unsent = self._unsent, b""
            if step:
                data += await self._rendered(step, reader) if self._encoder.is_slow else self._push(step, reader)
            is_last = (not events and reader.at_end) or self._encoder.is_over
            if not data and not is_last and (not (step or is_begun) or loop.time() >= self._silent_since + seconds):
                data = self._encoder.keep_alive()
            step.clear()  # while the client does not read, only the encoded form is in memory
            if data or is_last or not is_begun:  # the head is sent at once, even without content
                if len(data) <= SMALL:
                    await send({"type": "http.response.body", "body": data, "more_body": not is_last})
                else:
                    with self._reading.unread.holding(self._run.owner, data) as data:
                        await send({"type": "http.response.body", "body": data, "more_body": not is_last})
                self._silent_since, is_begun = loop.time(), True
            if is_last:
                if self._encoder.is_cut:
                    cut_short(self._run, reader)
                return
            if not events:
                events = await self._next(reader, max(0.0, self._silent_since + seconds - loop.time()), forward)
        if reader.has_moved:
            await send({"type": "http.response.body", "body": _RECONNECT, "more_body": False})

    def _forward(self, reader: Reader, exchange: Exchange) -> bool:
        """The usual case, without a step of this reply's task: what is new, to a client that has read all before it."""
        events = reader.take(_FEW)
        self._unsent = data = self._push(events, reader)
        if not events or self._encoder.is_over or (data and not (len(data) <= SMALL and exchange.send_now(data))):
            return False
        if data:
            self._unsent, self._silent_since = b"", asyncio.get_running_loop().time()
        return True

    def _next(
        self, reader: Reader, seconds: float, forward: Callable[[], bool] | None = None
    ) -> Awaitable[list[DocumentEvent]]:
        if self._is_replay and reader.place < self._run.count:
            return self._next_stored(reader, seconds)
        return reader.next(seconds, forward)

    async def _next_stored(self, reader: Reader, seconds: float) -> list[DocumentEvent]:
        """They are read one after the other, for all streams of an owner: what is read is large."""
        async with self._reading.unread.turn(self._run.owner):
            return await reader.next(seconds)

    async def _rendered(self, events: list[DocumentEvent], reader: Reader) -> bytes:
        push = partial(self._encoder.push_all, events)
        return await self._reading.renderings.run(self._run.owner, push, lambda: reader.has_left)

    def _push(self, events: list[DocumentEvent], reader: Reader) -> bytes:
        """Once for all readers that are up to date and get the same bytes."""
        encoder, log = self._encoder, self._run.log
        is_shared = (log.readers > 1 or log.frames) and reader.place == log.count and events
        place = encoder.place if is_shared else None
        if place is None:
            return encoder.push_all(events)
        data = log.frames.get((place, len(events)))
        if data is not None:
            encoder.skip(len(events))
            return data
        data = log.frames[place, len(events)] = encoder.push_all(events)
        return data

    async def _begin(self, send: Send) -> None:
        """Apart from what follows: a stream may be open for long, and its headers are not needed any more."""
        headers = stream_headers(self._form, {**run_headers(self._run), **self._headers})
        await send({"type": "http.response.start", "status": 200, "headers": headers})


def _split(events: list[DocumentEvent]) -> tuple[list[DocumentEvent], list[DocumentEvent]]:
    """What is encoded at once, and the rest."""
    size = 0
    for number, event in enumerate(events[:-1], 1):
        if event.__class__ in _TEXTS:
            size += len(event.text)
        elif event.__class__ is DocumentEnded:
            size += len(event.document.content or "") + _SHORT
        else:
            size += _SHORT
        if size >= _STEP:
            return events[:number], events[number:]
    return events, []


async def push_until(reader: Reader, push: Callable[[DocumentEvent], bool]) -> bool:
    """Pushes the events of a run until `push` needs no more. False if the run ends or the reader leaves before."""
    async for events in reader:
        for number, event in enumerate(events, 1):
            if push(event):
                reader.place -= len(events) - number  # what was not delivered was not received
                return True
    return False


def cut_short(run: RunHandle, reader: Reader) -> None:
    """No one else needs the rest either, unless another reader is connected."""
    if not reader.at_end and run.log.readers == 1:
        run.stop(RunCancelled("The answer was cut by `stop` or `max_tokens`; change them to get more."))


def _counts(event: DocumentEvent) -> bool:
    """As the beginning of a reply."""
    return says_something(event) or isinstance(event, Paused)


class DisconnectWatch:
    """A client that reads a run, until it goes."""

    def __init__(self, run: RunHandle, scope: Scope, receive: Receive, after: int = 0) -> None:
        self._receive = receive
        self._reader = run.reader(after)
        self._exchange: Exchange | None = scope.get(EXCHANGE)
        self._watch: asyncio.Task[None] | None = None  # for another server than ours, or a body that nobody has read

    def __enter__(self) -> Reader:
        reader = self._reader.__enter__()
        if self._exchange is not None and self._exchange.is_whole and not self._exchange.size:
            self._exchange.when_gone(reader.leave)
        else:
            self._watch = asyncio.get_running_loop().create_task(self._notice())
        return reader

    def __exit__(self, *_: object) -> None:
        if self._exchange is not None:
            self._exchange.when_gone(None)
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None  # or the two hold each other, and with them a run, until the next collection
        self._reader.__exit__()

    async def _notice(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._reader.leave()


# --- answers that are checked before they are shown -------------------------------------------------


class CheckedRun(RunHandle):
    """If the answer does not have the format, another run of the conversation repairs it: the reader sees one reply."""

    def __init__(self, run: RunHandle, request: RunRequest, check: Check, service: RunService) -> None:
        super().__init__(run.info, run.log)
        self._first = run
        self._run = run  # or the one that repairs its answer
        self._request, self._check, self._service = request, check, service
        self._done: Done | None = None

    @property
    def prompt(self) -> str:
        return self._first.prompt

    @property
    def source_name(self) -> str:
        return self._first.source_name

    @property
    def fallback(self) -> str | None:
        return self._first.fallback

    @property
    def done(self) -> Done | None:
        return self._done

    async def entered(self) -> None:
        await self._first.entered()

    def reader(self, after: int = 0) -> Reader:
        return _CheckedReader(self, after)

    def stop(self, why: GatewayError) -> None:
        self._run.stop(why)

    async def read(self, after: int, readers: ExitStack) -> list[DocumentEvent] | None:
        """All events of the reply after this number; None if the run was deleted meanwhile.

        `readers`: where the readers of the runs are added, so that a run is read until its reply was sent.
        """
        stage = CheckedText(self._check)
        events = await self._read(stage, readers.enter_context(self._run.reader(after)))
        if events is not None and stage.repair:
            try:
                self._run = await self._service.start(self._repair_request(stage.repair))
            except GatewayError as error:
                events = [stage.failed(error.failure())]
            else:
                self.log = self._run.log
                events = await self._read(stage, readers.enter_context(self._run.reader()))
        if stage.json is not None:  # the caller's next request contains only this, so its session is found by it
            await self._service.answered(self._request, self._run, stage.json)
        if events and isinstance(events[-1], Done):
            self._done = events[-1]
        return events

    async def _read(self, stage: CheckedText, reader: Reader) -> list[DocumentEvent] | None:
        """What the stage shows of one run; empty if the agent must be asked again."""
        shown: list[DocumentEvent] = []

        def push(event: DocumentEvent) -> bool:
            shown.extend(stage.push(event))
            return bool(shown)

        is_over = await push_until(reader, push)
        return None if reader.has_left and not is_over else shown

    def _repair_request(self, prompt: str) -> RunRequest:
        """In the same conversation, so the agent sees its first answer."""
        return replace(
            self._request,
            messages=[UserMessage(prompt)],
            images=(),
            has_full_history=False,
            conversation_id=self.info.conversation_id,
            # Clients that join the first run join its repair too.
            idempotency_key=repair_key(self.id),
            repeat_key="",
            body=self.id.encode(),
        )


class _CheckedReader(Reader):
    """Reads the run in a task, which ends with this reader."""

    def __init__(self, run: CheckedRun, after: int) -> None:
        super().__init__(run, after)
        self._checked = run
        self._has_all = False
        self._open = ExitStack()

    def __enter__(self) -> Reader:
        self._task = asyncio.get_running_loop().create_task(self._checked.read(self.place, self._open))
        return self

    def __exit__(self, *_: object) -> None:
        self._task.cancel()
        self._open.close()

    @property
    def at_end(self) -> bool:
        return self._has_all and self._checked.done is not None

    async def next(self, seconds: float | None = None, take: Callable[[], bool] | None = None) -> list[DocumentEvent]:
        if not self._task.done() and not self.has_left:
            self._woken = asyncio.get_running_loop().create_future()
            waited: list[asyncio.Future[Any]] = [self._task, self._woken]
            await asyncio.wait(waited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            self._woken = None
        if self._has_all or not self._task.done():
            return []
        self._has_all, events = True, self._task.result()
        if events is None:
            self.is_lost = self.has_left = True
        return events or []
