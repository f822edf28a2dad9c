"""A run's events in, before any reader sees them; stored, or buffered until the store accepts them again, out."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from cursor_gateway.errors import StoreUnavailable
from cursor_gateway.model.document_events import DocumentEvent, Done
from cursor_gateway.stages.run_state import RunState
from cursor_gateway.store.base import (
    FIRST_EPOCH,
    Behind,
    Busy,
    Fenced,
    KeyLimit,
    KeyTaken,
    Lease,
    NewRun,
    Refused,
    RunEnd,
    Store,
    Stored,
    Superseded,
    TitleChange,
    Written,
)
from cursor_gateway.store.texts import made_title, title_of

_AGAIN_SECONDS = 0.2  # until a store that must have the events is asked again
_PAUSE_MS = 1000  # between two tries: each may wait for another process's lock
_BEGIN_SECONDS = 0.1  # until a run whose agent has written nothing is entered into the store
_KEPT_EVENTS, _KEPT_BYTES = 2048, 500_000  # for readers that are nearly up to date


class Journal:
    """Of one run. What is not stored yet is kept here, so nothing that readers have seen is lost while this lives."""

    def __init__(
        self, store: Store, new: NewRun, now_ms: Callable[[], int], must_store_seconds: float | None = None
    ) -> None:
        """`must_store_seconds`: nothing is shown that is not stored, and the agent waits for the store that long."""
        self._store, self.new, self._now_ms, self._must_store_seconds = store, new, now_ms, must_store_seconds
        self.state = RunState()  # which the log follows
        self._lease: Lease | None = None  # when the store has the run
        self._begins_at: asyncio.TimerHandle | None = None
        self._beginning: asyncio.Task[None] | None = None
        self._waiting: list[DocumentEvent] = []
        self.stored = 0  # how many events are safe
        self._end: RunEnd | None = None
        self._is_lost = False  # the store lacks some of it, and always will
        self.fenced: Fenced | None = None  # why not, if it refused the lease
        self.bug: Exception | None = None  # an internal error in the store: it costs the history, not the answer
        self._refused_ms = -_PAUSE_MS
        self._kept: deque[tuple[int, int]] = deque()  # stored batches that are not old: their events and their bytes
        self._kept_events = self._kept_bytes = 0
        self._first_event_ms: int | None = None
        # Visible events after this number, as far as they are in memory: see `EventLog`.
        self.kept: Callable[[int], Sequence[DocumentEvent]] = lambda last: ()
        self.session_id: str | None = None
        self.title: str | None = None  # the agent's, for the conversation
        self.fingerprint: Callable[[str], str | None] = lambda answer: None  # of the conversation, with this reply

    @property
    def old(self) -> int:
        """How many of them can be dropped: a reader that far behind gets them from the store."""
        return self.stored - self._kept_events

    @property
    def is_complete(self) -> bool:
        """Nothing is left to be stored."""
        return self._end is not None and (self._is_lost or not self._waiting)

    async def begin(self) -> Refused | None:
        """None: the run may start, although the store may not have it yet."""
        try:
            begun = await self._store.begin_run(self.new)
        except StoreUnavailable:
            if self._must_store_seconds is not None:
                raise
            self._put_off()
            return None
        if isinstance(begun, KeyTaken | Busy | KeyLimit | Superseded):
            return begun
        self._lease = Lease(self.new.id, FIRST_EPOCH)
        return None

    def begin_soon(self) -> None:
        """For a run that starts in any case: it is inserted together with its first events, or while its agent is
        silent."""
        if self._lease is not None:
            return
        if self._must_store_seconds is not None:  # other gateways have to know it
            self._begin_meanwhile()
        else:
            self._begins_at = asyncio.get_running_loop().call_later(_BEGIN_SECONDS, self._begin_meanwhile)

    def _begin_meanwhile(self) -> None:
        self._begins_at = None
        if self._lease is None and not self._waiting:
            self._beginning = asyncio.get_running_loop().create_task(self.entered())

    async def entered(self) -> None:
        """A failure is ignored here: it happens again with the first events, and is reported then."""
        if self._lease is None and not self._is_lost:
            with suppress(Exception):
                await self.begin()

    async def read(self, after: int) -> list[DocumentEvent]:
        """A page of events that are stored."""
        return (await self._store.events(self.new.id, self.new.owner, after=after)).events

    def add(self, events: Sequence[DocumentEvent]) -> None:
        """To be stored by the next `store`."""
        if self._first_event_ms is None:
            self._first_event_ms = self._now_ms()
        self._waiting += events

    def resume(self, lease: Lease, state: RunState, first_event_ms: int | None) -> None:
        """For a run that another process began, with what it has stored. Called before anything else."""
        self._lease, self.state, self.stored, self._first_event_ms = lease, state, state.count, first_event_ms

    async def store(self, events: list[DocumentEvent]) -> list[DocumentEvent]:
        """Stores the events that were added last, and returns them for readers: `Done` reports whether the answer could
        not be stored.

        If it is cancelled, the events may or may not be stored; the next call stores what is missing.
        """
        last = events[-1]
        if self._must_store_seconds is not None:
            return await self._store_or_lose(events, self._must_store_seconds)
        if isinstance(last, Done):
            self._end = self._ended(last)
            if not await self.try_again() or self._is_lost:
                last = _not_stored(last)
                self._waiting[-1] = last
                self._end = self._ended(last)
                return [*events[:-1], last]
        elif not 0 <= self._now_ms() - self._refused_ms < _PAUSE_MS:  # below 0: the clock has jumped
            await self.try_again()
        return events

    async def _store_or_lose(self, events: list[DocumentEvent], seconds: float) -> list[DocumentEvent]:
        """Waits for the store; meanwhile the agent's output is not read. None of the events if they are lost."""
        if isinstance(last := events[-1], Done):
            self._end = self._ended(last)
        until = asyncio.get_running_loop().time() + seconds
        while not await self.try_again():
            if asyncio.get_running_loop().time() > until:
                self._is_lost = True
                break
            await asyncio.sleep(_AGAIN_SECONDS)
        return [] if self._is_lost else events

    async def try_again(self) -> bool:
        """Whether nothing is left to be tried."""
        if self._is_lost:
            return True
        try:
            written = await self._write()
        except StoreUnavailable:
            self._put_off()
            return False
        except Exception as error:  # noqa: BLE001 -- reported by the writer, after readers have the events
            self.bug, self._is_lost = error, True
            return True
        match written:
            case KeyTaken() | KeyLimit() | Superseded():
                self._is_lost = True
            case Busy():  # the run before it has ended, and is about to be stored
                self._put_off()
                return False
            case Fenced():
                self._is_lost, self.fenced = True, written
            case Behind(last=last):
                return await self._send_again(last)
            case Stored(size=size):
                if self._lease is None:
                    self._lease = Lease(self.new.id, FIRST_EPOCH)
                if self._begins_at is not None:
                    self._begins_at.cancel()
                    self._begins_at = None
                self.stored += len(self._waiting)
                self._keep(len(self._waiting), size)
                self._waiting = []
        return True

    async def _send_again(self, last: int) -> bool:
        """Events that the store has lost, for example when a lagging standby took over or a server was restored. They
        are sent again with the same numbers, as far as they are kept here.
        """
        forgotten = self.kept(last)[: self.stored - last]  # what follows is in `_waiting`
        if last + len(forgotten) != self.stored:
            self.bug = ValueError(f"the store has forgotten all after event {last}, which is too long ago")
            self._is_lost = True
            return True
        self._waiting = [*forgotten, *self._waiting]
        self.stored = last
        self._kept_events -= len(forgotten)
        self._kept = deque([(self._kept_events, self._kept_bytes)])
        return await self.try_again()

    async def _write(self) -> Refused | Written:
        if self._lease is None:
            return await self._store.begin_run(self.new, self._waiting, self._end)
        return await self._store.append(self._lease, self.stored + 1, self._waiting, self._end)

    def _keep(self, events: int, size: int) -> None:
        self._kept.append((events, size))
        self._kept_events += events
        self._kept_bytes += size
        while len(self._kept) > 1 and (self._kept_events > _KEPT_EVENTS or self._kept_bytes > _KEPT_BYTES):
            events, size = self._kept.popleft()
            self._kept_events -= events
            self._kept_bytes -= size

    def _put_off(self) -> None:
        self._refused_ms = self._now_ms()

    def _ended(self, done: Done) -> RunEnd:
        words = self.state.words
        return RunEnd(
            envelope=done.envelope,
            failure_code=done.failure.code if done.failure is not None else None,
            words=words.all,
            tool_uses=words.tool_uses,
            needs_decision=words.needs_decision,
            answer=self.state.text,
            session_id=self.session_id,
            title=self._title_change(),
            fingerprint=self._fingerprint(done),
            first_event_ms=self._first_event_ms,
            ended_ms=self._now_ms(),
            begun=self.new,
            frees_key=done.failure is not None and done.failure.is_transient,
        )

    def _title_change(self) -> TitleChange | None:
        return TitleChange(made_title(self.new.messages), title_of(self.title)) if self.title else None

    def _fingerprint(self, done: Done) -> str | None:
        """The fingerprint of the messages that the caller will send next. None keeps the old one: a turn that never
        began changes nothing.
        """
        if done.failure is not None:
            # After an interruption, the session and its caller have different texts.
            return f"none {self.new.id}" if self.state.has_output else None
        return self.fingerprint(self.state.last_reply) or f"none {self.new.id}"


def _not_stored(done: Done) -> Done:
    metadata = msgspec.structs.replace(done.envelope.metadata, stored=False)
    return msgspec.structs.replace(done, envelope=msgspec.structs.replace(done.envelope, metadata=metadata))
