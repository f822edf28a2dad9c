"""One log, any number of readers: each has its own position, and is woken when there are new events."""

import asyncio
from typing import Protocol

from cursor_gateway.errors import Failure
from cursor_gateway.model.document_events import DocumentEvent, Done


class Log(Protocol):
    """What is read: the visible events of one run, wherever they are."""

    @property
    def done(self) -> Done | None:
        """The last event, once it is visible."""
        ...

    @property
    def count(self) -> int: ...

    @property
    def is_deleted(self) -> bool:
        """With its conversation."""
        ...

    async def after(self, number: int) -> list[DocumentEvent]:
        """Some of the events that follow this one. Empty although there should be some: the run was deleted."""
        ...

    async def more(self, woken: "asyncio.Future[None]", seconds: float | None) -> None:
        """Returns when there is more, after that time, or when the future is done."""
        ...


class Owner(Protocol):
    """The run that a log, its readers and its driver belong to: they report to it."""

    def faulted(self, error: Exception) -> None:
        """With an internal error, of the store or the driver."""
        ...

    def log_claimed(self) -> None:
        """Another process has taken the run over."""
        ...

    def log_ended(self, failure: Failure | None) -> None:
        """Before readers see the end."""
        ...

    def first_event_shown(self) -> None: ...

    def readers_left(self) -> None:
        """The last one is gone."""
        ...


class Readers:
    """The readers of one log."""

    def __init__(self, log: Log) -> None:
        self.count = 0
        self.read_up_to = 0  # the number of the last event that some reader has had
        self.owner: Owner | None = None
        self.log = log

    def reader(self, after: int = 0) -> "Reader":
        return Reader(self, self.log, after)

    def joined(self) -> None:
        self.count += 1

    def left(self, place: int) -> None:
        self.count -= 1
        self.read_up_to = max(self.read_up_to, place)
        if self.count == 0 and self.owner is not None:
            self.owner.readers_left()


class Reader:
    """One reader's place in a log; as a context manager it is counted as one."""

    def __init__(self, readers: Readers, log: Log, after: int) -> None:
        self.place = after
        self.has_left = False
        self.is_lost = False  # the run was deleted: what it has not read yet is gone
        self.may_move = False  # its client can resume at another process
        self.has_moved = False  # and shall
        self._readers, self._log = readers, log
        self._woken: asyncio.Future[None] | None = None

    def __enter__(self) -> "Reader":
        self._readers.joined()
        return self

    def __exit__(self, *_: object) -> None:
        self._readers.left(self.place)

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

    async def next(self, seconds: float | None = None) -> list[DocumentEvent]:
        """The events since the last call, as soon as there are any. Empty after the timeout, at the end, or when the
        reader has left.
        """
        if self.place >= self._log.count and self._log.done is None and not self.has_left:
            self._woken = asyncio.get_running_loop().create_future()
            try:
                await self._log.more(self._woken, seconds)
            finally:
                self._woken = None
        events = await self._log.after(self.place) if self.place < self._log.count else []
        if self._log.is_deleted or (not events and self.place < self._log.count):
            self.is_lost = True
            self.leave()
        self.place += len(events)
        return events


def wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


class Wakeups:
    """Waits for more of a log, for any number of readers."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    async def wait(self, woken: "asyncio.Future[None]", seconds: float | None) -> None:
        """Until `wake_all`, after that time, or when the future is done."""
        self._waiting.add(woken)
        timer = asyncio.get_running_loop().call_later(seconds, wake, woken) if seconds is not None else None
        try:
            await woken
        finally:
            self._waiting.discard(woken)
            if timer is not None:
                timer.cancel()

    def wake_all(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            wake(future)
