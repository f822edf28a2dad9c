"""One run's events: numbered, stored, and only then visible. Document events in; the same, in order, for readers out.

An event passes three points, always in this order:

    added     it has its number, which never changes
    stored    the journal has it: it outlives this process
    visible   readers may see it

`add` only numbers, so it can be called from anywhere; `flush` stores what was added and makes it visible. Flushes never
overlap, so the visible events are always a beginning of the stored ones, however long storing takes.
What is visible and old is dropped from memory; a reader that far behind gets it from the store.
"""

import asyncio
from collections.abc import Callable, Sequence

from cursor_gateway.errors import Failure
from cursor_gateway.model.document_events import DocumentEnded, DocumentEvent, Done, Paused
from cursor_gateway.runs.journal import Journal
from cursor_gateway.runs.readers import Wakeups, wake
from cursor_gateway.store.base import Fenced


class EventLog:
    def __init__(self, journal: Journal) -> None:
        self.events: list[DocumentEvent] = []  # the latest that are visible
        self.dropped = 0  # visible events before them, which are in the store
        self.done: Done | None = None  # when it is visible
        self.is_deleted = False  # as far as is known here
        self.is_ended = False  # `Done` was added
        self.documents = 0  # that have ended
        self.session_id: str | None = None  # the agent's own
        self.paused_at = 0  # the number of the last pause
        self.pauses: dict[int, Paused] = {}  # by their numbers
        self.failed: Callable[[Exception], None] = lambda error: None  # called with an internal error of the store
        self.claimed: Callable[[], None] = lambda: None  # called when another process has taken the run over
        self.ended: Callable[[Failure | None], None] = lambda failure: None  # called before readers see the end
        self._journal = journal
        journal.kept = self._after
        self._added: list[DocumentEvent] = []
        self._storing: list[DocumentEvent] = []  # what the journal has, but readers have not: see `flush`
        self._last = 0  # the number of the last event that was added
        self._flushing: asyncio.Future[None] | None = None  # done when the flush that is under way has ended
        self._flush_later: asyncio.Task[None] | None = None
        self._wakeups = Wakeups()

    @property
    def count(self) -> int:
        """How many events are visible."""
        return self.dropped + len(self.events)

    @property
    def added(self) -> int:
        """How many there are, visible or not."""
        return self._last

    def resume(self, stored: Sequence[DocumentEvent]) -> None:
        """For a run that another process began, with what is stored of it. Called before anything else."""
        self.dropped = self._last = len(stored)
        self.documents = sum(isinstance(event, DocumentEnded) for event in stored)
        self.pauses = {number: event for number, event in enumerate(stored, 1) if isinstance(event, Paused)}
        self.paused_at = max(self.pauses, default=0)

    # --- writing ------------------------------------------------------------------------------------

    def add(self, events: Sequence[DocumentEvent]) -> None:
        """Visible after the next `flush`. Nothing comes after `Done`."""
        for number, event in enumerate(events, self._last + 1):
            if isinstance(event, Paused):
                self.paused_at = number
                self.pauses[number] = event
        self._last += len(events)
        self.is_ended = self.is_ended or (bool(events) and isinstance(events[-1], Done))
        self._added += events

    async def append(self, events: Sequence[DocumentEvent]) -> None:
        self.add(events)
        await self.flush()

    def append_soon(self, events: Sequence[DocumentEvent]) -> None:
        """For callers that cannot wait."""
        self.add(events)
        if self._flush_later is None or self._flush_later.done():
            self._flush_later = asyncio.get_running_loop().create_task(self.flush())

    async def flush(self) -> None:
        """Can be cancelled while it waits for the store: the next one continues where it stopped."""
        while self._flushing is not None:
            await asyncio.shield(self._flushing)
        if not self._added and not self._storing:
            return
        self._flushing = asyncio.get_running_loop().create_future()
        try:
            while self._added or self._storing:
                added, self._added = self._added, []
                self._storing += added
                self._journal.session_id = self.session_id
                self._journal.add(added)
                stored = await self._journal.store(self._storing)
                tried, self._storing = self._storing, []
                if stored:
                    self._show(stored)
                else:
                    self._lose(tried)
        finally:
            flushed, self._flushing = self._flushing, None
            wake(flushed)

    def _after(self, number: int) -> list[DocumentEvent]:
        return self.events[number - self.dropped :] if number >= self.dropped else []

    def _show(self, events: list[DocumentEvent]) -> None:
        self.events += events
        self.documents += sum([event.__class__ is DocumentEnded for event in events])
        if isinstance(last := events[-1], Done):
            self.done = last
            self.ended(last.failure)
        spare = self._journal.old - self.dropped
        del self.events[:spare]
        self.dropped += spare
        self._wakeups.wake_all()
        self._report()

    def _lose(self, events: Sequence[DocumentEvent]) -> None:
        """The store will never have these events: readers are detached, and can read the rest of the run from another
        process.
        """
        self.is_deleted = True
        if isinstance(last := events[-1], Done):
            self.done = last
            self.ended(last.failure)
        self._wakeups.wake_all()
        self._journal.fenced = Fenced("claimed")  # its agent must end in any case
        self._report()

    def _report(self) -> None:
        journal = self._journal
        bug, fenced, journal.bug, journal.fenced = journal.bug, journal.fenced, None, None
        if bug is not None:
            self.failed(bug)
        if fenced is not None and fenced.reason == "claimed":
            self.claimed()

    # --- reading ------------------------------------------------------------------------------------

    async def after(self, number: int) -> list[DocumentEvent]:
        """Visible events that follow this one: all that are here, or about a megabyte of those in the store."""
        if number >= self.dropped:
            return self.events[number - self.dropped :]
        return await self._journal.read(number)

    async def more(self, woken: "asyncio.Future[None]", seconds: float | None = None) -> None:
        await self._wakeups.wait(woken, seconds)

    async def finished(self) -> Done:
        """Waits for the end."""
        while self.done is None:
            await self.more(asyncio.get_running_loop().create_future())
        return self.done
