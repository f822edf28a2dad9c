"""The error of a response whose run failed."""

import json

import pytest

from cursor_gateway import errors
from cursor_gateway.dialects.responses.shapes import RESPONSES_ERRORS, ResponseError, response_error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.AgentUnauthenticated("Log in."), ResponseError("invalid_prompt", "Log in.")),
        (errors.AgentQuotaExhausted("No more."), ResponseError("invalid_prompt", "No more.")),
        (errors.ShuttingDown("Stopping."), ResponseError("rate_limit_exceeded", "Stopping. Please try again in 5s.")),
        (errors.AgentOverloaded("Busy."), ResponseError("invalid_prompt", "Busy.")),
        (errors.AgentCrashed("Broken."), ResponseError("invalid_prompt", "Broken.")),
    ],
)
def test_codex_gets_a_code_that_it_acts_on(error: errors.GatewayError, expected: ResponseError) -> None:
    assert response_error(error.failure(), is_codex=True, has_begun=False) == expected
    for has_begun in (False, True):
        plain = response_error(error.failure(), is_codex=False, has_begun=has_begun)
        assert (plain.message, plain.type) == (str(error), RESPONSES_ERRORS.shown(error.failure()).code)


def test_codex_does_not_retry_what_would_fail_in_the_same_way() -> None:
    failure = errors.GatewayRestarted("Broken.").failure()
    assert response_error(failure, is_codex=True, has_begun=True) == ResponseError("invalid_prompt", "Broken.")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.AgentUnauthenticated("Log in."), "invalid_prompt"),
        (errors.AgentQuotaExhausted("No more."), "rate_limit_exceeded"),
        (errors.AgentOverloaded("Busy."), "rate_limit_exceeded"),
        (errors.AgentCrashed("Broken."), "server_error"),
        (errors.RunCancelled("Stopped."), "server_error"),
    ],
)
def test_others_get_a_code_of_openais(error: errors.GatewayError, code: str) -> None:
    assert response_error(error.failure(), is_codex=False, has_begun=True).code == code


def test_fields_are_named_as_this_api_calls_them() -> None:
    for param, expected in (("conversationId", "conversation"), ("input", "input"), (None, None)):
        failure = errors.NotFound("Unknown.", param=param).failure()
        assert json.loads(RESPONSES_ERRORS.encode(failure, ""))["error"]["param"] == expected
