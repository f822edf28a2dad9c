"""A run that is driven in this process: what `RunMachine` decides, carried out. What its agent, its caller, its readers
and its timers do becomes an input of the machine; the commands that it returns are carried out at once."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.errors import Failure, GatewayError, GatewayFault, GatewayRestarted
from cursor_gateway.model.agent_events import AgentEvent, Plan, Question, RunStarted, TitleGiven
from cursor_gateway.model.answers import Permission
from cursor_gateway.model.caller_tools import Offer, Tool, ToolResult
from cursor_gateway.model.document_events import Done, Paused
from cursor_gateway.model.documents import ClarificationAnswer, Envelope
from cursor_gateway.model.messages import Message
from cursor_gateway.model.requests import RunInfo, TraceContext, WhenClientLeaves
from cursor_gateway.runs.caller_tools import CallerTools, Questions
from cursor_gateway.runs.calls import EndAgent
from cursor_gateway.runs.handle import RunHandle
from cursor_gateway.runs.log import LiveLog
from cursor_gateway.runs.machine import (
    Append,
    Command,
    GiveAnswer,
    RunMachine,
    SetTimer,
    Stage,
    Start,
    StartAgent,
    Terms,
    Timeouts,
    Timer,
    WaitLimits,
)
from cursor_gateway.sources.base import AgentUse, Turn, never
from cursor_gateway.sources.router import SourceRouter
from cursor_gateway.stages.assembler import Assembler
from cursor_gateway.stages.run_state import RunState
from cursor_gateway.store.base import Fenced, NewRun

if TYPE_CHECKING:
    from cursor_gateway.runs.starter import TurnBuilder


class Observer(Protocol):
    """Observes every run, for logs and metrics."""

    def started(self, run: "Run") -> None: ...

    def first_event(self, run: "Run") -> None: ...

    def ended(self, run: "Run") -> None: ...

    def fault(self, run: "Run", error: Exception) -> None: ...

    def repeated(self, failure: Failure, owner: str, request_id: str) -> None:
        """A request was refused with an error that an agent had reported shortly before; none was started."""
        ...

    def asked(self, run_id: str, trace: TraceContext) -> None:
        """A request that is traced gets a reply of the run: it started, continued or joined it."""
        ...


class TurnWatch(Protocol):
    """Watches a run's agent, to know which files it changes."""

    async def begin(self) -> None:
        """Before the agent starts."""
        ...

    async def seen(self, batch: Sequence[AgentEvent]) -> Sequence[AgentEvent]:
        """The same events, with exact edits."""
        ...

    def end(self) -> object:
        """However the run ends, before anybody sees it."""
        ...


class RunPlan(Struct, frozen=True, kw_only=True):
    """How one run is driven, as its request wants it."""

    request_id: str = ""
    waits: WaitLimits = WaitLimits()
    asks_others: bool = False  # see `Terms`
    needs_readers: bool = True  # it is stopped when the last one leaves
    reconnect_seconds: float = 0.0  # but only after this time, in which a client that retries may reconnect
    watch: TurnWatch | None = None
    when_done: "Callable[[Run], None]" = lambda run: None  # before readers see the end


class RunContext(Struct, frozen=True):
    """What all runs of a process have in common."""

    source: SourceRouter
    limits: Timeouts
    observers: Sequence[Observer] = ()


class Run(RunHandle):
    def __init__(
        self,
        info: RunInfo,
        log: LiveLog,
        plan: RunPlan | None = None,
        *,
        caller: CallerTools | None = None,
        assembler: Assembler | None = None,
    ) -> None:
        """`caller` has the caller's tools. `assembler` continues a run that another process began."""
        super().__init__(info, log)
        self.log: LiveLog = log
        self.plan = plan or RunPlan()
        self.machine = RunMachine(log.state, assembler or Assembler(info), caller)
        self.is_warm = False  # its agent was ready before it
        self.first_event_seconds: float | None = None  # after its start
        self._context: RunContext  # when it has started
        self._turn: Turn | None = None  # the latest
        self._turns: TurnBuilder | None = None
        self._due: Start | asyncio.Future[Start] | None = None  # how an agent is to be started; or who waits for one
        self._held: dict[str, asyncio.Future[Any]] = {}  # the agent waits for these answers
        self._timers: dict[Timer, asyncio.TimerHandle] = {}
        self._task: asyncio.Task[None] | None = None
        self._cancels: int | None = None  # of the task, by this object; None: it has not begun
        self.is_storing = False  # or examining what the agent has written; more of it is not read meanwhile
        self._flushing: asyncio.Task[None] | None = None  # what comes from outside

    @property
    def turn(self) -> Turn:
        assert self._turn is not None, "the run has started"
        return self._turn

    @property
    def prompt(self) -> str:
        return self._turn.prompt if self._turn is not None else ""

    @property
    def begun(self) -> NewRun:
        return self.log.run

    @property
    def caller(self) -> CallerTools | None:
        return self.machine.caller

    @property
    def session_id(self) -> str | None:
        return self.log.session_id

    @property
    def source(self) -> str | None:
        return self.turn.source

    @property
    def source_name(self) -> str:
        return self._context.source.name_of(self.turn)

    @property
    def fallback(self) -> str | None:
        return self.machine.fallback

    @property
    def is_waiting(self) -> bool:
        """For an answer from a caller, not for the agent."""
        return self.machine.is_waiting

    def waits(self) -> bool:
        """The same, for its source."""
        return self.machine.is_waiting

    @property
    def use(self) -> AgentUse | None:
        """Of all its agents that have ended; None: unknown."""
        if self._turn is None or not (uses := self._turn.uses):
            return None
        peaks = [use.memory_bytes for use in uses if use.memory_bytes is not None]
        return AgentUse(
            sum(use.cpu_seconds for use in uses), max(peaks, default=None), sum(use.out_of_memory for use in uses)
        )

    @property
    def seconds(self) -> float:
        """Since its start."""
        return asyncio.get_running_loop().time() - self.machine.started_at

    # --- driving ------------------------------------------------------------------------------------

    def start(
        self,
        turn: Turn,
        context: RunContext,
        ended: Callable[[], None] = lambda: None,
        *,
        turns: "TurnBuilder | None" = None,
        after: "Run | None" = None,
    ) -> None:
        """Returns at once; the agent starts when the previous run, `after`, has ended completely. `turns` makes the
        turns for an agent that has to be started again. `ended` is called when the agent has exited, which may be a
        while after readers have seen the end.
        """
        loop, source = asyncio.get_running_loop(), context.source
        self._turn, self._turns, self._context = turn, turns, context
        self.log.session_id = turn.session_id
        if turn.session_id is not None and turns is not None:
            self.info = replace(self.info, known_tokens=turns.known_tokens)
        terms = Terms(
            limits=context.limits,
            waits=self.plan.waits,
            asks_others=self.plan.asks_others,
            known_tokens=self.info.known_tokens,
            has_session=turn.session_id is not None,
            can_restart=turns is not None,
            fallback=source.fallback_for(turn),
            redacted=source.redacted,
        )
        self._do(self.machine.started(terms, loop.time()))

        def settle(_: object) -> None:
            for timer in self._timers.values():
                timer.cancel()
            # Without these references the run's memory is freed at once, not with the next garbage collection.
            self._timers.clear()
            self._turns = None
            self._turn = replace(self.turn, offered=None, person=None, approver=None, is_waiting=never)
            ended()  # first: a bug in an observer must not keep the run's place
            for observer in context.observers:
                observer.ended(self)

        self._task = loop.create_task(self._drive(source, after), name=turn.run_id)
        self._task.add_done_callback(settle)
        for observer in context.observers:
            loop.call_soon(observer.started, self)  # while the agent starts, and before anything else

    async def _drive(self, source: SourceRouter, after: "Run | None") -> None:
        machine, time = self.machine, asyncio.get_running_loop().time
        self._cancels = 0
        try:
            while machine.stage is not Stage.OVER:
                failure, was_cancelled = None, False
                try:
                    if machine.stage is Stage.NEW:
                        if after is not None:
                            await after.gone()
                        if (watch := self.plan.watch) is not None:
                            await watch.begin()
                        self._do(machine.may_begin())
                    if machine.stage not in (Stage.STOPPING, Stage.HALTED):
                        await self._take_turn(source)
                except asyncio.CancelledError:
                    if not self._cancels:
                        raise
                    was_cancelled = True
                except GatewayError as error:
                    failure = error.failure()
                except Exception as error:  # noqa: BLE001 -- an internal error must not leave readers waiting
                    self._report(error)
                    failure = _FAULT.failure()
                self._uncancel(was_cancelled)
                await self._carry_out(machine.agent_ended(failure, time()))
        finally:
            if machine.stage is not Stage.OVER or self.log.waiting:
                await self._carry_out(machine.broken_off(time()))

    async def _carry_out(self, commands: Sequence[Command]) -> None:
        if self.machine.stage is Stage.OVER and self.plan.watch is not None:
            self.plan.watch.end()
        self._do(commands)
        await self._flush()

    def _uncancel(self, was_cancelled: bool) -> None:
        """The task has done what it was cancelled for: its agent is gone. Somebody else may have cancelled it, too.

        What was never raised is left over from a `TaskGroup` that failed: before Python 3.13, it does not take back its
        own cancellation.
        """
        task = self._task
        assert task is not None
        while self._cancels or (task.cancelling() and not was_cancelled):
            self._cancels = max(0, (self._cancels or 0) - 1)
            task.uncancel()
        if task.cancelling():
            raise asyncio.CancelledError

    async def _take_turn(self, source: SourceRouter) -> None:
        """Reads one agent until it is gone; where there is none, waits for what it is to be started with."""
        machine, watch, loop = self.machine, self.plan.watch, asyncio.get_running_loop()
        if self._due is None:
            self._due = loop.create_future()
        start = self._due if isinstance(self._due, Start) else await self._due
        self._due = None
        self._turn = turn = self._next_turn(start, source)
        machine.agent_started(turn.session_id is not None, loop.time())
        async with aclosing(source.events(turn)) as batches:
            async for batch in batches:
                self.is_storing = True
                try:
                    if watch is not None:
                        batch = await watch.seen(batch)
                    if self._do(machine.agent_said(batch, now := loop.time())):
                        if is_first := self.first_event_seconds is None:
                            self.first_event_seconds = now - machine.started_at
                        if self.log.pace is not None and not (is_first or self._is_awaited):
                            self.flush_soon(is_paced=True)
                        else:
                            await self._flush()
                        for observer in self._context.observers if is_first else ():
                            loop.call_soon(observer.first_event, self)
                finally:
                    self.is_storing = False
                if not machine.is_listening:
                    return

    def _next_turn(self, start: Start, source: SourceRouter) -> Turn:
        machine, turns = self.machine, self._turns
        if start is Start.FIRST or turns is None:
            return self.turn
        if start is Start.ELSEWHERE:
            self._turns = turns = turns.with_source(machine.fallback)
            if self.caller is not None:
                self.caller.server = source.named(machine.fallback).tools_server
        if start is Start.RESUMED:
            return turns.resumed(source, self.session_id, machine.news(), machine.history())
        return turns.fresh(machine.history())

    # --- commands -----------------------------------------------------------------------------------

    def _do(self, commands: Sequence[Command]) -> bool:
        """Whether something was appended, which is visible after the next flush."""
        has_appended = False
        for command in commands:
            match command:
                case Append(events=events):
                    self.log.add(events)
                    has_appended = True
                case GiveAnswer(id=id, answer=answer):
                    held = self._held.get(id)
                    if held is not None and not held.done():
                        held.set_result(answer)
                case SetTimer(timer=timer, seconds=seconds):
                    if (running := self._timers.pop(timer, None)) is not None:
                        running.cancel()
                    if seconds is not None:
                        loop = asyncio.get_running_loop()
                        due = loop.time() + seconds
                        self._timers[timer] = loop.call_later(seconds, self._fired, timer, due)
                case StartAgent(start=start):
                    if isinstance(self._due, asyncio.Future) and not self._due.done():
                        self._due.set_result(start)
                    else:
                        self._due = start
                case EndAgent():
                    self._end_agent()
                case RunStarted(session_id=session_id, is_warm=is_warm):
                    self.log.session_id, self.is_warm = session_id or self.log.session_id, is_warm
                case TitleGiven(title=title):
                    self.log.title = title
        return has_appended

    def _end_agent(self) -> None:
        """The task itself sees that its machine does not listen any more. One that is cancelled before it begins would
        never begin."""
        if self._task is not None and self._cancels is not None and self._task is not asyncio.current_task():
            self._cancels += 1
            self._task.cancel()

    def _take(self, commands: Sequence[Command]) -> None:
        """For inputs that come from outside, and cannot wait."""
        if self._do(commands):
            self.flush_soon()

    def flush_soon(self, *, is_paced: bool = False) -> None:
        """Shows what was added to the log, for callers that cannot wait."""
        if not is_paced:
            self.log.hurry()
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.get_running_loop().create_task(self._flush(is_paced=is_paced))

    @property
    def _is_awaited(self) -> bool:
        """What was added: somebody waits for the end, or to be asked, or it is much."""
        return self.is_ending or self.is_waiting or self.log.waiting >= _MOST_WAITING

    async def _flush(self, *, is_paced: bool = False) -> None:
        """The end is reported before readers see it: they run later."""
        await self.log.flush(is_paced=is_paced)
        all_news, self.log.news = self.log.news, []
        for news in all_news:
            match news:
                case Done():
                    self.plan.when_done(self)
                case Fenced(reason="claimed"):
                    why = "Another gateway took this run over, because this one had stopped; send the message again."
                    self._take(self.machine.halt(GatewayRestarted(why), asyncio.get_running_loop().time()))
                case Fenced():
                    pass
                case _:
                    self._report(news)

    def _report(self, error: Exception) -> None:
        for observer in self._context.observers:
            asyncio.get_running_loop().call_soon(observer.fault, self, error)

    def _fired(self, timer: Timer, due: float) -> None:
        machine, now = self.machine, asyncio.get_running_loop().time()
        match timer:
            case Timer.LIMITS:
                self._take(machine.limits_timer_fired(due, now))
            case Timer.CALLS if self.is_storing and not machine.is_waiting:
                self._take(machine.quiet_again())
            case Timer.CALLS:
                self._take(machine.calls_timer_fired(now))
            case Timer.READERS:
                self._unread(0)

    # --- the agent's side ---------------------------------------------------------------------------

    @property
    def tools(self) -> Sequence[Tool]:
        """Of the caller's, which the agent may call."""
        return self.caller.tools if self.caller is not None else ()

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """The result of the caller's tool. Cancelling this abandons the call; its result is sent another way."""
        made, commands = self.machine.tool_called(name, arguments, asyncio.get_running_loop().time())
        if isinstance(made, ToolResult):
            self._take(commands)
            return made
        result = await self._answer(made, commands)
        return result if isinstance(result, ToolResult) else ToolResult(text="The run is over.", is_error=True)

    async def answer(self, call_id: str, question: Question) -> list[ClarificationAnswer] | None:
        found = await self._ask(call_id, question)
        return found if isinstance(found, list) else None

    async def decide(self, call_id: str, plan: Plan) -> bool | None:
        found = await self._ask(call_id, plan)
        return found if isinstance(found, bool) else None

    async def permit(self, call_id: str, question: Question) -> Permission | None:
        found = await self._ask(call_id, question)
        return found if isinstance(found, Permission) else None

    async def _ask(self, call_id: str, what: Question | Plan) -> object:
        return await self._answer(call_id, self.machine.asked(call_id, what, asyncio.get_running_loop().time()))

    async def _answer(self, id: str, commands: Sequence[Command]) -> object:
        """To a call that these commands are about; None if there will be none. Cancelling this abandons the call."""
        loop = asyncio.get_running_loop()
        held = self._held[id] = loop.create_future()
        self._take(commands)
        try:
            return await held
        except asyncio.CancelledError:
            self._take(self.machine.gave_up(id, loop.time()))
            raise
        finally:
            del self._held[id]

    # --- the caller's side --------------------------------------------------------------------------

    def take_results(
        self, results: Mapping[str, ToolResult], also: Sequence[Message] = (), offer: Offer | None = None
    ) -> int:
        """Continues with results of the caller's tools. Returns the number of the pause that they end, now or when they
        first arrived.
        """
        pause, commands = self.machine.caller_sent(results, also, offer, asyncio.get_running_loop().time())
        self._take(commands)
        return pause

    @property
    def questions(self) -> Questions:
        return self.machine.questions

    @property
    def awaited(self) -> str:
        has_called = self.machine.caller is not None and self.machine.calls.open
        return self.questions.awaited or ("send `toolResults` for its calls" if has_called else "")

    def take_answers(self, answers: Mapping[str, object]) -> None:
        self._take(self.machine.person_answered(answers, asyncio.get_running_loop().time()))

    # --- stopping -----------------------------------------------------------------------------------

    def stop(self, why: GatewayError) -> None:
        """Ends the agent, unless the run is done or has not started; readers see why."""
        if self._task is not None:
            self._take(self.machine.stop(why))

    @property
    def is_ending(self) -> bool:
        return self.machine.is_ending

    async def gone(self) -> None:
        """Waits until nothing of the run is left."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def abandon(self) -> None:
        """Does not wait for an agent that is still running after its result."""
        if self._task is not None:
            self._take(self.machine.abandon())
            await self.gone()

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
        await self.log.entered()

    async def pause(self, number: int) -> Paused | None:
        found = self.log.state.next_pause(number - 1)
        return found.event if found is not None and found.number == number else None

    async def state(self) -> RunState:
        return self.log.state

    # --- readers that leave -------------------------------------------------------------------------

    def set_when_client_leaves(self, when: WhenClientLeaves | None) -> None:
        if when is not None:
            self.plan = replace(self.plan, needs_readers=when == "cancel")

    def left(self, place: int) -> None:
        super().left(place)
        self._unread(self.plan.reconnect_seconds)

    def _unread(self, reconnect_seconds: float) -> None:
        if self.log.readers == 0 and self.plan.needs_readers:
            self._take(self.machine.readers_left(self.log.read_up_to, reconnect_seconds))


_MOST_WAITING = 256  # events that are not stored yet, until the agent waits
_FAULT = GatewayFault("Internal error; the gateway's log has the details under this request's id.")
