"""Errors in the form that the gateway's own API and OpenAI's have in common."""

import json

import msgspec
import pytest

from cursor_gateway import errors
from cursor_gateway.dialects.errors import (
    NO_CAPACITY,
    OPENAI_ERRORS,
    OWN_ERRORS,
    encode_error,
    error_body,
    error_in_stream,
)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.AgentUnauthenticated, "authentication_error"),
        (errors.WorkspaceUntrusted, "permission_error"),
        (errors.ModelUnavailable, "invalid_request_error"),
        (errors.RunCancelled, "invalid_request_error"),
        (errors.AgentQuotaExhausted, "insufficient_quota"),
        (errors.AgentOverloaded, "rate_limit_error"),
        (errors.AgentCrashed, "api_error"),
    ],
)
def test_an_error_has_openais_shape_and_kind(error: type[errors.AgentError], kind: str) -> None:
    body = json.loads(msgspec.json.encode(error_body(error("It failed.").failure())))
    assert body == {"message": "It failed.", "type": kind, "param": None, "code": error.code}


def test_an_error_names_the_field_that_is_to_blame() -> None:
    body = json.loads(encode_error(errors.InvalidRequest("Send 1.", param="n").failure()))
    assert body == {
        "error": {"message": "Send 1.", "type": "invalid_request_error", "param": "n", "code": "invalid_request"}
    }


def test_other_fields_stand_beside_the_error() -> None:
    failure = errors.AgentCrashed("It crashed.").failure()
    body = json.loads(encode_error(failure, {"id": "chat_1", "documents": []}))
    assert body == {**json.loads(OPENAI_ERRORS.encode(failure, "req_1")), "id": "chat_1", "documents": []}


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.AgentUnauthenticated, 401),
        (errors.WorkspaceUntrusted, 403),
        (errors.ModelUnavailable, 404),
        (errors.RunCancelled, 499),
        (errors.AgentQuotaExhausted, 402),
        (errors.KeyQuotaExhausted, 402),
        (errors.AgentOverloaded, 424),
        (errors.AgentMisconfigured, 424),
        (errors.AgentCrashed, 424),
        (errors.AgentMissing, 424),
        (errors.AgentTimedOut, 424),
    ],
)
def test_what_an_agent_reports_has_a_status_that_clients_do_not_retry(
    error: type[errors.GatewayError], status: int
) -> None:
    failure = error("It failed.").failure()
    shown = OPENAI_ERRORS.shown(failure)
    assert (shown.status, shown.retryable, shown.retry_after) == (status, False, None)
    assert OWN_ERRORS.shown(failure) == failure
    assert error_body(shown).code == (NO_CAPACITY if error is errors.AgentOverloaded else error.code)


@pytest.mark.parametrize("error", [errors.InvalidRequest, errors.TooManyRuns, errors.ShuttingDown, errors.GatewayFault])
def test_what_the_gateway_refuses_has_its_own_status(error: type[errors.GatewayError]) -> None:
    failure = error("Not now.").failure()
    assert OPENAI_ERRORS.shown(failure) == failure


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.AgentUnauthenticated, "authentication_error"),
        (errors.AgentQuotaExhausted, "insufficient_quota"),
        (errors.AgentOverloaded, "invalid_request_error"),
        (errors.AgentCrashed, "invalid_request_error"),
        (errors.ShuttingDown, "invalid_request_error"),
    ],
)
def test_an_error_in_a_stream_has_a_kind_that_clients_do_not_retry(error: type[errors.GatewayError], kind: str) -> None:
    assert error_in_stream(error("It failed.").failure()).type == kind


def test_the_agents_own_words_are_left_out_where_they_could_cause_retries() -> None:
    crashed = errors.AgentCrashed("It failed.", details="ECONNRESET 503").failure()
    assert OPENAI_ERRORS.shown(crashed).details == ""
    assert OPENAI_ERRORS.shown(errors.AgentUnauthenticated("No.", details="Why.").failure()).details == "Why."


def test_a_status_for_clients_has_a_kind() -> None:
    shown = [
        OPENAI_ERRORS.shown(error("It failed.").failure())
        for error in (errors.AgentQuotaExhausted, errors.AgentOverloaded)
    ]
    assert [error_body(failure).type for failure in shown] == ["insufficient_quota", "api_error"]
