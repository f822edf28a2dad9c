"""A machine's commands, carried out without an event loop: what `Run` does with a task, timers and futures."""

from collections.abc import Mapping, Sequence
from typing import Any

from cursor_gateway.errors import Failure
from cursor_gateway.model.agent_events import AgentEvent, Plan, Question, RunStarted, TitleGiven
from cursor_gateway.model.caller_tools import Offer, ToolResult
from cursor_gateway.model.document_events import DocumentEvent, Done
from cursor_gateway.model.messages import Message, ToolMessage
from cursor_gateway.runs import machine
from cursor_gateway.runs.caller_tools import CallerTools
from cursor_gateway.runs.calls import EndAgent
from cursor_gateway.stages.assembler import Assembler
from cursor_gateway.stages.run_state import RunState
from tests.runs.scripted import info

LIMITS = machine.Timeouts(first_event_seconds=60, idle_seconds=100, run_seconds=1000)
TERMS = machine.Terms(limits=LIMITS, has_session=True, can_restart=True, fallback="other")


class Shell:
    """It asserts what holds for every command, whatever the machine decides."""

    def __init__(
        self, offer: Offer | None = None, terms: machine.Terms = TERMS, log: Sequence[DocumentEvent] = ()
    ) -> None:
        """`log` is that of a run that another process began."""
        state, assembler, closing = RunState().push_all(log), Assembler(info()), list[DocumentEvent]()
        if log:
            assembler, closing = state.interrupt(info(), "Say it.", "(Another agent continues.)")
        caller = CallerTools(offer, run_id="chat_1") if offer is not None else None
        self.machine = machine.RunMachine(state, assembler, caller)
        self.log, self.now = list(log), 0.0
        self.due: machine.Start | None = None  # how an agent is to be started
        self.works = False  # one does
        self.must_end = False  # whatever there is
        self.starts: list[machine.Start] = []
        self.held: set[str] = set()
        self.answers: dict[str, object] = {}  # that were delivered
        self.timers: dict[machine.Timer, float] = {}  # and when they fire
        self.said: list[RunStarted | TitleGiven] = []  # of its session and its conversation
        self.do([machine.Append(closing)] if closing else [])
        self.do(self.machine.started(terms, self.now))

    def do(self, commands: Sequence[machine.Command]) -> Sequence[machine.Command]:
        for command in commands:
            match command:
                case machine.Append(events=events):
                    assert self.done is None, "nothing comes after the end"
                    self.log += events
                    self.machine.state.push_all(events)
                case machine.StartAgent(start=start):
                    assert not self.works, "one agent at a time"
                    assert self.due is None
                    self.due = start
                case EndAgent():
                    self.must_end = True
                case machine.GiveAnswer(id=id, answer=answer):
                    if id in self.held:
                        self.held.remove(id)
                        self.answers[id] = answer
                    else:
                        assert answer is None, "an answer is delivered once, to an agent that waits"
                case machine.SetTimer(timer=timer, seconds=seconds):
                    self.timers.pop(timer, None)
                    if seconds is not None:
                        self.timers[timer] = self.now + seconds
                case RunStarted() | TitleGiven() as said:
                    self.said.append(said)
        return commands

    @property
    def done(self) -> Done | None:
        return self.log[-1] if self.log and isinstance(self.log[-1], Done) else None

    @property
    def failure(self) -> Failure | None:
        assert self.done is not None
        return self.done.failure

    # --- the agent ----------------------------------------------------------------------------------

    def begin(self) -> list[Message]:
        """The agent that is due. What it is told that is new to its session."""
        if not self.starts and self.due is None:
            self.do(self.machine.may_begin())
        assert self.due is not None
        start, self.due = self.due, None
        self.starts.append(start)
        news = list(self.machine.news()) if start is machine.Start.RESUMED else []
        self.works, self.must_end = True, False
        self.machine.agent_started(start in (machine.Start.FIRST, machine.Start.RESUMED), self.now)
        return news

    def say(self, *events: AgentEvent) -> Sequence[machine.Command]:
        assert self.works
        return self.do(self.machine.agent_said(events, self.now))

    def gone(self, failure: Failure | None = None) -> None:
        """Nothing is left of the agent, if there was one: neither does it wait for anything."""
        for id in sorted(self.held):
            self.give_up(id)
        self.works = self.must_end = False
        self.due = None
        self.do(self.machine.agent_ended(failure, self.now))

    def call(self, name: str, /, **arguments: Any) -> str | ToolResult:
        made, commands = self.machine.tool_called(name, arguments, self.now)
        if isinstance(made, str):
            self.held.add(made)
        self.do(commands)
        return made

    def ask(self, id: str, what: Question | Plan) -> None:
        self.held.add(id)
        self.do(self.machine.asked(id, what, self.now))

    def give_up(self, id: str) -> None:
        self.held.discard(id)
        self.do(self.machine.gave_up(id, self.now))

    # --- the others ---------------------------------------------------------------------------------

    def send(self, results: Mapping[str, str], *also: Message, offer: Offer | None = None) -> int:
        given = {id: ToolResult(text=text) for id, text in results.items()}
        pause, commands = self.machine.caller_sent(given, also, offer, self.now)
        self.do(commands)
        return pause

    def fire(self, timer: machine.Timer) -> Sequence[machine.Command]:
        due = self.timers.pop(timer)
        self.now = max(self.now, due)
        match timer:
            case machine.Timer.LIMITS:
                return self.do(self.machine.limits_timer_fired(due, self.now))
            case machine.Timer.CALLS:
                return self.do(self.machine.calls_timer_fired(self.now))
            case machine.Timer.READERS:
                return self.do(self.machine.readers_left(0, 0))

    @property
    def texts(self) -> list[str]:
        return self.machine.state.said


def results_in(messages: Sequence[Message]) -> list[tuple[str, str]]:
    return [(message.call_id, message.text) for message in messages if isinstance(message, ToolMessage)]
