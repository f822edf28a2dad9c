"""The interface of a run for everything except its driver: driven here, stored, or driven by another gateway."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from typing import Protocol

from msgspec.structs import replace

from cursor_gateway.errors import GatewayError, GatewayRestarted, HistoryDamaged, NotFound
from cursor_gateway.model.document_events import DocumentEvent, Done, Paused
from cursor_gateway.model.documents import ChatResponse, ClarificationDocument, Envelope, QueuePlace
from cursor_gateway.model.requests import RunInfo, WhenClientLeaves
from cursor_gateway.prompting.replies import with_later_answers
from cursor_gateway.runs.caller_tools import Questions
from cursor_gateway.runs.log import EventLog, StoredLog, wake
from cursor_gateway.stages.run_state import RunState, Transcript
from cursor_gateway.store.base import Lease, NewRun, RunEnd, RunRecord, Store, Stored

_INCONSISTENT = "This answer is damaged: parts of it are missing. Delete it, or restore the history from a backup."


class Fold(Protocol):
    def push(self, event: DocumentEvent, /) -> None: ...


class RunHandle:
    """Its subclasses define what raises `NotImplementedError`. No abstract class: `isinstance` would take longer."""

    def __init__(self, info: RunInfo, log: EventLog) -> None:
        self.info, self.log = info, log

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def owner(self) -> str:
        return self.log.run.owner

    @property
    def prompt(self) -> str:
        """What the agent was sent; empty where it is not known any more. For estimates."""
        return ""

    @property
    def source(self) -> str | None:
        """The source that was requested; None where it is not known any more."""
        return None

    @property
    def source_name(self) -> str:
        """What answers: a source, the history, or the cluster."""
        raise NotImplementedError

    @property
    def fallback(self) -> str | None:
        """The source that answers in place of one that failed."""
        return None

    @property
    def begun(self) -> NewRun | None:
        """As this process began it; None if another one did."""
        return None

    # --- reading ------------------------------------------------------------------------------------

    @property
    def done(self) -> Done | None:
        return self.log.done

    @property
    def count(self) -> int:
        """How many events there are to read."""
        return self.log.count

    @property
    def added(self) -> int:
        """How many events have a number. Those after `count` are being stored, and may be visible elsewhere already."""
        return self.count

    @property
    def is_ending(self) -> bool:
        """It is done or stopped; only its agent may still be running."""
        return self.done is not None

    async def place(self) -> QueuePlace | None:
        """Its place in the queue; None: it has begun."""
        return None

    async def entered(self) -> None:
        """Waits until the run is stored, if possible. Its id must not be sent to anyone before that."""
        return  # it is

    def reader(self, after: int = 0) -> "Reader":
        return Reader(self, after)

    def left(self, place: int) -> None:
        """A reader has left; `place` is the number of the last event that it had."""
        self.log.left(place)

    async def events(self, after: int = 0) -> AsyncGenerator[list[DocumentEvent], None]:
        """What there is now, after that event. Raises `NotFound` if the run is deleted meanwhile."""
        reader, until = self.reader(after), self.count
        while reader.place < until:
            yield await reader.next()
            if reader.has_left:
                raise no_run(self.id)

    async def state(self) -> RunState:
        """What its events come to now, as `fold` finds them."""
        state = RunState()
        await self.fold(state)
        return state

    async def fold(self, state: RunState, *others: Fold) -> None:
        """Pushes all events that there are now. Raises `HistoryDamaged` if some are missing."""
        async for events in self.events():
            try:
                state.push_all(events)
                for fold in others:
                    for event in events:
                        fold.push(event)
            except LookupError as error:  # an event of a document that has no beginning
                raise HistoryDamaged(_INCONSISTENT) from error

    async def pause(self, number: int) -> Paused | None:
        """The pause of that number. None: it is no pause."""
        match await self.log.after(number - 1) if number else []:
            case [Paused() as paused, *_]:
                return paused
            case _:
                return None

    # --- answers: only a run that is driven here waits for any ----------------------------------------

    @property
    def questions(self) -> Questions:
        """The agent's open questions."""
        return Questions()

    @property
    def awaited(self) -> str:
        """What to send to a run that waits; empty where it does not."""
        return ""

    def take_answers(self, answers: Mapping[str, object]) -> None:
        """What a person answers, by the calls that ask for it."""
        raise NotImplementedError

    def set_when_client_leaves(self, when: WhenClientLeaves | None) -> None:
        """As requested by the request that continues it; None changes nothing."""

    # --- stopping -----------------------------------------------------------------------------------

    def stop(self, why: GatewayError) -> None:
        raise NotImplementedError

    async def cancel(self, why: GatewayError) -> Envelope:
        """How it ended: now, or before."""
        raise NotImplementedError


class Reader:
    """One reader's place in a log; as a context manager it is counted as one."""

    def __init__(self, run: RunHandle, after: int = 0) -> None:
        self.place = after  # the number of the last event that it has
        self.has_left = False
        self.is_lost = False  # the run was deleted: what it has not read yet is gone
        self.may_move = False  # its client can resume at another process
        self.has_moved = False  # and shall
        self._run, self._log = run, run.log
        self._woken: asyncio.Future[None] | None = None
        # One timer for many waits: most of them are short, and it is set again only when it fires.
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = self._until = 0.0  # by the loop's clock

    def __enter__(self) -> "Reader":
        self._log.joined()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._run.left(self.place)

    @property
    def at_end(self) -> bool:
        return self._log.done is not None and self.place >= self._log.count

    def leave(self) -> None:
        """The reader is gone: `next` returns at once."""
        self.has_left = True
        if self._woken is not None:
            wake(self._woken)

    def move(self) -> None:
        """This process stops: clients that can continue elsewhere."""
        if self.may_move:
            self.has_moved = True
            self.leave()

    async def next(self, seconds: float | None = None, take: Callable[[], bool] | None = None) -> list[DocumentEvent]:
        """The events since the last call, as soon as there are any. Empty after the timeout, at the end, or when the
        reader has left. `take` is called first where there are any: it may `take` them, and lets this wait on by True.
        """
        log = self._log
        if self.place >= log.count and log.done is None and not self.has_left:
            self._woken = woken = asyncio.get_running_loop().create_future()
            if seconds is not None:
                self._wake_after(seconds)
            elif self._timer is not None:
                self._timer.cancel()
                self._timer = None
            try:
                await log.more(woken, take)
            finally:
                self._woken = None
                log.forget(woken)
        events = await log.after(self.place) if self.place < log.count else []
        if log.is_deleted or (not events and self.place < log.count):
            self.is_lost = True
            self.leave()
        self.place += len(events)
        return events

    def take(self, most: int) -> list[DocumentEvent]:
        """The events since the last call, if they are few and at hand, and there will be more; else none."""
        log = self._log
        if log.done is not None or log.is_deleted or not log.dropped <= self.place >= log.count - most:
            return []
        events = log.events[self.place - log.dropped : log.count - log.dropped]
        self.place = log.count
        return events

    def _wake_after(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._until = loop.time() + seconds
        if self._timer is not None and self._rings_at > self._until:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._rings_at, self._timer = self._until, loop.call_at(self._until, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._woken is not None:
            left = self._until - asyncio.get_running_loop().time()
            if left > 0:
                self._wake_after(left)
            else:
                wake(self._woken)

    def __aiter__(self) -> "Reader":
        """All events, as they come, until the end, or until the reader leaves."""
        return self

    async def __anext__(self) -> list[DocumentEvent]:
        if self.at_end or self.has_left:
            raise StopAsyncIteration
        return await self.next()


class StoredRun(RunHandle):
    """One that has ended, or that another gateway drives. It can be read, and nothing else."""

    source_name = "history"

    @classmethod
    async def open(cls, store: Store, stored: RunRecord) -> "StoredRun":
        log = StoredLog(store, stored)
        await log.look()
        return cls(run_info(log.run), log)

    def stop(self, why: GatewayError) -> None:
        """There is nothing here to stop."""

    async def cancel(self, why: GatewayError) -> Envelope:
        if self.done is None:
            raise NotFound("This run belongs to another gateway; cancel it there.", param="id")
        return self.done.envelope


def run_info(run: RunRecord) -> RunInfo:
    return RunInfo(
        id=run.id,
        created=run.created,
        mode=run.mode,
        model=run.model,
        conversation_id=run.conversation_id,
        fences=run.fences,
        include=run.include,
    )


def no_run(id: str) -> NotFound:
    return NotFound(f"Unknown run {id[:100]!r}; see GET /v1/conversations.", param="id")


_WHY = "The gateway was killed during this run. Send the message again."


async def end_interrupted_runs(store: Store, is_alive: Callable[[str], bool], now_ms: int) -> int:
    """Returns their number. `is_alive` says whether a gateway, given by name, still drives its runs."""
    ended = 0
    for run in await store.unfinished_runs():
        if not is_alive(run.instance):
            with suppress(HistoryDamaged):  # the others are ended all the same
                ended += await end_interrupted_run(store, run, now_ms)
    return ended


async def end_interrupted_run(store: Store, run: RunRecord, now_ms: int) -> bool:
    """False if another process does it, or did. A writer that is not dead after all is fenced from now on."""
    lease = await store.claim_run(run.id, run.epoch)
    return lease is not None and await end_claimed_run(store, lease, run, GatewayRestarted(_WHY), now_ms)


async def end_claimed_run(store: Store, lease: Lease, run: RunRecord, why: GatewayError, now_ms: int) -> bool:
    """False if another process has claimed it since."""
    state = await stored_state(store, run)
    messages = await store.messages(run.conversation_id, run.owner)
    prompt = next((message.text for message in messages if message.run_id == run.id), "")
    first, end = state.count + 1, state.end(run_info(run), prompt, why.failure())
    done, words = state.push_all(end).done, state.words
    assert done is not None
    written = await store.append(
        lease,
        first,
        end,
        RunEnd(
            envelope=done.envelope,
            failure_code=why.code,
            words=words.all,
            tool_uses=words.tool_uses,
            needs_decision=words.needs_decision,
            answer=state.text,
            fingerprint=f"none {run.id}",
            first_event_ms=run.first_event_ms,
            ended_ms=now_ms,
            frees_key=True,
        ),
    )
    return isinstance(written, Stored)


async def stored_state(store: Store, run: RunRecord) -> RunState:
    """Of a run that nobody drives. A damaged history may have lost the beginning of a document."""
    state = RunState()
    while (page := await store.events(run.id, run.owner, after=state.count)).events:
        for event in page.events:
            with suppress(LookupError):
                state.push(event)
        state.count = page.last_number
    return state


async def response_of(run: RunHandle) -> ChatResponse:
    """The whole answer, or what there is of it now."""
    state, transcript = RunState(), Transcript()
    await run.fold(state, transcript)
    response = state.response(transcript.documents, run.info, run.prompt)
    if state.count or (place := await run.place()) is None:
        return response
    return replace(response, metadata=replace(response.metadata, queue=place))


async def answered_response_of(store: Store, run: RunHandle) -> ChatResponse:
    """With the answers that people gave to its questions later: an agent that cannot wait continues without an answer,
    which is then a later message of the conversation."""
    response = await response_of(run)
    asked = (document.metadata for document in response.documents if isinstance(document, ClarificationDocument))
    if not any(metadata.state == "unanswered" for metadata in asked):
        return response
    messages = await store.messages(response.conversation_id, run.owner)
    own = max((place for place, message in enumerate(messages) if message.run_id == response.id), default=-1)
    later = [message.text for message in messages[own + 1 :] if message.role == "user"]
    return replace(response, documents=with_later_answers(response.documents, later))


async def prompt_of(store: Store, run: RunHandle) -> str:
    """The prompt of this run."""
    stored = await store.messages(run.info.conversation_id or "", run.owner)
    return "\n\n".join(message.text for message in stored if message.run_id == run.id and message.role == "user")
