"""A run of the store in; something that is read like a run that is driven here, out."""

import asyncio
from contextlib import suppress

from cursor_gateway.core.document_events import DocumentEvent, Done, says_something
from cursor_gateway.core.run_info import RunInfo
from cursor_gateway.errors import GatewayError
from cursor_gateway.runs.readers import Reader, Readers
from cursor_gateway.runs.recovery import run_info
from cursor_gateway.store.base import Store, StoredRun

_POLL_SECONDS = 0.25  # a run that another gateway drives


class StoredLog:
    """The events of a run in the store; it may still grow."""

    def __init__(self, store: Store, stored: StoredRun) -> None:
        self.stored = stored
        self.done: Done | None = None
        self.has_spoken = False
        self.is_deleted = False  # with its conversation
        self._store = store

    @property
    def count(self) -> int:
        return self.stored.event_count

    async def after(self, number: int) -> list[DocumentEvent]:
        page = await asyncio.to_thread(self._store.events, self.stored.id, self.stored.owner, after=number)
        return page.events

    async def look(self) -> None:
        """How far it is."""
        found = await asyncio.to_thread(self._store.run, self.stored.id, self.stored.owner)
        self.is_deleted = found is None
        self.stored = found or self.stored
        self.has_spoken = self.has_spoken or any(map(says_something, await self.after(0)))
        if self.stored.state != "running":
            last = (await self.after(self.stored.event_count - 1))[-1:]
            self.done = last[0] if last and isinstance(last[0], Done) else None

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
                    await asyncio.wait_for(asyncio.shield(woken), left)


class PastRun:
    """One that has ended, or that another gateway drives."""

    def __init__(self, store: Store, stored: StoredRun) -> None:
        self.log = StoredLog(store, stored)
        self.readers = Readers(self.log)
        self.owner = stored.owner
        self.info: RunInfo = run_info(stored)
        self.session_id: str | None = None
        self.prompt = ""  # only estimates need it

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def count(self) -> int:
        return self.log.count

    @property
    def done(self) -> Done | None:
        return self.log.done

    @property
    def has_spoken(self) -> bool:
        return self.log.has_spoken

    @property
    def is_deleted(self) -> bool:
        return self.log.is_deleted

    async def look(self) -> None:
        await self.log.look()

    def stop(self, why: GatewayError) -> None:
        """There is nothing here to stop."""

    def reader(self, after: int = 0) -> Reader:
        return self.readers.reader(after)
