"""Translate an error of the SDK, or the status of a failed run, into an error of the gateway.

The SDK's error classes are less precise than the codes on the wire, so the code is checked first. Failed runs have
only a text: `[code] message`, or what Cursor shows to people, the same as with the other sources.
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
from cursor_gateway.sources.cursor import failures

_NETWORK = re.compile(r"network|fetch failed|socket|ENOTFOUND|ECONN|EAI_AGAIN|ETIMEDOUT|timed? ?out", re.IGNORECASE)
_SECONDS = re.compile(r"(\d+)(?:\.\d+)?s?")
_LEADING_CODE = re.compile(r"\[([a-z_]+)\]")

# What the runtime says of a failed run, whatever the code.
_RUN_WORDS = [
    (re.compile(r"Invalid API key", re.IGNORECASE), "unauthenticated"),
    (re.compile(r"Too many requests|Slow down", re.IGNORECASE), "resource_exhausted"),
    (re.compile(r"Connection (?:failed|stalled)", re.IGNORECASE), "unavailable"),
]
# A failed run was not cancelled by its user, and its session exists.
_RUN_CODES = {"canceled": "unavailable", "not_found": "unknown_resource"}

_BAD_KEY = "Cursor rejected the API key; set CURSOR_API_KEY to a valid one (cursor.com/dashboard, Integrations)."
_REFUSED = "Cursor does not allow this for the account of this API key; use another account, or another model."
_GIVEN_UP = "Cursor's service failed; try again in a while."

# Codes of the SDK, and those of its protocol, which are used where the SDK has none.
_TABLE: list[tuple[str, type[GatewayError], str]] = [
    ("unauthorized api_key_not_found unauthenticated", AgentUnauthenticated, _BAD_KEY),
    ("missing_api_key", AgentUnauthenticated, "Cursor's SDK needs an API key; set CURSOR_API_KEY."),
    ("plan_required", AgentMisconfigured, "This needs another Cursor plan."),
    ("role_forbidden feature_unavailable repository_access permission_denied", AgentMisconfigured, _REFUSED),
    ("validation_error invalid_branch_name repository_required", AgentMisconfigured, failures.BAD_OPTION),
    ("pr_resolution_failed invalid_argument failed_precondition out_of_range", AgentMisconfigured, failures.BAD_OPTION),
    (
        "unimplemented",
        AgentMisconfigured,
        "This version of the SDK cannot do that; install the supported one with `pipx install --force '.[sdk]'` in "
        "cursor-gateway's folder.",
    ),
    ("agent_not_found not_found", SessionLost, "The agent's session no longer exists; start a new conversation."),
    (
        "unknown_resource",
        AgentMisconfigured,
        "Cursor's service does not know something that the run needs; try another model, or a new conversation.",
    ),
    ("agent_archived", SessionLost, "The agent's session is archived; start a new conversation."),
    ("run_not_found", AgentCrashed, "The agent's run no longer exists; send the message again."),
    (
        "invalid_model",
        ModelUnavailable,
        "The agent does not know this model, or may not use it; choose one that `cursor-gateway models` lists.",
    ),
    (
        "missing_model",
        ModelUnavailable,
        "The SDK needs the name of a model; choose one that `cursor-gateway models` lists.",
    ),
    ("usage_limit_exceeded", AgentQuotaExhausted, failures.USAGE_LIMIT),
    (
        "agent_busy already_exists",
        ConversationBusy,
        "The agent is still busy with this conversation; try again in a moment.",
    ),
    ("run_not_cancellable", ConversationBusy, "The agent's run cannot be stopped now; try again in a moment."),
    ("rate_limit_exceeded rate_limited resource_exhausted", AgentOverloaded, failures.NO_CAPACITY),
    ("client_cancelled canceled cancelled", RunCancelled, failures.CANCELLED),
    ("unavailable", AgentUnreachable, failures.CONNECTION_LOST),
    ("deadline_exceeded timeout", AgentTimedOut, "Cursor's service did not answer in time; try again in a while."),
    ("upstream_error", AgentUnreachable, _GIVEN_UP),
    ("internal_error internal aborted data_loss unknown", AgentFailed, _GIVEN_UP),
]
_CODES = {code: (kind, message) for codes, kind, message in _TABLE for code in codes.split()}
_SERVICE = frozenset({"upstream_error", "internal_error", "internal", "unknown"})  # or the way to it
_WORDS_DECIDE = _SERVICE | {
    "resource_exhausted",
    "permission_denied",
    "failed_precondition",
    "invalid_argument",
    "unknown_resource",
}
_IMPORTANT = (AgentQuotaExhausted, ModelUnavailable, AgentUnauthenticated)  # what words add to such a code


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
    def is_busy(self) -> bool:
        """The agent has an active run. A bridge that finds one in the store of a dead bridge has no code for it."""
        return self.sdk_code == "agent_busy" or "already has active run" in self.message

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
    details = failures.plain(report.message)
    if report.is_slow:
        return AgentTimedOut("The SDK's bridge did not answer in time; try again.", details=details)
    if report.is_transport:
        return AgentCrashed(
            "The SDK's bridge stopped before the agent had finished. Try again.",
            details=details,
        )
    return _by_code("agent_busy" if report.is_busy else report.sdk_code or report.code, details)


def failure_of(report: Reported) -> Failure:
    """The failure as reported to clients, with the service's retry delay."""
    failure = error_of(report).failure()
    seconds = _SECONDS.fullmatch(report.retry_after)
    return replace(failure, retry_after=max(1, int(seconds[1]))) if seconds and failure.retryable else failure


def run_failure(status: str, code: str, message: str) -> Failure:
    """The failure of a run whose status is `error`, `cancelled` or `expired`."""
    details = failures.plain(message)
    match status:
        case "cancelled":
            return _by_code("canceled", details).failure()
        case "expired":
            return AgentTimedOut("The agent's run has expired; try again.", details=details).failure()
        case _:
            return _by_code(_normal(code) or _code_in(details), details).failure()


def _code_in(text: str) -> str:
    """The code that a failed run's text contains or means; empty if there is none."""
    for words, code in _RUN_WORDS:
        if words.search(text):
            return code
    found = _LEADING_CODE.match(text)
    return _RUN_CODES.get(found[1], found[1]) if found else ""


def _by_code(code: str, details: str) -> GatewayError:
    words: GatewayError | None = failures.known_failure(details)
    if isinstance(words, AgentUnauthenticated):
        words = AgentUnauthenticated(_BAD_KEY, details=details)  # a login would not help
    if words is not None and (code not in _CODES or (code in _WORDS_DECIDE and isinstance(words, _IMPORTANT))):
        return words
    if code not in _CODES:
        return failures.reported_failure(details)
    kind, message = _CODES[code]
    if code in _SERVICE and _NETWORK.search(details):
        kind, message = _CODES["unavailable"]
    if kind in failures.QUOTED:
        message = failures.quoting(message, details)
    return kind(message, details=details)


def _normal(code: object) -> str:
    return code.removeprefix("SDK_ERROR_CODE_").lower().replace("unspecified", "") if isinstance(code, str) else ""
