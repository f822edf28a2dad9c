"""How Cursor's refusals and failures look to clients, with Cursor's own runtime."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.backend.conftest import client_of, program, runtime_gateway
from tests.backend.server import KEY, Backend
from tests.server.conftest import WAYS, Dialect, Json, Reply, ask, chat, read_reply, text_of, unique


def failed(client: httpx2.Client, *steps: Json, dialect: Dialect = "documents") -> Reply:
    return read_reply(ask(client, dialect, program(*steps)), dialect)


def told(title: str, detail: str = "", **more: Any) -> Json:
    """A failure that Cursor explains to people, and that the runtime does not retry."""
    return {"fail": "unknown", "title": title, "detail": detail, "retryable": False, **more}


def test_a_rejected_login(client: httpx2.Client) -> None:
    """Cursor rejects the account during a run: 401, and what to do about an API key."""
    reply = failed(client, {"fail": "unauthenticated", "message": "Not you"})
    assert (reply.status, reply.code) == (401, "agent_unauthenticated")
    assert "CURSOR_API_KEY" in reply.message


@pytest.mark.parametrize(
    ("title", "detail", "status", "code"),
    [
        ("You've hit your usage limit", "Upgrade to continue.", 429, "insufficient_quota"),
        ("Slow down", "Too many requests in a short time.", 429, "agent_overloaded"),
        ("Invalid API key", "", 401, "agent_unauthenticated"),
        ("Please sign in to continue", "", 401, "agent_unauthenticated"),
        ("Upgrade your plan to continue", "", 429, "insufficient_quota"),
        ("Add a payment method to continue", "", 429, "insufficient_quota"),
        ("Check your settings to continue", "", 500, "agent_misconfigured"),
        ("Something else", "happened.", 502, "agent_failed"),
    ],
)
def test_what_cursor_explains(client: httpx2.Client, title: str, detail: str, status: int, code: str) -> None:
    """A failure that Cursor explains in words, without a code: each has its own status."""
    reply = failed(client, told(title, detail))
    assert (reply.status, reply.code) == (status, code)


@pytest.mark.parametrize(("dialect", "stream"), WAYS)
def test_a_failure_after_text(client: httpx2.Client, dialect: Dialect, stream: bool) -> None:
    """A failure after the first text: a stream that has begun keeps the text, and ends with the error."""
    # A question that has just failed is not asked again, so each case has its own.
    steps = f"{unique()} {program({'say': 'I began.'}, told('You have hit nothing.'))}"
    reply = read_reply(ask(client, dialect, steps, stream=stream), dialect)
    assert reply.message or reply.kind
    assert reply.text == "I began." or not stream or reply.status != 200  # if both come at once, none has begun


def test_a_connection_that_breaks(client: httpx2.Client, backend: Backend) -> None:
    """The connection to Cursor breaks: the runtime tries again, and repeats its text without marking it."""
    steps = program({"say": "Some text, "}, {"cut": True}, {"say": "Some text, then the rest."})
    assert text_of(chat(client, steps)) == "Some text, Some text, then the rest."
    first, second = backend.requests
    assert first["run_id"] == second["run_id"]
    assert backend.attempts(first["run_id"]) == 2


def test_a_connection_that_breaks_after_a_checkpoint(client: httpx2.Client, backend: Backend) -> None:
    """After a checkpoint, the runtime resumes instead of asking again."""
    steps = program({"say": "Some text, "}, {"checkpoint": True}, {"cut": True}, {"say": "then the rest."})
    assert text_of(chat(client, steps)) == "Some text, then the rest."
    assert "resume_action" in backend.requests[1]["action"]


@pytest.mark.slow  # the runtime waits for half a minute
def test_a_connection_that_stalls(client: httpx2.Client, backend: Backend) -> None:
    """Cursor sends nothing, not even a heartbeat: the runtime tries again, and the run completes."""
    assert text_of(chat(client, program({"stall": 300}, {"say": "At last."}))) == "At last."
    assert len(backend.requests) == 2


def test_an_unknown_model(client: httpx2.Client) -> None:
    """A model that the account does not have: 404 with the nearest names."""
    reply = read_reply(ask(client, "documents", "Hi", model="composer-3"), "documents")
    assert (reply.status, reply.code) == (404, "model_not_found")
    assert "composer-2" in reply.message


def test_a_missing_key(tmp_path: Path, backend: Backend) -> None:
    """Without an API key, nothing is started: 401."""
    with runtime_gateway(tmp_path, backend, {"CURSOR_API_KEY": ""}) as gateway, client_of(gateway) as client:
        reply = failed(client, {"say": "Hi"})
    assert (reply.status, reply.code) == (401, "agent_unauthenticated")
    assert not backend.requests


@pytest.mark.slow  # the runtime retries for a quarter of a minute
def test_a_revoked_key(tmp_path: Path, backend: Backend) -> None:
    """An API key that is revoked while the bridge runs: 401, and the account is paused."""
    with runtime_gateway(tmp_path, backend, account_error_seconds="60") as gateway, client_of(gateway) as client:
        chat(client, program({"say": "Hi"}))
        backend.keys.clear()
        first = failed(client, {"fail": "unknown", "message": "Invalid API key"}, dialect="openai")
        backend.keys.add(KEY)
        second = failed(client, {"say": "Hi again"}, dialect="openai")  # the clients of this API retry
    assert [(reply.status, reply.code) for reply in (first, second)] == [(401, "agent_unauthenticated")] * 2


@pytest.mark.slow  # `test_what_cursor_explains` has the quick cases; here the runtime retries
@pytest.mark.parametrize(
    ("code", "message", "status", "meant"),
    [
        ("permission_denied", "Not for you", 500, "agent_misconfigured"),
        ("not_found", "No such thing", 500, "agent_misconfigured"),
        ("resource_exhausted", "Busy", 429, "agent_overloaded"),
        ("unavailable", "Gone", 502, "agent_unreachable"),
        ("internal", "Broken", 502, "agent_failed"),
    ],
)
def test_a_code_without_an_explanation(client: httpx2.Client, code: str, message: str, status: int, meant: str) -> None:
    """A failure with only a code, after the runtime's own retries."""
    reply = failed(client, {"fail": code, "message": message})
    assert (reply.status, reply.code) == (status, meant)


@pytest.mark.slow  # it needs a bridge that has never reached Cursor
def test_no_network(tmp_path: Path, backend: Backend) -> None:
    """Cursor cannot be reached: 502, and the next request works when the network is back."""
    backend.down = True
    with runtime_gateway(tmp_path, backend) as gateway, client_of(gateway) as client:
        reply = failed(client, {"say": "Hi"})
        backend.down = False
        assert text_of(chat(client, program({"say": "Hi"}))) == "Hi"
    assert (reply.status, reply.code) == (502, "agent_unreachable")


@pytest.fixture(autouse=True)
def _restored(shared_backend: Backend) -> Iterator[None]:
    yield
    shared_backend.forget()
    assert shared_backend.keys == {KEY}
