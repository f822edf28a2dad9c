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

from cursor_gateway import errors
from cursor_gateway.sources.sdk.failures import Reported, error_of, failure_of, reported, run_failure

SDK_CODES: list[tuple[str, type[errors.GatewayError]]] = [
    ("UNAUTHORIZED", errors.AgentUnauthenticated),
    ("API_KEY_NOT_FOUND", errors.AgentUnauthenticated),
    ("PLAN_REQUIRED", errors.AgentMisconfigured),
    ("ROLE_FORBIDDEN", errors.AgentMisconfigured),
    ("FEATURE_UNAVAILABLE", errors.AgentMisconfigured),
    ("AGENT_NOT_FOUND", errors.SessionLost),
    ("RUN_NOT_FOUND", errors.AgentCrashed),
    ("VALIDATION_ERROR", errors.AgentMisconfigured),
    ("INVALID_MODEL", errors.ModelUnavailable),
    ("INVALID_BRANCH_NAME", errors.AgentMisconfigured),
    ("REPOSITORY_REQUIRED", errors.AgentMisconfigured),
    ("REPOSITORY_ACCESS", errors.AgentMisconfigured),
    ("PR_RESOLUTION_FAILED", errors.AgentMisconfigured),
    ("USAGE_LIMIT_EXCEEDED", errors.AgentQuotaExhausted),
    ("AGENT_BUSY", errors.ConversationBusy),
    ("AGENT_ARCHIVED", errors.SessionLost),
    ("RUN_NOT_CANCELLABLE", errors.ConversationBusy),
    ("RATE_LIMIT_EXCEEDED", errors.AgentOverloaded),
    ("UPSTREAM_ERROR", errors.AgentUnreachable),
    ("INTERNAL_ERROR", errors.AgentFailed),
    ("CLIENT_CANCELLED", errors.RunCancelled),
]
CONNECT_CODES: list[tuple[str, type[errors.GatewayError]]] = [
    ("unauthenticated", errors.AgentUnauthenticated),
    ("permission_denied", errors.AgentMisconfigured),
    ("invalid_argument", errors.AgentMisconfigured),
    ("failed_precondition", errors.AgentMisconfigured),
    ("out_of_range", errors.AgentMisconfigured),
    ("not_found", errors.SessionLost),
    ("already_exists", errors.ConversationBusy),
    ("resource_exhausted", errors.AgentOverloaded),
    ("unimplemented", errors.AgentMisconfigured),
    ("unavailable", errors.AgentUnreachable),
    ("deadline_exceeded", errors.AgentTimedOut),
    ("internal", errors.AgentFailed),
    ("aborted", errors.AgentFailed),
    ("data_loss", errors.AgentFailed),
    ("unknown", errors.AgentFailed),
    ("canceled", errors.RunCancelled),
    ("something_new", errors.AgentFailed),
]


def failed(code: str, sdk_code: str = "", message: str = "It failed.", status: int = 200, **debug: Any) -> Reported:
    payload: dict[str, Any] = {"code": code, "message": message}
    if sdk_code:
        payload["details"] = [{"debug": {"sdkErrorCode": f"SDK_ERROR_CODE_{sdk_code}", "message": message, **debug}}]
    return reported(error_from_connect_payload(payload, status=status))


@pytest.mark.parametrize(("code", "kind"), SDK_CODES)
@pytest.mark.parametrize("connect_code", ["internal", "unauthenticated", "unknown"])
def test_the_sdks_code_decides(code: str, kind: type[errors.GatewayError], connect_code: str) -> None:
    error = error_of(failed(connect_code, code))
    assert type(error) is kind
    assert error.details == "It failed."
    assert str(error).endswith(".")


@pytest.mark.parametrize(("code", "kind"), CONNECT_CODES)
@pytest.mark.parametrize("sdk_code", ["", "UNSPECIFIED"])
def test_without_one_the_protocols_code_does(code: str, kind: type[errors.GatewayError], sdk_code: str) -> None:
    assert type(error_of(failed(code, sdk_code))) is kind


def test_every_code_of_the_published_list_is_known() -> None:
    assert len(SDK_CODES) == 21


@pytest.mark.parametrize("code", ["INTERNAL_ERROR", "UPSTREAM_ERROR", ""])
def test_what_the_service_cannot_be_reached_for_is_named(code: str) -> None:
    error = error_of(failed("internal", code, "Network request failed"))
    assert type(error) is errors.AgentUnreachable


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
    assert type(error_of(gone)) is errors.AgentCrashed
    assert type(error_of(slow)) is errors.AgentTimedOut
    for error in (CursorSDKError("Unexpected end of Connect stream"), OSError("x"), ValueError("y")):
        assert type(error_of(reported(error))) is errors.AgentCrashed
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
        (ConfigurationError("no key", code="missing_api_key"), errors.AgentUnauthenticated),
        (ConfigurationError("no model", code="missing_model"), errors.ModelUnavailable),
        (ConfigurationError("a mistake"), errors.AgentFailed),
        (UnsupportedRunOperationError("cancel"), errors.AgentFailed),
        (InternalServerError("no", code="internal", status=500), errors.AgentFailed),
    ],
)
def test_what_the_sdk_finds_itself(error: Exception, kind: type[errors.GatewayError]) -> None:
    assert type(error_of(reported(error))) is kind


def test_words_tell_more_than_a_vague_code() -> None:
    words = "You've hit your usage limit"
    assert type(error_of(failed("resource_exhausted", message=words))) is errors.AgentQuotaExhausted
    assert type(error_of(failed("internal", message=words))) is errors.AgentQuotaExhausted
    assert type(error_of(failed("something_new", message=words))) is errors.AgentQuotaExhausted
    assert type(error_of(failed("internal", "RATE_LIMIT_EXCEEDED", message=words))) is errors.AgentOverloaded
    assert type(error_of(failed("internal", message="Workspace Trust Required"))) is errors.AgentFailed


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
        ("[unauthenticated] no", errors.AgentUnauthenticated),
        ("[unknown] Invalid API key", errors.AgentUnauthenticated),
        ("[permission_denied] Not for you", errors.AgentMisconfigured),
        ("[not_found] no such thing", errors.AgentMisconfigured),
        ("[not_found] Cannot use this model: x", errors.ModelUnavailable),
        ("[invalid_argument] bad", errors.AgentMisconfigured),
        ("[resource_exhausted] busy", errors.AgentOverloaded),
        ("[resource_exhausted] You've hit your usage limit", errors.AgentQuotaExhausted),
        ("[unavailable] gone", errors.AgentUnreachable),
        ("[canceled] gone", errors.AgentUnreachable),
        ("[deadline_exceeded] late", errors.AgentTimedOut),
        ("[internal] broken", errors.AgentFailed),
        ("[unknown] fetch failed", errors.AgentUnreachable),
        ("[nonsense] strange", errors.AgentFailed),
        ("Slow down Too many requests in a short time.", errors.AgentOverloaded),
        ("Connection failed repeatedly", errors.AgentUnreachable),
        ("Connection stalled repeatedly", errors.AgentUnreachable),
        ("Not logged in", errors.AgentUnauthenticated),
        ("Something [unavailable] in the middle", errors.AgentUnreachable),
        ("Something else", errors.AgentFailed),
    ],
)
def test_a_failed_run_has_its_code_in_its_text(text: str, meant: type[errors.GatewayError]) -> None:
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
    assert isinstance(error_of(left), errors.ConversationBusy)
    assert not Reported(name="InternalServerError", message="broken", code="internal").is_busy
