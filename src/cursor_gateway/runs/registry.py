"""Orders for runs in; runs that are counted, found again by their id and owner, and ended at shutdown, out."""

import asyncio
from collections.abc import Callable, Sequence

from cursor_gateway.core.documents import Envelope
from cursor_gateway.core.run_info import RunInfo
from cursor_gateway.errors import NotFound, RunCancelled, ShuttingDown, TooManyRuns
from cursor_gateway.runs.run import Limits, Observer, Run
from cursor_gateway.sources.base import Source, Turn

_REMEMBERED = 1000  # runs that have ended, without what they said, for a cancel that comes too late

_LAST_SECONDS = 15.0  # at shutdown; more than any agent is given to end by itself


class Runs:
    def __init__(self, source: Source, limits: Limits, max_runs: int, observers: Sequence[Observer] = ()) -> None:
        self._source, self._limits, self._max_runs = source, limits, max_runs
        self._observers = tuple(observers)
        self._running: dict[str, Run] = {}
        self._ended: dict[str, tuple[str, Envelope]] = {}  # with their owners
        self._is_closing = False

    @property
    def running(self) -> int:
        """Without those that have answered, and whose agent is about to go."""
        return sum(run.done is None for run in self._running.values())

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
        info: RunInfo,
        turn: Turn,
        *,
        owner: str,
        request_id: str,
        after: Run | None = None,
        ended: Callable[[Run], None] = lambda run: None,
    ) -> Run:
        self.check_free()
        run = Run(info, turn, owner, request_id)
        self._running[run.id] = run

        def forget() -> None:
            del self._running[run.id]
            assert run.done is not None
            self._ended[run.id] = (run.owner, run.done.envelope)
            if len(self._ended) > _REMEMBERED:
                del self._ended[next(iter(self._ended))]
            ended(run)

        run.start(self._source, self._limits, self._observers, forget, after)
        return run

    async def cancel(self, id: str, owner: str) -> Envelope:
        """How it ended: now, or before."""
        run = self._running.get(id)
        if run is not None and run.owner == owner:
            run.stop(RunCancelled("The run was cancelled on request; start it again to have the whole answer."))
            return (await run.finished()).envelope
        by, envelope = self._ended.get(id, (None, None))
        if envelope is None or by != owner:
            raise NotFound(f"There is no run {id[:100]!r}; it may have ended long ago.", param="id")
        return envelope

    async def close(self, drain_seconds: float) -> None:
        """No new runs; those that run may finish within that time, then they are ended."""
        self._is_closing = True
        running = list(self._running.values())
        if not running:
            return
        await asyncio.wait([asyncio.ensure_future(run.finished()) for run in running], timeout=drain_seconds)
        for run in running:
            run.stop(ShuttingDown("The gateway was stopped during this run; run it again."))
        # Asked to end, an agent saves its session; one that does not end is ended by its source, in the end by us.
        await asyncio.wait([asyncio.ensure_future(run.gone()) for run in running], timeout=_LAST_SECONDS)
        await asyncio.gather(*(run.abandon() for run in running))
