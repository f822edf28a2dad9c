"""A run of the store in; something that is read like a run that still goes on, out."""

import asyncio
from contextlib import suppress

from cursor_gateway.core.document_events import DocumentEvent, Done, says_something
from cursor_gateway.core.run_info import RunInfo
from cursor_gateway.errors import GatewayError
from cursor_gateway.runs.recovery import run_info
from cursor_gateway.store.base import Store, StoredRun

_LOOK_SECONDS = 0.25  # how often one that another gateway drives is looked at


class PastRun:
    """One that has ended, or that another gateway drives."""

    def __init__(self, store: Store, stored: StoredRun) -> None:
        self._store, self.stored = store, stored
        self.owner = stored.owner
        self.info: RunInfo = run_info(stored)
        self.session_id: str | None = None
        self.done: Done | None = None
        self.has_spoken = False
        self.prompt = ""  # only estimates need it
        self.readers = 0
        self.is_deleted = False  # with its conversation

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def count(self) -> int:
        return self.stored.event_count

    def stop(self, why: GatewayError) -> None:
        """There is nothing here to stop."""

    def reader(self, after: int = 0) -> "PastReader":
        return PastReader(self, after)

    async def page(self, after: int) -> list[DocumentEvent]:
        return (await asyncio.to_thread(self._store.events, self.id, self.owner, after=after)).events

    async def look(self) -> None:
        """How it ended, and whether it had said anything before."""
        found = await asyncio.to_thread(self._store.run, self.id, self.owner)
        self.is_deleted = found is None
        self.stored = found or self.stored
        self.has_spoken = self.has_spoken or any(map(says_something, await self.page(0)))
        if self.stored.state != "running":
            last = (await self.page(self.stored.event_count - 1))[-1:]
            self.done = last[0] if last and isinstance(last[0], Done) else None


class PastReader:
    """As `Reader`."""

    def __init__(self, run: PastRun, after: int) -> None:
        self.run = run
        self.place = after
        self.has_left = False
        self._left = asyncio.Event()

    def __enter__(self) -> "PastReader":
        self.run.readers += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.run.readers -= 1

    @property
    def at_end(self) -> bool:
        return self.run.stored.state != "running" and self.place >= self.run.stored.event_count

    def leave(self) -> None:
        self.has_left = True
        self._left.set()

    async def next(self, seconds: float | None = None) -> list[DocumentEvent]:
        loop = asyncio.get_running_loop()
        until = None if seconds is None else loop.time() + seconds
        while not self.has_left and not self.at_end:
            if events := await self.run.page(self.place):
                self.place += len(events)
                return events
            await self.run.look()
            if self.run.is_deleted:
                self.leave()
            left = _LOOK_SECONDS if until is None else min(_LOOK_SECONDS, until - loop.time())
            if left <= 0:
                break
            if not self.at_end:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._left.wait(), left)
        return []
