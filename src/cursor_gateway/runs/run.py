"""A run that is driven in this process: reading, starting, stopping and answering it."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from cursor_gateway.errors import Failure, GatewayError, GatewayRestarted, RunCancelled
from cursor_gateway.model.document_events import Done, Paused
from cursor_gateway.model.documents import Envelope
from cursor_gateway.model.run_info import RunInfo, WhenClientLeaves
from cursor_gateway.runs.caller_tools import CallerTools
from cursor_gateway.runs.driver import Driver, TurnWatch
from cursor_gateway.runs.event_log import EventLog
from cursor_gateway.runs.handle import RunHandle
from cursor_gateway.runs.journal import Journal
from cursor_gateway.runs.questions import Questions
from cursor_gateway.runs.readers import Readers
from cursor_gateway.runs.timeouts import Timeouts, TimeoutWatch
from cursor_gateway.runs.turn_builder import TurnBuilder
from cursor_gateway.runs.waiting import Waiting, WaitLimits
from cursor_gateway.sources.base import Turn
from cursor_gateway.sources.router import SourceOrRouter, routed
from cursor_gateway.stages.assembler import Assembler
from cursor_gateway.stages.run_state import RunState


class Observer(Protocol):
    """Observes every run, for logs and metrics."""

    def started(self, run: "Run") -> None: ...

    def first_event(self, run: "Run") -> None: ...

    def ended(self, run: "Run") -> None: ...

    def fault(self, run: "Run", error: Exception) -> None: ...

    def repeated(self, failure: Failure, owner: str, request_id: str) -> None:
        """A request was refused with an error that an agent had reported shortly before; none was started."""
        ...


class Run(RunHandle):
    def __init__(
        self,
        info: RunInfo,
        turn: Turn,
        owner: str,
        journal: Journal,
        request_id: str = "",
        *,
        turns: TurnBuilder | None = None,
        waiting: Waiting | None = None,
        caller: CallerTools | None = None,
        questions: Questions | None = None,
        assembler: Assembler | None = None,
        watch: TurnWatch | None = None,
    ) -> None:
        """`waiting` has the calls that `caller` and `questions` make; see `Driver` for the rest."""
        self.log = EventLog(journal)
        super().__init__(info, owner, Readers(self.log))
        self.request_id, self.journal, self.caller = request_id, journal, caller
        self.ended_at = 0.0  # by the loop's clock
        self.needs_readers = True  # it is stopped when the last one leaves
        self.reconnect_seconds = 0.0  # but only after this time, in which a client that retries may reconnect
        self.waiting = waiting if waiting is not None else Waiting(WaitLimits())
        self.questions = questions if questions is not None else Questions(self.waiting)
        self.driver = Driver(
            info, turn, self.log, self.waiting, turns=turns, caller=caller, assembler=assembler, watch=watch
        )
        self.log.owner = self.readers.owner = self.driver.owner = self
        self.when_ended: Callable[[Failure | None], None] | None = None  # called before readers see the end
        self._observers: tuple[Observer, ...] = ()
        self._not_notified: tuple[Observer, ...] = ()  # of the start

    @property
    def turn(self) -> Turn:
        return self.driver.turn

    @property
    def prompt(self) -> str:
        return self.driver.turn.prompt

    @property
    def session_id(self) -> str | None:
        return self.driver.session_id

    @property
    def source(self) -> str | None:
        return self.driver.turn.source

    @property
    def source_name(self) -> str:
        return self.driver.source_name

    @property
    def fallback(self) -> str | None:
        return self.driver.fallback

    # --- driving ------------------------------------------------------------------------------------

    def start(
        self,
        source: SourceOrRouter,
        limits: Timeouts,
        observers: tuple[Observer, ...],
        ended: Callable[[], None],
        after: "Run | None" = None,
    ) -> None:
        """Returns at once; the agent starts when the previous run, `after`, has ended completely. `ended` is called
        when the agent has exited, which may be a while after `Done`.
        """
        loop = asyncio.get_running_loop()
        self._observers = self._not_notified = observers

        def settle(_: object) -> None:
            watch.cancel()
            self.ended_at = loop.time()
            self.waiting.close()
            self._release()
            ended()  # first: a bug in an observer must not keep the run's place
            for observer in observers:
                observer.ended(self)

        task = self.driver.start(routed(source), after)
        watch = TimeoutWatch(self.driver, self.waiting, limits, loop)
        task.add_done_callback(settle)
        loop.call_soon(self._notify_started)  # while the agent starts

    def _release(self) -> None:
        """Without these references the run's memory is freed at once, not with the next garbage collection."""
        self.log.owner = self.readers.owner = self.driver.owner = self.when_ended = None
        if self.journal.is_complete:
            self.journal.kept = lambda last: ()

    def _notify_started(self) -> None:
        """Once, and before anything else."""
        observers, self._not_notified = self._not_notified, ()
        for observer in observers:
            observer.started(self)

    # --- what its parts report ----------------------------------------------------------------------

    def first_event_shown(self) -> None:
        for observer in self._observers:
            observer.first_event(self)

    def faulted(self, error: Exception) -> None:
        self._notify_started()
        for observer in self._observers:
            observer.fault(self, error)

    def log_claimed(self) -> None:
        why = "Another gateway took this run over, because this one had stopped; send the message again."
        self.stop(GatewayRestarted(why))

    def log_ended(self, failure: Failure | None) -> None:
        if self.when_ended is not None:
            self.when_ended(failure)

    # --- stopping -----------------------------------------------------------------------------------

    def stop(self, why: GatewayError) -> None:
        """Ends the agent, unless the run is done; readers see why."""
        self.driver.stop(why)

    @property
    def is_ending(self) -> bool:
        return self.log.state.done is not None or self.driver.stop_reason is not None

    async def gone(self) -> None:
        """Waits until nothing of the run is left."""
        await self.driver.gone()

    async def abandon(self) -> None:
        """Does not wait for an agent that is still running after its result."""
        await self.driver.abandon()

    async def finished(self) -> Done:
        """Waits for the end of the answer; not counted as a reader."""
        return await self.log.finished()

    async def cancel(self, why: GatewayError) -> Envelope:
        self.stop(why)
        return (await self.finished()).envelope

    # --- reading ------------------------------------------------------------------------------------

    @property
    def added(self) -> int:
        return self.log.state.count

    async def entered(self) -> None:
        await self.journal.entered()

    async def pause(self, number: int) -> Paused | None:
        found = self.log.state.next_pause(number - 1)
        return found.event if found is not None and found.number == number else None

    async def state(self) -> RunState:
        return self.log.state

    # --- readers that leave -------------------------------------------------------------------------

    def set_when_client_leaves(self, when: WhenClientLeaves | None) -> None:
        """As requested by the request that continues it; None changes nothing."""
        if when is not None:
            self.needs_readers = when == "cancel"

    def readers_left(self) -> None:
        if not self.needs_readers or self._waits_for_its_reader:
            return
        if self.reconnect_seconds:
            asyncio.get_running_loop().call_later(self.reconnect_seconds, self._stop_unread)
        else:
            self._stop_unread()

    def _stop_unread(self) -> None:
        if self.readers.count == 0 and self.needs_readers and not self._waits_for_its_reader and not self.is_ending:
            self.stop(RunCancelled("The client disconnected before the answer was complete; send the request again."))

    @property
    def _waits_for_its_reader(self) -> bool:
        """A client has the open calls, and its next request contains their results."""
        return self.waiting.is_waiting and self.readers.read_up_to >= self.log.state.paused_at
