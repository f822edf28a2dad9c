"""A reply that is not the one that was asked for becomes facts; some of them are worth another try."""

import pickle

import pytest

from cursor_gateway.client.failures import CallFailed, CannotReach, may_pass, refusal, run_failure
from cursor_gateway.errors import AgentOverloaded
from tests.laws.laws import RUN, assemble, response_of

URL = "http://gateway"
HEADERS = {"x-request-id": "req_1", "x-chat-id": "chat_1", "retry-after": "7"}


def test_what_the_gateway_says() -> None:
    body = b'{"error":{"message":"No.","type":"invalid_request_error","param":"model","code":"model_not_found",'
    body += b'"details":"Cannot use this model"}}'
    error = refusal(URL, 404, HEADERS, body)
    assert (str(error), error.message, error.code, error.status, error.param) == (
        *("No.", "No.", "model_not_found", 404, "model"),
    )
    assert error.details == "Cannot use this model"
    assert (error.retry_after, error.request_id, error.chat_id, error.response) == (7, "req_1", "chat_1", None)


def test_an_error_may_have_no_code() -> None:
    assert refusal(URL, 400, {}, b'{"error":{"message":"No.","code":null}}').code == ""


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"error":"no"}', b"\xff", b"[" * 100_000])
def test_what_no_gateway_says(body: bytes) -> None:
    error = refusal(URL, 418, {}, body)
    assert (error.code, error.status, error.retry_after) == ("not_a_gateway", 418, None)
    assert str(error) == "http://gateway answers (418), but not as a gateway does; check the address."


@pytest.mark.parametrize("value", ["Wed, 21 Oct 2026 07:28:00 GMT", "", "-1", "²", "9" * 5000])
def test_a_time_that_is_no_number_of_seconds(value: str) -> None:
    assert refusal(URL, 503, {"retry-after": value}, b"").retry_after is None


def test_a_run_that_failed() -> None:
    response = response_of(assemble([], RUN))
    error = run_failure(
        AgentOverloaded("Full.", param="x", details="[resource_exhausted]").failure(), response, "req_1"
    )
    assert (str(error), error.code, error.status, error.retry_after) == ("Full.", "agent_overloaded", 429, 10)
    assert (error.param, error.request_id, error.chat_id) == ("x", "req_1", "chat_1")
    assert error.details == "[resource_exhausted]"
    assert error.response is response


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (503, "shutting_down", True),
        (503, "store_unavailable", True),
        (502, "not_a_gateway", True),
        (503, "not_a_gateway", True),
        (504, "not_a_gateway", True),
        (200, "not_a_gateway", False),
        (404, "not_a_gateway", False),
        (502, "agent_crashed", False),
        (503, "agent_missing", False),
        (429, "too_many_runs", False),
    ],
)
def test_what_may_pass(status: int, code: str, expected: bool) -> None:
    assert may_pass(CallFailed("", code=code, status=status)) is expected


def test_an_error_survives_the_way_between_processes() -> None:
    error = pickle.loads(pickle.dumps(CannotReach("Gone.", code="cannot_reach", chat_id="chat_1")))
    assert (type(error), str(error), error.code, error.chat_id) == (CannotReach, "Gone.", "cannot_reach", "chat_1")
