"""Every error as a type: a stable code, an HTTP status, and a message that says what to do.

GatewayError            an expected failure; raise a subclass
├── RequestError        the caller has to fix it
│   ├── UnusableInput       400   the input contains no cursor-agent events
│   ├── InvalidRequest      400   a field is missing or invalid, or cannot be honoured
│   ├── KeyRefused          401   the API key is missing or unknown
│   ├── RequestForbidden    403   the request comes from a foreign web page or names an unknown host
│   ├── WorkspaceForbidden  403   the workspace is outside the allowed roots
│   ├── ApprovalForbidden   403   callers may not allow commands
│   ├── PreviousAnswerUnknown 400 the answer to continue from is not stored
│   ├── NotFound            404   the path, run or conversation does not exist or belongs to another owner
│   ├── MethodRefused       405   the path does not support the method
│   ├── RequestTooSlow      408   the request did not arrive in time
│   ├── CallerGone          408   the results of the caller's tools did not arrive in time
│   ├── ConversationBusy    409   the conversation already has an active run
│   ├── IdempotencyMismatch 409   the idempotency key was used for another request
│   ├── FileChanged         409   a file cannot be reverted: it is not as the agent left it
│   ├── LogReset            409   the run does not have the event that the client read last
│   ├── RequestTooLarge     413   the body is over the limit
│   ├── MediaTypeRefused    415   the body is not application/json
│   ├── WebSocketRefused    426   WebSocket is not supported
│   ├── TooManyRuns         429   too many active runs
│   ├── TooManyRequests     429   the key has sent too many requests in a minute
│   ├── KeyQuotaExhausted   429   the key has used all that it may use in a day
│   ├── HeadTooLarge        431   the headers are too many or too long
│   └── SettingsError       400   a setting is unknown or invalid
├── GatewayFault            500   a bug in the gateway; details are in the log
├── GatewayRestarted        503   the gateway was restarted during the run
├── ShuttingDown            503   the gateway is shutting down
├── RunnerLost              503   the process that ran the agent died or lost its database
├── NoRunner                503   no live runner has the workspace
├── HostExhausted           503   the system is out of file descriptors, processes, memory or disk space
├── TooManyConnections      503   too many open connections
├── StoreUnavailable        503   the history cannot be read or written
└── AgentError          the agent failed; in a running answer it becomes an `error` document
    ├── AgentUnauthenticated 401  the agent is not logged in, or its key was rejected
    ├── WorkspaceUntrusted   403  the workspace is not trusted
    ├── ModelUnavailable     404  the model is unknown or not available to the account
    ├── SessionLost          404  the agent's session cannot be resumed
    ├── AgentQuotaExhausted  429  the account has reached its usage limit
    ├── AgentOverloaded      429  the agent's service is overloaded or limits the rate
    ├── AgentMisconfigured   500  the agent or the account does not support an option
    ├── AgentUnreachable     502  the agent cannot reach its service
    ├── AgentCrashed         502  the agent ended without a result
    ├── AgentFailed          502  the agent reported a failure
    ├── AgentOutputTooLarge  502  the agent produced more output than allowed
    ├── AnswerUnfit          502  the answer does not have the requested format
    ├── ToolNotCalled        502  the agent did not call the required tool
    ├── AgentLooped          502  the agent repeats the same calls
    ├── AgentUnconfined      502  the agent used one of its own tools although it was denied
    ├── AgentMissing         503  the agent is not installed or cannot be started
    ├── AgentTimedOut        504  the agent was silent for too long, or the run took too long
    └── RunCancelled         499  the run was cancelled

An error states facts; each dialect has one function that shapes it.
"""

import errno
import re
from typing import ClassVar

import msgspec

_DIRECTION = r"\u2028\u2029\u202a-\u202e\u2066-\u2069"  # can make a line read other than it is
_CONTROL = re.compile(rf"[\x00-\x1f\x7f-\x9f{_DIRECTION}]")
_CONTROL_IN_LINES = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_DIRECTION}]")  # all but tabs and line ends
_SECRET = re.compile(r"(?i:(?<=bearer ))[\w.~+/=-]+|(?<=://)[^/\s@]+(?=@)|\beyJ[\w-]+\.[\w-]+\.[\w-]*")
_HALF_A_WORD_AT_THE_END, _HALF_A_WORD_AT_THE_START = re.compile(r"(?<=\s)\S{1,200}\Z"), re.compile(r"\A\S{1,200}(?=\s)")
_LONGEST = 1000  # characters of a message: it may repeat what the caller sent
_LONGEST_DETAILS = 2000  # characters of what the agent said

_OF_THE_SOURCE = frozenset(
    {"agent_crashed", "agent_misconfigured", "agent_missing", "agent_timed_out", "agent_unreachable"}
)
_CUT_SHORT = "The agent's output ended before the agent had finished; partial output was kept. Try again."


class Failure(msgspec.Struct, frozen=True):
    """An error as a value, for streams: what readers of a run get."""

    code: str
    message: str
    status: int
    retryable: bool = False
    details: str = ""
    source: str = "agent"
    param: str | None = None  # the field of the request that is to blame
    retry_after: int | None = None  # seconds

    @property
    def may_be_the_sources(self) -> bool:
        """Another backend may succeed: it was not the account, the model, the request or the session."""
        return self.code in _OF_THE_SOURCE

    def final(self) -> "Failure":
        """The same, but not to be retried by a client: its agent had begun to work, and another would do it again."""
        return msgspec.structs.replace(self, retryable=False, retry_after=None)

    @property
    def is_transient(self) -> bool:
        """A retry may help: it was not the request's fault, or the run was cancelled."""
        return self.retryable or self.code == "cancelled"


class GatewayError(Exception):
    """An expected failure. Never raised itself; raise a subclass."""

    code: ClassVar[str]
    status: ClassVar[int]
    retryable: ClassVar[bool] = False
    source: ClassVar[str] = "gateway"

    retry_after: int | None = None  # seconds: where it is known, of this one error

    def __init__(self, message: str, *, details: str = "", param: str | None = None) -> None:
        super().__init__(message)
        self.details = details
        self.param = param

    def failure(self) -> Failure:
        return Failure(
            code=self.code,
            message=_presentable(str(self)),
            status=self.status,
            retryable=self.retryable,
            details=readable_details(self.details),
            source=self.source,
            param=None if self.param is None else _presentable(self.param),
            retry_after=self.retry_after,
        )


def _presentable(text: str) -> str:
    """In one line that moves no cursor."""
    return _CONTROL.sub(_escaped, _redacted(text, _LONGEST))


def readable_details(text: str) -> str:
    """What an agent said, for people: bounded, with its line ends, and without credentials."""
    return _CONTROL_IN_LINES.sub(_escaped, _redacted(text.replace("\r\n", "\n"), _LONGEST_DETAILS))


def _redacted(text: str, longest: int) -> str:
    bounded = _shortened(text, 2 * longest)  # first: the search takes longer than the text is long
    return _shortened(_SECRET.sub("[redacted]", bounded), longest)


def _shortened(text: str, longest: int) -> str:
    """What is too long loses its middle: its end says what to do. No word is cut in two: it may be a secret."""
    if len(text) <= longest:
        return text
    head, tail = text[: longest // 2], text[-longest // 2 :]
    return f"{_HALF_A_WORD_AT_THE_END.sub('', head).rstrip()} … {_HALF_A_WORD_AT_THE_START.sub('', tail).lstrip()}"


def _escaped(control: re.Match[str]) -> str:
    return control[0].encode("unicode_escape").decode()


class RequestError(GatewayError):
    """The caller can fix it."""


class UnusableInput(RequestError):
    code, status = "unusable_input", 400


class InvalidRequest(RequestError):
    code, status = "invalid_request", 400


class PreviousAnswerUnknown(RequestError):
    code, status = "previous_response_not_found", 400


class KeyRefused(RequestError):
    code, status = "invalid_api_key", 401


class RequestForbidden(RequestError):
    code, status = "forbidden", 403


class WorkspaceForbidden(RequestError):
    code, status = "workspace_forbidden", 403


class ApprovalForbidden(RequestError):
    code, status = "approval_forbidden", 403


class NotFound(RequestError):
    code, status = "not_found", 404


class MethodRefused(RequestError):
    code, status = "method_not_allowed", 405


class RequestTooSlow(RequestError):
    code, status, retryable = "request_timeout", 408, True


class CallerGone(RequestError):
    code, status = "tool_results_missing", 408


class ConversationBusy(RequestError):
    code, status, retryable, retry_after = "conversation_busy", 409, True, 1


class IdempotencyMismatch(RequestError):
    code, status = "idempotency_mismatch", 409


class FileChanged(RequestError):
    code, status = "file_changed", 409


class LogReset(RequestError):
    code, status = "log_reset", 409


class RequestTooLarge(RequestError):
    code, status = "request_too_large", 413


class MediaTypeRefused(RequestError):
    code, status = "unsupported_media_type", 415


class WebSocketRefused(RequestError):
    code, status = "websocket_not_supported", 426


class TooManyRuns(RequestError):
    code, status, retryable, retry_after = "too_many_runs", 429, True, 1


class TooManyRequests(RequestError):
    code, status, retryable, retry_after = "rate_limit_exceeded", 429, True, 1


class KeyQuotaExhausted(RequestError):
    code, status = "key_quota_exhausted", 429


class HeadTooLarge(RequestError):
    code, status = "request_head_too_large", 431


class SettingsError(RequestError):
    code, status = "settings_error", 400


class GatewayFault(GatewayError):
    code, status = "internal_error", 500


class GatewayRestarted(GatewayError):
    code, status, retryable, retry_after = "gateway_restarted", 503, True, 1


class ShuttingDown(GatewayError):
    code, status, retryable, retry_after = "shutting_down", 503, True, 5


class RunnerLost(GatewayError):
    code, status, retryable, retry_after = "runner_lost", 503, True, 1


class NoRunner(GatewayError):
    code, status, retryable, retry_after = "no_runner", 503, True, 5


class TooManyConnections(GatewayError):
    code, status, retryable, retry_after = "too_many_connections", 503, True, 1


class HostExhausted(GatewayError):
    code, status, retryable, retry_after = "host_exhausted", 503, True, 5


class StoreUnavailable(GatewayError):
    code, status, retryable, retry_after = "store_unavailable", 503, True, 5


class AgentError(GatewayError):
    """The agent's side failed."""

    source = "agent"


class AgentUnauthenticated(AgentError):
    code, status = "agent_unauthenticated", 401


class WorkspaceUntrusted(AgentError):
    code, status = "workspace_untrusted", 403


class ModelUnavailable(AgentError):
    code, status = "model_not_found", 404


class SessionLost(AgentError):
    code, status = "session_lost", 404


class AgentQuotaExhausted(AgentError):
    code, status = "insufficient_quota", 429


class AgentOverloaded(AgentError):
    code, status, retryable, retry_after = "agent_overloaded", 429, True, 10


class AgentMisconfigured(AgentError):
    code, status = "agent_misconfigured", 500


class AgentUnreachable(AgentError):
    code, status, retryable = "agent_unreachable", 502, True


class AgentCrashed(AgentError):
    code, status, retryable = "agent_crashed", 502, True

    def __init__(self, message: str = _CUT_SHORT, *, details: str = "", param: str | None = None) -> None:
        super().__init__(message, details=details, param=param)


class AgentFailed(AgentError):
    code, status, retryable = "agent_failed", 502, True


class AgentOutputTooLarge(AgentError):
    code, status = "agent_output_too_large", 502


class AnswerUnfit(AgentError):
    code, status, retryable = "answer_unfit", 502, True


class ToolNotCalled(AgentError):
    code, status, retryable = "tool_not_called", 502, True


class AgentLooped(AgentError):
    code, status = "agent_looped", 502


class AgentUnconfined(AgentError):
    code, status = "agent_unconfined", 502


class AgentMissing(AgentError):
    code, status = "agent_missing", 503


class AgentTimedOut(AgentError):
    code, status, retryable = "agent_timed_out", 504, True


class RunCancelled(AgentError):
    code, status = "cancelled", 499


_EXHAUSTED = frozenset(
    {errno.EAGAIN, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ENOSPC}
)


def host_exhausted(error: Exception) -> HostExhausted | None:
    """What the system has refused for the moment; None for anything else."""
    match error:
        case OSError(errno=number, strerror=str(reason)) if number in _EXHAUSTED:
            pass
        case RuntimeError(args=(str(reason),)) if "new thread" in reason:  # how Python says it
            pass
        case _:
            return None
    return HostExhausted(f"The system is out of resources: {reason}; try again, or raise its limits.")


def unknown_model(model: str, nearest: list[str]) -> ModelUnavailable:
    if model in nearest:  # the agent lists it, and yet refuses it
        return ModelUnavailable(
            f"The agent lists the model {model!r} but rejects it; choose another, or check your Cursor plan.",
            param="model",
        )
    near = f"did you mean {', '.join(nearest)}?" if nearest else "see GET /v1/models."
    return ModelUnavailable(f"Unknown model {model!r}; {near}", param="model")


def error_of(failure: Failure) -> GatewayError:
    """The error that this failure was made of; one that is not known here is the gateway's fault."""
    kind = errors_by_code().get(failure.code, GatewayFault)
    error = kind(failure.message, details=failure.details, param=failure.param)
    error.retry_after = failure.retry_after
    return error


def errors_by_code(kind: type[GatewayError] = GatewayError) -> dict[str, type[GatewayError]]:
    """All errors of this kind."""
    found = {kind.code: kind} if "code" in vars(kind) else {}
    for narrower in kind.__subclasses__():
        found |= errors_by_code(narrower)
    return found
