"""A source's agent events in; numbered document events, for any number of readers, out.

Here, and nowhere else, what goes wrong becomes an event: whatever happens, readers see `Done` last.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Literal, Protocol, TypeAlias

from msgspec.structs import replace

from cursor_gateway.core.agent_events import (
    AgentEvent,
    CallerAwaited,
    RunFailed,
    RunFinished,
    RunStarted,
    ToolEnded,
    ToolStarted,
)
from cursor_gateway.core.assembler import Assembler
from cursor_gateway.core.document_events import DocumentEnded, DocumentEvent, Done, Paused, says_something, source_text
from cursor_gateway.core.documents import Usage
from cursor_gateway.core.run_info import RunInfo
from cursor_gateway.errors import (
    AgentCrashed,
    AgentError,
    Failure,
    GatewayError,
    GatewayFault,
    RunCancelled,
    SessionLost,
    ToolNotCalled,
)
from cursor_gateway.runs.asking import Asking
from cursor_gateway.runs.caller_tools import CallerTools
from cursor_gateway.runs.journal import Journal
from cursor_gateway.runs.limits import Limits, Watch
from cursor_gateway.runs.questions import Questions
from cursor_gateway.runs.spending import Spending
from cursor_gateway.sources.base import Turn
from cursor_gateway.sources.choice import AnySource, ChosenSource, chosen
from cursor_gateway.store.base import Idempotency

# How an agent's turn ended: with the run; or it is to be started again, because it has lost its session, because its
# source failed before it had said anything, because its calls are open and it does not wait for them, or because it has
# not made the call that it had to.
_Ending: TypeAlias = Literal["over", "lost", "source failed", "calls open", "not called"]


class Observer(Protocol):
    """Told of every run: logs and figures are made of it."""

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
        asking: Asking | None = None,
        caller: CallerTools | None = None,
        questions: Questions | None = None,
    ) -> None:
        """`asking` makes the turns for an agent that has to be started again; `caller` has the caller's tools."""
        self.questions = questions
        self.paused_at = 0  # the number of the last pause
        self.fell_back_to: str | None = None  # the source that was asked in place of one that failed
        self.source_failure: Failure | None = None  # and how that one did
        self.source_name = ""  # of the source that answers
        self.on_done: Callable[[Failure | None], None] = lambda failure: None  # before readers hear of it
        self._waits_from = 0  # the number of the first pause since it waits
        self.read_up_to = 0  # the number of the last event that some reader has had
        self.info, self.turn, self.owner, self.request_id, self.caller = info, turn, owner, request_id, caller
        self.events: list[DocumentEvent] = []  # the latest; the number of an event is its place in the run, from 1
        self.dropped = 0  # events before them, which are in the store
        self.done: Done | None = None
        self.has_spoken = False  # anything but an error
        self.documents = 0  # that have ended
        self.session_id = turn.session_id
        self.started_at = self.first_event_at = self.ended_at = 0.0  # of the loop's clock
        self.readers = 0
        self.needs_readers = True  # it is stopped when the last one leaves
        self._journal, self._asking = journal, asking
        self._assembler = Assembler(info)
        self._redacted: Callable[[Failure], Failure] = lambda failure: failure
        self._waiting: set[asyncio.Future[None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._observers: tuple[Observer, ...] = ()
        self._untold: tuple[Observer, ...] = ()  # of the start
        self._why: GatewayError | None = None
        self._heard_at = 0.0
        self._following: asyncio.Task[_Ending] | None = None  # of a run whose agent may be broken off
        self._is_broken_off = False
        self._spending = Spending()
        self._told: dict[int, Usage] = {}  # by the numbers of the pauses
        self._said: list[str] = []  # by the agent, since its calls were told last

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def prompt(self) -> str:
        return self.turn.prompt

    @property
    def count(self) -> int:
        """How many events there are."""
        return self.dropped + len(self.events)

    @property
    def is_stored(self) -> bool:
        return self._journal is None or self._journal.is_complete

    @property
    def idempotency(self) -> Idempotency | None:
        return self._journal.idempotency if self._journal is not None else None

    # --- driving ------------------------------------------------------------------------------------

    def start(
        self,
        source: AnySource,
        limits: Limits,
        observers: tuple[Observer, ...],
        ended: Callable[[], None],
        after: "Run | None" = None,
    ) -> None:
        """Returns at once; the agent starts when nothing is left of the run `after` which it comes.

        `ended` is called when the agent is gone, which may be a while after `Done`.
        """
        loop = asyncio.get_running_loop()
        sources = chosen(source)
        self.source_name, self._redacted = sources.name_of(self.turn), sources.redacted
        self.started_at = self._heard_at = loop.time()
        self._observers = self._untold = observers
        if self.caller is not None:
            self.caller.begin(self, self._take_said)
        if self.questions is not None:
            self.questions.begin(self)

        def settle(_: object) -> None:  # also for a task that was cancelled before it began
            self._end(RunCancelled("The run was stopped; start it again to have the whole answer."))
            self.ended_at = loop.time()
            if self.caller is not None:
                self.caller.close()
            if self.questions is not None:
                self.questions.close()
            ended()  # first: an observer's mistake must not keep the run's place
            for observer in observers:
                observer.ended(self)

        driving = self._drive(sources, limits, observers, after)
        self._task = loop.create_task(driving, name=self.id)
        self._task.add_done_callback(settle)
        loop.call_soon(self._tell_started)  # while the agent starts

    def _tell_started(self) -> None:
        """Once, and before anything else is told."""
        observers, self._untold = self._untold, ()
        for observer in observers:
            observer.started(self)

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
        self,
        source: ChosenSource,
        limits: Limits,
        observers: tuple[Observer, ...],
        after: "Run | None",
    ) -> None:
        watch = Watch(self, limits, asyncio.get_running_loop())
        try:
            if after is not None:
                await after.gone()
            while (ending := await self._follow(source, observers, watch)) != "over":
                self.turn = await self._next_turn(source, ending)
            self._end(AgentCrashed())
        except asyncio.CancelledError:
            pass  # why is known: see `stop`
        except GatewayError as error:
            self._end(error)
        except Exception as error:  # noqa: BLE001 -- a mistake of ours must not leave readers waiting
            self._tell_started()
            for observer in observers:
                observer.fault(self, error)
            self._end(GatewayFault("The gateway made a mistake; its log has the details under this request's id."))
        finally:
            watch.cancel()

    async def _follow(self, source: ChosenSource, observers: tuple[Observer, ...], watch: Watch) -> _Ending:
        if self.caller is None:
            return await self._read(source, observers, watch)
        self._is_broken_off = False
        self._following = asyncio.get_running_loop().create_task(self._read(source, observers, watch))
        try:
            return await self._following
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return "calls open"
        finally:
            self._following = None

    async def _read(self, source: ChosenSource, observers: tuple[Observer, ...], watch: Watch) -> _Ending:
        """One turn of the agent."""
        may_lose_session = self._asking is not None and self.turn.session_id is not None
        instead = source.instead_of(self.turn) if self._asking is not None else None
        said = self.count  # before this turn
        try:
            return await self._read_turn(source, observers, watch, may_lose_session, instead is not None)
        except AgentError as error:
            if instead is None or self.count > said or not error.failure().may_be_the_sources:
                raise
            self.source_failure = self._redacted(error.failure())
            return "source failed"

    async def _read_turn(
        self,
        source: ChosenSource,
        observers: tuple[Observer, ...],
        watch: Watch,
        may_lose_session: bool,
        may_fall_back: bool,
    ) -> _Ending:
        clock = asyncio.get_running_loop().time
        said = self.count
        async with aclosing(source.events(self.turn)) as batches:
            async for batch in batches:
                self._heard_at = clock()
                watch.heard = True
                out: list[DocumentEvent] = []
                ending: _Ending = "over"
                for event in batch:
                    if isinstance(event, RunStarted):
                        self.session_id = event.session_id or self.session_id
                    if isinstance(event, RunFailed):
                        event = replace(event, failure=self._redacted(event.failure))
                    if isinstance(event, RunFailed) and self.count == said and not out:
                        if may_lose_session and event.failure.code == SessionLost.code:
                            return "lost"
                        if may_fall_back and event.failure.may_be_the_sources:
                            self.source_failure = event.failure
                            return "source failed"
                    if self.caller is not None:
                        told, how = self._with_caller(self.caller, event)
                        ending = ending if how == "over" else how
                        if told is None:
                            continue
                        event = told
                    out += self._assembler.push(event)
                if out:
                    if not self.count:
                        self.first_event_at = self._heard_at
                    self._publish(out)
                    if self.count == len(out):
                        for observer in observers:
                            asyncio.get_running_loop().call_soon(observer.first_event, self)  # when readers have it
                if ending != "over":
                    return ending
        return "over"

    def _with_caller(self, caller: CallerTools, event: AgentEvent) -> tuple[AgentEvent | None, _Ending]:
        """The event as it is to be told, if at all, and whether it ends the turn but not the run."""
        if caller.has_stopped_run:  # the agent's result may come in the same read as what the run was stopped for
            return None, "over"
        if self._is_broken_off and not isinstance(event, ToolStarted | ToolEnded):
            return None, "calls open"  # it goes on without the results that it is to be given
        match event:
            case ToolEnded():
                taken = caller.took(event)
                return None if taken else event, "calls open" if self._is_broken_off else "over"
            case RunFinished() | RunFailed():
                self._spending.add(event)
                if caller.has_open:
                    caller.agent_gone()
                    return None, "calls open"
                if isinstance(event, RunFinished) and caller.is_owed_a_call and self._asking is not None:
                    return None, "not called"
                return self._spending.total(event), "over"
            case _:
                caller.heard()
                return event, "over"

    async def _next_turn(self, source: ChosenSource, ending: _Ending) -> Turn:
        """For an agent that is started again."""
        asking, caller = self._asking, self.caller
        assert asking is not None
        if ending == "source failed":
            self.fell_back_to = source.instead_of(self.turn)
            self._asking = asking = asking.by(self.fell_back_to)
            self.source_name = source.name_of(asking.turn)
            if caller is not None:
                caller.server = source.named(self.fell_back_to).tools_server
            return asking.afresh(caller.happened if caller is not None else ())
        if ending == "lost" or caller is None:
            return asking.afresh(caller.happened if caller is not None else ())
        if ending == "calls open":
            self._spending.cut()
            new = await caller.returned()
            self._heard_at = asyncio.get_running_loop().time()
        elif (reminder := caller.reminder()) is not None:
            new = reminder
        else:
            raise ToolNotCalled(
                "The agent did not call a tool, although `tool_choice` says that it must, also when asked again; "
                "ask in another way, or send `tool_choice` auto.",
                param="tool_choice",
            )
        return asking.again(source, self.session_id, new, caller.happened)

    # --- for the caller's tools ---------------------------------------------------------------------

    def tell(self, events: Sequence[AgentEvent]) -> None:
        """Beside what the agent says."""
        self._heard_at = asyncio.get_running_loop().time()
        if out := [told for event in events for told in self._assembler.push(event)]:
            self._publish(out)

    def pause(self, events: Sequence[AgentEvent]) -> int:
        """Tells these, then all that the run waits for. The number of that."""
        self.tell(events)
        asked = self.caller.call_ids if self.caller is not None else ()
        self.tell([CallerAwaited((*asked, *(self.questions.call_ids if self.questions is not None else ())))])
        return self.paused_at

    def break_off(self) -> None:
        """Ends the agent, not the run."""
        self._is_broken_off = True
        if self._following is not None and self._following is not asyncio.current_task():
            self._following.cancel()

    def _take_said(self) -> str:
        said, self._said = "".join(self._said), []
        return said

    def quoted_as(self, fingerprint: Callable[[str], str | None]) -> None:
        """How the caller will quote the conversation, by the answer that the run's last reply gives."""
        if self._journal is not None:
            self._journal.fingerprint = fingerprint

    def told_by(self, pause: int) -> Usage | None:
        """The usage up to the pause of that number."""
        return self._told.get(pause)

    @property
    def is_waiting(self) -> bool:
        """For somebody's answer, not for its agent."""
        return any(one is not None and one.waiting_since is not None for one in (self.caller, self.questions))

    @property
    def waited(self) -> float:
        """Seconds, for answers that have come."""
        return sum(one.waited for one in (self.caller, self.questions) if one is not None)

    @property
    def waiting_since(self) -> float:
        """Of the loop's clock; for ever, if it does not wait."""
        since = [one.waiting_since for one in (self.caller, self.questions) if one is not None]
        return min((moment for moment in since if moment is not None), default=float("inf"))

    # --- the end ------------------------------------------------------------------------------------

    def _end(self, why: GatewayError) -> None:
        """Unless the agent has said itself how it ended."""
        if self.done is None:
            failure = self._redacted((self._why or why).failure())
            self._publish(self._assembler.push(RunFailed(failure=failure)))

    def _publish(self, events: list[DocumentEvent]) -> None:
        if self._journal is not None:  # first: what readers were told outlives this process
            self._journal.session_id = self.session_id
            events = self._journal.write(events)
        self.events += events
        for event in events:
            self.documents += isinstance(event, DocumentEnded)
            if self.caller is not None:
                self._said.append(source_text(event))
            if not self.has_spoken:
                self.has_spoken = says_something(event)
        self._drop()
        if isinstance(last := events[-1], Done):
            self.done = last
            self.on_done(last.failure)
        elif isinstance(last, Paused):
            if not self.is_waiting:
                self._waits_from = self.count
            self.paused_at = self.count
            self._told[self.count] = last.envelope.usage
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            _wake(future)
        if self._journal is not None and (mistake := self._journal.mistake) is not None:
            self._journal.mistake = None
            for observer in self._observers:
                observer.fault(self, mistake)

    def _drop(self) -> None:
        """What is stored, and long said: a reader who is that far behind finds it in the store."""
        if self._journal is not None:
            spare = self._journal.old - self.dropped
            del self.events[:spare]
            self.dropped += spare

    def store_again(self) -> bool:
        """Whether all that was said is stored now."""
        return self._journal is None or self._journal.try_again()

    @property
    def heard_at(self) -> float:
        return self._heard_at

    # --- reading ------------------------------------------------------------------------------------

    def reader(self, after: int = 0) -> "Reader":
        return Reader(self, after)

    async def stored_events(self, after: int) -> list[DocumentEvent]:
        """Of those that are no longer here, about a megabyte."""
        assert self._journal is not None
        return await asyncio.to_thread(self._journal.read, after)

    async def finished(self) -> Done:
        """Waits for the end of the answer; not counted as a reader."""
        while self.done is None:
            future = self._wait()
            try:
                await future
            finally:
                self._waiting.discard(future)
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
        self.run.read_up_to = max(self.run.read_up_to, self.place)
        if self.run.is_waiting and self.run.read_up_to >= self.run._waits_from:
            return  # somebody has what was to be told, and the next request brings the answer
        if self.run.readers == 0 and self.run.needs_readers:
            self.run.stop(RunCancelled("The client left before the answer was complete; ask again to have all of it."))

    @property
    def at_end(self) -> bool:
        return self.run.done is not None and self.place >= self.run.count

    def leave(self) -> None:
        """Who reads has gone: whoever waits in `next` is woken."""
        self.has_left = True
        if self._future is not None:
            _wake(self._future)

    async def next(self, seconds: float | None = None) -> list[DocumentEvent]:
        """The events since the last call: as soon as there are any; none after that time, at the end, or left."""
        if self.place >= self.run.count and self.run.done is None and not self.has_left:
            self._future = future = self.run._wait()
            timer = asyncio.get_running_loop().call_later(seconds, _wake, future) if seconds is not None else None
            try:
                await future
            finally:
                self._future = None
                self.run._waiting.discard(future)
                if timer is not None:
                    timer.cancel()
        if self.place < self.run.dropped:  # even if it was up to date: much may be said before who waits is woken
            events = await self.run.stored_events(self.place)
            if not events:  # its conversation was deleted
                self.leave()
        else:
            events = self.run.events[self.place - self.run.dropped :]
        self.place += len(events)
        return events


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
