"""One run's events, for any number of readers. Where the run is driven, they are added; elsewhere, they are found.

An event passes three points, always in this order:

    added     it has its number, which never changes
    stored    it outlives this process
    visible   readers may see it

`add` only numbers, so it can be called from anywhere; `flush` stores what was added and makes it visible. Flushes never
overlap, so the visible events are always a beginning of the stored ones, however long storing takes. Only if the store
is out of order, and no other process needs it, are events shown before they are stored; they are kept until it accepts
them again. What is visible, stored and old is dropped from memory; a reader that far behind gets it from the store.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import suppress
from typing import TypeAlias

import msgspec
from msgspec import Struct

from cursor_gateway.errors import HistoryDamaged, StoreUnavailable
from cursor_gateway.model.document_events import DocumentEvent, Done
from cursor_gateway.model.messages import AssistantMessage, Message
from cursor_gateway.prompting.fingerprints import Scope, fingerprint
from cursor_gateway.stages.run_state import RunState
from cursor_gateway.store import batches
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
    RunRecord,
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
_POLL_SECONDS = 0.25  # a run that another gateway drives
_NO_END = "This answer is damaged: its end is missing. Restart the gateway to recover what can be read, or delete it."


class EventLog:
    """The visible events of one run: the latest here, the others in the store."""

    def __init__(self, store: Store, run: NewRun | RunRecord, count: int = 0) -> None:
        """`count` events are in the store."""
        self.run = run
        self.count = self.dropped = count  # how many are visible; how many of them are only in the store
        self.events: list[DocumentEvent] = []  # the others
        self.done: Done | None = None  # the last event, once it is visible
        self.is_deleted = False  # with its conversation, as far as is known here
        self.readers = 0
        self.read_up_to = 0  # the number of the last event that some reader has had
        self.frames: dict[Hashable, bytes] = {}  # the latest events, encoded once for several readers
        self._store = store
        self._waiting: dict[asyncio.Future[None], Callable[[], bool] | None] = {}  # for more, and what takes it first

    async def after(self, number: int) -> list[DocumentEvent]:
        """Visible events that follow this one: all that are here, or a page of those in the store. Empty although there
        should be some: the run was deleted."""
        if number >= self.dropped:
            return self.events[number - self.dropped : self.count - self.dropped]
        page = await self._store.events(self.run.id, self.run.owner, after=number)
        return page.events[: max(0, self.count - number)]

    def more(self, woken: "asyncio.Future[None]", take: Callable[[], bool] | None = None) -> Awaitable[None]:
        """To wait until there is more, or the future is done. Who is not woken by that calls `forget` afterwards.

        `take` is called instead, as soon as there is more; as long as it returns True, nobody is woken."""
        self._waiting[woken] = take
        return woken

    def forget(self, woken: "asyncio.Future[None]") -> None:
        self._waiting.pop(woken, None)

    def wake_readers(self) -> None:
        waiting, self._waiting = self._waiting, {}
        self.frames.clear()
        for woken, take in waiting.items():
            try:
                if take is not None and not woken.done() and take():
                    self._waiting[woken] = take
                else:
                    wake(woken)
            except Exception as error:  # noqa: BLE001 -- concerns this reader alone, who raises it
                if not woken.done():
                    woken.set_exception(error)

    async def finished(self) -> Done:
        """Waits for the end."""
        while self.done is None:
            await self.more(asyncio.get_running_loop().create_future())
        return self.done

    def joined(self) -> None:
        self.readers += 1

    def left(self, place: int) -> None:
        """A reader that has had the event of this number."""
        self.readers -= 1
        self.read_up_to = max(self.read_up_to, place)


def wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


# --- a run that is stored ---------------------------------------------------------------------------


class StoredLog(EventLog):
    """It may still grow: another gateway may drive the run."""

    def __init__(self, store: Store, run: RunRecord) -> None:
        super().__init__(store, run, run.event_count)
        self.run: RunRecord = run

    async def look(self) -> None:
        """How far it is."""
        found = await self._store.run(self.run.id, self.run.owner)
        self.is_deleted = found is None
        self.run = found or self.run
        self.count = self.dropped = self.run.event_count
        if self.run.state != "running":
            last = (await self.after(self.count - 1))[-1:]
            self.done = last[0] if last and isinstance(last[0], Done) else None
            if self.done is None and (last or not self.count):  # else it was deleted meanwhile
                raise HistoryDamaged(_NO_END)

    async def more(self, woken: "asyncio.Future[None]", take: Callable[[], bool] | None = None) -> None:
        count = self.count
        while not woken.done() and self.count == count and self.done is None and not self.is_deleted:
            await self.look()
            if self.count == count and self.done is None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_POLL_SECONDS):
                        await asyncio.shield(woken)


# --- a run that is driven here ----------------------------------------------------------------------


class Quoted(Struct, frozen=True):
    """What the caller's next request will contain besides the answer."""

    scope: Scope
    messages: Sequence[Message]

    def fingerprint(self, answer: str) -> str:
        return fingerprint(self.scope, [*self.messages, AssistantMessage(answer)])


# What the log tells its run: the end is visible; the store has refused the lease; the store has a bug, which costs the
# history and not the answer.
News: TypeAlias = Done | Fenced | Exception


class LiveLog(EventLog):
    """What is not stored yet is kept here, so nothing that readers have seen is lost while this lives."""

    def __init__(
        self, store: Store, new: NewRun, now_ms: Callable[[], int], must_store_seconds: float | None = None
    ) -> None:
        """`must_store_seconds`: nothing is shown that is not stored, and the agent waits for the store that long."""
        super().__init__(store, new)
        self.run: NewRun = new
        self.state = RunState()  # with all that was added
        self.session_id: str | None = None
        self.title: str | None = None  # the agent's, for the conversation
        self.quoted: Quoted | None = None
        self.news: list[News] = []  # for the run, which takes them after each flush
        self._now_ms, self._must_store_seconds = now_ms, must_store_seconds
        self._lease: Lease | None = None  # when the store has the run
        self._begins: asyncio.TimerHandle | asyncio.Task[None] | None = None  # unless it has
        self._end: RunEnd | None = None
        self._is_lost = False  # the store lacks some of it, and always will
        self._refused_ms: int | None = None  # when the store was last out of order
        self.stored = 0  # how many events are safe
        self._older = 0, 0  # the last event that is dropped next, and the bytes of the stored ones after it
        self._first_event_ms: int | None = None
        self._flushed = 0  # events that are visible, or lost
        self._flushing: list[asyncio.Future[None]] | None = None  # who waits for the end of the flush under way
        # With a pace, what the agent writes between two flushes is stored together: each is a commit and wakes others.
        self.pace = batches.Pace() if must_store_seconds is not None else None

    def resume(self, lease: Lease, state: RunState, first_event_ms: int | None) -> None:
        """For a run that another process began, with what it has stored. Called before anything else."""
        self._lease, self.state, self._first_event_ms = lease, state, first_event_ms
        self.count = self.dropped = self.stored = self._flushed = state.count

    @property
    def is_complete(self) -> bool:
        """Nothing is left to be stored."""
        return self.done is not None and (self._is_lost or self.stored == self.state.count)

    @property
    def is_stored(self) -> bool:
        """All of it, and its end."""
        return self.done is not None and not self._is_lost and self.stored == self.state.count

    # --- its beginning ------------------------------------------------------------------------------

    async def begin(self) -> Refused | None:
        """None: the run may start, although the store may not have it yet."""
        try:
            begun = await self._store.begin_run(self.run)
        except StoreUnavailable:
            if self._must_store_seconds is not None:
                raise
            self._put_off()
            return None
        if isinstance(begun, KeyTaken | Busy | KeyLimit | Superseded):
            return begun
        self._lease = Lease(self.run.id, FIRST_EPOCH)
        return None

    def begin_soon(self) -> None:
        """For a run that starts in any case: it is inserted together with its first events, or while its agent is
        silent."""
        if self._lease is not None:
            return
        if self._must_store_seconds is not None:  # other gateways have to know it
            self._begin_meanwhile()
        else:
            self._begins = asyncio.get_running_loop().call_later(_BEGIN_SECONDS, self._begin_meanwhile)

    def _begin_meanwhile(self) -> None:
        if self._lease is None and self.stored == self.state.count:
            self._begins = asyncio.get_running_loop().create_task(self.entered())

    async def entered(self) -> None:
        """A failure is ignored here: it happens again with the first events, and is reported then."""
        if self._lease is None and not self._is_lost:
            with suppress(Exception):
                await self.begin()

    # --- writing ------------------------------------------------------------------------------------

    def add(self, events: Sequence[DocumentEvent]) -> None:
        """Visible after the next `flush`. Nothing comes after `Done`."""
        if self._first_event_ms is None:
            self._first_event_ms = self._now_ms()
        self.state.push_all(events)
        self.events += events

    def hurry(self) -> None:
        """A flush that is under way does not wait for its turn."""
        if self.pace is not None:
            self.pace.hurry()

    @property
    def waiting(self) -> int:
        """How many events are added, and neither visible nor lost."""
        return self.state.count - self._flushed

    async def flush(self, *, is_paced: bool = False) -> None:
        """Can be cancelled while it waits for the store: the next one continues where it stopped.

        `is_paced`: nobody waits for it, so it stores no more often than it has to.
        """
        if self.pace is not None and not is_paced:
            self.pace.hurry()
        while self._flushing is not None:
            self._flushing.append(over := asyncio.get_running_loop().create_future())
            await over
        if self._flushed == self.state.count:
            return
        self._flushing = []
        try:
            while self._flushed < self.state.count:
                if is_paced and self.pace is not None:
                    await self.pace.turn()
                last = self.state.count
                may_be_shown = await self._store_all()
                self._flushed = last
                if may_be_shown:
                    self.count = last
                else:  # readers are detached, and can read the rest of the run from another process
                    self.is_deleted = True
                    self.news.append(Fenced("claimed"))  # its agent must end in any case
                if (end := self.events[last - self.dropped - 1]).__class__ is Done:
                    self.done = self.state.done = end  # as it is stored, or not
                    self.news.append(end)
                self.wake_readers()
        finally:
            waiting, self._flushing = self._flushing, None
            for over in waiting:
                wake(over)

    async def _store_all(self) -> bool:
        """Stores what was added; False: none of it may be shown. `Done` reports whether the answer could not be stored.

        If it is cancelled, the events may or may not be stored; the next call stores what is missing.
        """
        done = end if (end := self.events[-1]).__class__ is Done else None
        if self._must_store_seconds is not None:  # meanwhile not much of the agent's output is read
            until = asyncio.get_running_loop().time() + self._must_store_seconds
            while not await self.try_again():
                if asyncio.get_running_loop().time() > until:
                    self._is_lost = True
                    break
                await asyncio.sleep(_AGAIN_SECONDS)
            return not self._is_lost
        if done is not None:
            if not await self.try_again() or self._is_lost:
                self.events[-1] = done = _not_stored(done)
                self._end = self._ended(done)
        elif self._refused_ms is None or not 0 <= self._now_ms() - self._refused_ms < _PAUSE_MS:  # below 0: a jump
            await self.try_again()
        return True

    async def try_again(self) -> bool:
        """Whether nothing is left to be tried."""
        events = self.events[self.stored - self.dropped :]
        if self._is_lost or not events:
            return True
        try:
            if self._end is None and (done := events[-1]).__class__ is Done:
                self._end = self._ended(done)
            if self._lease is None:
                written: Refused | Written = await self._store.begin_run(self.run, events, self._end)
            else:
                written = await self._store.append(self._lease, self.stored + 1, events, self._end)
        except StoreUnavailable:
            self._put_off()
            return False
        except Exception as error:  # noqa: BLE001 -- reported by the run, after readers have the events
            self.news.append(error)
            self._is_lost = True
            return True
        match written:
            case Stored(size=size):
                if self._lease is None:
                    self._lease = Lease(self.run.id, FIRST_EPOCH)
                if isinstance(self._begins, asyncio.TimerHandle):
                    self._begins.cancel()
                    self._begins = None
                self._keep(len(events), size)
            case KeyTaken() | KeyLimit() | Superseded():
                self._is_lost = True
            case Busy():  # the run before it has ended, and is about to be stored
                self._put_off()
                return False
            case Fenced():
                self._is_lost = True
                self.news.append(written)
            case Behind(last=last):
                return await self._send_again(last)
        return True

    async def _send_again(self, last: int) -> bool:
        """Events that the store has lost, for example when a lagging standby took over or a server was restored. They
        are sent again with the same numbers, as far as they are kept here.
        """
        if last < self.dropped:
            self.news.append(ValueError(f"the store has forgotten all after event {last}, which is too long ago"))
            self._is_lost = True
            return True
        self.stored = last
        return await self.try_again()

    def _keep(self, count: int, size: int) -> None:
        self._refused_ms = None
        older, newer_bytes = max(self.dropped, min(self._older[0], self.stored)), self._older[1] + size
        if newer_bytes > _KEPT_BYTES // 2 or self.stored - older > _KEPT_EVENTS // 2:  # not all: the latest stay
            del self.events[: older - self.dropped]
            self.dropped, older, newer_bytes = older, self.stored, size
        self.stored, self._older = self.stored + count, (older, newer_bytes)

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
            title=TitleChange(made_title(self.run.messages), title_of(self.title)) if self.title else None,
            fingerprint=self._fingerprint(done),
            first_event_ms=self._first_event_ms,
            ended_ms=self._now_ms(),
            begun=self.run,
            frees_key=done.failure is not None and done.failure.is_transient,
        )

    def _fingerprint(self, done: Done) -> str | None:
        """The fingerprint of the messages that the caller will send next. None keeps the old one: a turn that never
        began changes nothing.
        """
        if done.failure is not None:
            # After an interruption, the session and its caller have different texts.
            return f"none {self.run.id}" if self.state.has_output else None
        return f"none {self.run.id}" if self.quoted is None else self.quoted.fingerprint(self.state.last_reply)


def _not_stored(done: Done) -> Done:
    metadata = msgspec.structs.replace(done.envelope.metadata, stored=False)
    return msgspec.structs.replace(done, envelope=msgspec.structs.replace(done.envelope, metadata=metadata))
