"""The runs that clients of this process read while other processes drive them.

One `RemoteLog` for each such run, however many read it. Hints bring new events. If they were too long for a hint, if
a hint was lost, and every two seconds, the hub queries all runs that may have more in one statement. It keeps what it
finds for a while, and wakes the readers. So the cost of a run depends on its events, not on its readers, and a lost
hint causes a delay of two seconds.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from weakref import WeakSet, WeakValueDictionary

from cursor_gateway.errors import GatewayError, HistoryDamaged, StoreUnavailable
from cursor_gateway.model.document_events import DocumentEvent, Done
from cursor_gateway.model.documents import Envelope
from cursor_gateway.runs.handle import Reader, RunHandle, run_info
from cursor_gateway.runs.log import EventLog
from cursor_gateway.store import batches
from cursor_gateway.store.base import RunRecord, Store
from cursor_gateway.store.cluster import ClusterStore, Hint, LogHead, NewEvents, Watchers
from cursor_gateway.store.sql import UNREADABLE

_KEPT = 2048  # events, for readers that are nearly up to date
_LOOK_SECONDS = 2.0
_CATCH_UP_SECONDS = 15.0
_MOVE_SECONDS = 1.0  # within which clients are sent to other processes
_REPORT_SECONDS = 1.0  # until a report that failed is tried again


class RemoteLog(EventLog):
    """The events of a run that another process drives, as far as they are known here. That process needs to know
    whether there are readers."""

    def __init__(self, store: Store, run: RunRecord, hub: "Hub", reported: int) -> None:
        super().__init__(store, run, run.event_count)
        self.run: RunRecord = run
        self.reported = reported  # how many readers the database knows of
        self._hub = hub
        self._open = WeakSet[Reader]()

    def hear(self, new: NewEvents) -> bool:
        """Adds events that were stored just now. False: the database has to be asked for what is before them."""
        skip = self.count + 1 - new.first
        try:
            events = batches.decode(bytes(new.data), skip) if skip >= 0 else []
        except UNREADABLE:
            return False
        self._add(events)
        return skip >= 0

    def advance(self, head: LogHead | None, after: int) -> bool:
        """Adds what was found after this number; None: the run was deleted. Returns whether there may be more."""
        events = [] if head is None else head.events
        self._add(events[self.count - after :])  # some may have been heard of meanwhile
        # It was deleted, or has ended after the database had lost events that are known here.
        if head is None or (self.done is None and not head.is_running and self.count >= head.last):
            self.done = last if events and isinstance(last := events[-1], Done) else None
            self.is_deleted = self.done is None
            self.wake_readers()
        return head is not None and self.count < head.last

    def _add(self, events: Sequence[DocumentEvent]) -> None:
        if not events or self.is_over:
            return
        self.events += events
        self.count += len(events)
        if isinstance(last := events[-1], Done):
            self.done = last
        surplus = len(self.events) - _KEPT
        if surplus > 0 and self.done is None:
            del self.events[:surplus]
            self.dropped += surplus
        self.wake_readers()

    @property
    def is_over(self) -> bool:
        return self.done is not None or self.is_deleted

    def opened(self, reader: Reader) -> Reader:
        """Registers the reader, so that `move` can send it elsewhere."""
        self._open.add(reader)
        return reader

    def move(self) -> None:
        """Not all at once, because all of them reconnect to the other processes."""
        for reader in self._open:
            asyncio.get_running_loop().call_later(random.uniform(0, _MOVE_SECONDS), reader.move)

    def joined(self) -> None:
        super().joined()
        self._hub.changed(self)

    def left(self, place: int) -> None:
        super().left(place)
        self._hub.changed(self)


class RemoteRun(RunHandle):
    """A run that another process drives: read through the hub, stopped by commands.

    Answers do not go through this handle: a command sends them to the runner, whose own handle accepts them.
    """

    source_name = "cluster"

    def __init__(
        self,
        log: RemoteLog,
        stop: Callable[[str, str, GatewayError], None],
        cancel: Callable[[str, str], Awaitable[Envelope]],
    ) -> None:
        super().__init__(run_info(log.run), log)
        self.log: RemoteLog = log
        self._stop, self._cancel = stop, cancel

    def reader(self, after: int = 0) -> Reader:
        return self.log.opened(super().reader(after))

    def stop(self, why: GatewayError) -> None:
        self._stop(self.id, self.owner, why)

    async def cancel(self, why: GatewayError) -> Envelope:
        if self.done is not None:
            return self.done.envelope
        return await self._cancel(self.id, self.owner)


class Hub:
    def __init__(self, cluster: ClusterStore, store: Store, member_id: str) -> None:
        self._cluster, self._store, self._member_id = cluster, store, member_id
        self._watched = WeakValueDictionary[str, RemoteLog]()  # for as long as a handle of the run exists
        self._hinted: set[str] = set()
        # Runs that are about to begin, and what was heard of them; None: something that has to be looked at.
        self._expected: dict[str, list[NewEvents | None]] = {}
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._reports: dict[str, asyncio.Task[None]] = {}
        self._is_moving = False

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work(), name="hub")

    async def close(self) -> None:
        tasks = [*self._reports.values(), *([self._task] if self._task is not None else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def watch(self, record: RunRecord, *, is_counted: bool = False) -> RemoteLog:
        """`is_counted`: the database knows of a reader of this process already."""
        watched = self._watched.get(record.id)
        if watched is None:
            watched = RemoteLog(self._store, record, self, int(is_counted))
            self._watched[record.id] = watched
        for new in self._expected.get(record.id, [None]):
            self._heard(watched, new)
        return watched

    @contextmanager
    def expecting(self, run_id: str) -> Iterator[None]:
        """A run that may begin now. Until its first hint there is nothing to be seen of it."""
        self._expected[run_id] = []
        try:
            yield
        finally:
            del self._expected[run_id]

    def hinted(self, hint: Hint) -> None:
        told = {new.run for new in hint.events}
        heard: list[tuple[str, NewEvents | None]] = [(id, None) for id in hint.values if id not in told]
        heard += [(new.run, new) for new in hint.events]
        for id, new in heard:
            if (log := self._watched.get(id)) is not None:
                self._heard(log, new)
            elif id in self._expected:
                self._expected[id].append(new)

    def _heard(self, log: RemoteLog, new: NewEvents | None) -> None:
        if new is None or not log.hear(new):
            self._look_at([log.run.id])

    def look_at_all(self) -> None:
        for heard in self._expected.values():
            heard.append(None)
        self._look_at(self._watched)

    def move_readers(self) -> None:
        """Sends clients to other processes, if they can reconnect. The process that drives a run waits one lease for
        them.
        """
        self._is_moving = True
        for watched in self._watched.values():
            watched.move()

    def _look_at(self, ids: Iterable[str]) -> None:
        self._hinted.update(ids)
        if self._hinted:
            self._wanted.set()

    async def catch_up(self, log: RemoteLog, count: int) -> None:
        """Waits until this many events are known here: a client that received them elsewhere may reconnect here.

        Raises `StoreUnavailable`.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + _CATCH_UP_SECONDS
        while log.count < count and not log.is_over:
            if loop.time() >= until:
                raise StoreUnavailable("The database did not answer in time; check that it is running, then retry.")
            self._look_at([log.run.id])
            woken = loop.create_future()
            with suppress(TimeoutError):
                async with asyncio.timeout(_REPORT_SECONDS):
                    await log.more(woken)
            log.forget(woken)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        looked_at = loop.time()  # at all
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(looked_at + _LOOK_SECONDS):
                    await self._wanted.wait()
            if loop.time() - looked_at >= _LOOK_SECONDS:  # even if there is always a hint for some other run
                self._hinted.update(self._watched)
                looked_at = loop.time()
            self._wanted.clear()
            ids, self._hinted = self._hinted, set()
            try:
                await self._look([log for id in ids if (log := self._watched.get(id)) is not None])
            except StoreUnavailable:  # readers wait; see `_LOOK_SECONDS`
                await asyncio.sleep(_REPORT_SECONDS)

    async def _look(self, logs: list[RemoteLog]) -> None:
        logs = [log for log in logs if not log.is_over]
        if not logs:
            return
        known = {log.run.id: log.count for log in logs}
        heads = await self._cluster.heads(known)
        for log in logs:
            head, after = heads.get(log.run.id), known[log.run.id]
            if head is not None and not (head.is_running or head.events or log.is_over):
                after = min(log.count, head.last - 1)
                try:
                    found = await self._store.events(log.run.id, log.run.owner, after=after)
                    head = LogHead(head.last, False, found.events)
                except HistoryDamaged:  # costs this run alone
                    head = None
            if not log.is_over and log.advance(head, after):
                self._look_at([log.run.id])

    # --- readers ------------------------------------------------------------------------------------

    def changed(self, log: RemoteLog) -> None:
        """A reader has joined or left. Other processes only need to know whether there are any."""
        id = log.run.id
        if self._is_moving and not log.readers:
            return
        if bool(log.readers) != bool(log.reported) and id not in self._reports:
            self._reports[id] = asyncio.get_running_loop().create_task(self._report(log), name="watchers")

    async def _report(self, log: RemoteLog) -> None:
        record = log.run
        try:
            while not log.is_over and bool(log.readers) != bool(log.reported):
                count = log.readers
                try:
                    await self._cluster.watch(Watchers(record.id, self._member_id, count, log.read_up_to))
                except StoreUnavailable:
                    await asyncio.sleep(_REPORT_SECONDS)
                    continue
                log.reported = count
                self._cluster.hints.send(record.instance, Hint("watchers", [record.id]))
        finally:
            del self._reports[record.id]  # at once: a reader that leaves after the last look needs another report
