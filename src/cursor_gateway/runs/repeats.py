"""Requests and their replies: a request that is repeated gets the same reply.

An SDK retries automatically when a reply is lost, and a restarted client sends its last request again. Such a request
is recognized by its `Idempotency-Key`, or by its content: the same owner, messages, model and tools, with results for
calls that this gateway made. A request without such results counts as a repetition only if its client is known to retry
(`Attempt`): other clients often ask the same twice to get two answers.
"""

import hashlib
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from cursor_gateway.errors import StoreUnavailable
from cursor_gateway.model.caller_tools import Offer
from cursor_gateway.model.documents import Mode
from cursor_gateway.model.messages import Message
from cursor_gateway.prompting.fingerprints import Scope, fingerprint
from cursor_gateway.runs.run_request import RunRequest, scope_of
from cursor_gateway.store.base import IdempotentRun, Store

_MOST = 1000  # replies that are found without the store, or known to be delivered
_CALL = "call_"
_RUN = "chat_"
_RUN_DIGITS = 32


def call_id(run_id: str, number: int) -> str:
    """An id that names the run of the call. At most 40 characters, as OpenAI allows, for the first 999."""
    return f"{_CALL}{run_id.removeprefix(_RUN)}{number}"


def run_of(call_id: str) -> str | None:
    """The run that made this call, if it has an id of this gateway."""
    digits, number = call_id.removeprefix(_CALL)[:_RUN_DIGITS], call_id[len(_CALL) + _RUN_DIGITS :]
    is_ours = call_id.startswith(_CALL) and len(digits) == _RUN_DIGITS and number.isascii() and number.isdigit()
    return f"{_RUN}{digits}" if is_ours else None


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
        self._recent: dict[tuple[str, str], IdempotentRun] = {}  # by owner and key, the latest last

    async def find(self, owner: str, key: str) -> IdempotentRun | None:
        if (recent := self.recent(owner, key)) is not None:
            return recent
        try:
            return await self._store.find_run_by_idempotency(owner, key)
        except StoreUnavailable:  # costs a second run, not the answer
            return None

    def recent(self, owner: str, key: str) -> IdempotentRun | None:
        """Of this process."""
        return self._recent.get((owner, key))

    async def note(self, owner: str, key: str, reply: IdempotentRun, now_ms: int) -> None:
        self._recent.pop((owner, key), None)
        if self._remembers:
            self._recent[owner, key] = reply
        if len(self._recent) > _MOST:
            del self._recent[next(iter(self._recent))]
        with suppress(StoreUnavailable):
            await self._store.name_reply(owner, key, reply, now_ms)

    def forget(self, owner: str, key: str) -> None:
        """The run failed: the next request with this key is a new attempt, which `note` records."""
        self._recent.pop((owner, key), None)


class Deliveries:
    """When replies were delivered: a client that repeats a request some time later wants another answer."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """For `seconds` after a reply, the same request counts as a retry: the reply may have been lost in transit."""
        self._seconds, self._clock = seconds, clock
        self._delivered: dict[tuple[str, str], float] = {}  # when, by owner and key; the latest last

    def note(self, owner: str, key: str) -> None:
        self._delivered.pop((owner, key), None)
        self._delivered[owner, key] = self._clock()
        if len(self._delivered) > _MOST:
            del self._delivered[next(iter(self._delivered))]

    def is_asked_again(self, owner: str, key: str) -> bool:
        """Whether this question was answered long enough ago. It is then forgotten: the next one like it may be a retry
        of this one."""
        delivered = self._delivered.get((owner, key))
        if delivered is None or self._clock() - delivered < self._seconds:
            return False
        del self._delivered[owner, key]
        return True
