"""The machine's tables, row by row where a row is a decision, and what holds for any order of inputs."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cursor_gateway.model.agent_events import Plan
from cursor_gateway.runs.calls import (
    PHASES,
    QUESTIONS,
    TOOL_CALLS,
    Action,
    BeginTurn,
    Call,
    Deliver,
    EndAgent,
    Fail,
    Kind,
    OpenCalls,
    Pause,
    Phase,
    Release,
    StartAnswerTimer,
    StartQuietTimer,
    StopTimer,
)


def waiting(*ids: str, kind: Kind = Kind.TOOL, held: bool = True) -> OpenCalls:
    calls = OpenCalls()
    for id in ids:
        calls.make(id, kind, held=held)
    calls.quiet()
    assert calls.is_waiting
    return calls


def test_calls_that_are_made_together_are_shown_together() -> None:
    calls = OpenCalls()
    assert calls.make("a", Kind.TOOL) == [StartQuietTimer()]
    assert calls.make("b", Kind.TOOL, held=False) == [StartQuietTimer()]
    assert calls.wrote() == [StartQuietTimer()]
    assert calls.quiet() == [Pause(("a", "b"), ("a", "b")), StartAnswerTimer()]
    assert calls.shown == ("a", "b")


def test_an_agent_that_only_speaks_starts_no_timer() -> None:
    assert OpenCalls().wrote() == []


def test_a_question_is_open_until_it_is_answered() -> None:
    calls, asked = OpenCalls(), Plan(tool="create_plan", title="Move", overview="", markdown="", todos=[])
    calls.make("a", Kind.TOOL)
    calls.make("q", Kind.QUESTION, asks=asked)
    calls.quiet()
    assert calls.questions == {"q": asked}
    calls.answer(["q"])
    assert calls.questions == {}


def test_one_at_a_time() -> None:
    calls = OpenCalls()
    calls.make("a", Kind.TOOL)
    calls.make("b", Kind.TOOL)
    assert calls.quiet(most=1) == [Pause(("a",), ("a",)), StartAnswerTimer()]
    assert calls.answer(["b"]) == []  # nobody has been asked for it yet
    assert calls.answer(["a"]) == [Deliver("a"), StartQuietTimer()]
    assert calls.quiet(most=1) == [Pause(("b",), ("b",)), StartAnswerTimer()]


def test_a_held_call_is_answered_at_once_and_a_detached_one_with_the_next_turn() -> None:
    calls = waiting("a")
    assert calls.answer(["a"]) == [Deliver("a"), StopTimer()]
    assert calls.phase is Phase.RUNNING
    calls = waiting("a", held=False)
    assert calls.answer(["a"]) == [StopTimer()]  # the agent that was denied the tool still runs
    assert calls.agent_ended() == [BeginTurn(("a",))]
    calls.resumed()
    assert calls.state("a") is Call.CLOSED


def test_what_is_not_answered_is_shown_again() -> None:
    calls = waiting("a", "b")
    assert calls.answer(["a"]) == [Deliver("a"), StartQuietTimer()]
    assert calls.quiet() == [Pause((), ("b",)), StartAnswerTimer()]
    calls.answer([])
    assert calls.is_waiting


def test_the_rest_may_come_before_it_is_asked_for_again() -> None:
    calls = waiting("a", "b")
    calls.answer(["a"])
    assert calls.answer(["b"]) == [Deliver("b"), StopTimer()]


def test_an_answer_that_comes_twice_changes_nothing() -> None:
    calls = waiting("a", "b")
    calls.answer(["a"])
    calls.quiet()
    assert calls.answer(["a"]) == calls.answer(["unknown"]) == []
    assert calls.is_waiting


def test_an_agent_that_gives_up_one_call_is_ended_and_owed_the_others() -> None:
    calls = waiting("a", "b")
    assert calls.give_up("a") == [EndAgent()]
    assert calls.answer(["a", "b"]) == [StopTimer(), BeginTurn(("a", "b"))]


def test_an_answer_that_did_not_arrive_is_owed() -> None:
    calls = waiting("a")
    calls.answer(["a"])
    assert calls.give_up("a") == [EndAgent(), BeginTurn(("a",))]
    assert calls.agent_ended() == []  # once


def test_answers_that_an_agent_got_and_could_not_use_are_owed() -> None:
    calls = waiting("a", "b", "c")
    calls.answer(["a", "b"])
    assert calls.agent_ended(["a", "b"]) == []
    assert calls.quiet() == [Pause((), ("c",)), StartAnswerTimer()]
    assert calls.answer(["c"]) == [StopTimer(), BeginTurn(("a", "b", "c"))]


def test_an_answer_that_arrived_is_not_given_again() -> None:
    calls = waiting("a")
    calls.answer(["a"])
    assert calls.agent_ended() == []
    assert calls.give_up("a") == []


def test_a_caller_who_says_more_is_heard_in_the_next_turn() -> None:
    calls = waiting("a")
    assert calls.answer(["a"], says_more=True) == [EndAgent(), StopTimer(), BeginTurn(("a",))]
    calls = waiting("a", "b")
    assert calls.answer(["a"], says_more=True) == [EndAgent(), StartQuietTimer()]
    calls.quiet()
    assert calls.answer(["b"]) == [StopTimer(), BeginTurn(("a", "b"))]


def test_a_call_made_while_the_run_waits_is_shown_with_the_next_pause() -> None:
    calls = waiting("a")
    assert calls.make("b", Kind.TOOL) == []
    calls.answer(["a"])
    assert calls.quiet() == [Pause(("b",), ("b",)), StartAnswerTimer()]


def test_a_call_of_an_agent_that_was_ended_is_detached() -> None:
    calls = OpenCalls()
    calls.end_agent()
    calls.make("a", Kind.TOOL)
    assert calls.state("a") is Call.NEW_DETACHED


def test_without_results_in_time_the_run_fails() -> None:
    calls = waiting("a", "b")
    calls.make("question", Kind.QUESTION)
    assert calls.expire() == [Release("a"), Release("b"), Release("question"), StopTimer(), Fail()]
    assert waiting("a", held=False).expire() == [StopTimer(), Fail()]
    assert OpenCalls().expire() == []


def test_without_an_answer_in_time_the_agent_goes_on() -> None:
    calls = waiting("a", kind=Kind.QUESTION)
    assert calls.expire() == [Release("a"), StopTimer()]
    assert calls.phase is Phase.RUNNING


def test_a_question_dies_with_its_agent() -> None:
    calls = waiting("a", kind=Kind.QUESTION)
    assert calls.agent_ended() == [Release("a"), StopTimer()]
    calls = waiting("a", "b", kind=Kind.QUESTION)
    assert calls.give_up("a") == [StartQuietTimer()]
    assert calls.answer(["b"]) == [Deliver("b"), StopTimer()]


def test_a_question_may_be_answered_before_it_is_shown() -> None:
    calls = OpenCalls()
    calls.make("a", Kind.QUESTION)
    assert calls.answer(["a"]) == [Deliver("a"), StopTimer()]


def test_when_the_run_is_over_nobody_waits() -> None:
    calls = waiting("a")
    calls.make("b", Kind.TOOL, held=False)
    assert calls.close() == [Release("a"), StopTimer()]
    assert calls.make("c", Kind.TOOL) == [Release("c")]
    assert calls.make("d", Kind.TOOL, held=False) == []
    assert calls.quiet() == calls.answer(["a"]) == calls.agent_ended() == calls.close() == []


@pytest.mark.parametrize("table", [TOOL_CALLS, QUESTIONS])
def test_whatever_is_entered_is_a_row(table: dict[Call, dict[object, tuple[Call, object]]]) -> None:
    assert {state for row in table.values() for state, _ in row.values()} <= set(table)


def test_every_phase_can_end() -> None:
    assert all(row for phase, row in PHASES.items() if phase is not Phase.OVER)


class AnyOrder(RuleBasedStateMachine):
    """Calls, results, timeouts, disconnects and the end, in any order, with timers as the shell keeps them."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = OpenCalls()
        self.made: dict[str, bool] = {}  # and whether the agent waits for it
        self.ended: Counter[str] = Counter()  # deliveries and releases
        self.timer: Action | None = None
        self.is_agent_gone = self.has_failed = self.is_over = False
        self.turns = 0

    def do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case StartQuietTimer() | StartAnswerTimer():
                    self.timer = action
                case StopTimer():
                    self.timer = None
                case Pause(fresh=fresh, shown=shown):
                    assert shown
                    assert set(fresh) <= set(shown)
                case Deliver(id=id) | Release(id=id):
                    assert self.made[id]
                    assert not self.is_agent_gone or isinstance(action, Release)
                    self.ended[id] += 1
                case EndAgent():
                    self.is_agent_gone = True
                case BeginTurn(owed=owed):
                    assert self.is_agent_gone
                    assert not self.calls.open
                    assert owed == self.calls.owed
                    self.turns += 1
                    self.is_agent_gone = False
                    self.calls.resumed()
                case Fail():
                    self.has_failed = True

    @rule(kind=st.sampled_from(Kind), held=st.booleans())
    def make(self, kind: Kind, held: bool) -> None:
        id = f"call_{len(self.made)}"
        self.made[id] = kind is Kind.QUESTION or (held and (self.is_over or not self.is_agent_gone))
        if self.is_agent_gone and kind is Kind.QUESTION:
            del self.made[id]  # an agent that is gone asks nothing
            return
        self.do(self.calls.make(id, kind, held=self.made[id] or held))

    @rule()
    def speak(self) -> None:
        self.do(self.calls.wrote())

    @precondition(lambda self: self.timer is not None)
    @rule(most=st.sampled_from([None, 1]))
    def fire(self, most: int | None) -> None:
        timer, self.timer = self.timer, None
        if isinstance(timer, StartQuietTimer):
            self.do(self.calls.quiet(most))
            assert self.calls.is_waiting
        else:
            self.do(self.calls.expire())

    @rule(data=st.data(), says_more=st.booleans())
    def answer(self, data: st.DataObject, says_more: bool) -> None:
        ids = data.draw(st.lists(st.sampled_from([*self.made, "unknown"])))
        if self.calls.phase is not Phase.OVER:
            self.do(self.calls.answer(ids, says_more=says_more and bool(set(ids) & set(self.calls.shown))))

    @precondition(lambda self: not self.is_agent_gone)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from([*self.made, "unknown"]))
        before = self.calls.state(id)
        if before in {Call.NEW, Call.SHOWN}:
            self.ended[id] += 1  # by the agent itself
        self.do(self.calls.give_up(id))
        if before in {Call.NEW, Call.SHOWN} and self.calls.state(id) is not Call.CLOSED:
            self.made[id] = False

    @rule(data=st.data())
    def agent_ends(self, data: st.DataObject) -> None:
        self.is_agent_gone = True
        unused = data.draw(st.lists(st.sampled_from([*self.made, "unknown"])))
        for id in self.calls.open:
            if self.made[id] and id not in self.ended:
                self.made[id] = id in self.questions()
        self.do(self.calls.agent_ended(id for id in unused if self.calls.state(id) is Call.DELIVERED))

    def questions(self) -> set[str]:
        return {id for id in self.made if self.calls._calls[id].kind is Kind.QUESTION}

    @rule()
    def close(self) -> None:
        self.do(self.calls.close())
        self.is_over = True

    @invariant()
    def each_is_answered_at_most_once(self) -> None:
        assert all(times == 1 for times in self.ended.values())

    @invariant()
    def a_timer_runs_while_anything_is_open(self) -> None:
        if self.calls.open and not self.has_failed and not self.is_over:
            assert self.timer is not None
            assert isinstance(self.timer, StartAnswerTimer) == self.calls.is_waiting

    def teardown(self) -> None:
        self.do(self.calls.close())
        assert self.timer is None or self.has_failed
        assert not self.calls.open


TestAnyOrder = AnyOrder.TestCase


@given(st.lists(st.sampled_from(["make", "quiet", "answer", "end"]), max_size=30))
def test_a_run_whose_caller_answers_everything_never_stays_open(inputs: list[str]) -> None:
    calls = OpenCalls()
    for number, name in enumerate(inputs):
        match name:
            case "make":
                calls.make(str(number), Kind.TOOL)
            case "quiet":
                calls.quiet()
            case "answer":
                calls.answer(calls.shown)
            case _:
                calls.agent_ended()
    calls.quiet()
    calls.answer(calls.shown)
    calls.quiet()
    calls.answer(calls.shown)
    assert calls.open == ()
    assert calls.phase is Phase.RUNNING
