"""Why a call failed, as facts that a program can act on."""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from cursor_gateway.errors import Failure, ShuttingDown, StoreUnavailable
from cursor_gateway.model.documents import ChatResponse

NOT_A_GATEWAY = "not_a_gateway"

_PASSING = (ShuttingDown.code, StoreUnavailable.code)  # a retry soon may succeed
_PROXY_STATUSES = (502, 503, 504)  # sent by a proxy while the gateway is down


class CallFailed(Exception):
    """The gateway rejected the request, or the run failed.

    `code` and `status` are those of the gateway's errors. A run that failed in the midst of its answer has
    `response`: all that was said before.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        status: int = 0,
        param: str | None = None,
        details: str = "",
        retry_after: int | None = None,
        request_id: str = "",
        chat_id: str = "",
        response: ChatResponse | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.code, self.status = message, code, status
        self.param = param  # the field that caused it
        self.details = details  # the agent's own message
        self.retry_after = retry_after  # seconds
        self.request_id = request_id  # under which the gateway's log has it
        self.chat_id = chat_id  # of the run, if one has begun
        self.response = response


class CannotReach(CallFailed):
    """The gateway cannot be reached, or the connection keeps breaking.

    With a `chat_id`, a run has begun; it continues, and `client.events(chat_id)` reads it.
    """

    reason: str = ""  # the system's message
    was_connected: bool = False  # so the request may have arrived


class _Error(Struct, frozen=True):
    message: str
    code: str | None = None
    param: str | None = None
    details: str = ""


class _Refusal(Struct, frozen=True):
    error: _Error


def refusal(url: str, status: int, headers: Mapping[str, str], body: bytes) -> CallFailed:
    """The error that a reply reports."""
    after = headers.get("retry-after", "")
    try:
        error = msgspec.json.decode(body, type=_Refusal).error
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        error = _Error(f"{url} answers ({status}), but not as a gateway does; check the address.", NOT_A_GATEWAY)
    return CallFailed(
        error.message,
        code=error.code or "",
        status=status,
        param=error.param,
        details=error.details,
        retry_after=int(after) if after.isascii() and after.isdigit() and len(after) < 10 else None,  # it may be a date
        request_id=headers.get("x-request-id", ""),
        chat_id=headers.get("x-chat-id", ""),
    )


def run_failure(failure: Failure, response: ChatResponse, request_id: str) -> CallFailed:
    return CallFailed(
        failure.message,
        code=failure.code,
        status=failure.status,
        param=failure.param,
        details=failure.details,
        retry_after=failure.retry_after,
        request_id=request_id,
        chat_id=response.id,
        response=response,
    )


def may_pass(error: CallFailed) -> bool:
    """Whether a retry may succeed."""
    return error.code in _PASSING or (error.code == NOT_A_GATEWAY and error.status in _PROXY_STATUSES)
