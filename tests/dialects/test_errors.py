"""Errors in the form that the gateway's own API and OpenAI's have in common."""

import json

import msgspec
import pytest

from cursor_gateway.dialects.errors import OPENAI_ERRORS, encode_error, error_body
from cursor_gateway.errors import (
    AgentCrashed,
    AgentError,
    AgentOverloaded,
    AgentQuotaExhausted,
    AgentUnauthenticated,
    InvalidRequest,
    ModelUnavailable,
    RunCancelled,
    WorkspaceUntrusted,
)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (AgentUnauthenticated, "authentication_error"),
        (WorkspaceUntrusted, "permission_error"),
        (ModelUnavailable, "invalid_request_error"),
        (RunCancelled, "invalid_request_error"),
        (AgentQuotaExhausted, "insufficient_quota"),
        (AgentOverloaded, "rate_limit_error"),
        (AgentCrashed, "api_error"),
    ],
)
def test_an_error_has_openais_shape_and_kind(error: type[AgentError], kind: str) -> None:
    body = json.loads(msgspec.json.encode(error_body(error("It failed.").failure())))
    assert body == {"message": "It failed.", "type": kind, "param": None, "code": error.code}


def test_an_error_names_the_field_that_is_to_blame() -> None:
    body = json.loads(encode_error(InvalidRequest("Send 1.", param="n").failure()))
    assert body == {
        "error": {"message": "Send 1.", "type": "invalid_request_error", "param": "n", "code": "invalid_request"}
    }


def test_other_fields_stand_beside_the_error() -> None:
    failure = AgentCrashed("It crashed.").failure()
    body = json.loads(encode_error(failure, {"id": "chat_1", "documents": []}))
    assert body == {**json.loads(OPENAI_ERRORS.encode(failure, "req_1")), "id": "chat_1", "documents": []}


def test_clients_are_told_to_retry_what_may_succeed() -> None:
    assert OPENAI_ERRORS.is_worth_retrying(AgentCrashed().failure())
    assert not OPENAI_ERRORS.is_worth_retrying(InvalidRequest("No.").failure())
