"""Questions whose agents failed in; the same failures for clients that retry by themselves, without an agent, out.

Many clients repeat a request that failed, whatever the reply says, and wait twice as long before each retry. Such a
repetition gets the failure of the first attempt. A person needs longer to ask again, and gets another agent.
"""

from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.errors import AgentError, AgentMissing, Failure, RunCancelled
from cursor_gateway.runs.account_errors import Asked

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

_MOST = 1000  # questions that are remembered
_FORGOTTEN = (AgentMissing.code, RunCancelled.code)  # no agent was started, or the client has stopped it
_UNREAD_SECONDS = 600.0  # who asks again after that wants another answer
_GROWTH = 2  # a client's next wait is at most this multiple of the time since the failure


class Question(Struct, frozen=True):
    """What was asked. If the account has changed since, it is another question."""

    asked: Asked | None
    key: str  # of the request's content; see `repeats`


class _Failed(Struct, frozen=True):
    failure: Failure
    failed_at: float
    asked_at: float  # for the last time

    def retry_seconds(self, seconds: float) -> float:
        """How long after the last attempt another one counts as the client's own."""
        return max(seconds, _GROWTH * (self.asked_at - self.failed_at))


class FailedQuestions:
    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        """`seconds`: the shortest time between two attempts of a person; 0 remembers nothing."""
        self._seconds, self._clock = seconds, clock
        self._running: dict[str, Question] = {}  # by the runs that answer them
        self._unread: dict[str, tuple[Question, float]] = {}  # by the runs that have answered them, and when
        self._failed: dict[Question, _Failed] = {}  # the oldest first

    def begin(self, run_id: str, question: Question) -> None:
        """This run answers the question now, perhaps after others."""
        _add(self._running, run_id, question)

    def asked_by(self, run_id: str) -> Question | None:
        return self._running.get(run_id)

    def runs_of(self, key: str) -> list[str]:
        """Those that answer a question of this key, for whomever, or whose answers nobody has read. These are named
        once."""
        since = self._clock() - _UNREAD_SECONDS
        asked = [run_id for run_id, (question, _) in self._unread.items() if question.key == key]
        unread = [run_id for run_id in asked if self._unread.pop(run_id)[1] >= since]
        return [*(run_id for run_id, question in self._running.items() if question.key == key), *unread]

    def end(self, run_id: str, failure: Failure | None, *, is_unread: bool = False) -> None:
        """How the run has ended; None if it succeeded."""
        question = self._running.pop(run_id, None)
        if question is not None and is_unread and failure is None:
            _add(self._unread, run_id, (question, self._clock()))
        if question is None or not self._seconds:
            return
        if failure is None or failure.source != AgentError.source or failure.code in _FORGOTTEN:
            self._failed.pop(question, None)
        else:
            now = self._clock()
            _add(self._failed, question, _Failed(failure, now, now))

    def known(self, question: Question) -> Failure | None:
        """Why the question failed, if this is a client's own retry."""
        failed = self._failed.get(question)
        if failed is None:
            return None
        now = self._clock()
        if now - failed.asked_at > failed.retry_seconds(self._seconds):
            del self._failed[question]
            return None
        again = self._failed[question] = replace(failed, asked_at=now)
        message = (
            f"{failed.failure.message} (It failed {now - failed.failed_at:.0f} s ago, and no agent was started again. "
            f"To start one, wait {again.retry_seconds(self._seconds):.0f} s before you ask again.)"
        )
        return replace(failed.failure, message=message)


def _add(entries: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    entries.pop(key, None)
    entries[key] = value
    if len(entries) > _MOST:
        del entries[next(iter(entries))]
