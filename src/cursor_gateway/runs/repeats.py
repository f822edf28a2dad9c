"""Requests and what became of them: one that is repeated gets the same reply, or the same failure, without an agent.

An SDK retries automatically when a reply is lost, and a restarted client sends its last request again. Such a request
is recognized by its `Idempotency-Key`, or by its content: the same owner, messages, model and tools, with results for
calls that this gateway made. A request without such results counts as a repetition only if its client is known to retry
(`Attempt`): other clients often ask the same twice to get two answers.

Many clients also repeat a request that failed, whatever the reply says, and wait twice as long before each retry. Such
a repetition gets the failure of the first attempt (`FailedQuestions`); a person needs longer to ask again, and gets
another agent. Without a login, or at the usage limit, every agent would report the same error (`AccountErrors`).
"""

import hashlib
import os
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway import errors
from cursor_gateway.model.caller_tools import Offer, ToolResult
from cursor_gateway.model.documents import Mode
from cursor_gateway.model.messages import AssistantMessage, Message, ToolMessage
from cursor_gateway.prompting.fingerprints import Scope, answered, fingerprint
from cursor_gateway.runs.handle import RunHandle
from cursor_gateway.runs.log import LiveLog, Quoted
from cursor_gateway.runs.run_service import RunRequest
from cursor_gateway.sources.router import SourceRouter
from cursor_gateway.store.base import IdempotentRun, Store

_MOST = 1000  # replies, deliveries, questions and errors that are remembered

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class Latest(dict[_Key, _Value]):
    """The latest entries, the oldest first."""

    def put(self, key: _Key, value: _Value) -> None:
        self.pop(key, None)
        self[key] = value
        if len(self) > _MOST:
            del self[next(iter(self))]


def scope_of(request: RunRequest, workspace: str, default_mode: Mode) -> Scope:
    """Within which the request's conversation is looked for."""
    return Scope(
        owner=request.owner,
        workspace=workspace,
        mode=request.mode or default_mode,
        tools=tuple(sorted(tool.name for tool in request.offer.tools)) if request.offer is not None else (),
        client_session=request.client_session,
    )


def quote(log: LiveLog, request: RunRequest, workspace: str, default_mode: Mode) -> None:
    """The caller's next request will quote the conversation with this run's answer."""
    if request.has_full_history:
        log.quoted = Quoted(scope_of(request, workspace, default_mode), request.messages)


def results_in(request: RunRequest) -> tuple[dict[str, ToolResult], list[Message]]:
    """The tool results after the last answer, by call id, and the other messages after it. Some clients quote the calls
    of one answer as several answers, each followed by its result, so the results just before count, too."""
    results: dict[str, ToolResult] = {}
    also: list[Message] = []
    messages, first = request.messages, answered(request.messages)
    for number in (*range(first, len(messages)), *range(first - 1, -1, -1)):
        message = messages[number]
        if isinstance(message, ToolMessage):
            shown = tuple(image for image in request.images if image.message == number)
            results.setdefault(message.call_id, ToolResult(text=message.text, images=shown, is_error=message.is_error))
        elif number >= first:
            also.append(message)
        elif not (results and isinstance(message, AssistantMessage) and message.calls):
            break
    return results, also


def body_hash(request: RunRequest) -> str:
    return hashlib.sha256(request.body).hexdigest()


def check_body(expected: str, request: RunRequest) -> None:
    if body_hash(request) != expected:
        raise errors.IdempotencyMismatch(
            "This Idempotency-Key was used for a different request; send the same body, or a new key.",
            param="Idempotency-Key",
        )


async def quote_answer(store: Store, request: RunRequest, run: RunHandle, answer: str, default_mode: Mode) -> None:
    """The caller was sent a text that differs from the run's; its next request will quote it."""
    if not request.has_full_history:
        return
    id = run.info.conversation_id or ""
    with suppress(errors.StoreUnavailable):  # it costs the agent's memory, not the answer
        conversation = await store.conversation(id, request.owner)
        if conversation is not None:
            scope = scope_of(request, conversation.workspace, default_mode)
            quoted = fingerprint(scope, [*request.messages, AssistantMessage(answer)])
            await store.change_conversation(id, request.owner, fingerprint=quoted)


def repair_key(run_id: str) -> str:
    """The idempotency key of the run that repeats the answer of this one in the requested format."""
    return f"repair of {run_id}"


def request_key(request: RunRequest, default_mode: Mode) -> str:
    """A key for the content of a request, whatever the form of its reply."""
    scope = scope_of(request, request.workspace or "", default_mode)
    if request.question_id:  # is enough: tools may be added between two attempts
        return _question_key(replace(scope, tools=()), request.messages, None, request.question_id)
    named = request.conversation_id or request.follows or ""
    more = (request.model or "", named, request.source or "", request.instructions)
    return _question_key(scope, request.messages, request.offer, *more)


def _question_key(scope: Scope, messages: Sequence[Message], offer: Offer | None, *more: str) -> str:
    choice = "" if offer is None else f"{offer.choice!r} {offer.parallel}"
    asked = msgspec.json.encode([fingerprint(scope, messages), choice, *more])
    return f"question {hashlib.sha256(asked).hexdigest()}"


class Repeats:
    def __init__(self, store: Store, *, remembers: bool = True) -> None:
        """`remembers`: no other process replies to the same requests, so its own memory is right."""
        self._store, self._remembers = store, remembers
        self._recent = Latest[tuple[str, str], IdempotentRun]()  # by owner and key

    async def find(self, owner: str, key: str) -> IdempotentRun | None:
        if (recent := self.recent(owner, key)) is not None:
            return recent
        try:
            return await self._store.find_run_by_idempotency(owner, key)
        except errors.StoreUnavailable:  # costs a second run, not the answer
            return None

    def recent(self, owner: str, key: str) -> IdempotentRun | None:
        """Of this process."""
        return self._recent.get((owner, key))

    async def note(self, owner: str, key: str, reply: IdempotentRun, now_ms: int) -> None:
        if self._remembers:
            self._recent.put((owner, key), reply)
        with suppress(errors.StoreUnavailable):
            await self._store.name_reply(owner, key, reply, now_ms)

    def forget(self, owner: str, key: str) -> None:
        """The run failed: the next request with this key is a new attempt, which `note` records."""
        self._recent.pop((owner, key), None)


class Deliveries:
    """When replies were delivered: a client that repeats a request some time later wants another answer."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """For `seconds` after a reply, the same request counts as a retry: the reply may have been lost in transit."""
        self._seconds, self._clock = seconds, clock
        self._delivered = Latest[tuple[str, str], float]()  # when, by owner and key

    def note(self, owner: str, key: str) -> None:
        self._delivered.put((owner, key), self._clock())

    def is_asked_again(self, owner: str, key: str) -> bool:
        """Whether this question was answered long enough ago. It is then forgotten: the next one like it may be a retry
        of this one."""
        delivered = self._delivered.get((owner, key))
        if delivered is None or self._clock() - delivered < self._seconds:
            return False
        del self._delivered[owner, key]
        return True


_ERRORS: dict[str, type[errors.AgentError]] = {
    error.code: error for error in (errors.AgentUnauthenticated, errors.AgentQuotaExhausted)
}
_RESET_FILE = "account_errors_reset"
_RECENT_SECONDS = 1.0


class Asked(Struct, frozen=True):
    """The caller, account and model of a request."""

    owner: str
    account: Hashable  # the source with its credentials, configuration and program
    model: str


class _AccountError(Struct, frozen=True):
    """Per owner: what one caller makes the agent say must not lock out another."""

    owner: str
    account: Hashable
    model: str | None  # None: all of them. A usage limit may hold for one model and not for another.


class _Remembered(Struct, frozen=True):
    failure: errors.Failure
    heard_at: float


class AccountErrors:
    """Each error is kept for `seconds`, or until a run succeeds or the account changes; 0 keeps none."""

    def __init__(self, source: SourceRouter, seconds: float, clock: Callable[[], float], data_dir: Path) -> None:
        self._source, self._seconds, self._clock = source, seconds, clock
        self._reset_file = data_dir / _RESET_FILE
        self._remembered = Latest[_AccountError, _Remembered]()
        self._recent: dict[str | None, tuple[float, Hashable]] = {}  # accounts and when they were read, by source

    def asked(self, owner: str, source: str | None, model: str) -> Asked:
        """Call this before the agent starts: an error is about the account as it was then.

        Reading the account takes a while, and matters only if an error is cached; otherwise a recent result is reused.
        """
        now = self._clock()
        known = self._recent.get(source)
        if known is None or self._remembered or not 0 <= now - known[0] < _RECENT_SECONDS:
            known = self._recent[source] = now, (self._source.account_of(source), _stamp(self._reset_file))
        return Asked(owner, known[1], model)

    def known(self, asked: Asked) -> errors.AgentError | None:
        """The cached error that an agent would report again, if there is one."""
        now = self._clock()
        for model in (None, asked.model):
            found = self._remembered.get(_AccountError(asked.owner, asked.account, model))
            if found is not None and (age := now - found.heard_at) < self._seconds:
                failure = found.failure
                return _ERRORS[failure.code](
                    f"{failure.message} (The agent said so {age:.0f} s ago. It is asked again after {self._seconds:g} "
                    "s, when its login or configuration changes, or after `cursor-gateway doctor`.)",
                    details=failure.details,
                    param=failure.param,
                )
        return None

    def record(self, asked: Asked, failure: errors.Failure | None) -> None:
        """How a run has ended; None if it succeeded."""
        if failure is None:
            for key in list(self._remembered):
                if key.account == asked.account and key.model in (None, asked.model):
                    del self._remembered[key]
        elif failure.code in _ERRORS:
            key = _AccountError(
                asked.owner, asked.account, asked.model if failure.code == errors.AgentQuotaExhausted.code else None
            )
            self._remembered.put(key, _Remembered(failure, self._clock()))


def forget_account_errors(data_dir: Path) -> None:
    """For every gateway with this data folder, from another process. Raises `OSError`."""
    if data_dir.is_dir():
        (data_dir / _RESET_FILE).touch(mode=0o600)


def _stamp(file: Path) -> int:
    try:
        return os.stat(file).st_mtime_ns
    except OSError:
        return 0


_FORGOTTEN = (errors.AgentMissing.code, errors.RunCancelled.code)  # no agent was started, or the client has stopped it
_UNREAD_SECONDS = 600.0  # who asks again after that wants another answer
_GROWTH = 2  # a client's next wait is at most this multiple of the time since the failure


class Question(Struct, frozen=True):
    """What was asked. If the account has changed since, it is another question."""

    asked: Asked | None
    key: str  # identifies the request by its content


class _Failed(Struct, frozen=True):
    failure: errors.Failure
    failed_at: float
    asked_at: float  # for the last time

    def retry_seconds(self, seconds: float) -> float:
        """How long after the last attempt another one counts as the client's own."""
        return max(seconds, _GROWTH * (self.asked_at - self.failed_at))


class FailedQuestions:
    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        """`seconds`: the shortest time between two attempts of a person; 0 remembers nothing."""
        self._seconds, self._clock = seconds, clock
        self._running = Latest[str, Question]()  # by the runs that answer them
        self._unread = Latest[str, tuple[Question, float]]()  # by the runs that have answered them, and when
        self._failed = Latest[Question, _Failed]()

    def begin(self, run_id: str, question: Question) -> None:
        """This run answers the question now, perhaps after others."""
        self._running.put(run_id, question)

    def ask_next(self, run_id: str, key: str) -> None:
        """A request has continued the run, so the run answers this request from now on."""
        before = self._running.get(run_id)
        if before is not None:
            self.begin(run_id, replace(before, key=key))

    def runs_of(self, key: str) -> list[str]:
        """Those that answer a question of this key, for whomever, or whose answers nobody has read. These are named
        once."""
        since = self._clock() - _UNREAD_SECONDS
        asked = [run_id for run_id, (question, _) in self._unread.items() if question.key == key]
        unread = [run_id for run_id in asked if self._unread.pop(run_id)[1] >= since]
        return [*(run_id for run_id, question in self._running.items() if question.key == key), *unread]

    def end(self, run_id: str, failure: errors.Failure | None, *, is_unread: bool = False) -> None:
        """How the run has ended; None if it succeeded."""
        question = self._running.pop(run_id, None)
        if question is not None and is_unread and failure is None:
            self._unread.put(run_id, (question, self._clock()))
        if question is None or not self._seconds:
            return
        if failure is None or failure.source != errors.AgentError.source or failure.code in _FORGOTTEN:
            self._failed.pop(question, None)
        else:
            now = self._clock()
            self._failed.put(question, _Failed(failure, now, now))

    def known(self, question: Question) -> errors.Failure | None:
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
