"""Runs in; counted, found again while they go on, stored in the end, and ended at shutdown, out."""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from cursor_gateway.errors import CallerGone, Failure, ShuttingDown, TooManyRuns
from cursor_gateway.runs.limits import Limits
from cursor_gateway.runs.run import Observer, Run
from cursor_gateway.sources.choice import AnySource

_LAST_SECONDS = 15.0  # at shutdown; more than any agent is given to end by itself
_LOOK_SECONDS = 0.1  # at shutdown: for runs that have come to wait for their callers
_STORE_SECONDS = 2.0  # between two tries to store what the store did not take
_MOST_UNSTORED = 100  # runs that have ended; the oldest are given up, and their answers said so


class Runs:
    def __init__(self, source: AnySource, limits: Limits, max_runs: int, observers: Sequence[Observer] = ()) -> None:
        self._source, self._limits, self._max_runs = source, limits, max_runs
        self._observers = tuple(observers)
        self._running: dict[str, Run] = {}
        self._unstored: dict[str, Run] = {}  # ended, and still only here
        self._retry: asyncio.TimerHandle | None = None
        self._is_closing = False

    @property
    def running(self) -> int:
        """Without those that have answered, and whose agent is about to go, or that wait for their callers."""
        return sum(run.done is None and not run.is_waiting for run in self._running.values())

    @property
    def limit(self) -> int:
        return self._max_runs

    def check_free(self) -> None:
        if self._is_closing:
            raise ShuttingDown("The gateway is about to stop; try again when it is back.")
        if self.running >= self._max_runs:
            raise TooManyRuns(
                f"All {self._max_runs} places for runs are taken; try again when one has ended, or raise `max_runs`."
            )

    def start(
        self,
        run: Run,
        *,
        after: Run | None = None,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        self._running[run.id] = run

        def forget() -> None:
            del self._running[run.id]
            if not run.is_stored:
                self._store_later(run)
            ended()

        run.start(self._source, self._limits, self._observers, forget, after)

    def tell_repeated(self, failure: Failure, owner: str, request_id: str) -> None:
        for observer in self._observers:
            observer.repeated(failure, owner, request_id)

    def find(self, id: str, owner: str) -> Run | None:
        """One that goes on, or that the store does not have yet."""
        run = self._running.get(id) or self._unstored.get(id)
        return run if run is not None and run.owner == owner else None

    def find_by_calls(self, call_ids: Iterable[str], owner: str) -> Run | None:
        """The one that has asked its caller for one of these."""
        for id in call_ids:
            for run in self._running.values():
                if run.owner == owner and run.caller is not None and run.caller.knows(id):
                    return run
        return None

    def make_room(self) -> None:
        """Before a run that may wait for its caller. Many never come back: who has waited longest waits no more."""
        waiting = [run for run in self._running.values() if run.is_waiting]
        if len(waiting) >= self._max_runs:
            longest = min(waiting, key=lambda run: run.waiting_since)
            longest.stop(
                CallerGone("Others waited for this run's place; send the results with the whole conversation to go on.")
            )

    def find_by_idempotency(self, owner: str, key: str) -> Run | None:
        """The store may not have heard of it."""
        for run in (*self._running.values(), *self._unstored.values()):
            is_of_key = run.owner == owner and run.idempotency is not None and run.idempotency.key == key
            if is_of_key and not (run.done is not None and run.done.failure is not None and run.done.failure.passes):
                return run
        return None

    # --- what the store did not take ----------------------------------------------------------------

    def _store_later(self, run: Run) -> None:
        self._unstored[run.id] = run
        if len(self._unstored) > _MOST_UNSTORED:
            del self._unstored[next(iter(self._unstored))]
        if self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(_STORE_SECONDS, self._store_again)

    def _store_again(self) -> None:
        self._retry = None
        for run in list(self._unstored.values()):
            if not run.store_again():
                self._retry = asyncio.get_running_loop().call_later(_STORE_SECONDS, self._store_again)
                return
            del self._unstored[run.id]

    # --- the end ------------------------------------------------------------------------------------

    async def close(self, drain_seconds: float) -> None:
        """No new runs; those that run may finish within that time, then they are ended."""
        self._is_closing = True
        running = list(self._running.values())
        if running:
            await self._drain(running, asyncio.get_running_loop().time() + drain_seconds)
            for run in running:
                run.stop(ShuttingDown("The gateway was stopped during this run; run it again."))
            # Asked to end, an agent saves its session; one that does not is ended by its source, in the end by us.
            await asyncio.wait([asyncio.ensure_future(run.gone()) for run in running], timeout=_LAST_SECONDS)
            await asyncio.gather(*(run.abandon() for run in running))
        if self._retry is not None:
            self._retry.cancel()
            self._store_again()
            if self._retry is not None:
                self._retry.cancel()

    async def _drain(self, running: list[Run], until: float) -> None:
        """Except those that wait: nobody may come for them, and after a restart their results are taken as well."""
        clock = asyncio.get_running_loop().time
        left = [asyncio.ensure_future(run.finished()) for run in running]
        while left and (seconds := until - clock()) > 0:
            for run in running:
                if run.is_waiting:
                    run.stop(ShuttingDown("The gateway was stopped during this run; send the results again."))
            _, pending = await asyncio.wait(left, timeout=min(seconds, _LOOK_SECONDS))
            left = list(pending)
