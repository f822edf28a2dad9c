"""The SDK's errors, row by row, as errors of ours."""

from typing import Any

import pytest
from cursor_sdk import (
    APITimeoutError,
    ConfigurationError,
    CursorSDKError,
    InternalServerError,
    NetworkError,
    UnsupportedRunOperationError,
)
from cursor_sdk.errors import error_from_connect_payload

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
    GatewayError,
    ModelUnavailable,
    RunCancelled,
    SessionLost,
)
from cursor_gateway.sources.sdk.failures import Reported, error_of, failure_of, reported, run_failure

SDK_CODES: list[tuple[str, type[GatewayError]]] = [
    ("UNAUTHORIZED", AgentUnauthenticated),
    ("API_KEY_NOT_FOUND", AgentUnauthenticated),
    ("PLAN_REQUIRED", AgentMisconfigured),
    ("ROLE_FORBIDDEN", AgentMisconfigured),
    ("FEATURE_UNAVAILABLE", AgentMisconfigured),
    ("AGENT_NOT_FOUND", SessionLost),
    ("RUN_NOT_FOUND", AgentCrashed),
    ("VALIDATION_ERROR", AgentMisconfigured),
    ("INVALID_MODEL", ModelUnavailable),
    ("INVALID_BRANCH_NAME", AgentMisconfigured),
    ("REPOSITORY_REQUIRED", AgentMisconfigured),
    ("REPOSITORY_ACCESS", AgentMisconfigured),
    ("PR_RESOLUTION_FAILED", AgentMisconfigured),
    ("USAGE_LIMIT_EXCEEDED", AgentQuotaExhausted),
    ("AGENT_BUSY", ConversationBusy),
    ("AGENT_ARCHIVED", SessionLost),
    ("RUN_NOT_CANCELLABLE", ConversationBusy),
    ("RATE_LIMIT_EXCEEDED", AgentOverloaded),
    ("UPSTREAM_ERROR", AgentUnreachable),
    ("INTERNAL_ERROR", AgentFailed),
    ("CLIENT_CANCELLED", RunCancelled),
]
CONNECT_CODES: list[tuple[str, type[GatewayError]]] = [
    ("unauthenticated", AgentUnauthenticated),
    ("permission_denied", AgentMisconfigured),
    ("invalid_argument", AgentMisconfigured),
    ("failed_precondition", AgentMisconfigured),
    ("out_of_range", AgentMisconfigured),
    ("not_found", SessionLost),
    ("already_exists", ConversationBusy),
    ("resource_exhausted", AgentOverloaded),
    ("unimplemented", AgentMisconfigured),
    ("unavailable", AgentUnreachable),
    ("deadline_exceeded", AgentTimedOut),
    ("internal", AgentFailed),
    ("aborted", AgentFailed),
    ("data_loss", AgentFailed),
    ("unknown", AgentFailed),
    ("canceled", RunCancelled),
    ("something_new", AgentFailed),
]


def failed(code: str, sdk_code: str = "", message: str = "It failed.", status: int = 200, **debug: Any) -> Reported:
    payload: dict[str, Any] = {"code": code, "message": message}
    if sdk_code:
        payload["details"] = [{"debug": {"sdkErrorCode": f"SDK_ERROR_CODE_{sdk_code}", "message": message, **debug}}]
    return reported(error_from_connect_payload(payload, status=status))


@pytest.mark.parametrize(("code", "kind"), SDK_CODES)
@pytest.mark.parametrize("connect_code", ["internal", "unauthenticated", "unknown"])
def test_the_sdks_code_decides(code: str, kind: type[GatewayError], connect_code: str) -> None:
    error = error_of(failed(connect_code, code))
    assert type(error) is kind
    assert error.details == "It failed."
    assert str(error).endswith(".")


@pytest.mark.parametrize(("code", "kind"), CONNECT_CODES)
@pytest.mark.parametrize("sdk_code", ["", "UNSPECIFIED"])
def test_without_one_the_protocols_code_does(code: str, kind: type[GatewayError], sdk_code: str) -> None:
    assert type(error_of(failed(code, sdk_code))) is kind


def test_every_code_of_the_published_list_is_known() -> None:
    assert len(SDK_CODES) == 21


@pytest.mark.parametrize("code", ["INTERNAL_ERROR", "UPSTREAM_ERROR", ""])
def test_what_the_service_cannot_be_reached_for_is_named(code: str) -> None:
    error = error_of(failed("internal", code, "Network request failed"))
    assert type(error) is AgentUnreachable


@pytest.mark.parametrize(("retry_after", "seconds"), [("3s", 3), ("0.5s", 1), ("12", 12), ("soon", 10)])
def test_the_time_to_wait_is_handed_on(retry_after: str, seconds: int) -> None:
    failure = failure_of(failed("resource_exhausted", "RATE_LIMIT_EXCEEDED", retryAfter=retry_after))
    assert failure.retry_after == seconds
    assert failure.status == 429


def test_who_does_not_answer_has_gone_or_is_slow() -> None:
    gone, slow = reported(NetworkError("no", is_retryable=True)), reported(APITimeoutError("late", is_retryable=True))
    assert gone.is_transport
    assert not gone.is_slow
    assert slow.is_slow
    assert type(error_of(gone)) is AgentCrashed
    assert type(error_of(slow)) is AgentTimedOut
    for error in (CursorSDKError("Unexpected end of Connect stream"), OSError("x"), ValueError("y")):
        assert type(error_of(reported(error))) is AgentCrashed
        assert reported(error).is_transport


def test_an_unavailable_service_is_no_dead_bridge() -> None:
    assert not failed("unavailable").is_transport
    assert not failed("deadline_exceeded").is_slow


def test_a_refused_token_may_be_the_bridges() -> None:
    assert failed("unauthenticated", status=401).may_be_the_bridge
    assert not failed("unauthenticated", "UNAUTHORIZED", status=401).may_be_the_bridge
    assert not failed("unauthenticated", status=200).may_be_the_bridge


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConfigurationError("no key", code="missing_api_key"), AgentUnauthenticated),
        (ConfigurationError("no model", code="missing_model"), ModelUnavailable),
        (ConfigurationError("a mistake"), AgentFailed),
        (UnsupportedRunOperationError("cancel"), AgentFailed),
        (InternalServerError("no", code="internal", status=500), AgentFailed),
    ],
)
def test_what_the_sdk_finds_itself(error: Exception, kind: type[GatewayError]) -> None:
    assert type(error_of(reported(error))) is kind


def test_words_tell_more_than_a_vague_code() -> None:
    words = "You've hit your usage limit"
    assert type(error_of(failed("resource_exhausted", message=words))) is AgentQuotaExhausted
    assert type(error_of(failed("internal", message=words))) is AgentQuotaExhausted
    assert type(error_of(failed("something_new", message=words))) is AgentQuotaExhausted
    assert type(error_of(failed("internal", "RATE_LIMIT_EXCEEDED", message=words))) is AgentOverloaded
    assert type(error_of(failed("internal", message="Workspace Trust Required"))) is AgentFailed


@pytest.mark.parametrize(
    ("status", "code", "message", "meant"),
    [
        ("error", "usage_limit_exceeded", "", "insufficient_quota"),
        ("error", "SDK_ERROR_CODE_RATE_LIMIT_EXCEEDED", "", "agent_overloaded"),
        ("error", "rate_limited", "", "agent_overloaded"),
        ("error", "timeout", "", "agent_timed_out"),
        ("error", "", "You've hit your usage limit", "insufficient_quota"),
        ("error", "", "Something else.", "agent_failed"),
        ("error", "", "", "agent_failed"),
        ("expired", "", "", "agent_timed_out"),
        ("cancelled", "", "", "cancelled"),
        ("cancelled", "usage_limit_exceeded", "x", "cancelled"),
        ("new", "unavailable", "", "agent_unreachable"),
    ],
)
def test_a_run_that_failed_says_why(status: str, code: str, message: str, meant: str) -> None:
    assert run_failure(status, code, message).code == meant


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("[unauthenticated] no", AgentUnauthenticated),
        ("[unknown] Invalid API key", AgentUnauthenticated),
        ("[permission_denied] Not for you", AgentMisconfigured),
        ("[not_found] no such thing", AgentMisconfigured),
        ("[not_found] Cannot use this model: x", ModelUnavailable),
        ("[invalid_argument] bad", AgentMisconfigured),
        ("[resource_exhausted] busy", AgentOverloaded),
        ("[resource_exhausted] You've hit your usage limit", AgentQuotaExhausted),
        ("[unavailable] gone", AgentUnreachable),
        ("[canceled] gone", AgentUnreachable),
        ("[deadline_exceeded] late", AgentTimedOut),
        ("[internal] broken", AgentFailed),
        ("[unknown] fetch failed", AgentUnreachable),
        ("[nonsense] strange", AgentFailed),
        ("Slow down Too many requests in a short time.", AgentOverloaded),
        ("Connection failed repeatedly", AgentUnreachable),
        ("Connection stalled repeatedly", AgentUnreachable),
        ("Not logged in", AgentUnauthenticated),
        ("Something [unavailable] in the middle", AgentUnreachable),
        ("Something else", AgentFailed),
    ],
)
def test_a_failed_run_has_its_code_in_its_text(text: str, meant: type[GatewayError]) -> None:
    failure = run_failure("error", "", text)
    assert failure.code == meant.code
    assert failure.details == text


def test_nobody_is_told_to_log_in_where_a_key_is_needed() -> None:
    assert "CURSOR_API_KEY" in run_failure("error", "", "Authentication required").message
    assert "login" not in run_failure("error", "", "Authentication required").message


def test_the_words_of_a_refusal_are_quoted() -> None:
    assert "Not for you" in run_failure("error", "", "[permission_denied] Not for you").message


def test_a_run_that_is_left_over_has_no_code() -> None:
    """Seen with SDK 1.1.0, after its bridge was killed in the middle of a run."""
    left = Reported(name="InternalServerError", message="Agent agent-1 already has active run", code="internal")
    assert left.is_busy
    assert isinstance(error_of(left), ConversationBusy)
    assert not Reported(name="InternalServerError", message="broken", code="internal").is_busy
