"""Threads for work that takes time: owners take turns, and no owner has all threads at once.

So one owner cannot block the others. `FairExecutor` is the event loop's own pool, for whatever is run with
`asyncio.to_thread`: it knows by `OWNER` for whom. `FairThreads` are a pool for work that its owner may leave: work that
nobody waits for any more is dropped before it starts; once it runs, it is asked to look (`is_gone`), because no thread
can be ended from outside. `KeyedLocks` are for tasks: those with the same key take turns.
"""

import asyncio
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from cursor_gateway.store.base import OWNER

T = TypeVar("T")
IsGone: TypeAlias = Callable[[], bool]


class KeyedLocks:
    def __init__(self) -> None:
        self._locks: dict[Hashable, tuple[asyncio.Lock, int]] = {}  # and how many want it

    @asynccontextmanager
    async def holding(self, key: Hashable) -> AsyncIterator[None]:
        lock, wanted = self._locks.get(key, (asyncio.Lock(), 0))
        self._locks[key] = lock, wanted + 1
        try:
            async with lock:
                yield
        finally:
            _, wanted = self._locks[key]
            if wanted == 1:
                del self._locks[key]
            else:
                self._locks[key] = lock, wanted - 1


class NobodyWaits(Exception):
    """The work was not done."""


class _Turns(Generic[T]):
    """What is to be done, by owner. The caller has the lock."""

    def __init__(self, threads: int) -> None:
        self._most = max(1, threads - 1)  # of one owner at once
        self._tasks: OrderedDict[str, deque[T]] = OrderedDict()
        self._running = Counter[str]()

    def add(self, owner: str, task: T) -> None:
        self._tasks.setdefault(owner, deque()).append(task)

    def take(self) -> tuple[str, T] | None:
        """The next one, with its owner; None if there is none that may run now."""
        for owner, tasks in self._tasks.items():
            if self._running[owner] < self._most:
                task = tasks.popleft()
                self._running[owner] += 1
                del self._tasks[owner]
                if tasks:
                    self._tasks[owner] = tasks  # after all others
                return owner, task
        return None

    def done(self, owner: str) -> None:
        self._running[owner] -= 1
        if not self._running[owner]:
            del self._running[owner]


class FairExecutor(ThreadPoolExecutor):
    """Each submission is a turn of some thread, which does what is next by then."""

    def __init__(self, threads: int, name: str) -> None:
        """Starts all threads: later the system may refuse more."""
        super().__init__(threads, name)
        self._turns = _Turns[tuple[Future[Any], Callable[[], Any]]](threads)
        self._unused = 0  # turns that found nothing that might run
        self._lock = threading.Lock()
        may_end = threading.Event()
        with suppress(RuntimeError):  # as many as it gives
            for _ in range(threads):
                super().submit(may_end.wait)
        may_end.set()

    def submit(self, work: Callable[..., T], /, *values: Any, **named: Any) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            self._turns.add(OWNER.get(), (future, partial(work, *values, **named)))
        super().submit(self._take_turn)
        return future

    def _take_turn(self) -> None:
        has_turn = True
        while has_turn:
            with self._lock:
                taken = self._turns.take()
                if taken is None:
                    self._unused += 1
                    return
            owner, (future, work) = taken
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:  # noqa: BLE001 -- passed to the waiter
                    future.set_exception(error)
            del taken, future, work  # or the result is kept until the next one
            with self._lock:
                self._turns.done(owner)
                has_turn = self._unused > 0
                self._unused -= has_turn


class FairThreads:
    def __init__(self, name: str, threads: int) -> None:
        self._name, self._count = name, threads
        self._executor: FairExecutor | None = None  # made when it is needed
        self._is_closed = False

    async def run(self, owner: str, work: Callable[[IsGone], T], is_gone: IsGone = lambda: False) -> T:
        """Raises `NobodyWaits` if `is_gone` before it starts. The work is also gone when this call is cancelled."""
        future: asyncio.Future[T] | None = None

        def is_gone_now() -> bool:
            return (future is not None and future.cancelled()) or self._is_closed or is_gone()

        def do() -> T:
            if is_gone_now():
                raise NobodyWaits
            return work(is_gone_now)

        if self._is_closed:
            raise NobodyWaits
        self._executor = self._executor or FairExecutor(self._count, self._name)
        former = OWNER.set(owner)
        try:
            future = asyncio.get_running_loop().run_in_executor(self._executor, do)
        finally:
            OWNER.reset(former)
        return await future

    def close(self) -> None:
        """Work that waits is never done; work in progress is gone, and ends when it notices."""
        self._is_closed = True
        if self._executor is not None:
            self._executor.shutdown(wait=False)
