"""A run that is driven in this process: reading, starting, stopping and answering it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from cursor_gateway.errors import Failure, GatewayError, GatewayRestarted, InvalidRequest, RunCancelled
from cursor_gateway.model.caller_tools import Offer, ToolResult
from cursor_gateway.model.document_events import Done, Paused
from cursor_gateway.model.documents import ClarificationAnswer, Envelope
from cursor_gateway.model.messages import Message
from cursor_gateway.model.permissions import Permission
from cursor_gateway.model.run_info import RunInfo, WhenClientLeaves
from cursor_gateway.runs.caller_tools import CallerTools
from cursor_gateway.runs.driver import Driver
from cursor_gateway.runs.event_log import EventLog
from cursor_gateway.runs.journal import Journal
from cursor_gateway.runs.questions import Questions
from cursor_gateway.runs.readers import Reader, Readers
from cursor_gateway.runs.timeouts import Timeouts, TimeoutWatch
from cursor_gateway.runs.turn_builder import TurnBuilder
from cursor_gateway.runs.waiting import Waiting, WaitLimits
from cursor_gateway.sources.base import Turn
from cursor_gateway.sources.router import SourceOrRouter, routed
from cursor_gateway.stages.assembler import Assembler
from cursor_gateway.store.base import Idempotency, RunRecord


class Observer(Protocol):
    """Observes every run, for logs and metrics."""

    def started(self, run: "Run") -> None: ...

    def first_event(self, run: "Run") -> None: ...

    def ended(self, run: "Run") -> None: ...

    def fault(self, run: "Run", error: Exception) -> None: ...

    def repeated(self, failure: Failure, owner: str, request_id: str) -> None:
        """A request was refused with an error that an agent had reported shortly before; none was started."""
        ...


class Run:
    def __init__(
        self,
        info: RunInfo,
        turn: Turn,
        owner: str,
        request_id: str = "",
        journal: Journal | None = None,
        *,
        turns: TurnBuilder | None = None,
        waiting: Waiting | None = None,
        caller: CallerTools | None = None,
        questions: Questions | None = None,
        assembler: Assembler | None = None,
    ) -> None:
        """`waiting` has the calls that `caller` and `questions` make; see `Driver` for the rest."""
        self.info, self.owner, self.request_id, self.caller, self.questions = info, owner, request_id, caller, questions
        self.started_at = self.ended_at = 0.0  # by the loop's clock
        self.needs_readers = True  # it is stopped when the last one leaves
        self.reconnect_seconds = 0.0  # but only after this time, in which a client that retries may reconnect
        self.log = EventLog(journal)
        self.readers = Readers(self.log)
        self.readers.left_last = self._reader_left
        self.waiting = waiting if waiting is not None else Waiting(WaitLimits())
        self.driver = Driver(info, turn, self.log, self.waiting, turns=turns, caller=caller, assembler=assembler)
        self._journal = journal
        self._observers: tuple[Observer, ...] = ()
        self._not_notified: tuple[Observer, ...] = ()  # of the start

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def turn(self) -> Turn:
        return self.driver.turn

    @property
    def begun(self) -> RunRecord | None:
        """As it was stored when it began."""
        return self._journal.begun if self._journal is not None else None

    @property
    def prompt(self) -> str:
        return self.driver.turn.prompt

    @property
    def session_id(self) -> str | None:
        return self.driver.session_id

    @property
    def fallback(self) -> str | None:
        """The source that answers in place of one that failed."""
        return self.driver.fallback

    @property
    def source_failure(self) -> Failure | None:
        return self.driver.source_failure

    @property
    def source(self) -> str | None:
        return self.driver.turn.source

    @property
    def source_name(self) -> str:
        """The source that answers."""
        return self.driver.source_name

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
        self.started_at = loop.time()
        self._observers = self._not_notified = observers
        self.log.failed = self._fault
        self.log.claimed = lambda: self.stop(
            GatewayRestarted(
                "Another gateway took this run over, because this one had stopped; send the message again."
            )
        )

        def first_event() -> None:
            for observer in observers:
                observer.first_event(self)

        def settle(_: object) -> None:
            watch.cancel()
            self.ended_at = loop.time()
            self.waiting.close()
            self._release()
            ended()  # first: a bug in an observer must not keep the run's place
            for observer in observers:
                observer.ended(self)

        self.driver.first_event = first_event
        task = self.driver.start(routed(source), after, self._fault)
        watch = TimeoutWatch(self, limits, loop)
        task.add_done_callback(settle)
        loop.call_soon(self._notify_started)  # while the agent starts

    def _release(self) -> None:
        """Without these references the run's memory is freed at once, not with the next garbage collection."""
        self.readers.left_last = self.driver.first_event = _nothing
        self.log.failed = lambda error: None
        self.log.claimed = _nothing
        self.log.ended = lambda failure: None
        if self._journal is not None and self._journal.is_complete:
            self._journal.kept = lambda last: ()

    def _notify_started(self) -> None:
        """Once, and before anything else."""
        observers, self._not_notified = self._not_notified, ()
        for observer in observers:
            observer.started(self)

    def _fault(self, error: Exception) -> None:
        self._notify_started()
        for observer in self._observers:
            observer.fault(self, error)

    def stop(self, why: GatewayError) -> None:
        """Ends the agent, unless the run is done; readers see why."""
        self.driver.stop(why)

    @property
    def is_ending(self) -> bool:
        """It is done or stopped: only its agent has still to go, which may take a moment."""
        return self.log.is_ended or self.driver.stop_reason is not None

    async def gone(self) -> None:
        """Waits until nothing of the run is left."""
        await self.driver.gone()

    async def abandon(self) -> None:
        """Does not wait for an agent that is still running after its result."""
        await self.driver.abandon()

    async def finished(self) -> Done:
        """Waits for the end of the answer; not counted as a reader."""
        return await self.log.finished()

    # --- time ---------------------------------------------------------------------------------------

    @property
    def first_event_at(self) -> float:
        return self.driver.first_event_at

    @property
    def heard_at(self) -> float:
        return self.driver.heard_at

    @property
    def has_events(self) -> bool:
        return self.driver.has_events

    @property
    def is_waiting(self) -> bool:
        """For an answer from a caller, not for its agent."""
        return self.waiting.since is not None

    @property
    def waits_for_a_person(self) -> bool:
        """For an answer, not for the results of the caller's tools."""
        return self.is_waiting and self.questions is not None and self.caller is None

    @property
    def waited(self) -> float:
        """Seconds spent waiting for answers that have arrived."""
        return self.waiting.seconds

    @property
    def waiting_since(self) -> float:
        """By the event loop's clock; infinity if it does not wait."""
        return self.waiting.since if self.waiting.since is not None else float("inf")

    # --- storing ------------------------------------------------------------------------------------

    @property
    def is_stored(self) -> bool:
        return self._journal is None or self._journal.is_complete

    @property
    def idempotency(self) -> Idempotency | None:
        return self._journal.idempotency if self._journal is not None else None

    @property
    def request(self) -> bytes:
        """What is stored with it, to look its first reply up."""
        return self._journal.request if self._journal is not None else b""

    async def entered(self) -> None:
        if self._journal is not None:
            await self._journal.entered()

    async def store_again(self) -> bool:
        """Whether everything is stored now."""
        return self._journal is None or await self._journal.try_again()

    def quote_as(self, fingerprint: Callable[[str], str | None]) -> None:
        """How the caller will quote the conversation, given the answer in the run's last reply."""
        if self._journal is not None:
            self._journal.fingerprint = fingerprint

    # --- reading ------------------------------------------------------------------------------------

    @property
    def done(self) -> Done | None:
        return self.log.done

    @property
    def count(self) -> int:
        """How many events there are to read."""
        return self.log.count

    @property
    def added(self) -> int:
        return self.log.added

    async def pause(self, number: int) -> Paused | None:
        return self.log.pauses.get(number)

    @property
    def documents(self) -> int:
        return self.log.documents

    @property
    def paused_at(self) -> int:
        return self.log.paused_at

    def reader(self, after: int = 0) -> Reader:
        return self.readers.reader(after)

    # --- answering ----------------------------------------------------------------------------------

    async def cancel(self, why: GatewayError) -> Envelope:
        self.stop(why)
        return (await self.finished()).envelope

    async def ended(self) -> Done | None:
        return await self.finished()

    def knows_calls(self, results: Mapping[str, ToolResult]) -> bool | None:
        if self.caller is None or self.is_ending:
            return None
        return any(map(self.caller.knows, results))

    def answer_calls(
        self, results: Mapping[str, ToolResult], also: Sequence[Message] = (), offer: Offer | None = None
    ) -> int:
        return self.driver.answer(results, also, offer)

    def answer_questions(self, answers: Sequence[ClarificationAnswer]) -> int | None:
        is_taken = self.questions is not None and self.questions.take_answers(answers)
        return self.log.paused_at if is_taken else None

    def holds_permission(self, question_id: str) -> bool:
        return self.questions is not None and question_id in self.questions.permissions

    def answer_permissions(self, decided: Mapping[str, Permission]) -> int:
        assert self.questions is not None
        self.questions.take_permissions(decided)
        return self.log.paused_at

    def decide_plan(self, is_accepted: bool, text: str) -> int | None:
        if self.questions is None or not self.questions.holds_plan:
            return None
        if text:
            raise InvalidRequest(
                "While the agent waits it accepts only a decision; omit `text`, and send it when the run has ended.",
                param="text",
            )
        self.questions.take_decision(is_accepted)
        return self.log.paused_at

    @property
    def awaited(self) -> str:
        if self.questions is not None and self.questions.holds_questions:
            return "send `answers` to its questions"
        if self.questions is not None and self.questions.holds_plan:
            return "send `plan` to accept or reject its plan"
        if self.questions is not None and self.questions.permissions:
            return "send `permissions` to allow or deny what it asks for"
        return "send `toolResults` for its calls" if self.caller is not None and self.waiting.has_open else ""

    def set_when_client_leaves(self, when: WhenClientLeaves | None) -> None:
        if when is not None:
            self.needs_readers = when == "cancel"

    def _reader_left(self) -> None:
        if self.is_waiting and self.readers.read_up_to >= self.log.paused_at:
            return  # a client has the open calls, and its next request contains their results
        if not self.needs_readers:
            return
        if self.reconnect_seconds:
            asyncio.get_running_loop().call_later(self.reconnect_seconds, self._stop_unread)
        else:
            self._stop_unread()

    def _stop_unread(self) -> None:
        is_answered = self.is_waiting and self.readers.read_up_to >= self.log.paused_at
        if self.readers.count == 0 and self.needs_readers and not is_answered and not self.is_ending:
            self.stop(RunCancelled("The client disconnected before the answer was complete; send the request again."))


def _nothing() -> None:
    pass
