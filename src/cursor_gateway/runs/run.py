"""A source's agent events in; numbered document events, for any number of readers, out.

Here, and nowhere else, what goes wrong becomes an event: whatever happens, readers see `Done` last.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Protocol

from msgspec import Struct

from cursor_gateway.core.agent_events import RunFailed, RunStarted
from cursor_gateway.core.assembler import Assembler
from cursor_gateway.core.document_events import DocumentEvent, Done
from cursor_gateway.core.documents import ChatResponse
from cursor_gateway.core.run_info import RunInfo
from cursor_gateway.core.transcript import Transcript
from cursor_gateway.errors import AgentCrashed, AgentTimedOut, GatewayError, GatewayFault, RunCancelled
from cursor_gateway.sources.base import Source, Turn


class Limits(Struct, frozen=True, kw_only=True):
    first_event_seconds: float
    idle_seconds: float
    run_seconds: float


class Observer(Protocol):
    """Told of every run: logs and figures are made of it."""

    def started(self, run: "Run") -> None: ...

    def first_event(self, run: "Run") -> None: ...

    def ended(self, run: "Run") -> None: ...

    def fault(self, run: "Run", error: Exception) -> None: ...


class Run:
    def __init__(self, info: RunInfo, turn: Turn, owner: str, request_id: str = "") -> None:
        self.info, self.turn, self.owner, self.request_id = info, turn, owner, request_id
        self.events: list[DocumentEvent] = []  # the number of an event is its place, from 1
        self.done: Done | None = None
        self.session_id = turn.session_id
        self.started_at = self.first_event_at = self.ended_at = 0.0  # of the loop's clock
        self.readers = 0
        self._assembler = Assembler(info)
        self._waiting: set[asyncio.Future[None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._why: GatewayError | None = None
        self._heard_at = 0.0

    @property
    def id(self) -> str:
        return self.info.id

    # --- driving ------------------------------------------------------------------------------------

    def start(
        self,
        source: Source,
        limits: Limits,
        observers: tuple[Observer, ...],
        ended: Callable[[], None],
        after: "Run | None" = None,
    ) -> None:
        """Returns at once; the agent starts when nothing is left of the run `after` which it comes.

        `ended` is called when the agent is gone, which may be a while after `Done`.
        """
        loop = asyncio.get_running_loop()
        self.started_at = self._heard_at = loop.time()
        for observer in observers:
            observer.started(self)

        def settle(_: object) -> None:  # also for a task that was cancelled before it began
            self._end(RunCancelled("The run was stopped; start it again to have the whole answer."))
            self.ended_at = loop.time()
            ended()  # first: an observer's mistake must not keep the run's place
            for observer in observers:
                observer.ended(self)

        self._task = loop.create_task(self._drive(source, limits, observers, after), name=self.id)
        self._task.add_done_callback(settle)

    def stop(self, why: GatewayError) -> None:
        """Ends the agent, unless the run is done; readers are told why."""
        if self._why is None and self.done is None and self._task is not None:
            self._why = why
            self._task.cancel()

    @property
    def is_ending(self) -> bool:
        """It is done or stopped: only its agent has still to go, which may take a moment."""
        return self.done is not None or self._why is not None

    async def gone(self) -> None:
        """Waits until nothing of the run is left."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def abandon(self) -> None:
        """Does not wait for an agent that lingers after its result."""
        if self._task is not None:
            self._task.cancel()
            await self.gone()

    async def _drive(
        self, source: Source, limits: Limits, observers: tuple[Observer, ...], after: "Run | None"
    ) -> None:
        loop = asyncio.get_running_loop()
        watch = _Watch(self, limits, loop)
        try:
            if after is not None:
                await after.gone()
            async with aclosing(source.events(self.turn)) as batches:
                async for batch in batches:
                    self._heard_at = loop.time()
                    watch.heard = True
                    out: list[DocumentEvent] = []
                    for event in batch:
                        if isinstance(event, RunStarted):
                            self.session_id = event.session_id or self.session_id
                        out += self._assembler.push(event)
                    if out:
                        if not self.events:
                            self.first_event_at = self._heard_at
                            for observer in observers:
                                observer.first_event(self)
                        self._publish(out)
            self._end(AgentCrashed())
        except asyncio.CancelledError:
            pass  # why is known: see `stop`
        except GatewayError as error:
            self._end(error)
        except Exception as error:  # noqa: BLE001 -- a mistake of ours must not leave readers waiting
            for observer in observers:
                observer.fault(self, error)
            self._end(GatewayFault("The gateway made a mistake; its log has the details under this request's id."))
        finally:
            watch.cancel()

    def _end(self, why: GatewayError) -> None:
        """Unless the agent has said itself how it ended."""
        if self.done is None:
            self._publish(self._assembler.push(RunFailed(failure=(self._why or why).failure())))

    def _publish(self, events: list[DocumentEvent]) -> None:
        self.events += events
        if isinstance(last := events[-1], Done):
            self.done = last
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            _wake(future)

    @property
    def heard_at(self) -> float:
        return self._heard_at

    # --- reading ------------------------------------------------------------------------------------

    def response(self) -> ChatResponse | None:
        """The fold. None until the run is done."""
        transcript = Transcript()
        for event in self.events:
            transcript.push(event)
        return transcript.response()

    async def finished(self) -> Done:
        """Waits for the end of the answer; not counted as a reader."""
        reader = Reader(self)
        while self.done is None:
            await reader.next()
        return self.done

    def _wait(self) -> "asyncio.Future[None]":
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        return future


class Reader:
    """One reader's place in a run; as a context manager it is counted as one."""

    def __init__(self, run: Run, after: int = 0) -> None:
        self.run = run
        self.place = after
        self.has_left = False
        self._future: asyncio.Future[None] | None = None

    def __enter__(self) -> "Reader":
        self.run.readers += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.run.readers -= 1

    @property
    def at_end(self) -> bool:
        return self.run.done is not None and self.place >= len(self.run.events)

    def leave(self) -> None:
        """Who reads has gone: whoever waits in `next` is woken."""
        self.has_left = True
        if self._future is not None:
            _wake(self._future)

    async def next(self, seconds: float | None = None) -> list[DocumentEvent]:
        """The events since the last call: as soon as there are any; none after that time, at the end, or left."""
        if self.place >= len(self.run.events) and self.run.done is None and not self.has_left:
            self._future = future = self.run._wait()
            timer = asyncio.get_running_loop().call_later(seconds, _wake, future) if seconds is not None else None
            try:
                await future
            finally:
                self._future = None
                self.run._waiting.discard(future)
                if timer is not None:
                    timer.cancel()
        events = self.run.events[self.place :]
        self.place += len(events)
        return events


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


class _Watch:
    """The three time limits of a run, on one timer that is set anew only when it rings."""

    def __init__(self, run: Run, limits: Limits, loop: asyncio.AbstractEventLoop) -> None:
        self.heard = False
        self._run, self._limits, self._loop = run, limits, loop
        self._timer = self._set(self._left())

    def cancel(self) -> None:
        self._timer.cancel()

    def _left(self) -> float:
        now = self._loop.time()
        silence = self._limits.idle_seconds if self.heard else self._limits.first_event_seconds
        return min(self._run.heard_at + silence, self._run.started_at + self._limits.run_seconds) - now

    def _ring(self) -> None:
        if self._run.done is not None:
            return
        if (left := self._left()) > 0:
            self._timer = self._set(left)
            return
        self._run.stop(AgentTimedOut(self._told()))

    def _set(self, seconds: float) -> asyncio.TimerHandle:
        """Before the first event, too, it rings within the limit of silence, which may be the shorter one."""
        return self._loop.call_later(min(seconds, self._limits.idle_seconds), self._ring)

    def _told(self) -> str:
        limits = self._limits
        if self._run.started_at + limits.run_seconds <= self._loop.time():  # as `_left` adds: rounding must agree
            return f"The run took longer than {limits.run_seconds:g} s; ask for less at once, or raise `run_seconds`."
        if self.heard:
            return f"The agent was silent for {limits.idle_seconds:g} s; try again, or raise `idle_seconds`."
        return (
            f"The agent said nothing within {limits.first_event_seconds:g} s; try again, "
            "see `cursor-gateway doctor`, or raise `first_event_seconds`."
        )
