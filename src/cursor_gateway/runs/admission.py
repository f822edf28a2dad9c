"""Who may start a run, and when; and the runs that are driven here: counted, found while they run, ended at shutdown.

`fair_places` says whose turn it is. Requests in the store's queue (`queue`) wait for places in the same order, one of
each owner at a time. Over the limit of runs that wait for their callers, one is given up.

What a run will take is not known before it ends, so a key whose budget has anything left may start one, and those that
run at the same time may use more than the rest. The usage is in the store, where all processes of a cluster see it.
"""

import asyncio
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import ceil
from time import time
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from cursor_gateway.errors import CallerGone, Failure, GatewayError, KeyQuotaExhausted, ShuttingDown, TooManyRuns
from cursor_gateway.fair_places import Recent, Shares, Verdict, decide, gives_way, has_plenty, next_in_queue
from cursor_gateway.model.costs import Budget, Prices, cost_of
from cursor_gateway.model.requests import TraceContext
from cursor_gateway.runs.handle import RunHandle, StoredRun, no_run
from cursor_gateway.runs.machine import Timeouts
from cursor_gateway.runs.run import Observer, Run, RunContext
from cursor_gateway.sources.base import Turn
from cursor_gateway.sources.router import SourceOrRouter, routed
from cursor_gateway.store.base import DayUsage, Store

if TYPE_CHECKING:
    from cursor_gateway.runs.starter import TurnBuilder

_LAST_SECONDS = 15.0  # at shutdown; more than any agent is given to end by itself
_LOOK_SECONDS = 0.1  # at shutdown: for runs that have come to wait for their callers
_QUEUE_LOOK_SECONDS = 0.05  # for places that have become free
_STORE_SECONDS = 2.0  # between two attempts to store what the store did not accept
_MOST_UNSTORED = 100  # runs that have ended; the oldest are dropped, and their answers are marked as not stored


class Place:
    """A place that is reserved before its run exists, until it is released: to the run, or to others."""

    def __init__(self, runs: "Runs", owner: str) -> None:
        self._runs, self._owner, self._is_held = runs, owner, True

    def give_back(self) -> None:
        """Once; again does nothing."""
        if self._is_held:
            self._is_held = False
            self._runs._give_back(self._owner)


class _Ticket(Struct, frozen=True, eq=False):
    owner: str
    granted: "asyncio.Future[None]"
    priority: int
    since: float  # since when it waits, as seconds since 1970
    is_stored: bool  # in the store's queue; it may wait for hours


class Runs:
    def __init__(
        self, source: SourceOrRouter, limits: Timeouts, shares: Shares, observers: Sequence[Observer] = ()
    ) -> None:
        self._context, self._shares = RunContext(routed(source), limits, tuple(observers)), shares
        self._reserved: Counter[str] = Counter()  # places of owners whose runs are about to start
        self._recent = Recent()
        self._queue: list[_Ticket] = []  # those that have waited longest come first
        self._looking: asyncio.TimerHandle | None = None
        self._running: dict[str, Run] = {}
        self._latest: dict[str, Run] = {}  # of these, by conversation
        self._unstored: dict[str, Run] = {}  # ended, and still only here
        self._retry: asyncio.Task[None] | None = None
        self._is_closing = False

    @property
    def running(self) -> int:
        """Without those that are complete but whose agent is still exiting, and those that wait for their callers."""
        return sum(run.done is None and not run.is_waiting for run in self._running.values())

    @property
    def limit(self) -> int:
        return self._shares.max_runs

    # --- places -------------------------------------------------------------------------------------

    def check_free(self, owner: str) -> Literal["start", "wait"]:
        """Raises what `reserve` would raise at once."""
        if self._is_closing:
            raise ShuttingDown("The gateway is shutting down; try again later.")
        match self._verdict(owner):
            case "own limit":
                raise TooManyRuns(
                    f"This API key has {self._shares.max_runs_per_key} active runs, which is the limit; try again "
                    "later, or raise `max_runs_per_key`."
                )
            case "all taken":
                raise _all_taken(self._shares.max_runs)
            case "kept for others":
                raise TooManyRuns(
                    f"The last of the {self._shares.max_runs} run slots are reserved for other API keys; try again "
                    "when one of this key's runs has ended, or raise `max_runs`."
                )
            case "start" | "wait" as verdict:
                return verdict

    async def reserve(self, owner: str, priority: int = 0) -> Place:
        """A place for one run. Waits for one if others have more than their share; raises `TooManyRuns`."""
        verdict = self.check_free(owner)
        self._recent.note(owner, _now())
        if verdict == "start":
            self._reserved[owner] += 1
        else:
            await self._queued(owner, priority)
        return Place(self, owner)

    def has_place(self, owner: str) -> bool:
        """Whether `reserve` would return at once."""
        return not self._is_closing and self._verdict(owner) == "start"

    def inherit(self, run: Run) -> Place:
        """The place of an active run that is about to be stopped, which nobody else gets."""
        self._reserved[run.owner] += 1
        return Place(self, run.owner)

    async def reserve_for_queue(self, owner: str, priority: int, since: float) -> Place:
        """A place for a request in the store's queue, however long that takes."""
        await self._granted(_Ticket(owner, asyncio.get_running_loop().create_future(), priority, since, True))
        self._recent.note(owner, _now())
        return Place(self, owner)

    def _verdict(self, owner: str) -> Verdict:
        if not self._queue and has_plenty(len(self._running) + self._reserved.total(), self._shares):
            return "start"
        # Those in the store's queue have no place that is free, or would have got it.
        queued = [ticket.owner for ticket in self._queue if not ticket.is_stored]
        return decide(owner, self._held(), queued, self._shares, self._recent.owners(_now()))

    def _held(self) -> Counter[str]:
        held = Counter(self._reserved)
        for run in self._running.values():
            if run.done is None and not run.is_waiting:
                held[run.owner] += 1
        return held

    async def _queued(self, owner: str, priority: int) -> None:
        ticket = _Ticket(owner, asyncio.get_running_loop().create_future(), priority, time(), False)
        try:
            async with asyncio.timeout(self._shares.queue_seconds):
                await self._granted(ticket)
        except TimeoutError:
            raise _all_taken(self._shares.max_runs) from None

    async def _granted(self, ticket: _Ticket) -> None:
        insort(self._queue, ticket, key=lambda one: one.since)
        self._look()
        try:
            await ticket.granted
        except BaseException as error:
            if ticket in self._queue:
                self._queue.remove(ticket)
            elif not isinstance(error, ShuttingDown):  # it was granted in the same moment
                self._give_back(ticket.owner)
            raise

    def _give_back(self, owner: str) -> None:
        self._reserved[owner] -= 1
        if not self._reserved[owner]:
            del self._reserved[owner]
        self._look()

    def _look(self) -> None:
        """Gives free places to waiting requests, and polls while there are any: a run that is complete, or waits for
        its caller, frees its place without a notification.
        """
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        while self._queue:
            queued = [ticket.owner for ticket in self._queue]
            priorities = [ticket.priority for ticket in self._queue]
            place = next_in_queue(self._held(), queued, self._shares, self._recent.owners(_now()), priorities)
            if place is None:
                self._looking = asyncio.get_running_loop().call_later(_QUEUE_LOOK_SECONDS, self._look)
                return
            ticket = self._queue.pop(place)
            if not ticket.granted.done():
                self._reserved[ticket.owner] += 1
                ticket.granted.set_result(None)

    # --- runs ---------------------------------------------------------------------------------------

    def start(
        self,
        run: Run,
        turn: Turn,
        turns: "TurnBuilder | None" = None,
        *,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """Until nothing is left of it, it is the latest of its conversation, or waits for that one (`after`)."""
        id, conversation_id = run.id, run.info.conversation_id or ""
        after = self._latest.get(conversation_id)
        self._running[id] = self._latest[conversation_id] = run

        def forget() -> None:
            del self._running[id]
            if self._latest.get(conversation_id) is run:
                del self._latest[conversation_id]
            self._recent.note(run.owner, _now())
            self._look()
            if not run.log.is_complete:
                self._store_later(run)
            ended()

        run.start(turn, self._context, forget, turns=turns, after=after)

    @property
    def all(self) -> list[Run]:
        """That are driven here."""
        return list(self._running.values())

    async def stop_all(self, why: GatewayError) -> None:
        running = self.all
        for run in running:
            run.stop(why)
        if running:
            await asyncio.wait([asyncio.ensure_future(run.gone()) for run in running], timeout=_LAST_SECONDS)

    def notify_asked(self, run_id: str, trace: TraceContext) -> None:
        for observer in self._context.observers:
            observer.asked(run_id, trace)

    def notify_repeated(self, failure: Failure, owner: str, request_id: str) -> None:
        for observer in self._context.observers:
            observer.repeated(failure, owner, request_id)

    def find(self, id: str, owner: str) -> Run | None:
        """One that still runs, or that the store does not have yet."""
        run = self._running.get(id) or self._unstored.get(id)
        return run if run is not None and run.owner == owner else None

    def latest(self, conversation_id: str) -> Run | None:
        """The conversation's, until nothing is left of it."""
        return self._latest.get(conversation_id)

    def find_by_calls(self, call_ids: Iterable[str], owner: str) -> Run | None:
        """The one that has asked its caller for one of these."""
        for id in call_ids:
            for run in self._running.values():
                if run.owner == owner and run.caller is not None and run.caller.knows(id):
                    return run
        return None

    def make_room(self, owner: str) -> None:
        """Called before a run that may wait for its caller. Many callers never return."""
        waiting = [run for run in self._running.values() if run.is_waiting]
        waiting.sort(key=lambda run: run.machine.waiting_since or 0.0)
        place = gives_way(owner, [run.owner for run in waiting], self._shares)
        if place is not None:
            waiting[place].stop(
                CallerGone("Too many runs were waiting; to continue this one, send the whole conversation.")
            )

    def find_by_idempotency(self, owner: str, key: str) -> Run | None:
        """The store may not know it yet."""
        for run in (*self._running.values(), *self._unstored.values()):
            named, failure = run.begun.idempotency, run.done.failure if run.done is not None else None
            is_of_key = run.owner == owner and named is not None and named.key == key
            if is_of_key and not (failure is not None and failure.is_transient):
                return run
        return None

    # --- what the store did not take ----------------------------------------------------------------

    def _store_later(self, run: Run) -> None:
        self._unstored[run.id] = run
        if len(self._unstored) > _MOST_UNSTORED:
            del self._unstored[next(iter(self._unstored))]
        if self._retry is None:
            self._retry = asyncio.get_running_loop().create_task(self._keep_storing())

    async def _keep_storing(self) -> None:
        while self._unstored:
            await asyncio.sleep(_STORE_SECONDS)
            await self._store_again()
        self._retry = None

    async def _store_again(self) -> None:
        for run in list(self._unstored.values()):
            if not await run.log.try_again():
                return
            self._unstored.pop(run.id, None)

    # --- the end ------------------------------------------------------------------------------------

    async def close(self, drain_seconds: float) -> None:
        """Starts no new runs. Active runs may finish within that time; then they are stopped."""
        self._is_closing = True
        for ticket in self._queue:
            if not ticket.granted.done():  # its client disconnected at the same moment
                ticket.granted.set_exception(ShuttingDown("The gateway is shutting down; try again later."))
        self._queue.clear()
        running = list(self._running.values())
        if running:
            await self._drain(running, asyncio.get_running_loop().time() + drain_seconds)
            for run in running:
                run.stop(ShuttingDown("The gateway was shut down during this run; send the request again."))
            # An agent that is asked to end saves its session. If it does not end, its source kills it, or finally this
            # code.
            await asyncio.wait([asyncio.ensure_future(run.gone()) for run in running], timeout=_LAST_SECONDS)
            await asyncio.gather(*(run.abandon() for run in running))
        if self._retry is not None:
            self._retry.cancel()
            await self._store_again()

    async def _drain(self, running: list[Run], until: float) -> None:
        """Except those that wait: their callers may never return, and their results are accepted after a restart."""
        clock = asyncio.get_running_loop().time
        left = [asyncio.ensure_future(run.finished()) for run in running]
        while left and (seconds := until - clock()) > 0:
            for run in running:
                if run.is_waiting:
                    run.stop(ShuttingDown("The gateway was shut down during this run; send the results again."))
            _, pending = await asyncio.wait(left, timeout=min(seconds, _LOOK_SECONDS))
            left = list(pending)


async def find_run(runs: Runs, store: Store, id: str, owner: str) -> RunHandle:
    """One that is driven here, or a stored one. Raises `NotFound`."""
    if (running := runs.find(id, owner)) is not None:
        return running
    stored = await store.run(id, owner)
    if stored is None:
        raise no_run(id)
    return await StoredRun.open(store, stored)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _all_taken(places: int) -> TooManyRuns:
    return TooManyRuns(f"{places} runs are active, which is the limit; try again later, or raise `max_runs`.")


# --- budgets: what keys have used ----------------------------------------------------------------------

EVERY_KEY = "*"  # that is not named


async def check_budget(owner: str, budgets: Mapping[str, Budget], prices: Prices, store: Store, now_ms: int) -> None:
    """Raises `KeyQuotaExhausted`, or `StoreUnavailable`: then nobody knows what was used."""
    if (budget := budgets.get(owner) or budgets.get(EVERY_KEY)) is None:
        return
    today = datetime.fromtimestamp(now_ms / 1000, UTC).date().isoformat()
    used = await store.usage(owner, f"{today[:7]}-01")
    if limit := next(_reached(budget.usd_per_month, budget.tokens_per_month, used, prices), None):
        raise used_up(f"This API key may use {limit} a month", month_end(now_ms), now_ms)
    days = [day for day in used if day.day == today]
    if limit := next(_reached(budget.usd_per_day, budget.tokens_per_day, days, prices), None):
        raise used_up(f"This API key may use {limit} a day", day_end(now_ms), now_ms)


def _reached(usd: float | None, tokens: int | None, used: list[DayUsage], prices: Prices) -> Iterator[str]:
    if usd is not None:
        costs = (
            cost_of(prices, one.model, one.prompt_tokens, one.completion_tokens, one.cached_tokens) for one in used
        )
        if sum(cost for cost in costs if cost is not None) >= usd:
            yield f"{usd:,.2f} US dollars"
    if tokens is not None and sum(one.prompt_tokens + one.completion_tokens for one in used) >= tokens:
        yield f"{tokens:,} tokens"


def day_end(now_ms: int) -> datetime:
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    return now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)


def month_end(now_ms: int) -> datetime:
    first = day_end(now_ms).replace(day=1)
    return first if first.timestamp() * 1000 > now_ms else (first + timedelta(days=32)).replace(day=1)


def used_up(limit: str, until: datetime, now_ms: int) -> KeyQuotaExhausted:
    """Without words that make clients retry."""
    error = KeyQuotaExhausted(f"{limit}, and has used it; it can be used again from {until:%Y-%m-%d %H:%M} UTC on.")
    error.retry_after = max(1, ceil(until.timestamp() - now_ms / 1000))
    return error
