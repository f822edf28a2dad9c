"""Every error as a type: a stable code, an HTTP status, and a message that says what to do.

A `RequestError` is for the caller to fix. An `AgentError` says that the agent failed; in a running answer it becomes an
`error` document. All others are failures of the gateway or of its machine. The docstring of a class says what has
happened; API descriptions and reference pages quote it.

An error states facts; each dialect has one function that shapes it.
"""

import errno
import re
from typing import ClassVar

import msgspec

_DIRECTION = r"\u2028\u2029\u202a-\u202e\u2066-\u2069"  # can make a line look different from what it is
# And surrogates, which UTF-8 cannot encode: file names that are not UTF-8 contain them.
_CONTROL = re.compile(rf"[\x00-\x1f\x7f-\x9f{_DIRECTION}\ud800-\udfff]")
_CONTROL_IN_LINES = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_DIRECTION}\ud800-\udfff]")  # all but tabs and line ends
_SECRET = re.compile(r"(?i:(?<=bearer ))[\w.~+/=-]+|(?<=://)[^/\s@]+(?=@)|\beyJ[\w-]+\.[\w-]+\.[\w-]*")
_HALF_A_WORD_AT_THE_END, _HALF_A_WORD_AT_THE_START = re.compile(r"(?<=\s)\S{1,200}\Z"), re.compile(r"\A\S{1,200}(?=\s)")
_LONGEST = 1000  # characters of a message: it may repeat what the caller sent
_LONGEST_DETAILS = 2000  # characters of what the agent said

_SOURCE_FAILURES = frozenset(
    {"agent_crashed", "agent_misconfigured", "agent_missing", "agent_timed_out", "agent_unreachable"}
)
_CUT_SHORT = "The agent's output ended before the agent had finished. Try again."


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
    def is_source_failure(self) -> bool:
        """Another backend may succeed: it was not the account, the model, the request or the session."""
        return self.code in _SOURCE_FAILURES

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

    retry_after: int | None = None  # seconds

    def __init_subclass__(
        cls, *, code: str = "", status: int = 0, retryable: bool = False, retry_after: int | None = None
    ) -> None:
        """Without a code it is a group of errors. An error that says when to retry is retryable."""
        if code:
            cls.code, cls.status = code, status
            cls.retryable, cls.retry_after = retryable or retry_after is not None, retry_after

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
    """In one line, without control characters."""
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


class UnusableInput(RequestError, code="unusable_input", status=400):
    """The input contains no cursor-agent events."""


class InvalidRequest(RequestError, code="invalid_request", status=400):
    """A field is missing or invalid, or cannot be honoured."""


class PreviousAnswerUnknown(RequestError, code="previous_response_not_found", status=400):
    """The answer to continue from is not stored."""


class KeyRefused(RequestError, code="invalid_api_key", status=401):
    """The API key is missing or unknown."""


class RequestForbidden(RequestError, code="forbidden", status=403):
    """The request comes from a foreign web page or names an unknown host."""


class WorkspaceForbidden(RequestError, code="workspace_forbidden", status=403):
    """The workspace is outside the allowed roots."""


class ApprovalForbidden(RequestError, code="approval_forbidden", status=403):
    """Callers may not allow commands."""


class NotFound(RequestError, code="not_found", status=404):
    """The path, run or conversation does not exist or belongs to another owner."""


class MethodRefused(RequestError, code="method_not_allowed", status=405):
    """The path does not support the method."""


class RequestTooSlow(RequestError, code="request_timeout", status=408, retryable=True):
    """The request did not arrive in time."""


class CallerGone(RequestError, code="tool_results_missing", status=408):
    """The results of the caller's tools did not arrive in time."""


class ConversationBusy(RequestError, code="conversation_busy", status=409, retry_after=1):
    """The conversation already has an active run."""


class IdempotencyMismatch(RequestError, code="idempotency_mismatch", status=409):
    """The idempotency key was used for another request."""


class FileChanged(RequestError, code="file_changed", status=409):
    """A file cannot be reverted: it is not as the agent left it."""


class LogReset(RequestError, code="log_reset", status=409):
    """The run does not have the event that the client read last."""


class RequestTooLarge(RequestError, code="request_too_large", status=413):
    """The body is over the limit."""


class MediaTypeRefused(RequestError, code="unsupported_media_type", status=415):
    """The body is not application/json."""


class WebSocketRefused(RequestError, code="websocket_not_supported", status=426):
    """WebSocket is not supported."""


class TooManyRuns(RequestError, code="too_many_runs", status=429, retry_after=1):
    """Too many active runs."""


class QueueFull(RequestError, code="queue_full", status=429, retry_after=30):
    """Too many of the key's requests wait in the queue."""


class TooManyRequests(RequestError, code="rate_limit_exceeded", status=429, retry_after=1):
    """The key has sent too many requests in a minute."""


class KeyQuotaExhausted(RequestError, code="key_quota_exhausted", status=429):
    """The key has used all that it may use in a day or a month."""


class HeadTooLarge(RequestError, code="request_head_too_large", status=431):
    """The headers are too many or too long."""


class SettingsError(RequestError, code="settings_error", status=400):
    """A setting is unknown or invalid."""


class GatewayFault(GatewayError, code="internal_error", status=500):
    """A bug in the gateway; details are in the log."""


class GatewayRestarted(GatewayError, code="gateway_restarted", status=503, retry_after=1):
    """The gateway was restarted during the run."""


class ShuttingDown(GatewayError, code="shutting_down", status=503, retry_after=5):
    """The gateway is shutting down."""


class RunnerLost(GatewayError, code="runner_lost", status=503, retry_after=1):
    """The process that ran the agent died or lost its database."""


class NoRunner(GatewayError, code="no_runner", status=503, retry_after=5):
    """No live runner has the workspace."""


class QueueExpired(GatewayError, code="queue_expired", status=503, retry_after=60):
    """The request waited in the queue for too long."""


class TooManyConnections(GatewayError, code="too_many_connections", status=503, retry_after=1):
    """Too many open connections."""


class HostExhausted(GatewayError, code="host_exhausted", status=503, retry_after=5):
    """The system is out of file descriptors, processes, memory or disk space."""


class StoreUnavailable(GatewayError, code="store_unavailable", status=503, retry_after=5):
    """The history cannot be read or written."""

    def failure(self) -> Failure:
        """Without details: they are for the operator, and name hosts and files."""
        return msgspec.structs.replace(super().failure(), details="")


class HistoryDamaged(StoreUnavailable, code="history_damaged", status=410):
    """A part of the history is damaged and cannot be read."""


class AgentError(GatewayError):
    """The agent's side failed."""

    source = "agent"


class AgentUnauthenticated(AgentError, code="agent_unauthenticated", status=401):
    """The agent is not logged in, or its key was rejected."""


class WorkspaceUntrusted(AgentError, code="workspace_untrusted", status=403):
    """The workspace is not trusted."""


class ModelUnavailable(AgentError, code="model_not_found", status=404):
    """The model is unknown or not available to the account."""


class SessionLost(AgentError, code="session_lost", status=404):
    """The agent's session cannot be resumed."""


class AgentQuotaExhausted(AgentError, code="insufficient_quota", status=429):
    """The account has reached its usage limit."""


class AgentOverloaded(AgentError, code="agent_overloaded", status=429, retry_after=10):
    """The agent's service is overloaded or limits the rate."""


class AgentMisconfigured(AgentError, code="agent_misconfigured", status=500):
    """The agent or the account does not support an option."""


class AgentUnreachable(AgentError, code="agent_unreachable", status=502, retryable=True):
    """The agent cannot reach its service."""


class AgentCrashed(AgentError, code="agent_crashed", status=502, retryable=True):
    """The agent ended without a result."""

    def __init__(self, message: str = _CUT_SHORT, *, details: str = "", param: str | None = None) -> None:
        super().__init__(message, details=details, param=param)


class AgentFailed(AgentError, code="agent_failed", status=502, retryable=True):
    """The agent reported a failure."""


class AgentOutOfMemory(AgentError, code="agent_out_of_memory", status=502):
    """The agent and its commands used more memory than they may."""


class AgentOutputTooLarge(AgentError, code="agent_output_too_large", status=502):
    """The agent produced more output than allowed."""


class AnswerUnfit(AgentError, code="answer_unfit", status=502, retryable=True):
    """The answer does not have the requested format."""


class ToolNotCalled(AgentError, code="tool_not_called", status=502, retryable=True):
    """The agent did not call the required tool."""


class AgentLooped(AgentError, code="agent_looped", status=502):
    """The agent repeats the same calls."""


class AgentUnconfined(AgentError, code="agent_unconfined", status=502):
    """The agent used one of its own tools although it was denied."""


class AgentMissing(AgentError, code="agent_missing", status=503):
    """The agent is not installed or cannot be started."""


class AgentTimedOut(AgentError, code="agent_timed_out", status=504, retryable=True):
    """The agent was silent for too long, or the run took too long."""


class RunCancelled(AgentError, code="cancelled", status=499):
    """The run was cancelled."""


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


def unwritable(error: OSError) -> GatewayError:
    return host_exhausted(error) or GatewayFault(
        f"The gateway cannot write its files: {error.strerror}; run `cursor-gateway doctor`."
    )


def unknown_model(model: str, nearest: list[str]) -> ModelUnavailable:
    if model in nearest:  # the agent lists it, and yet refuses it
        return ModelUnavailable(
            f"The agent lists the model {model!r} but rejects it; choose another, or check your Cursor plan.",
            param="model",
        )
    near = f"did you mean {', '.join(nearest)}?" if nearest else "`cursor-gateway models` lists the known ones."
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
