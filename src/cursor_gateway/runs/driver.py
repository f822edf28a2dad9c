"""A source's agent events in; the events of one run, in its log, out.

A run is one or more turns of an agent. Most have one. The agent is started again when its session is lost, when its
source failed before the first output, when it does not wait for answers that it is owed, or when it ended without a
required call. `TurnEnd` lists these cases, and `_next_turn` decides what follows.

Failures become events here and nowhere else: whatever happens, `Done` is the last event of the log.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from enum import Enum
from typing import Protocol, TypeVar

from msgspec import UNSET
from msgspec.structs import replace

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
from cursor_gateway.model.agent_events import (
    AgentEvent,
    CallerAwaited,
    RunFailed,
    RunFinished,
    RunStarted,
    ToolEnded,
    ToolStarted,
)
from cursor_gateway.model.caller_tools import Offer, ToolResult
from cursor_gateway.model.document_events import DocumentEvent
from cursor_gateway.model.messages import Message
from cursor_gateway.model.run_info import RunInfo
from cursor_gateway.runs.caller_tools import CallerTools
from cursor_gateway.runs.event_log import EventLog
from cursor_gateway.runs.open_calls import Call
from cursor_gateway.runs.readers import Owner
from cursor_gateway.runs.turn_builder import TurnBuilder
from cursor_gateway.runs.waiting import Waiting
from cursor_gateway.sources.base import Turn
from cursor_gateway.sources.router import SourceRouter
from cursor_gateway.stages.assembler import Assembler
from cursor_gateway.stages.usage import UsageTotal


class TurnEnd(Enum):
    RUN_OVER = "the run is over with it"
    SESSION_LOST = "the agent did not know its session"
    SOURCE_FAILED = "its source failed before it said anything"
    CALLS_OPEN = "its calls are open, and it does not wait for them"
    NOT_CALLED = "it did not make the call that it had to"


_End = TypeVar("_End", bound=RunFinished | RunFailed)


class Predecessor(Protocol):
    """The run before this one in its conversation."""

    async def gone(self) -> None: ...


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


class Driver:
    """Drives the agent of one run. `Waiting` decides when to pause, and when the agent must be ended."""

    def __init__(
        self,
        info: RunInfo,
        turn: Turn,
        log: EventLog,
        waiting: Waiting,
        *,
        turns: TurnBuilder | None = None,
        caller: CallerTools | None = None,
        assembler: Assembler | None = None,
        watch: TurnWatch | None = None,
    ) -> None:
        """`turns` makes the turns for an agent that has to be started again; `caller` has the caller's tools;
        `assembler` continues a run that another process began."""
        self.turn = turn
        self.session_id = turn.session_id
        self.started_at = self.first_event_at = self.heard_at = 0.0  # by the loop's clock
        self.has_events = False
        self.is_warm = False  # the agent was ready before the run
        self.fallback: str | None = None  # the source that answers in place of one that failed
        self.source_failure: Failure | None = None  # and how that one did
        self.source_name = ""  # of the source that answers
        self.stop_reason: GatewayError | None = None
        self.is_storing = False  # what the agent has written; more of it is not read meanwhile
        self.owner: Owner | None = None
        self._log, self._waiting, self._turns, self._caller, self._watch = log, waiting, turns, caller, watch
        self._assembler = assembler or Assembler(info)
        self._usage = UsageTotal()
        self._task: asyncio.Task[None] | None = None
        self._has_begun = False
        self._reading: asyncio.Task[TurnEnd] | None = None  # of an agent that may be ended before its run
        self._is_agent_ended = False
        self._unused: list[str] = []  # calls whose results the agent got, without any output since
        waiting.begin(self)

    # --- the run ------------------------------------------------------------------------------------

    def start(self, source: SourceRouter, after: Predecessor | None) -> "asyncio.Task[None]":
        """Returns at once; the agent starts when the previous run, `after`, has ended completely."""
        loop = asyncio.get_running_loop()
        self.started_at = self.heard_at = loop.time()
        self.source_name = source.name_of(self.turn)
        self._task = loop.create_task(self._drive(source, after), name=self.turn.run_id)
        return self._task

    def stop(self, why: GatewayError) -> None:
        """Ends the agent, unless the run is over; readers see why."""
        if self.stop_reason is None and self._log.state.done is None and self._task is not None:
            self.stop_reason = why
            if self._has_begun:  # a task that is cancelled before it starts cannot report why
                self._task.cancel()

    async def gone(self) -> None:
        """Waits until nothing of the run is left."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def abandon(self) -> None:
        """Does not wait for an agent that is still running after its result."""
        if self._task is not None:
            self.stop(_STOPPED)
            if self._has_begun:
                self._task.cancel()
            await self.gone()

    async def _drive(self, source: SourceRouter, after: Predecessor | None) -> None:
        self._has_begun = True
        try:
            if self.stop_reason is None:
                if after is not None:
                    await after.gone()
                if self._watch is not None:
                    await self._watch.begin()
                while (end := await self._take_turn(source)) is not TurnEnd.RUN_OVER:
                    self.turn = await self._next_turn(source, end)
                await self._end(source, AgentCrashed())
        except asyncio.CancelledError:
            pass  # why is known: see `stop`
        except GatewayError as error:
            await self._end(source, error)
        except Exception as error:  # noqa: BLE001 -- an internal error must not leave readers waiting
            if self.owner is not None:
                self.owner.faulted(error)
            why = GatewayFault("Internal error; the gateway's log has the details under this request's id.")
            await self._end(source, why)
        finally:
            await self._end(source, _STOPPED)

    async def _end(self, source: SourceRouter, why: GatewayError) -> None:
        """Unless the agent has reported itself how it ended."""
        if self._watch is not None:
            self._watch.end()
        if self._log.state.done is None:
            failure = source.redacted((self.stop_reason or why).failure())
            self._log.add(self._assembler.push(self._timed(RunFailed(failure=failure))))
        await self._log.flush()

    def _timed(self, end: _End) -> _End:
        """How long the run took, where its agent does not say."""
        if end.duration_ms is not None:
            return end
        return replace(end, duration_ms=round((asyncio.get_running_loop().time() - self.started_at) * 1000))

    # --- one turn of the agent ----------------------------------------------------------------------

    async def _take_turn(self, source: SourceRouter) -> TurnEnd:
        if self._caller is None:
            return await self._read(source)
        self._is_agent_ended = False
        self._waiting.resumed()
        self._reading = asyncio.get_running_loop().create_task(self._read(source))
        try:
            return await self._reading
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return TurnEnd.CALLS_OPEN
        finally:
            self._reading = None

    async def _read(self, source: SourceRouter) -> TurnEnd:
        before = self._log.state.count
        try:
            async with aclosing(source.events(self.turn)) as batches:
                async for batch in batches:
                    end = await self._push(source, batch, before)
                    if end is not None:
                        return end
        except AgentError as error:
            if self._died_with_results(error.failure()):
                return TurnEnd.CALLS_OPEN
            end = self._restart(source, error.failure()) if self._log.state.count == before else None
            if end is None:
                raise
            return end
        return TurnEnd.RUN_OVER

    def _restart(self, source: SourceRouter, failure: Failure) -> TurnEnd | None:
        """How an agent that failed before its first output can be started again."""
        if self._turns is None:
            return None
        if failure.code == SessionLost.code and self.turn.session_id is not None:
            return TurnEnd.SESSION_LOST
        if failure.is_source_failure and source.fallback_for(self.turn) is not None:
            self.source_failure = source.redacted(failure)
            return TurnEnd.SOURCE_FAILED
        return None

    async def _push(self, source: SourceRouter, batch: Sequence[AgentEvent], before: int) -> TurnEnd | None:
        """Handles one read of the agent's output. Returns the end of the turn, if it contains one."""
        self.heard_at = asyncio.get_running_loop().time()
        self.has_events = True
        if self._watch is not None:
            batch = await self._watch.seen(batch)
        out: list[DocumentEvent] = []
        end: TurnEnd | None = None
        for event in batch:
            if isinstance(event, RunStarted):
                self.session_id = self._log.journal.session_id = event.session_id or self.session_id
                self.is_warm = event.is_warm
            elif isinstance(event, RunFinished) and self._caller is None:
                event = self._timed(event)
            elif isinstance(event, RunFailed):
                restart = self._restart(source, event.failure) if not out and self._log.state.count == before else None
                if restart is not None:
                    return restart
                event = replace(event, failure=source.redacted(event.failure))
                event = event if self._caller is not None else self._timed(event)
            if self._caller is not None:
                shown, how = self._with_caller(self._caller, event)
                end = how or end
                for part in self._caller.paths.push(shown) if shown is not None else ():
                    out += self._assembler.push(part)
            else:
                out += self._assembler.push(event)
        if out:
            await self._publish(out)
        return end

    async def _publish(self, events: list[DocumentEvent]) -> None:
        is_first = not self._log.state.count
        if is_first:
            self.first_event_at = self.heard_at
        self.is_storing = True
        try:
            await self._log.append(events)
        finally:
            self.is_storing = False
        if is_first and self.owner is not None:
            asyncio.get_running_loop().call_soon(self.owner.first_event_shown)

    def _with_caller(self, caller: CallerTools, event: AgentEvent) -> tuple[AgentEvent | None, TurnEnd | None]:
        """The event for readers, if they should see it, and whether it ends the turn but not the run."""
        if caller.stop_reason is not None:  # its result may come in the same read as what the run was stopped for
            return None, None
        if self._is_agent_ended and not isinstance(event, ToolStarted | ToolEnded):
            return None, TurnEnd.CALLS_OPEN  # it continues without the results that it is owed
        match event:
            case ToolEnded():
                is_known = caller.ended(event)
                return None if is_known else event, TurnEnd.CALLS_OPEN if self._is_agent_ended else None
            case RunFinished() | RunFailed():
                self._usage.add(event)
                if isinstance(event, RunFailed) and self._died_with_results(event.failure):
                    return None, TurnEnd.CALLS_OPEN
                if self._waiting.has_open:
                    self._waiting.agent_ended()
                    caller.agent_ended()
                    return None, TurnEnd.CALLS_OPEN
                if isinstance(event, RunFinished) and caller.is_owed_a_call and self._turns is not None:
                    return None, TurnEnd.NOT_CALLED
                return self._timed(self._usage.total(event)), None
            case _:
                self._unused.clear()
                self._waiting.wrote()
                return event, None

    def _died_with_results(self, failure: Failure) -> bool:
        """Whether the agent died before it could use the results that it got; then another agent gets them.

        An agent can die while its caller works, and this may be noticed only after the results were passed on. It is
        tried only once: the next agent has the results from the start.
        """
        unused = [id for id in self._unused if self._waiting.state(id) is Call.DELIVERED]
        self._unused.clear()
        if failure.code != AgentCrashed.code or not unused or self._caller is None or self._turns is None:
            return False
        self._waiting.agent_ended(unused)
        self._caller.agent_ended()
        return True

    async def _next_turn(self, source: SourceRouter, end: TurnEnd) -> Turn:
        """For an agent that is started again."""
        turns, caller = self._turns, self._caller
        assert turns is not None
        happened = caller.history if caller is not None else ()
        match end:
            case TurnEnd.SOURCE_FAILED:
                self.fallback = source.fallback_for(self.turn)
                self._assembler.fallback = self.fallback or UNSET
                self._turns = turns = turns.with_source(self.fallback)
                self.source_name = source.name_of(turns.turn)
                if caller is not None:
                    caller.server = source.named(self.fallback).tools_server
                return turns.fresh(happened)
            case TurnEnd.SESSION_LOST:
                return turns.fresh(happened)
            case TurnEnd.CALLS_OPEN | TurnEnd.NOT_CALLED | TurnEnd.RUN_OVER:
                assert caller is not None
                new = await self._news(caller, end)
                return turns.resumed(source, self.session_id, new, caller.history)

    async def _news(self, caller: CallerTools, end: TurnEnd) -> Sequence[Message]:
        """The messages that are new to an agent that knows its session."""
        if end is TurnEnd.CALLS_OPEN:
            self._usage.cut()
            new = await caller.next_turn()
            self.heard_at = asyncio.get_running_loop().time()
            return new
        if (reminder := caller.reminder()) is not None:
            return reminder
        raise ToolNotCalled(
            "The agent did not call the tool that `tool_choice` requires, even when asked again; rephrase the "
            "request, or set `tool_choice` to `auto`.",
            param="tool_choice",
        )

    # --- as the host of its open calls --------------------------------------------------------------

    def pause(self, fresh: Sequence[str], shown: Sequence[str]) -> None:
        caller, state = self._caller, self._log.state
        before = state.paused_at
        asked = caller.asked(fresh) if caller is not None else ()
        self._say([*asked, CallerAwaited(tuple(shown), self._waiting.asks_others)])
        if caller is not None:
            caller.paused(fresh, state.reply_text(before))
            if caller.takes_one_call:
                self._waiting.end_agent()

    def end_agent(self) -> None:
        self._is_agent_ended = True
        if self._caller is not None:
            self._caller.agent_ended()
        if self._reading is not None and self._reading is not asyncio.current_task():
            self._reading.cancel()

    def answer(
        self, results: Mapping[str, ToolResult], also: Sequence[Message] = (), offer: Offer | None = None
    ) -> int:
        """Continues with results of the caller's tools. Returns the number of the pause that they end, now or when they
        first arrived.
        """
        assert self._caller is not None
        new = self._caller.new(results)
        state = self._log.state
        if not new:
            return state.pause_for(calls=results) or 0
        paused_at = state.paused_at
        events, given = self._caller.answer(new, also, offer)
        self._waiting.answer(given, says_more=bool(also))
        self._unused += given
        self._say(events)
        return paused_at

    def _say(self, events: Sequence[AgentEvent]) -> None:
        """Adds events of the gateway to those of the agent."""
        self.heard_at = asyncio.get_running_loop().time()
        if out := [shown for event in events for shown in self._assembler.push(event)]:
            self._log.append_soon(out)


_STOPPED = RunCancelled("The run was cancelled; start it again to get the whole answer.")
