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
from collections.abc import Sequence

from cursor_gateway.model.document_events import DocumentEvent, Done
from cursor_gateway.runs.journal import Journal
from cursor_gateway.runs.readers import Owner, Wakeups, wake
from cursor_gateway.store.base import Fenced


class EventLog:
    def __init__(self, journal: Journal) -> None:
        """The journal of a run that another process began has the state that is stored."""
        self.state = journal.state  # with all that was added
        self.events: list[DocumentEvent] = []  # the latest that are visible
        self.dropped = self.state.count  # visible events before them, which are in the store
        self.done: Done | None = None  # when it is visible
        self.is_deleted = False  # as far as is known here
        self.owner: Owner | None = None
        self.journal = journal
        journal.kept = self._after
        self._added: list[DocumentEvent] = []
        self._storing: list[DocumentEvent] = []  # what the journal has, but readers have not: see `flush`
        self._flushing: asyncio.Future[None] | None = None  # done when the flush that is under way has ended
        self._flush_later: asyncio.Task[None] | None = None
        self._wakeups = Wakeups()

    @property
    def count(self) -> int:
        """How many events are visible."""
        return self.dropped + len(self.events)

    # --- writing ------------------------------------------------------------------------------------

    def add(self, events: Sequence[DocumentEvent]) -> None:
        """Visible after the next `flush`. Nothing comes after `Done`."""
        self.state.push_all(events)
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
                self.journal.add(added)
                stored = await self.journal.store(self._storing)
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
        self._note_end(events[-1])
        spare = self.journal.old - self.dropped
        del self.events[:spare]
        self.dropped += spare
        self._wakeups.wake_all()
        self._report()

    def _lose(self, events: Sequence[DocumentEvent]) -> None:
        """The store will never have these events: readers are detached, and can read the rest of the run from another
        process.
        """
        self.is_deleted = True
        self._note_end(events[-1])
        self._wakeups.wake_all()
        self.journal.fenced = Fenced("claimed")  # its agent must end in any case
        self._report()

    def _note_end(self, last: DocumentEvent) -> None:
        if isinstance(last, Done):
            self.done = self.state.done = last  # as it is stored, or not
            if self.owner is not None:
                self.owner.log_ended(last.failure)

    def _report(self) -> None:
        journal = self.journal
        bug, fenced, journal.bug, journal.fenced = journal.bug, journal.fenced, None, None
        if self.owner is None:
            return
        if bug is not None:
            self.owner.faulted(bug)
        if fenced is not None and fenced.reason == "claimed":
            self.owner.log_claimed()

    # --- reading ------------------------------------------------------------------------------------

    async def after(self, number: int) -> list[DocumentEvent]:
        """Visible events that follow this one: all that are here, or a page of those in the store."""
        if number >= self.dropped:
            return self.events[number - self.dropped :]
        return await self.journal.read(number)

    async def more(self, woken: "asyncio.Future[None]", seconds: float | None = None) -> None:
        await self._wakeups.wait(woken, seconds)

    async def finished(self) -> Done:
        """Waits for the end."""
        while self.done is None:
            await self.more(asyncio.get_running_loop().create_future())
        return self.done
