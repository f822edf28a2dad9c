"""Translate an error of the SDK, or the status of a failed run, into an error of the gateway.

The SDK's error classes are less precise than the codes on the wire, so the code is checked first. Some failures have
only a text, which is the agent's own, the same as with the other sources.
"""

import re

from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.errors import (
    AgentCrashed,
    AgentFailed,
    AgentMisconfigured,
    AgentOverloaded,
    AgentQuotaExhausted,
    AgentTimedOut,
    AgentUnauthenticated,
    AgentUnreachable,
    ConversationBusy,
    Failure,
    GatewayError,
    ModelUnavailable,
    RunCancelled,
    SessionLost,
)
from cursor_gateway.sources.cursor.failures import known_failure, plain, quoting, reported_failure

_NETWORK = re.compile(r"network|fetch failed|socket|ENOTFOUND|ECONN|EAI_AGAIN|ETIMEDOUT|timed? ?out", re.IGNORECASE)
_SECONDS = re.compile(r"(\d+)(?:\.\d+)?s?")

_BAD_KEY = "Cursor rejected the API key; set CURSOR_API_KEY to a valid one (cursor.com/dashboard, Integrations)."
_REFUSED = "Cursor does not allow this for the account of this API key; use another account, or another model."
_UNUSABLE = "The agent rejected one of its options."
_NO_CAPACITY = "Cursor's service has no capacity for this request at the moment; try again later."
_GIVEN_UP = "Cursor's service failed; try again in a while."

# The SDK's own codes, then those of its protocol, which are used where the SDK has none.
_CODES: dict[str, tuple[type[GatewayError], str]] = {
    "unauthorized": (AgentUnauthenticated, _BAD_KEY),
    "api_key_not_found": (AgentUnauthenticated, _BAD_KEY),
    "plan_required": (AgentMisconfigured, "This needs another Cursor plan."),
    "role_forbidden": (AgentMisconfigured, _REFUSED),
    "feature_unavailable": (AgentMisconfigured, _REFUSED),
    "agent_not_found": (SessionLost, "The agent's session no longer exists; start a new conversation."),
    "run_not_found": (AgentCrashed, "The agent's run no longer exists; send the message again."),
    "validation_error": (AgentMisconfigured, _UNUSABLE),
    "invalid_model": (
        ModelUnavailable,
        "The agent does not know this model, or may not use it; choose one that GET /v1/models lists.",
    ),
    "invalid_branch_name": (AgentMisconfigured, _UNUSABLE),
    "repository_required": (AgentMisconfigured, _UNUSABLE),
    "repository_access": (AgentMisconfigured, _REFUSED),
    "pr_resolution_failed": (AgentMisconfigured, _UNUSABLE),
    "usage_limit_exceeded": (
        AgentQuotaExhausted,
        "The Cursor account has reached its usage limit; wait for its reset or raise the limit.",
    ),
    "agent_busy": (ConversationBusy, "The agent is still busy with this conversation; try again in a moment."),
    "agent_archived": (SessionLost, "The agent's session is archived; start a new conversation."),
    "run_not_cancellable": (ConversationBusy, "The agent's run cannot be stopped now; try again in a moment."),
    "rate_limit_exceeded": (AgentOverloaded, _NO_CAPACITY),
    "upstream_error": (AgentUnreachable, _GIVEN_UP),
    "internal_error": (AgentFailed, _GIVEN_UP),
    "client_cancelled": (RunCancelled, "The run was cancelled; start it again to get the whole answer."),
    "canceled": (RunCancelled, "The run was cancelled; start it again to get the whole answer."),
    "unauthenticated": (AgentUnauthenticated, _BAD_KEY),
    "permission_denied": (AgentMisconfigured, _REFUSED),
    "invalid_argument": (AgentMisconfigured, _UNUSABLE),
    "failed_precondition": (AgentMisconfigured, _UNUSABLE),
    "out_of_range": (AgentMisconfigured, _UNUSABLE),
    "not_found": (SessionLost, "The agent's session no longer exists; start a new conversation."),
    "already_exists": (ConversationBusy, "The agent is still busy with this conversation; try again in a moment."),
    "resource_exhausted": (AgentOverloaded, _NO_CAPACITY),
    "unimplemented": (
        AgentMisconfigured,
        "This version of the SDK cannot do that; install the supported one with `pip install cursor-gateway[sdk]`.",
    ),
    "unavailable": (
        AgentUnreachable,
        "The agent lost its connection to Cursor's service; check the network and try again.",
    ),
    "deadline_exceeded": (AgentTimedOut, "Cursor's service did not answer in time; try again in a while."),
    "internal": (AgentFailed, _GIVEN_UP),
    "aborted": (AgentFailed, _GIVEN_UP),
    "data_loss": (AgentFailed, _GIVEN_UP),
    "unknown": (AgentFailed, _GIVEN_UP),
    # Errors that the SDK finds itself, before it calls the service.
    "missing_api_key": (AgentUnauthenticated, "Cursor's SDK needs an API key; set CURSOR_API_KEY."),
    "missing_model": (ModelUnavailable, "The SDK needs the name of a model; choose one that GET /v1/models lists."),
}
_ALIASES = {"rate_limited": "rate_limit_exceeded", "cancelled": "canceled", "timeout": "deadline_exceeded"}
_SERVICE = frozenset({"upstream_error", "internal_error", "internal", "unknown"})  # or the way to it
_WORDS_DECIDE = _SERVICE | {"resource_exhausted", "permission_denied", "failed_precondition", "invalid_argument"}
_IMPORTANT = (AgentQuotaExhausted, ModelUnavailable, AgentUnauthenticated)  # what words add to such a code
_QUOTED = (AgentQuotaExhausted, AgentMisconfigured)  # the remedy depends on the service's exact words, so quote them


class Reported(Struct, frozen=True, kw_only=True):
    """An error of the SDK, as facts."""

    name: str  # of its class
    message: str
    sdk_code: str = ""
    code: str = ""  # of the protocol
    status: int | None = None
    retry_after: str = ""

    @property
    def is_transport(self) -> bool:
        """The bridge did not answer, or not intelligibly: every proper answer has a code."""
        return not self.code and not self.sdk_code and self.name != "ConfigurationError"

    @property
    def is_slow(self) -> bool:
        return self.is_transport and self.name == "APITimeoutError"

    @property
    def may_be_the_bridge(self) -> bool:
        """A rejected token for the bridge looks like a rejected API key."""
        return self.code == "unauthenticated" and not self.sdk_code and self.status == 401


def reported(error: Exception) -> Reported:
    """Reads the attributes, so that the SDK need not be imported."""
    return Reported(
        name=type(error).__name__,
        message=str(getattr(error, "message", "") or error),
        sdk_code=_normal(getattr(error, "proto_error_code", None)),
        code=_normal(getattr(error, "code", None)),
        status=getattr(error, "status", None),
        retry_after=str(getattr(error, "retry_after", None) or ""),
    )


def error_of(report: Reported) -> GatewayError:
    details = plain(report.message)
    if report.is_slow:
        return AgentTimedOut("The SDK's bridge did not answer in time; try again.", details=details)
    if report.is_transport:
        return AgentCrashed(
            "The SDK's bridge stopped before the agent had finished; partial output was kept. Try again.",
            details=details,
        )
    return _by_code(report.sdk_code or report.code, details)


def failure_of(report: Reported) -> Failure:
    """The failure as reported to clients, with the service's retry delay."""
    failure = error_of(report).failure()
    seconds = _SECONDS.fullmatch(report.retry_after)
    return replace(failure, retry_after=max(1, int(seconds[1]))) if seconds and failure.retryable else failure


def run_failure(status: str, code: str, message: str) -> Failure:
    """The failure of a run whose status is `error`, `cancelled` or `expired`."""
    details = plain(message)
    match status:
        case "cancelled":
            return _by_code("canceled", details).failure()
        case "expired":
            return AgentTimedOut("The agent's run has expired; try again.", details=details).failure()
        case _:
            return _by_code(_normal(code), details).failure()


def _by_code(code: str, details: str) -> GatewayError:
    code = _ALIASES.get(code, code)
    words = known_failure(details)
    if words is not None and (code not in _CODES or (code in _WORDS_DECIDE and isinstance(words, _IMPORTANT))):
        return words
    if code not in _CODES:
        return reported_failure(details)
    kind, message = _CODES[code]
    if code in _SERVICE and _NETWORK.search(details):
        kind, message = _CODES["unavailable"]
    if kind in _QUOTED:
        message = quoting(message, details)
    return kind(message, details=details)


def _normal(code: object) -> str:
    return code.removeprefix("SDK_ERROR_CODE_").lower().replace("unspecified", "") if isinstance(code, str) else ""
