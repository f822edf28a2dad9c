"""What a run waits for: inputs in, actions out. No timers, no futures, no I/O.

An agent can stop and wait: it calls one of the caller's tools, asks a question, or wants its plan accepted.
Each of these is a *call*. A call is made, shown to whoever can answer it, answered, and its answer goes back to the
agent in one of two ways. A *held* call is one for which the agent waits on an open connection: the answer is delivered
there, and the agent continues. A *detached* call is one for which it does not wait, because it was denied the tool,
gave up, or has ended: the answer is owed, and opens the agent's next turn.

Two tables say all that can happen. `TOOL_CALLS` and `QUESTIONS` are about one call; `PHASES` is about the run. An input
that a row does not list changes nothing, so an answer that comes twice, or too late, is harmless.

    RUNNING     nothing is open; the agent works
    GATHERING   calls are open that have not been shown yet. Calls that are made together are shown together, so
                the run waits until the agent has been quiet for a moment
    WAITING     the reply has ended with the open calls: it is the caller's turn, and only its time limit runs

What can never happen: an answer delivered twice, a held call left without delivery or release when the run is over,
a new turn while a call is open, a pause with nothing to answer. The property tests say the same.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from cursor_gateway.model.agent_events import Plan, Question


class Kind(StrEnum):
    TOOL = "tool"  # of the caller's; without its result the run cannot continue
    QUESTION = "question"  # a question, a plan or a permission; the agent can continue without an answer


# --- one call ---------------------------------------------------------------------------------------


class Call(StrEnum):
    """The state of one call."""

    NEW = "new"
    NEW_DETACHED = "new, detached"
    SHOWN = "shown"
    SHOWN_DETACHED = "shown, detached"
    DELIVERED = "delivered"
    OWED = "owed"
    CLOSED = "closed"


class CallInput(StrEnum):
    SHOW = "shown in a pause"
    ANSWER = "answered"
    GIVE_UP = "agent gives up"
    AGENT_ENDED = "agent ended"
    RESUME = "next turn begins"
    EXPIRE = "time limit"
    CLOSE = "run over"


class CallAction(StrEnum):
    DELIVER = "deliver the answer"
    RELEASE = "release without an answer"
    END_AGENT = "end the agent"
    FAIL = "fail the run"


CallTable: TypeAlias = Mapping[Call, Mapping[CallInput, tuple[Call, tuple[CallAction, ...]]]]

TOOL_CALLS: CallTable = {
    Call.NEW: {
        CallInput.SHOW: (Call.SHOWN, ()),
        CallInput.GIVE_UP: (Call.NEW_DETACHED, (CallAction.END_AGENT,)),
        CallInput.AGENT_ENDED: (Call.NEW_DETACHED, ()),
        CallInput.CLOSE: (Call.CLOSED, (CallAction.RELEASE,)),
    },
    Call.NEW_DETACHED: {
        CallInput.SHOW: (Call.SHOWN_DETACHED, ()),
        CallInput.CLOSE: (Call.CLOSED, ()),
    },
    Call.SHOWN: {
        CallInput.ANSWER: (Call.DELIVERED, (CallAction.DELIVER,)),
        CallInput.GIVE_UP: (Call.SHOWN_DETACHED, (CallAction.END_AGENT,)),
        CallInput.AGENT_ENDED: (Call.SHOWN_DETACHED, ()),
        CallInput.EXPIRE: (Call.CLOSED, (CallAction.RELEASE, CallAction.FAIL)),
        CallInput.CLOSE: (Call.CLOSED, (CallAction.RELEASE,)),
    },
    Call.SHOWN_DETACHED: {
        CallInput.ANSWER: (Call.OWED, ()),
        CallInput.EXPIRE: (Call.CLOSED, (CallAction.FAIL,)),
        CallInput.CLOSE: (Call.CLOSED, ()),
    },
    # Until the agent continues, it may still report that the answer never reached it.
    Call.DELIVERED: {
        CallInput.GIVE_UP: (Call.OWED, (CallAction.END_AGENT,)),
        CallInput.AGENT_ENDED: (Call.CLOSED, ()),
        CallInput.CLOSE: (Call.CLOSED, ()),
    },
    Call.OWED: {
        CallInput.RESUME: (Call.CLOSED, ()),
        CallInput.CLOSE: (Call.CLOSED, ()),
    },
    Call.CLOSED: {},
}

_UNANSWERED: Mapping[CallInput, tuple[Call, tuple[CallAction, ...]]] = {
    CallInput.SHOW: (Call.SHOWN, ()),
    CallInput.ANSWER: (Call.CLOSED, (CallAction.DELIVER,)),
    CallInput.GIVE_UP: (Call.CLOSED, ()),
    CallInput.AGENT_ENDED: (Call.CLOSED, (CallAction.RELEASE,)),
    CallInput.EXPIRE: (Call.CLOSED, (CallAction.RELEASE,)),
    CallInput.CLOSE: (Call.CLOSED, (CallAction.RELEASE,)),
}

QUESTIONS: CallTable = {Call.NEW: _UNANSWERED, Call.SHOWN: _UNANSWERED, Call.CLOSED: {}}

_OPEN = frozenset({Call.NEW, Call.NEW_DETACHED, Call.SHOWN, Call.SHOWN_DETACHED})
_VISIBLE = frozenset({Call.SHOWN, Call.SHOWN_DETACHED})


# --- the run ----------------------------------------------------------------------------------------


class Phase(StrEnum):
    RUNNING = "running"
    GATHERING = "gathering"
    WAITING = "waiting"
    OVER = "over"


class PhaseInput(StrEnum):
    CALLED = "call made"
    OUTPUT = "agent writes"
    QUIET = "quiet"
    SOME_LEFT = "some calls left"
    NONE_LEFT = "no calls left"
    CLOSE = "run over"


class PhaseAction(StrEnum):
    START_QUIET_TIMER = "start the quiet timer"
    PAUSE = "pause"
    START_ANSWER_TIMER = "start the answer timer"
    STOP_TIMER = "stop the timer"


PhaseTable: TypeAlias = Mapping[Phase, Mapping[PhaseInput, tuple[Phase, tuple[PhaseAction, ...]]]]

PHASES: PhaseTable = {
    Phase.RUNNING: {
        PhaseInput.CALLED: (Phase.GATHERING, (PhaseAction.START_QUIET_TIMER,)),
        PhaseInput.CLOSE: (Phase.OVER, ()),
    },
    Phase.GATHERING: {
        PhaseInput.CALLED: (Phase.GATHERING, (PhaseAction.START_QUIET_TIMER,)),
        PhaseInput.OUTPUT: (Phase.GATHERING, (PhaseAction.START_QUIET_TIMER,)),
        PhaseInput.QUIET: (Phase.WAITING, (PhaseAction.PAUSE, PhaseAction.START_ANSWER_TIMER)),
        PhaseInput.NONE_LEFT: (Phase.RUNNING, (PhaseAction.STOP_TIMER,)),
        PhaseInput.CLOSE: (Phase.OVER, (PhaseAction.STOP_TIMER,)),
    },
    # A call that is made now is shown with the next pause.
    Phase.WAITING: {
        PhaseInput.SOME_LEFT: (Phase.GATHERING, (PhaseAction.START_QUIET_TIMER,)),
        PhaseInput.NONE_LEFT: (Phase.RUNNING, (PhaseAction.STOP_TIMER,)),
        PhaseInput.CLOSE: (Phase.OVER, (PhaseAction.STOP_TIMER,)),
    },
    Phase.OVER: {},
}


# --- actions ----------------------------------------------------------------------------------------


class StartQuietTimer(Struct, frozen=True):
    """From the start; `quiet` is called when it fires."""


class StartAnswerTimer(Struct, frozen=True):
    """`expire` is called when it fires."""


class StopTimer(Struct, frozen=True):
    """Whichever runs."""


class Pause(Struct, frozen=True):
    """End the reply. `fresh` are the calls that have not been shown before, `shown` all that wait."""

    fresh: tuple[str, ...]
    shown: tuple[str, ...]


class Deliver(Struct, frozen=True):
    """Give the agent that waits its answer."""

    id: str


class Release(Struct, frozen=True):
    """Let the waiting agent continue without an answer."""

    id: str


class EndAgent(Struct, frozen=True):
    """Not the run: the agent is started again with what it is owed."""


class BeginTurn(Struct, frozen=True):
    """Nothing is missing: start the agent again with these answers. `resumed` is called when it has begun."""

    owed: tuple[str, ...]


class Fail(Struct, frozen=True):
    """The caller did not answer in time."""


Action: TypeAlias = (
    StartQuietTimer | StartAnswerTimer | StopTimer | Pause | Deliver | Release | EndAgent | BeginTurn | Fail
)


# --- the machine ------------------------------------------------------------------------------------


class _Open(Struct):
    kind: Kind
    state: Call
    asks: Question | Plan | None = None


class OpenCalls:
    """The calls of one run. Each method is an input, and returns what is to be done, in order."""

    def __init__(self) -> None:
        self.phase = Phase.RUNNING
        self._calls: dict[str, _Open] = {}  # in the order in which they were made
        self._is_agent_gone = False
        self._owes_turn = False  # the caller has sent messages besides its results
        self._is_turn_due = False  # `BeginTurn` was returned, and has not been carried out

    # --- state --------------------------------------------------------------------------------------

    @property
    def open(self) -> tuple[str, ...]:
        """Those without an answer."""
        return tuple(id for id, call in self._calls.items() if call.state in _OPEN)

    @property
    def shown(self) -> tuple[str, ...]:
        """Those that can be answered."""
        return tuple(id for id, call in self._calls.items() if call.state in _VISIBLE)

    @property
    def owed(self) -> tuple[str, ...]:
        """Those whose answers open the agent's next turn."""
        return tuple(id for id, call in self._calls.items() if call.state is Call.OWED)

    @property
    def is_waiting(self) -> bool:
        return self.phase is Phase.WAITING

    @property
    def questions(self) -> dict[str, Question | Plan]:
        """What is asked and has no answer, by call."""
        found = self._calls.items()
        return {id: call.asks for id, call in found if call.asks is not None and call.state in _OPEN}

    def state(self, id: str) -> Call | None:
        call = self._calls.get(id)
        return call.state if call is not None else None

    # --- inputs -------------------------------------------------------------------------------------

    def make(self, id: str, kind: Kind, *, held: bool = True, asks: Question | Plan | None = None) -> list[Action]:
        """The agent makes a call. `held`: it waits for the answer. `asks`: what, if the kind is a question."""
        if self.phase is Phase.OVER:
            return [Release(id)] if held else []
        is_held = kind is Kind.QUESTION or (held and not self._is_agent_gone)
        self._calls[id] = _Open(kind, Call.NEW if is_held else Call.NEW_DETACHED, asks)
        return self._move(PhaseInput.CALLED)

    def wrote(self) -> list[Action]:
        """The agent is still writing, so more calls may follow."""
        return self._move(PhaseInput.OUTPUT)

    def quiet(self, most: int | None = None) -> list[Action]:
        """The quiet timer has fired. At most so many calls are shown at once."""
        return self._move(PhaseInput.QUIET, most)

    def answer(self, ids: Iterable[str], *, says_more: bool = False) -> list[Action]:
        """These have answers. An agent that is working accepts no further input, so it is ended first."""
        before, actions = self.open, list[Action]()
        if says_more:
            self._owes_turn = True
            actions += [EndAgent(), *self._all(CallInput.AGENT_ENDED)]
            self._is_agent_gone = True
        for id in ids:
            actions += self._push(id, CallInput.ANSWER)
        return actions + self._next(before)

    def give_up(self, id: str) -> list[Action]:
        """The agent no longer waits for this call, or reports that its answer never arrived."""
        before, actions = self.open, self._push(id, CallInput.GIVE_UP)
        if EndAgent() in actions:
            return self.end_agent()
        return actions + self._next(before)

    def end_agent(self) -> list[Action]:
        """The agent must not continue: it was denied a tool that its caller has, or no longer waits for the result."""
        return [EndAgent(), *self.agent_ended()]

    def agent_ended(self, unused: Iterable[str] = ()) -> list[Action]:
        """The agent ended, for any reason. The answers of these calls were delivered, but it cannot have used them:
        they are owed.
        """
        before, self._is_agent_gone = self.open, True
        for id in unused:
            self._push(id, CallInput.GIVE_UP)
        return self._all(CallInput.AGENT_ENDED) + self._next(before)

    def resumed(self) -> None:
        """The agent's next turn has begun, with all that it was owed."""
        self._is_agent_gone = self._owes_turn = self._is_turn_due = False
        for id in self._calls:
            self._push(id, CallInput.RESUME)

    def expire(self) -> list[Action]:
        """The answer timer has fired."""
        if self.phase is not Phase.WAITING:
            return []
        before, actions = self.open, self._all(CallInput.EXPIRE)
        if Fail() in actions:
            return [*(action for action in actions if action != Fail()), StopTimer(), Fail()]
        return actions + self._next(before)

    def close(self) -> list[Action]:
        """The run is over: nothing waits any longer."""
        return self._all(CallInput.CLOSE) + self._move(PhaseInput.CLOSE)

    # --- the tables, applied ------------------------------------------------------------------------

    def _push(self, id: str, input: CallInput) -> list[Action]:
        call = self._calls.get(id)
        if call is None:
            return []
        table = TOOL_CALLS if call.kind is Kind.TOOL else QUESTIONS
        call.state, actions = table[call.state].get(input, (call.state, ()))
        return [_action(action, id) for action in actions]

    def _all(self, input: CallInput) -> list[Action]:
        actions = list[Action]()
        for id in self._calls:
            actions += self._push(id, input)
        return actions

    def _next(self, before: tuple[str, ...]) -> list[Action]:
        """What the run does now, if the calls that were open `before` are not all of them open any more."""
        if self.phase is Phase.OVER:
            return []
        if self.open:
            return self._move(PhaseInput.SOME_LEFT) if self.open != before else []
        actions = self._move(PhaseInput.NONE_LEFT)
        if self._is_agent_gone and (self._owes_turn or self.owed) and not self._is_turn_due:
            self._is_turn_due = True
            actions.append(BeginTurn(self.owed))
        return actions

    def _move(self, input: PhaseInput, most: int | None = None) -> list[Action]:
        self.phase, actions = PHASES[self.phase].get(input, (self.phase, ()))
        return [self._pause(most) if action is PhaseAction.PAUSE else _TIMERS[action] for action in actions]

    def _pause(self, most: int | None) -> Pause:
        asked = self.open[:most]
        fresh = tuple(id for id in asked if self._calls[id].state not in _VISIBLE)
        for id in fresh:
            self._push(id, CallInput.SHOW)
        return Pause(fresh, self.shown)


_TIMERS: Mapping[PhaseAction, Action] = {
    PhaseAction.START_QUIET_TIMER: StartQuietTimer(),
    PhaseAction.START_ANSWER_TIMER: StartAnswerTimer(),
    PhaseAction.STOP_TIMER: StopTimer(),
}


def _action(action: CallAction, id: str) -> Action:
    match action:
        case CallAction.DELIVER:
            return Deliver(id)
        case CallAction.RELEASE:
            return Release(id)
        case CallAction.END_AGENT:
            return EndAgent()
        case CallAction.FAIL:
            return Fail()
