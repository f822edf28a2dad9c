"""A run, driven step by step without an event loop; and any run, in any order of whatever can happen to it."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace

from cursor_gateway.errors import (
    AgentCrashed,
    AgentMissing,
    AgentOverloaded,
    CallerGone,
    GatewayError,
    GatewayRestarted,
    RunCancelled,
    SessionLost,
    ShuttingDown,
)
from cursor_gateway.model.agent_events import (
    AgentEvent,
    OtherTool,
    Outcome,
    Plan,
    Question,
    RunFailed,
    RunFinished,
    RunStarted,
    TextDelta,
    TitleGiven,
    TokenCounts,
    ToolEnded,
    ToolStarted,
)
from cursor_gateway.model.agent_events import Command as ShellCommand
from cursor_gateway.model.caller_tools import AutoTool, NamedTool, NoTool, Offer, RequiredTool, Tool, ToolResult
from cursor_gateway.model.document_events import Paused
from cursor_gateway.model.messages import AssistantMessage, Image, ToolMessage, UserMessage
from cursor_gateway.runs import machine as tables
from cursor_gateway.runs.caller_tools import CallerTools
from cursor_gateway.runs.calls import EndAgent
from cursor_gateway.runs.machine import (
    STAGES,
    STOPPED,
    Append,
    Command,
    RunMachine,
    SetTimer,
    Stage,
    StageAction,
    StageInput,
    StageTable,
    Start,
    StartAgent,
    Terms,
    Timer,
)
from cursor_gateway.stages.run_state import RunState
from tests.runs.shell import LIMITS, TERMS, Shell, results_in

STARTED, FINISHED = RunStarted("session-1", "Auto"), RunFinished(duration_ms=5)
CRASHED = RunFailed(failure=AgentCrashed().failure())
STOP = RunCancelled("Stopped.")
WEATHER = Offer(
    tools=[Tool("weather"), Tool("shell", "", {"type": "object", "properties": {"command": {"type": "string"}}})]
)
RAN = ShellCommand(tool="shell", command="touch x", exit_code=0)
QUESTION, PLAN = (
    Question(tool="ask_question", title="Which?", questions=[]),
    Plan(tool="create_plan", title="Move", overview="", markdown="", todos=[]),
)


def text(*said: str) -> list[AgentEvent]:
    return [TextDelta(one) for one in said]


def failed(tool: str, **arguments: Any) -> list[AgentEvent]:
    """The agent reports the end of a call of the caller's tool."""
    action = OtherTool(tool=tool, arguments=arguments)
    return [ToolStarted("t", action), ToolEnded("t", action, Outcome(state="failed", message="No result."))]


def denied(command: str) -> list[AgentEvent]:
    """The agent was denied a tool of its own."""
    action = ShellCommand(tool="shell", command=command)
    return [ToolStarted("d", action), ToolEnded("d", action, Outcome(state="rejected", code="PERMISSION_DENIED"))]


# --- a run, step by step --------------------------------------------------------------------------------


def test_a_whole_run_step_by_step() -> None:
    """Start, text, a call, a pause, a late result after the agent died, a takeover, a cancel, the end."""
    one = Shell(WEATHER)
    assert one.do(one.machine.may_begin()) == [StartAgent(Start.FIRST)]
    assert (one.begin(), one.machine.stage) == ([], Stage.WORKING)

    said, append = one.say(STARTED, *text("I look it up. "))
    assert said == STARTED
    assert isinstance(append, Append)
    assert one.texts == ["I look it up. "]

    call = one.call("weather", place="Kiel")
    assert isinstance(call, str)
    assert one.fire(Timer.CALLS)
    assert isinstance(one.log[-1], Paused)
    assert (one.machine.is_waiting, one.machine.calls.shown) == (True, (call,))

    one.now += 30
    assert one.say(CRASHED)[0] == EndAgent()
    one.gone()
    assert (one.machine.stage, one.done) == (Stage.OWED, None)

    assert one.send({call: "rain"}) == one.machine.state.pauses[0].number
    assert (one.machine.stage, one.due, one.machine.waited) == (Stage.WORKING, Start.RESUMED, 30)
    assert results_in(one.begin()) == [(call, "rain")]
    one.say(*text("It rains"))

    # Another process takes over: it has the log, and nothing else.
    two = Shell(log=one.log)
    assert one.machine.state == RunState().push_all(one.log)
    assert two.machine.state.text == "I look it up. It rains(Another agent continues.)"
    one.do(one.machine.stop(GatewayRestarted("Another gateway took this run over.")))
    one.gone()
    two.begin()
    two.say(*text(" in Kiel."))

    assert two.do(two.machine.stop(STOP)) == [EndAgent()]
    assert (two.machine.stage, two.done) == (Stage.STOPPING, None)
    two.gone()
    assert (two.machine.stage, two.failure) == (Stage.OVER, STOP.failure())
    assert two.machine.state == RunState().push_all(two.log)


def test_an_agent_that_waits_gets_its_answer_and_finishes() -> None:
    one = Shell(WEATHER)
    one.begin()
    id = one.call("weather")
    assert isinstance(id, str)
    one.fire(Timer.CALLS)
    one.send({id: "sun"})
    assert one.answers == {id: ToolResult(text="sun")}
    one.say(*text("Sun."), RunFinished(usage=TokenCounts(prompt=3, completion=1)))
    assert (one.machine.stage, one.failure) == (Stage.DONE, None)
    assert one.done is not None
    assert one.done.envelope.usage is not None
    assert not one.say(*text("more"), FINISHED), "nothing follows"
    one.gone()
    assert one.machine.stage is Stage.OVER


# --- starting again -------------------------------------------------------------------------------------


@pytest.mark.parametrize("reported", [True, False])
@pytest.mark.parametrize(
    ("error", "start"),
    [(SessionLost("Gone."), Start.FRESH), (AgentMissing("None."), Start.ELSEWHERE), (AgentOverloaded("Full."), None)],
)
def test_an_agent_that_failed_before_its_first_output(error: GatewayError, start: Start | None, reported: bool) -> None:
    """It does not matter whether it reports its failure or its source does."""
    one = Shell()
    one.begin()
    if reported:
        one.say(STARTED, RunFailed(failure=error.failure()))
    one.gone(None if reported else error.failure())
    assert (one.due, one.machine.stage is Stage.OVER) == (start, start is None)
    if start is None:
        assert one.failure is not None
        assert one.failure.code == error.code
        return
    one.begin()
    one.gone(error.failure())
    assert one.failure is not None, "it is tried once"
    assert one.failure.code == error.code
    assert (one.machine.fallback, one.machine.source_failure is not None) == (
        ("other", True) if start is Start.ELSEWHERE else (None, False)
    )


def test_an_agent_that_has_said_something_is_not_started_again() -> None:
    for shell in (Shell(), Shell(terms=Terms(limits=LIMITS))):
        shell.begin()
        shell.say(*text("Half") if shell.machine.terms.can_restart else ())
        shell.gone(AgentMissing("None.").failure())
        assert shell.failure is not None
        assert shell.machine.stage is Stage.OVER


def test_the_agents_last_title_is_that_of_the_run() -> None:
    shell = Shell()
    shell.begin()
    shell.say(STARTED, TitleGiven("Login"), *text("Hi"), TitleGiven("Login repair"), FINISHED)
    assert shell.said == [STARTED, TitleGiven("Login"), TitleGiven("Login repair")]


def test_credentials_are_not_shown() -> None:
    terms = replace(TERMS, redacted=lambda failure: replace(failure, message="[redacted]"))
    for shell in (Shell(terms=terms), Shell(WEATHER, terms=terms)):
        shell.begin()
        shell.say(*text("a"), RunFailed(failure=AgentOverloaded("key-1").failure()))
        assert shell.failure is not None
        assert shell.failure.message == "[redacted]"


def test_a_required_call_is_asked_for_once_more() -> None:
    one = Shell(replace(WEATHER, choice=RequiredTool()))
    one.begin()
    one.say(*text("No."), FINISHED)
    one.gone()
    (reminder,) = one.begin()
    assert "call `weather` or `shell`" in reminder.text
    one.say(FINISHED, *text("ignored"))
    one.gone()
    assert one.failure is not None
    assert one.failure.code == "tool_not_called"
    assert one.texts == ["No."]


def test_a_forced_call_ends_its_agent() -> None:
    one = Shell(replace(WEATHER, choice=NamedTool("weather"), parallel=False))
    one.begin()
    one.say(STARTED)
    first, second = one.call("weather", n=1), one.call("weather", n=2)
    one.fire(Timer.CALLS)
    assert (one.machine.calls.shown, one.must_end, one.held) == ((first,), True, {first, second})
    one.gone()
    assert isinstance(first, str)
    assert isinstance(second, str)
    one.send({first: "sun"})
    one.fire(Timer.CALLS)
    one.send({second: "rain"}, UserMessage("And?"))
    news = one.begin()
    assert results_in(news) == [(first, "sun"), (second, "rain")]
    assert news[-1] == UserMessage("And?")
    assert isinstance(one.machine.caller, CallerTools)
    assert one.machine.caller.offer.choice == AutoTool(), "a choice is for one reply"


# --- calls ----------------------------------------------------------------------------------------------


def test_results_that_an_agent_cannot_have_used_are_for_the_next() -> None:
    one = Shell(WEATHER, replace(TERMS, fallback=None))
    one.begin()
    id = one.call("weather")
    assert isinstance(id, str)
    one.fire(Timer.CALLS)
    one.send({id: "sun"})
    one.gone(AgentCrashed().failure())
    assert results_in(one.begin()) == [(id, "sun")]
    assert [type(message) for message in one.machine.history()] == [AssistantMessage, ToolMessage]
    one.gone(AgentCrashed().failure())
    assert one.failure is not None, "it is tried once"


def test_an_agent_that_reports_its_crash_is_followed_by_one_that_has_the_results() -> None:
    one = Shell(WEATHER)
    one.begin()
    id = one.call("weather")
    assert isinstance(id, str)
    one.fire(Timer.CALLS)
    one.send({id: "sun"})
    assert (one.machine.is_listening, one.say(CRASHED)[0]) == (True, EndAgent())
    assert not one.machine.is_listening
    one.gone()
    assert results_in(one.begin()) == [(id, "sun")]


def test_an_agent_that_does_not_wait_for_its_calls_is_ended() -> None:
    one = Shell(WEATHER)
    one.begin()
    id = one.call("weather")
    assert isinstance(id, str)
    commands = one.say(*failed("weather"), *text("I go on without it."))
    assert EndAgent() in commands
    assert one.texts == []
    one.give_up(id)
    one.gone()
    one.fire(Timer.CALLS)
    one.send({id: "sun"})
    assert results_in(one.begin()) == [(id, "sun")]


def test_a_denied_tool_becomes_a_call_of_the_callers() -> None:
    one = Shell(WEATHER)
    one.begin()
    one.say(*denied("ls"), *denied("pwd"), *text("I cannot."))
    assert (one.must_end, one.texts) == (True, [])
    one.gone()
    one.fire(Timer.CALLS)
    first, second = one.machine.calls.shown
    one.send({first: "a", second: "b"})
    assert results_in(one.begin()) == [(first, "a"), (second, "b")]


def test_what_a_tool_refuses_is_said_to_the_agent_and_no_call() -> None:
    one = Shell(replace(WEATHER, choice=NoTool()))
    one.begin()
    result = one.call("weather")
    assert isinstance(result, ToolResult)
    assert result.is_error
    one.say(*failed("weather"), *failed("unknown"), ToolEnded("x", OtherTool(tool="y", arguments={}), Outcome()))
    assert not one.must_end


def test_an_agent_that_repeats_itself_is_stopped() -> None:
    one = Shell(Offer(tools=[Tool("weather", "", {"type": "object", "required": ["place"]})]))
    one.begin()
    while not one.must_end:
        assert isinstance(one.call("weather"), ToolResult)
    late = one.call("weather", place="Kiel")
    assert (one.held, one.answers[str(late)]) == (set(), None)
    one.gone()
    assert one.failure is not None
    assert one.failure.code == "agent_looped"


def test_a_run_that_is_taken_over_after_its_end_has_ended_as_it_did() -> None:
    one = Shell()
    one.begin()
    one.say(STARTED, *text("Hi"), FINISHED)
    assert one.machine.stage is Stage.DONE
    one.do(one.machine.halt(GatewayRestarted("Another gateway took this run over."), one.now))
    assert one.machine.stop_reason is None
    one.gone()
    assert (one.machine.stage, one.failure) == (Stage.OVER, None)


def test_the_result_of_a_repeated_call_has_a_note() -> None:
    one = Shell(WEATHER)
    one.begin()
    ids = list[str]()
    for _ in range(3):
        id = one.call("weather")
        assert isinstance(id, str)
        ids.append(id)
        one.fire(Timer.CALLS)
        one.send({id: "sun"})
    given = one.answers[ids[-1]]
    assert isinstance(given, ToolResult)
    assert "3 times" in given.text


def test_images_are_shown_by_a_tool_of_the_gateways() -> None:
    one = Shell(WEATHER)
    caller = one.machine.caller
    assert caller is not None
    assert [tool.name for tool in caller.tools] == ["weather", "shell"]
    image = Image(0, "image/png", b"")
    (name,) = caller.show([image])
    assert "view_conversation_image" in name
    assert one.call(caller.tools[-1].name, name=image.name) == ToolResult(text="", images=(image,))


def test_questions_are_answered_or_left_open() -> None:
    one = Shell(terms=replace(TERMS, asks_others=True))
    one.begin()
    one.ask("q", QUESTION)
    one.ask("p", PLAN)
    one.fire(Timer.CALLS)
    assert one.machine.questions.asked == {"q": QUESTION, "p": PLAN}
    assert one.machine.state.pauses[-1].event.goes_on
    one.do(one.machine.person_answered({"p": True, "unknown": 1}, one.now))
    one.fire(Timer.CALLS)
    one.fire(Timer.CALLS)
    assert one.answers == {"p": True, "q": None}
    assert not one.machine.is_waiting


# --- time -----------------------------------------------------------------------------------------------


def test_the_limits_of_a_run() -> None:
    one = Shell()
    one.begin()
    assert one.timers == {Timer.LIMITS: 60}
    one.now = 59.0
    one.say(STARTED)
    assert one.fire(Timer.LIMITS) == [SetTimer(Timer.LIMITS, 99.0)]
    one.fire(Timer.LIMITS)
    assert one.machine.stop_reason is not None
    assert "sent nothing for 100 s" in str(one.machine.stop_reason)
    two = Shell()
    two.begin()
    two.fire(Timer.LIMITS)
    assert "sent nothing within 60 s" in str(two.machine.stop_reason)
    three = Shell()
    three.begin()
    while three.machine.stop_reason is None:
        three.say(*text("."))
        three.fire(Timer.LIMITS)
    assert "took longer than 1000 s" in str(three.machine.stop_reason)


def test_a_process_that_was_suspended_reads_first() -> None:
    one = Shell()
    one.begin()
    one.now = 500.0
    assert one.fire(Timer.LIMITS) == [SetTimer(Timer.LIMITS, 1.0)]


def test_a_caller_has_time_of_its_own_but_not_for_ever() -> None:
    one = Shell(WEATHER)
    one.begin()
    one.call("weather")
    one.fire(Timer.CALLS)
    for _ in range(5):
        assert one.fire(Timer.LIMITS) == [SetTimer(Timer.LIMITS, 100)]
    one.fire(Timer.CALLS)
    assert one.machine.stop_reason is not None
    assert one.machine.stop_reason.code == CallerGone.code


def test_an_agent_that_keeps_writing_does_not_delay_its_calls_for_long() -> None:
    one = Shell(WEATHER)
    one.begin()
    one.call("weather")
    for _ in range(30):
        one.now += 0.1
        one.say(*text("."))
    assert one.timers[Timer.CALLS] <= one.now
    assert one.do(one.machine.quiet_again()) == [SetTimer(Timer.CALLS, 0.15)]


# --- readers, and the end -------------------------------------------------------------------------------


def test_a_run_without_readers_is_stopped_unless_they_have_its_calls() -> None:
    one = Shell(WEATHER)
    one.begin()
    assert one.do(one.machine.readers_left(0, 5)) == [SetTimer(Timer.READERS, 5)]
    one.call("weather")
    one.fire(Timer.CALLS)
    assert not one.machine.readers_left(one.machine.state.paused_at, 0)
    assert one.fire(Timer.READERS) == [EndAgent()], "they have not read that far"
    assert not one.machine.readers_left(0, 0)


def test_the_first_reason_to_stop_stands_and_an_answer_that_is_there_stays() -> None:
    one = Shell()
    assert one.do(one.machine.stop(STOP)) == [EndAgent()]
    assert one.do(one.machine.stop(ShuttingDown("Later."))) == []
    assert one.do(one.machine.may_begin()) == []
    one.gone(AgentOverloaded("In the cleanup.").failure())
    assert one.failure == STOP.failure()
    two = Shell()
    two.begin()
    two.do(two.machine.stop(STOP))
    two.say(*text("All."), FINISHED)
    assert two.do(two.machine.abandon()) == [EndAgent()]
    two.gone()
    assert two.failure is None


def test_a_run_that_nothing_drives_any_more_has_ended() -> None:
    one = Shell(WEATHER)
    one.begin()
    id = one.call("weather")
    one.do(one.machine.broken_off(one.now))
    assert (one.failure, one.answers) == (STOPPED.failure(), {id: None})
    assert one.machine.broken_off(one.now) == []
    two = Shell()
    two.begin()
    two.say(FINISHED)
    two.do(two.machine.broken_off(two.now))
    assert two.failure is None


# --- the table ------------------------------------------------------------------------------------------


def test_every_stage_is_a_row_and_leads_to_the_end() -> None:
    assert set(STAGES) == set(Stage)
    ends = {Stage.OVER}
    for _ in Stage:
        ends |= {stage for stage, row in STAGES.items() if any(after in ends for after, _ in row.values())}
    assert ends == set(Stage)


def test_an_agent_is_only_started_when_there_is_none_and_every_run_can_be_stopped() -> None:
    for stage, row in STAGES.items():
        for input, (after, actions) in row.items():
            assert (StageAction.START in actions) == (after is Stage.WORKING), (stage, input)
            assert input is not StageInput.STOP or after is Stage.STOPPING
            assert input is not StageInput.HALT or after is Stage.HALTED
    assert {stage for stage, row in STAGES.items() if StageInput.STOP not in row} == {
        Stage.STOPPING,
        Stage.HALTED,
        Stage.DONE,
        Stage.OVER,
    }


# --- in any order ---------------------------------------------------------------------------------------


RARELY = st.sampled_from([False, False, False, True])


class AnyOrder(RuleBasedStateMachine):
    """Whatever an agent, its caller, people, readers and timers can do, in any order.

    It follows what the agent's session has: what was delivered to an agent that wrote something since, and what its
    turns began with. The session of an agent that crashed lacks what it had not used.
    """

    def __init__(self) -> None:
        super().__init__()
        self.shell = Shell(WEATHER, replace(TERMS, fallback=None))
        self.given: set[str] = set()  # results that the caller has sent, of calls that were shown
        self.known: set[str] = set()  # to the session
        self.unused: set[str] = set()  # delivered, but the agent has written nothing since
        self.reason: GatewayError | None = None  # the first, to stop
        self.may_succeed = True  # if it reports success
        self.count = 0
        self.patience = 0  # steps until something may end the run: most would be short otherwise
        self.messages = self.told = 0  # that came with results: all of them, and those that the session has

    @initialize(waits=st.booleans(), patience=st.sampled_from([0, 10, 20, 40]))
    def start(self, waits: bool, patience: int) -> None:
        self.patience = patience
        if not waits:
            self.begin()

    @invariant()
    def time_passes(self) -> None:
        self.patience -= 1

    @property
    def machine(self) -> RunMachine:
        return self.shell.machine

    # --- the agent ----------------------------------------------------------------------------------

    @precondition(lambda self: not self.shell.works and (self.shell.due or self.machine.stage is Stage.NEW))
    @rule()
    def begin(self) -> None:
        messages = self.shell.begin()
        news = [id for id, _ in results_in(messages)]
        assert not self.known & set(news), "no result is sent twice"
        is_fresh = self.shell.starts[-1] in (Start.FRESH, Start.ELSEWHERE)
        told = {id for id, _ in results_in(self.machine.history())} if is_fresh else {*self.known, *news}
        assert told == self.given, "every result that was given is known to the agent"
        also = self.machine.history() if is_fresh else messages
        self.told = sum(isinstance(message, UserMessage) for message in also) + (0 if is_fresh else self.told)
        assert self.told == self.messages, "each message is sent once"
        self.known, self.unused = told, set()

    @precondition(lambda self: self.shell.works)
    @rule(ends=st.booleans())
    def speak(self, ends: bool) -> None:
        is_finished = ends and (self.machine.calls.open or self.patience < 0)
        if self.is_heard(*text("word "), *([FINISHED] if is_finished else [])):
            self.known |= self.unused
            self.unused = set()

    def is_heard(self, *events: AgentEvent) -> bool:
        before, must_end = len("".join(self.shell.texts)), self.shell.must_end
        self.shell.say(*events)
        is_shown = len("".join(self.shell.texts)) > before
        may_go_on = not must_end or self.reason is not None  # one that is stopped may finish before it is ended
        assert is_shown <= (may_go_on and self.may_succeed), "an agent that must not go on is not heard"
        return is_shown

    @precondition(lambda self: self.shell.works)
    @rule(same=st.booleans())
    def call(self, same: bool) -> None:
        self.count += 1
        self.shell.call("weather", **({} if same else {"n": self.count}))

    @precondition(lambda self: self.shell.works)
    @rule()
    def ask(self) -> None:
        self.count += 1
        self.shell.ask(f"q{self.count}", QUESTION)

    @precondition(lambda self: self.shell.works and self.shell.held)
    @rule(data=st.data(), is_reported=st.booleans(), happens=RARELY)
    def give_up(self, data: st.DataObject, is_reported: bool, happens: bool) -> None:
        if not happens:
            return
        id = data.draw(st.sampled_from(sorted(self.shell.held)))
        if is_reported and id in self.machine.calls.open and not id.startswith("q"):
            assert self.machine.caller is not None
            made = self.machine.caller._made[id].call
            self.shell.say(*failed(made.name, **made.arguments))
        if id in self.shell.held:
            self.shell.give_up(id)

    @precondition(lambda self: self.shell.works)
    @rule(happens=RARELY)
    def be_denied(self, happens: bool) -> None:
        if not happens:
            return
        self.count += 1
        is_stopped = self.reason is not None
        assert not self.is_heard(*denied(f"ls {self.count}"), *text("I cannot.")) or is_stopped

    @precondition(lambda self: self.patience < 0 and self.shell.works and self.machine.stage is Stage.WORKING)
    @rule(ends=st.booleans())
    def misbehave(self, ends: bool) -> None:
        self.shell.say(
            ToolStarted("r", RAN), ToolEnded("r", RAN, Outcome()), *text("Done."), *([FINISHED] if ends else [])
        )
        self.may_succeed = False
        self.reason = self.reason or self.machine.stop_reason

    @precondition(lambda self: self.shell.works)
    @rule(is_reported=st.booleans(), error=st.sampled_from([AgentCrashed(), SessionLost("L."), AgentOverloaded("F.")]))
    def fail(self, is_reported: bool, error: GatewayError) -> None:
        crashes = error.code == AgentCrashed.code and self.machine.stage is Stage.WORKING
        goes_on = crashes and (self.unused or (is_reported and self.machine.calls.open))
        if not goes_on and self.patience >= 0:
            return
        if not crashes:
            self.known |= self.unused
            self.unused = set()
        if is_reported:
            self.shell.say(RunFailed(failure=error.failure()))
        if not is_reported or self.shell.must_end:
            self.shell.gone(None if is_reported else error.failure())
        assert not (crashes and self.unused and self.shell.done), "another agent gets the results"
        self.unused = set()

    @precondition(lambda self: self.shell.works and self.unused)
    @rule(is_reported=st.booleans())
    def die_with_results(self, is_reported: bool) -> None:
        self.fail(is_reported, AgentCrashed())

    @precondition(lambda self: self.shell.must_end)
    @rule(goes_on=st.booleans())
    def leave(self, goes_on: bool) -> None:
        self.known |= self.unused  # it was ended by the gateway, after it had them
        self.unused = set()
        self.shell.gone()
        if goes_on and self.shell.due is not None:
            self.begin()

    # --- the others ---------------------------------------------------------------------------------

    @precondition(lambda self: self.machine.calls.shown or self.given)
    @rule(data=st.data(), says_more=RARELY)
    def send(self, data: st.DataObject, says_more: bool) -> None:
        shown = [id for id in self.machine.calls.shown if not id.startswith("q")]
        sent_before = sorted({*self.given, "unknown"})
        ids = data.draw(st.sampled_from([shown, shown[:1], shown[1:] + sent_before, sent_before]))
        answered, before = len(self.machine.state.calls), set(self.shell.answers)
        state, must_end = len(self.shell.log), self.shell.must_end
        self.shell.send({id: f"result of {id}" for id in ids}, *([UserMessage("Also.")] if says_more else []))
        new = {id for id in ids if id in shown}
        self.given |= new
        self.messages += says_more and bool(new)
        assert new or (len(self.shell.log), self.shell.must_end) == (state, must_end), (
            "what is sent again is nothing new"
        )
        delivered = set(self.shell.answers) - before
        self.unused |= {id for id in delivered if self.shell.answers[id] is not None}
        if self.shell.done is None:
            assert len(self.machine.state.calls) == answered + len(new), "a result counts once"

    @precondition(lambda self: self.machine.questions.asked)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.machine.questions.asked)))
        self.shell.do(self.machine.person_answered({id: True}, self.shell.now))

    @precondition(lambda self: self.shell.timers)
    @rule(data=st.data())
    def fire(self, data: st.DataObject) -> None:
        timer = data.draw(st.sampled_from(sorted(self.shell.timers)))
        if (timer is Timer.CALLS) == self.machine.is_waiting and self.patience >= 0:
            return
        was_waiting, before = self.machine.is_waiting, self.machine.stop_reason
        self.shell.fire(timer)
        if timer is Timer.LIMITS and was_waiting:
            assert self.machine.stop_reason is before, "a caller has time of its own"
        self.reason = self.reason or self.machine.stop_reason

    @precondition(lambda self: self.patience < 0)
    @rule(why=st.sampled_from([STOP, ShuttingDown("Bye.")]), is_abandoned=st.booleans())
    def stop(self, why: GatewayError, is_abandoned: bool) -> None:
        if not self.machine.is_ending:
            self.reason = STOPPED if is_abandoned else why
        self.shell.do(self.machine.abandon() if is_abandoned else self.machine.stop(why))

    @precondition(lambda self: self.patience < 0)
    @rule(seconds=st.sampled_from([0.0, 5.0]))
    def readers_leave(self, seconds: float) -> None:
        self.shell.do(self.machine.readers_left(0, seconds))
        self.reason = self.reason or self.machine.stop_reason

    # --- what holds ---------------------------------------------------------------------------------

    @invariant()
    def the_log_folds_to_the_state(self) -> None:
        assert RunState().push_all(self.shell.log) == self.machine.state

    @invariant()
    def a_pause_lists_the_calls_that_can_be_answered(self) -> None:
        if self.machine.is_waiting and not self.machine.is_ending:
            last = self.machine.state.pauses[-1].event.envelope.metadata.waiting_for or ()
            tools = {call.tool_call_id for call in last if not call.tool_call_id.startswith("q")}
            assert {id for id in self.machine.calls.shown if not id.startswith("q")} <= tools

    @invariant()
    def a_timer_runs_while_anything_is_open(self) -> None:
        if self.machine.calls.open and not self.machine.is_ending:
            assert Timer.CALLS in self.shell.timers

    @invariant()
    def the_first_reason_stands(self) -> None:
        assert self.machine.stop_reason is self.reason or self.reason is None
        if self.machine.stage is Stage.OVER:
            assert not self.shell.held
            assert self.shell.done is not None
        if self.shell.done is not None and self.reason is not None:
            is_success = self.shell.failure is None and self.may_succeed
            assert is_success or self.shell.failure is not None

    def teardown(self) -> None:
        self.shell.do(self.machine.stop(STOP))
        for _ in range(3):
            if self.shell.works or self.shell.must_end:
                self.shell.gone()
        if self.machine.stage is Stage.DONE:
            self.shell.gone()
        assert self.machine.stage is Stage.OVER, "every run ends"
        assert not self.shell.held
        if not self.may_succeed:
            assert self.shell.failure is not None


TestAnyOrder = AnyOrder.TestCase


# --- defects of the past, put back ----------------------------------------------------------------------


def _without_mute(machine: RunMachine, why: GatewayError, now: float) -> list[Command]:
    return machine._carry_out(machine.calls.close(), now) + machine.stop(why)


def _latest_reason(machine: RunMachine, why: GatewayError) -> list[Command]:
    machine.stop_reason = why
    return machine._move(StageInput.STOP)


def _always_counting(machine: RunMachine, now: float) -> float:
    return min((machine.heard_at or machine.started_at) + LIMITS.idle_seconds, machine._last_moment) - now


def _every_result(caller: CallerTools, results: Mapping[str, ToolResult]) -> dict[str, ToolResult]:
    return {id: result for id, result in results.items() if id in caller._made}


def _stage(stage: Stage, input: StageInput, after: Stage, *actions: StageAction) -> StageTable:
    return {**STAGES, stage: {**STAGES[stage], input: (after, actions)}}


DEFECTS: dict[str, tuple[object, str, object]] = {
    "results that came when the agent had died unnoticed are lost": (
        RunMachine,
        "_left_with_results",
        lambda machine, failure, now: [],
    ),
    "a run whose agent used a tool of its own succeeds if its result is in the same read": (
        RunMachine,
        "halt",
        _without_mute,
    ),
    "results that are sent again count again": (CallerTools, "new", _every_result),
    "a slow answer ends the run, as if its agent were silent": (RunMachine, "_left", _always_counting),
    "a later reason to stop replaces the first": (RunMachine, "stop", _latest_reason),
    "the next agent is started while the one before it still works": (
        tables,
        "STAGES",
        _stage(Stage.LEAVING, StageInput.DUE, Stage.WORKING, StageAction.START),
    ),
    "a run that waits without an agent cannot be stopped": (
        tables,
        "STAGES",
        _stage(Stage.OWED, StageInput.STOP, Stage.STOPPING),
    ),
    "an agent that goes on without the results that it is owed is heard": (
        tables,
        "STAGES",
        _stage(Stage.WORKING, StageInput.LEAVE, Stage.WORKING, StageAction.END),
    ),
    "messages that came with results are sent twice": (CallerTools, "agent_started", lambda caller, pause: None),
}


@pytest.mark.slow
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_that_is_put_back_is_found(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, replaced = DEFECTS[defect]
    monkeypatch.setattr(owner, name, replaced)
    search = settings(
        max_examples=500, derandomize=True, database=None, report_multiple_bugs=False, phases=[Phase.generate]
    )
    with pytest.raises(AssertionError):
        run_state_machine_as_test(AnyOrder, settings=search)
