"""A question that failed and comes again: a client's own retry gets the failure, a person another agent."""

import pytest

from cursor_gateway import errors
from cursor_gateway.runs import repeats
from cursor_gateway.runs.repeats import Asked, FailedQuestions, Question

CRASHED = errors.AgentCrashed("It crashed.", details="exit 3").failure()
HELLO = Question(Asked("me", "account", "auto"), "hello")


class Asking:
    def __init__(self, seconds: float = 5) -> None:
        self.now = 1000.0
        self.failed = FailedQuestions(seconds, lambda: self.now)

    def fail(self, question: Question = HELLO, failure: errors.Failure | None = CRASHED) -> None:
        self.failed.begin("chat_1", question)
        self.failed.end("chat_1", failure)

    def is_known_after(self, *waits: float) -> list[bool]:
        """Whether each of the requests that come after these waits gets the failure."""
        found = []
        for seconds in waits:
            self.now += seconds
            found.append(self.failed.known(HELLO) is not None)
        return found


def test_the_failure_says_that_no_agent_was_started_and_when_one_will_be() -> None:
    asking = Asking()
    asking.fail()
    asking.now += 4
    again = asking.failed.known(HELLO)
    assert again is not None
    assert again.message == (
        "It crashed. (It failed 4 s ago, and no agent was started again. To start one, wait 8 s before you ask again.)"
    )
    assert (again.code, again.details) == (CRASHED.code, CRASHED.details)


@pytest.mark.parametrize(
    "waits",
    [
        [0.25, 0.5, 1, 2, 4, 8, 16, 32],  # aider
        [2, 4, 8, 16, 30, 30, 30],  # OpenCode; no longer than that
        [0.6, 0.9, 2, 4.8, 10, 22],  # with some chance in each
        [5, 5, 5],
    ],
)
def test_a_client_that_waits_longer_each_time_gets_the_failure(waits: list[float]) -> None:
    asking = Asking()
    asking.fail()
    assert all(asking.is_known_after(*waits))


@pytest.mark.parametrize("waits", [[5.1], [1, 1, 5.1], [3, 7]])
def test_a_person_who_asks_again_gets_an_agent(waits: list[float]) -> None:
    asking = Asking()
    asking.fail()
    assert not asking.is_known_after(*waits)[-1]
    assert asking.is_known_after(0) == [False]


@pytest.mark.parametrize("error", [errors.AgentCrashed, errors.AgentQuotaExhausted])
def test_every_failure_of_an_agent_that_was_started_is_remembered(error: type[errors.AgentError]) -> None:
    asking = Asking()
    asking.fail(failure=error("It failed.").failure())
    assert asking.is_known_after(1) == [True]


@pytest.mark.parametrize("error", [errors.AgentMissing, errors.RunCancelled, errors.RunnerLost, errors.ShuttingDown])
def test_what_started_no_agent_or_was_ended_by_the_gateway_or_the_client_is_not(
    error: type[errors.GatewayError],
) -> None:
    asking = Asking()
    asking.fail(failure=error("It ended.").failure())
    assert asking.is_known_after(1) == [False]


def test_a_question_that_is_answered_has_not_failed_any_more() -> None:
    asking = Asking()
    asking.fail()
    asking.fail(failure=None)
    assert asking.is_known_after(1) == [False]


@pytest.mark.parametrize(
    "question", [Question(HELLO.asked, "another"), Question(Asked("me", "another account", "auto"), "hello")]
)
def test_another_question_or_account_gets_an_agent(question: Question) -> None:
    asking = Asking()
    asking.fail()
    assert asking.failed.known(question) is None


def test_a_run_that_continues_answers_its_latest_question() -> None:
    asking = Asking()
    results = Question(HELLO.asked, "results")
    asking.failed.begin("chat_1", HELLO)
    asking.failed.ask_next("chat_1", "results")
    asking.failed.end("chat_1", CRASHED)
    assert asking.failed.known(results) is not None
    assert asking.failed.known(HELLO) is None
    asking.failed.ask_next("chat_1", "hello")  # it answers nothing any more
    assert asking.failed.runs_of("hello") == []


def test_a_run_that_answers_no_question_is_ignored() -> None:
    asking = Asking()
    asking.failed.end("chat_2", CRASHED)
    assert asking.is_known_after(1) == [False]


def test_nothing_is_remembered_without_a_time() -> None:
    asking = Asking(seconds=0)
    asking.fail()
    assert asking.is_known_after(0) == [False]


def test_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "_MOST", 2)
    asking = Asking()
    questions = [Question(None, key) for key in "abac"]
    for question in questions:
        asking.fail(question)
    assert [question.key for question in questions[1:] if asking.failed.known(question)] == ["a", "c"]


def test_an_answer_that_nobody_has_read_is_given_once_and_not_for_ever() -> None:
    asking = Asking()
    for waits, found in ((0.0, [["chat_1"], []]), (601.0, [[], []])):
        asking.failed.begin("chat_1", HELLO)
        asking.failed.end("chat_1", None, is_unread=True)
        asking.now += waits
        assert [asking.failed.runs_of("hello") for _ in range(2)] == found


def test_a_run_that_answers_a_question_is_found_by_its_key() -> None:
    asking = Asking()
    asking.failed.begin("chat_1", HELLO)
    assert (asking.failed.runs_of("hello"), asking.failed.runs_of("other")) == (["chat_1"], [])
