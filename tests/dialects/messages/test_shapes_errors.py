"""Anthropic's errors: a type for every status, and in a stream only types that clients do not retry."""

import json

import msgspec
import pytest

from cursor_gateway.dialects.errors import for_retrying_clients
from cursor_gateway.dialects.messages.shapes import ANTHROPIC_ERRORS, encode_error, error_type, stream_error
from cursor_gateway.errors import (
    AgentCrashed,
    AgentMissing,
    AgentOverloaded,
    AgentQuotaExhausted,
    AgentTimedOut,
    AgentUnauthenticated,
    ConversationBusy,
    GatewayError,
    InvalidRequest,
    KeyRefused,
    ModelUnavailable,
    RequestTooLarge,
    ShuttingDown,
    TooManyRuns,
    WorkspaceForbidden,
)
from tests.anthropic_shapes import Error, events_of

TYPES: list[tuple[type[GatewayError], str]] = [
    (InvalidRequest, "invalid_request_error"),
    (ConversationBusy, "invalid_request_error"),
    (KeyRefused, "authentication_error"),
    (AgentUnauthenticated, "authentication_error"),
    (WorkspaceForbidden, "permission_error"),
    (ModelUnavailable, "not_found_error"),
    (RequestTooLarge, "request_too_large"),
    (TooManyRuns, "rate_limit_error"),
    (AgentOverloaded, "rate_limit_error"),
    (AgentCrashed, "api_error"),
    (AgentMissing, "api_error"),
    (ShuttingDown, "overloaded_error"),
    (AgentTimedOut, "timeout_error"),
]


@pytest.mark.parametrize(("error", "type"), TYPES, ids=[error.__name__ for error, _ in TYPES])
def test_the_type_follows_from_the_status(error: type[GatewayError], type: str) -> None:
    body = encode_error(error("Why it failed.").failure())
    assert msgspec.json.decode(body, type=Error)
    assert json.loads(body) == {"type": "error", "error": {"type": type, "message": "Why it failed."}}


def test_an_error_has_the_id_of_its_request() -> None:
    failure = AgentCrashed("Why it failed.").failure()
    (event,) = events_of(stream_error(failure, "req_1"))
    assert isinstance(event, Error)
    bodies = [
        msgspec.json.decode(encode(failure, "req_1"), type=Error) for encode in (encode_error, ANTHROPIC_ERRORS.encode)
    ]
    assert [body.request_id for body in (event, *bodies)] == ["req_1"] * 3


def test_an_error_that_must_not_be_retried_has_no_digits_of_an_id() -> None:
    failures = [for_retrying_clients(error("Why.").failure()) for error in (AgentCrashed, AgentQuotaExhausted)]
    assert [failure.status for failure in failures] == [424, 402]
    assert not [failure for failure in failures if b"503" in encode_error(failure, "req_503")]


def test_anthropics_own_statuses_are_known() -> None:
    assert [error_type(status) for status in (402, 500, 529)] == ["billing_error", "api_error", "overloaded_error"]


@pytest.mark.parametrize(
    ("error", "expected"),
    [(TooManyRuns, True), (AgentOverloaded, False), (AgentCrashed, False), (AgentTimedOut, False), (KeyRefused, False)],
)
def test_clients_are_told_to_retry_only_what_runs_no_agent_again(error: type[GatewayError], expected: bool) -> None:
    assert ANTHROPIC_ERRORS.shown(error("Why it failed.").failure()).retryable == expected


@pytest.mark.parametrize(
    ("error", "type"),
    [(AgentOverloaded, "rate_limit_error"), (AgentCrashed, "invalid_request_error"), (AgentMissing, None)],
)
def test_an_error_in_a_stream_is_one_that_is_shown_and_not_retried(error: type[GatewayError], type: str | None) -> None:
    (event,) = events_of(stream_error(error("Why it failed.").failure()))
    assert isinstance(event, Error)
    assert (event.error.type, event.error.message) == (type or "invalid_request_error", "Why it failed.")
