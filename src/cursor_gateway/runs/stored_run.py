"""A run of the store in; something that is read like a run that is driven here, out."""

import asyncio
from contextlib import suppress

from cursor_gateway.errors import GatewayError, HistoryDamaged, NotFound
from cursor_gateway.model.document_events import DocumentEvent, Done
from cursor_gateway.model.documents import Envelope
from cursor_gateway.runs.handle import RunHandle
from cursor_gateway.runs.readers import Readers
from cursor_gateway.runs.recovery import run_info
from cursor_gateway.store.base import RunRecord, Store

_NO_END = "This answer is damaged: its end is missing. Restart the gateway to recover what can be read, or delete it."
_POLL_SECONDS = 0.25  # a run that another gateway drives


class StoredLog:
    """The events of a run in the store; it may still grow."""

    def __init__(self, store: Store, stored: RunRecord) -> None:
        self.stored = stored
        self.done: Done | None = None
        self.is_deleted = False  # with its conversation
        self._store = store

    @property
    def count(self) -> int:
        return self.stored.event_count

    async def after(self, number: int) -> list[DocumentEvent]:
        return (await self._store.events(self.stored.id, self.stored.owner, after=number)).events

    async def look(self) -> None:
        """How far it is."""
        found = await self._store.run(self.stored.id, self.stored.owner)
        self.is_deleted = found is None
        self.stored = found or self.stored
        if self.stored.state != "running":
            last = (await self.after(self.stored.event_count - 1))[-1:]
            self.done = last[0] if last and isinstance(last[0], Done) else None
            if last and self.done is None:
                raise HistoryDamaged(_NO_END)

    async def more(self, woken: "asyncio.Future[None]", seconds: float | None = None) -> None:
        loop, count = asyncio.get_running_loop(), self.count
        until = None if seconds is None else loop.time() + seconds
        while not woken.done() and self.count == count and self.done is None and not self.is_deleted:
            left = _POLL_SECONDS if until is None else min(_POLL_SECONDS, until - loop.time())
            await self.look()
            if left <= 0:
                return
            if self.count == count and self.done is None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await asyncio.shield(woken)


class StoredRun(RunHandle):
    """One that has ended, or that another gateway drives. It can be read, and nothing else."""

    source_name = "history"

    def __init__(self, log: StoredLog) -> None:
        super().__init__(run_info(log.stored), log.stored.owner, Readers(log))

    @classmethod
    async def open(cls, store: Store, stored: RunRecord) -> "StoredRun":
        log = StoredLog(store, stored)
        await log.look()
        return cls(log)

    def stop(self, why: GatewayError) -> None:
        """There is nothing here to stop."""

    async def cancel(self, why: GatewayError) -> Envelope:
        if self.done is None:
            raise NotFound("This run belongs to another gateway; cancel it there.", param="id")
        return self.done.envelope
