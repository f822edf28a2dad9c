"""A run: what happens to it in, what is to be done out. No tasks, no timers, no futures, no I/O; times are passed in.

A run is one or more turns of an agent. Most have one. The agent is started again when it does not know its session,
when its source failed before the first output, when it did not make a required call, or when it does not wait for
answers that it is owed. All the while a run has one *stage*, and `STAGES` says all that can happen to it:

    NEW         the run before it in its conversation has not ended completely
    WORKING     its agent works
    RESTARTING  its agent ends, and is started again at once
    LEAVING     its agent ends although calls are open
    OWED        there is no agent: it is started again when the last open call has an answer
    STOPPING    its agent ends, and the run ends with it; the first reason to stop is the one that counts
    HALTED      the same, and nothing that its agent writes counts any more
    DONE        the log has its end; the agent may still be there
    OVER        nothing is left

What it waits for meanwhile is the other table, `open_calls`: it says when calls are shown and answered, and when the
agent has to end or can begin its next turn. The rest follows from the log, `RunState`, which every `Append` extends.

Each method of `RunMachine` is an input. It returns commands, which are carried out in their order and at once; what
takes time is reported by another input. So a whole run can be driven without an event loop, one input after the other,
and `Run` is no more than these commands, carried out.

What can never happen: two ends, an event after the end, an agent that is started while another one works, a run that is
over while a held call is open, an answer that is neither used nor passed on to the next agent. The property tests say
the same.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from math import inf
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway import errors
from cursor_gateway.model.agent_events import (
    AgentEvent,
    CallerAwaited,
    Plan,
    Question,
    RunFailed,
    RunFinished,
    RunStarted,
    TitleGiven,
    ToolEnded,
    ToolStarted,
)
from cursor_gateway.model.caller_tools import Offer, ToolResult
from cursor_gateway.model.document_events import DocumentEvent
from cursor_gateway.model.messages import Message
from cursor_gateway.runs import calls as open_calls
from cursor_gateway.runs.caller_tools import CallerTools, Denied, GivenUp, Questions
from cursor_gateway.runs.calls import Call, EndAgent, Kind, OpenCalls
from cursor_gateway.stages.assembler import Assembler
from cursor_gateway.stages.run_state import RunState

STOPPED = errors.RunCancelled("The run was cancelled; start it again to get the whole answer.")

_LONGEST_GATHERING = 2.0  # seconds: an agent that keeps writing does not delay its calls for longer
_LATE_SECONDS = 1.0  # if a timer fires this late, the process was suspended

_End = TypeVar("_End", bound=RunFinished | RunFailed)


# --- the table --------------------------------------------------------------------------------------


class Stage(StrEnum):
    NEW = "new"
    WORKING = "working"
    RESTARTING = "restarting"
    LEAVING = "leaving"
    OWED = "owed"
    STOPPING = "stopping"
    HALTED = "halted"
    DONE = "done"
    OVER = "over"


class StageInput(StrEnum):
    BEGIN = "may begin"
    RESTART = "agent must start again"
    LEAVE = "agent must not continue"
    DUE = "all answers are there"
    REPORTED = "agent reports its end"
    STOP = "stopped"
    HALT = "halted"
    ABANDON = "abandoned"
    ENDED = "agent is gone"


class StageAction(StrEnum):
    START = "start the agent"
    END = "end the agent"
    FAIL = "append the failure"


StageTable: TypeAlias = Mapping[Stage, Mapping[StageInput, tuple[Stage, tuple[StageAction, ...]]]]

STAGES: StageTable = {
    Stage.NEW: {
        StageInput.BEGIN: (Stage.WORKING, (StageAction.START,)),
        StageInput.STOP: (Stage.STOPPING, (StageAction.END,)),
        StageInput.HALT: (Stage.HALTED, (StageAction.END,)),
        StageInput.ENDED: (Stage.OVER, (StageAction.FAIL,)),
    },
    Stage.WORKING: {
        StageInput.RESTART: (Stage.RESTARTING, (StageAction.END,)),
        StageInput.LEAVE: (Stage.LEAVING, (StageAction.END,)),
        StageInput.REPORTED: (Stage.DONE, ()),
        StageInput.STOP: (Stage.STOPPING, (StageAction.END,)),
        StageInput.HALT: (Stage.HALTED, (StageAction.END,)),
        StageInput.ENDED: (Stage.OVER, (StageAction.FAIL,)),
    },
    Stage.RESTARTING: {
        StageInput.STOP: (Stage.STOPPING, ()),
        StageInput.HALT: (Stage.HALTED, ()),
        StageInput.ENDED: (Stage.WORKING, (StageAction.START,)),
    },
    Stage.LEAVING: {
        StageInput.DUE: (Stage.RESTARTING, ()),
        StageInput.STOP: (Stage.STOPPING, ()),
        StageInput.HALT: (Stage.HALTED, ()),
        StageInput.ENDED: (Stage.OWED, ()),
    },
    Stage.OWED: {
        StageInput.DUE: (Stage.WORKING, (StageAction.START,)),
        StageInput.STOP: (Stage.STOPPING, (StageAction.END,)),
        StageInput.HALT: (Stage.HALTED, (StageAction.END,)),
    },
    # An agent that ends by itself before it is ended has given its answer.
    Stage.STOPPING: {
        StageInput.REPORTED: (Stage.DONE, ()),
        StageInput.HALT: (Stage.HALTED, ()),
        StageInput.ABANDON: (Stage.STOPPING, (StageAction.END,)),
        StageInput.ENDED: (Stage.OVER, (StageAction.FAIL,)),
    },
    Stage.HALTED: {
        StageInput.ABANDON: (Stage.HALTED, (StageAction.END,)),
        StageInput.ENDED: (Stage.OVER, (StageAction.FAIL,)),
    },
    Stage.DONE: {
        StageInput.ABANDON: (Stage.DONE, (StageAction.END,)),
        StageInput.ENDED: (Stage.OVER, ()),
    },
    Stage.OVER: {},
}


# --- commands ---------------------------------------------------------------------------------------


class Timer(StrEnum):
    LIMITS = "limits"  # how long the run may take, and its agent be silent
    CALLS = "calls"  # how long the agent must be quiet before its calls are shown; then, how long its caller may take
    READERS = "readers"  # in which a reader that was disconnected may return


class Start(StrEnum):
    """What an agent is told at its start."""

    FIRST = "the request"
    FRESH = "the whole conversation, because its session is lost"
    ELSEWHERE = "the whole conversation, as an agent of another source"
    RESUMED = "what is new to it, or the whole conversation if its session is lost"


class Append(Struct, frozen=True):
    """To the log. What an agent writes next is read when it is stored."""

    events: list[DocumentEvent]


class StartAgent(Struct, frozen=True):
    """`agent_started` is called before it is read, then `agent_said` for what it writes and `agent_ended` last."""

    start: Start


class GiveAnswer(Struct, frozen=True):
    """To the agent, which waits for the answer to this call. None: there will be none."""

    id: str
    answer: object


class SetTimer(Struct, frozen=True):
    """In place of the one that runs, if one does; None: only stop that. `timer_fired` is called when it fires."""

    timer: Timer
    seconds: float | None


# `EndAgent`: whatever the agent is doing; `agent_ended` is called when it is gone, also if there is none.
# `RunStarted` and `TitleGiven`: what the agent says about its session and the conversation, to be kept.
Command: TypeAlias = Append | StartAgent | EndAgent | GiveAnswer | SetTimer | RunStarted | TitleGiven

_START = {start: StartAgent(start) for start in Start}
_END = EndAgent()


# --- limits -----------------------------------------------------------------------------------------


class Timeouts(Struct, frozen=True, kw_only=True):
    first_event_seconds: float
    idle_seconds: float
    run_seconds: float


class WaitLimits(Struct, frozen=True, kw_only=True):
    answer_seconds: float = 600.0  # how long a caller may take
    quiet_seconds: float = 0.15


class Terms(Struct, frozen=True, kw_only=True):
    """How one run is driven, as far as it is known when it starts."""

    limits: Timeouts
    waits: WaitLimits = WaitLimits()
    asks_others: bool = False  # not the caller answers, but for example a person at the page
    has_session: bool = False  # which its first turn resumes
    known_tokens: int = 0  # about the size of this session
    can_restart: bool = False  # its agent
    fallback: str | None = None  # a source that may answer in place of one that fails
    redacted: Callable[[errors.Failure], errors.Failure] = lambda failure: (
        failure
    )  # without the credentials of its source


# --- the machine ------------------------------------------------------------------------------------


class RunMachine:
    def __init__(self, state: RunState, assembler: Assembler, caller: CallerTools | None = None) -> None:
        """`state` is that of the log, and `caller` has the caller's tools."""
        self.stage = Stage.NEW
        self.terms = Terms(limits=_ENDLESS)
        self.state, self.caller = state, caller
        self.calls = caller.calls if caller is not None else OpenCalls()
        self.stop_reason: errors.GatewayError | None = None
        self.source_failure: errors.Failure | None = None  # of a source in whose place another one answers
        self.started_at = 0.0
        self.heard_at: float | None = None  # from an agent, or from who answers it
        self.waiting_since: float | None = None  # for an answer, and not for the agent
        self.waited = 0.0  # seconds, up to the last answer
        self._assembler = assembler
        self._start = Start.FIRST
        self._has_session = False  # the agent has resumed one, which may turn out to be lost
        self._count_before = 0  # events in the log when its turn began
        self._unused: list[str] = []  # calls whose results the agent got, without any output since
        self._gathering_since: float | None = None

    @property
    def is_listening(self) -> bool:
        """Whether more of the agent's output is to be read."""
        return self.stage in _LISTENING

    @property
    def fallback(self) -> str | None:
        """The source that answers in place of one that failed."""
        return self.terms.fallback if self.source_failure is not None else None

    @property
    def questions(self) -> Questions:
        return Questions(self.calls.questions)

    @property
    def is_ending(self) -> bool:
        return self.stop_reason is not None or self.stage in (Stage.DONE, Stage.OVER)

    @property
    def is_waiting(self) -> bool:
        """For an answer from a caller, not for the agent."""
        return self.waiting_since is not None

    # --- the run ------------------------------------------------------------------------------------

    def started(self, terms: Terms, now: float) -> list[Command]:
        """Its time begins, even if it has to wait for the run before it."""
        self.terms, self._has_session = terms, terms.has_session
        self._assembler.know(terms.known_tokens)
        self.started_at = now
        return [self._limit(self._left(now))]

    def may_begin(self) -> list[Command]:
        """The run before it has ended completely."""
        return self._move(StageInput.BEGIN)

    def stop(self, why: errors.GatewayError) -> list[Command]:
        """Ends the agent, unless the run has ended; readers see why."""
        if self.is_ending:
            return []
        self.stop_reason = why
        return self._move(StageInput.STOP)

    def halt(self, why: errors.GatewayError, now: float) -> list[Command]:
        """The same, and it counts no more what the agent writes or calls, however long that takes to exit."""
        if self.stage not in (Stage.DONE, Stage.OVER):
            self.stop_reason = self.stop_reason or why
        return self._carry_out(self.calls.close(), now) + self._move(StageInput.HALT)

    def abandon(self) -> list[Command]:
        """Does not wait for an agent that is still there after its result."""
        return self.stop(STOPPED) + self._move(StageInput.ABANDON)

    def broken_off(self, now: float) -> list[Command]:
        """Nothing drives the run any longer, whatever its stage."""
        before, self.stage = self.stage, Stage.OVER
        if before is Stage.OVER:
            return []
        failed = self._fail(STOPPED.failure(), now) if before is not Stage.DONE else []
        return failed + self._carry_out(self.calls.close(), now)

    # --- its agent ----------------------------------------------------------------------------------

    def agent_started(self, has_session: bool, now: float) -> None:
        """It has all that it was owed. `has_session`: it resumes one."""
        if self._start is Start.RESUMED:
            self.heard_at = now
        self._has_session, self._count_before = has_session, self.state.count
        self.calls.resumed()
        if self.caller is not None:
            self.caller.agent_started(self.state.paused_at)

    def agent_said(self, batch: Sequence[AgentEvent], now: float) -> list[Command]:
        """One read of its output."""
        self.heard_at = now
        commands: list[Command] = []
        out: list[DocumentEvent] = []
        caller = self.caller
        for event in batch:
            if caller is None and event.__class__ not in _RARE:
                out += self._assembler.push(event)
                continue
            if self.stage not in _HEARD:
                break
            if isinstance(event, RunStarted | TitleGiven):
                commands.append(event)
            elif isinstance(event, RunFailed):
                event = replace(event, failure=self.terms.redacted(event.failure))
                if not out and (restart := self._restart(event.failure)):
                    commands += restart
                    break
            shown = event if caller is None else self._with_caller(caller, event, commands, now)
            if isinstance(shown, RunFinished | RunFailed):
                shown = self._timed(shown, now)
                commands += self._move(StageInput.REPORTED)
            if shown is not None:
                for part in (shown,) if caller is None else caller.paths.push(shown):
                    out += self._assembler.push(part)
        if out:
            commands.append(Append(out))
        return commands

    def agent_ended(self, failure: errors.Failure | None, now: float) -> list[Command]:
        """It is gone. `failure`: it could not be started, or did not report its end."""
        commands = list[Command]()
        if self.stage is Stage.WORKING and failure is not None:
            commands += self._left_with_results(failure, now) or self._restart(failure)
        commands += self._move(StageInput.ENDED, failure, now)
        return commands if self.stage is not Stage.OVER else commands + self._carry_out(self.calls.close(), now)

    def _with_caller(
        self, caller: CallerTools, event: AgentEvent, commands: list[Command], now: float
    ) -> AgentEvent | None:
        """The event for readers, if they should see it."""
        if self.stage is Stage.LEAVING and not isinstance(event, ToolStarted | ToolEnded):
            return None  # it continues without the results that it is owed
        match event:
            case ToolEnded():
                match caller.tool_ended(event, now):
                    case GivenUp(id=id):
                        commands += self._carry_out(self.calls.give_up(id), now) if id else ()
                        return None
                    case Denied(id=id):
                        commands += self._carry_out(self.calls.make(id, Kind.TOOL, held=False), now)
                        commands += self._carry_out(self.calls.end_agent(), now)
                    case errors.GatewayError() as why:
                        commands += self.halt(why, now)
                    case None:
                        pass
                return event
            case RunFinished() | RunFailed():
                return self._agent_reported(caller, event, commands, now)
            case _:
                self._unused.clear()
                commands += self._carry_out(self.calls.wrote(), now)
                return event

    def _agent_reported(
        self, caller: CallerTools, end: RunFinished | RunFailed, commands: list[Command], now: float
    ) -> AgentEvent | None:
        caller.usage.add(end)
        if isinstance(end, RunFailed) and (left := self._left_with_results(end.failure, now)):
            commands += left
            return None
        if self.calls.open:
            commands += self._leave((), now)
            return None
        if isinstance(end, RunFinished) and caller.is_owed_a_call and self.terms.can_restart:
            if caller.remind():
                self._start = Start.RESUMED
                commands += self._move(StageInput.RESTART)
            else:
                why = errors.ToolNotCalled(
                    "The agent did not call the tool that `tool_choice` requires, even when asked again; rephrase the "
                    "request, or set `tool_choice` to `auto`.",
                    param="tool_choice",
                )
                commands += self.halt(why, now)
            return None
        return caller.usage.total(end)

    def _restart(self, failure: errors.Failure) -> list[Command]:
        """For an agent that failed before its first output, if it can be started again."""
        if not self.terms.can_restart or self.state.count != self._count_before:
            return []
        if failure.code == errors.SessionLost.code and self._has_session:
            self._start = Start.FRESH
        elif failure.is_source_failure and self.terms.fallback is not None and self.source_failure is None:
            self._start, self.source_failure = Start.ELSEWHERE, self.terms.redacted(failure)
            self._assembler.fallback = self.terms.fallback
        else:
            return []
        return self._move(StageInput.RESTART)

    def _left_with_results(self, failure: errors.Failure, now: float) -> list[Command]:
        """If the agent died before it could use the results that it got, another agent gets them.

        An agent can die while its caller works, and this may be noticed only after the results were passed on. It is
        tried only once: the next agent has the results from the start.
        """
        unused = [id for id in self._unused if self.calls.state(id) is Call.DELIVERED]
        self._unused.clear()
        if failure.code != errors.AgentCrashed.code or not unused or not self.terms.can_restart:
            return []
        return self._leave(unused, now)

    def _leave(self, unused: Iterable[str], now: float) -> list[Command]:
        return self._ends_with_calls_open() + self._carry_out(self.calls.agent_ended(unused), now)

    def _ends_with_calls_open(self) -> list[Command]:
        assert self.caller is not None, "only calls of its tools end an agent"
        if self.stage is Stage.WORKING:
            self._start = Start.RESUMED
            self.caller.usage.cut()
        self.caller.agent_ended()
        return self._move(StageInput.LEAVE)

    def news(self) -> Sequence[Message]:
        """What is new to an agent that is started again and knows its session."""
        return self.caller.owed(self.calls.owed) if self.caller is not None else ()

    def history(self) -> Sequence[Message]:
        """What another agent has to know of this run."""
        return self.caller.history(self.state) if self.caller is not None else ()

    # --- its calls ----------------------------------------------------------------------------------

    def tool_called(self, name: str, arguments: dict[str, Any], now: float) -> tuple[str | ToolResult, list[Command]]:
        """The agent calls a tool of its caller's, and waits: for the answer to the call of this id, or for no one."""
        assert self.caller is not None
        made = self.caller.make(name, arguments, now)
        looped = self.caller.loop(name)
        commands = self.halt(looped, now) if looped is not None else []
        if isinstance(made, str):
            commands += self._carry_out(self.calls.make(made, Kind.TOOL), now)
        return made, commands

    def asked(self, id: str, question: Question | Plan, now: float) -> list[Command]:
        """The agent asks a person, and waits."""
        return self._carry_out(self.calls.make(id, Kind.QUESTION, asks=question), now)

    def gave_up(self, id: str, now: float) -> list[Command]:
        """The agent no longer waits for this call."""
        return self._carry_out(self.calls.give_up(id), now)

    def caller_sent(
        self, results: Mapping[str, ToolResult], also: Sequence[Message], offer: Offer | None, now: float
    ) -> tuple[int, list[Command]]:
        """Results of the caller's tools, and messages. Also the number of the pause that the results end, now or when
        they first arrived.
        """
        assert self.caller is not None
        paused_at = self.state.paused_at
        if not (new := self.caller.new(results)):
            return self.state.pause_for(calls=results) or 0, []
        events, given = self.caller.answer(new, also, offer, paused_at, now)
        said = self._said(events, now)
        actions = self.calls.answer(given, says_more=bool(also))
        self._unused += given
        return paused_at, said + self._carry_out(actions, now, given)

    def person_answered(self, answers: Mapping[str, object], now: float) -> list[Command]:
        """By the calls that ask for them."""
        return self._carry_out(self.calls.answer(answers), now, answers)

    def _carry_out(
        self, actions: Iterable[open_calls.Action], now: float, answers: Mapping[str, object] | None = None
    ) -> list[Command]:
        """What the open calls want done."""
        commands = list[Command]()
        for action in actions:
            match action:
                case open_calls.StartQuietTimer():
                    commands.append(self._quiet_timer(now))
                case open_calls.StartAnswerTimer():
                    self.waiting_since, self._gathering_since = now, None
                    commands.append(SetTimer(Timer.CALLS, self.terms.waits.answer_seconds))
                case open_calls.StopTimer():
                    self._gathering_since = None
                    commands.append(SetTimer(Timer.CALLS, None))
                case open_calls.Pause(fresh=fresh, shown=shown):
                    commands += self._pause(fresh, shown, now)
                case open_calls.Deliver(id=id):
                    assert answers is not None
                    commands.append(GiveAnswer(id, answers[id]))
                case open_calls.Release(id=id):
                    commands.append(GiveAnswer(id, None))
                case EndAgent():
                    commands += self._ends_with_calls_open()
                case open_calls.BeginTurn():
                    commands += self._move(StageInput.DUE)
                case open_calls.Fail():
                    commands += self.stop(
                        errors.CallerGone(
                            f"No tool results arrived within {self.terms.waits.answer_seconds:g} s; to continue, send "
                            "them with the whole conversation, or raise `answer_seconds`."
                        )
                    )
        if self.waiting_since is not None and not self.calls.is_waiting:
            self.waited += now - self.waiting_since
            self.waiting_since = None
        return commands

    def _pause(self, fresh: Sequence[str], shown: Sequence[str], now: float) -> list[Command]:
        """Ends the reply with the calls that are shown."""
        asked = self.caller.asked(fresh) if self.caller is not None else ()
        commands = self._said([*asked, CallerAwaited(tuple(shown), self.terms.asks_others)], now)
        if self.caller is not None and self.caller.takes_one_call:
            commands += self._carry_out(self.calls.end_agent(), now)
        return commands

    def _said(self, events: Sequence[AgentEvent], now: float) -> list[Command]:
        """By the gateway, between what the agent says."""
        self.heard_at = now
        out = [shown for event in events for shown in self._assembler.push(event)]
        return [Append(out)] if out else []

    # --- its readers --------------------------------------------------------------------------------

    def readers_left(self, read_up_to: int, reconnect_seconds: float) -> list[Command]:
        """The last one of a run that needs readers, after that event. One that retries may return within that time."""
        if self.is_ending or (self.is_waiting and read_up_to >= self.state.paused_at):
            return []  # a client that has the open calls sends their results with its next request
        if reconnect_seconds:
            return [SetTimer(Timer.READERS, reconnect_seconds)]
        return self.stop(
            errors.RunCancelled("The client disconnected before the answer was complete; send the request again.")
        )

    # --- its timers ---------------------------------------------------------------------------------

    def calls_timer_fired(self, now: float) -> list[Command]:
        """The agent has been quiet, or its caller has not answered in time."""
        if self.is_waiting:
            return self._carry_out(self.calls.expire(), now)
        return self._carry_out(self.calls.quiet(self.caller.most if self.caller is not None else None), now)

    def limits_timer_fired(self, due: float, now: float) -> list[Command]:
        left = self._left(now)
        if left <= 0 and now > due + _LATE_SECONDS:
            left = _LATE_SECONDS  # the process was suspended: what the agent wrote meanwhile is still unread
        if left > 0:
            return [self._limit(left)]
        return self.stop(errors.AgentTimedOut(self._too_late(now)))

    def quiet_again(self) -> list[Command]:
        """The agent's output could not be read meanwhile, and what it wrote before it made its calls comes first."""
        return [SetTimer(Timer.CALLS, self.terms.waits.quiet_seconds)]

    def _quiet_timer(self, now: float) -> Command:
        if self._gathering_since is None:
            self._gathering_since = now
        left = self._gathering_since + _LONGEST_GATHERING - now
        return SetTimer(Timer.CALLS, max(0.0, min(self.terms.waits.quiet_seconds, left)))

    def _left(self, now: float) -> float:
        limits = self.terms.limits
        if self.is_waiting:  # which has a limit of its own
            return limits.idle_seconds
        silence = limits.first_event_seconds if self.heard_at is None else limits.idle_seconds
        return min((self.heard_at or self.started_at) + silence, self._last_moment) - now

    @property
    def _last_moment(self) -> float:
        return self.started_at + self.waited + self.terms.limits.run_seconds

    def _limit(self, seconds: float) -> SetTimer:
        """Before the first event, it also fires within the idle limit, which may be shorter."""
        return SetTimer(Timer.LIMITS, min(seconds, self.terms.limits.idle_seconds))

    def _too_late(self, now: float) -> str:
        limits = self.terms.limits
        if self._last_moment <= now:  # as `_left` adds: rounding must agree
            return f"The run took longer than {limits.run_seconds:g} s; ask for less at a time, or raise `run_seconds`."
        if self.heard_at is not None:
            return f"The agent sent nothing for {limits.idle_seconds:g} s; try again, or raise `idle_seconds`."
        return (
            f"The agent sent nothing within {limits.first_event_seconds:g} s of its start; try again, run "
            "`cursor-gateway doctor`, or raise `first_event_seconds`."
        )

    # --- the end ------------------------------------------------------------------------------------

    def _fail(self, failure: errors.Failure, now: float) -> list[Command]:
        why = self.stop_reason.failure() if self.stop_reason is not None else failure
        return [Append(self._assembler.push(self._timed(RunFailed(failure=self.terms.redacted(why)), now)))]

    def _timed(self, end: _End, now: float) -> _End:
        """How long the run took, where its agent does not say."""
        if end.duration_ms is not None:
            return end
        return replace(end, duration_ms=round((now - self.started_at) * 1000))

    # --- the table, applied -------------------------------------------------------------------------

    def _move(self, input: StageInput, failure: errors.Failure | None = None, now: float = 0.0) -> list[Command]:
        self.stage, actions = STAGES[self.stage].get(input, (self.stage, ()))
        commands = list[Command]()
        for action in actions:
            match action:
                case StageAction.START:
                    commands.append(_START[self._start])
                case StageAction.END:
                    commands.append(_END)
                case StageAction.FAIL:
                    commands += self._fail(failure or errors.AgentCrashed().failure(), now)
        return commands


_LISTENING = frozenset({Stage.WORKING, Stage.STOPPING, Stage.DONE})
_HEARD = frozenset({Stage.WORKING, Stage.LEAVING, Stage.STOPPING})
_RARE: frozenset[type] = frozenset({RunStarted, TitleGiven, RunFinished, RunFailed})
_ENDLESS = Timeouts(first_event_seconds=inf, idle_seconds=inf, run_seconds=inf)
