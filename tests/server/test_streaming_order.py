"""A stream grows with the run: what the agent has said is there before it says more, and every stream has an end.

What comes before what is decided by files: the agent goes on when a test, which has read the first part, makes one.
"""

import http.client
import json
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.gateways import RunningGateway, running_gateway
from tests.openai_shapes import read_stream
from tests.server.conftest import TIMEOUT, Dialect, ask, growing, http_client, question, sse, standin

DIALECTS: list[Dialect] = ["documents", "openai"]
BOTH = "Waiting for the file. It is there."


def wait_for(file: Path) -> str:
    return standin(f"wait-for file={file}")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_chunks_arrive_while_the_agent_runs(http: httpx2.Client, tmp_path: Path, dialect: Dialect) -> None:
    file = tmp_path / "go"
    with growing(http, dialect, wait_for(file)) as reply:
        assert reply.response.status_code == 200
        assert reply.response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert reply.response.headers["cache-control"] == "no-cache, no-transform"
        before = reply.until(b"file.")
        assert b"there" not in before
        assert b"[DONE]" not in before
        assert b"event: done" not in before
        file.touch()
        body = reply.rest()
    if dialect == "openai":
        assert read_stream(body).text == BOTH
    else:
        deltas = [json.loads(event.data)["delta"] for event in sse(body) if event.event == "content_delta"]
        assert "".join(deltas) == BOTH


def test_ndjson_arrives_line_by_line(http: httpx2.Client, tmp_path: Path) -> None:
    file = tmp_path / "go"
    with growing(http, "documents", wait_for(file), headers={"accept": "application/x-ndjson"}) as reply:
        assert b"there" not in reply.until(b"file.")
        file.touch()
        lines = [json.loads(line) for line in reply.rest().splitlines()]
    assert lines[-1]["type"] == "done"


def test_an_answer_that_is_no_stream_comes_whole(http: httpx2.Client, tmp_path: Path) -> None:
    file = tmp_path / "go"
    file.touch()
    assert ask(http, "openai", wait_for(file)).json()["choices"][0]["message"]["content"] == BOTH


# --- the 200, comments, and what fails after them -------------------------------------------------------


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_silent_stream_gets_comments(tmp_path: Path, dialect: Dialect) -> None:
    """Between the events; readers of either dialect do not notice them."""
    settings = {"keep_alive_seconds": "0.05"}
    file = tmp_path / "go"
    with running_gateway(tmp_path / "home", settings=settings) as gateway, http_client(gateway) as http:
        with growing(http, dialect, wait_for(file)) as reply:
            reply.until(b"file.")
            reply.until(b"\n\n: keep-alive\n\n: keep-alive\n\n")
            file.touch()
            body = reply.rest()
        if dialect == "openai":
            assert read_stream(body).text == BOTH
        else:
            assert [event.event for event in sse(body)][-1] == "done"


# --- the end of the body --------------------------------------------------------------------------------


def raw_reply(gateway: RunningGateway, path: str, body: dict[str, Any]) -> bytes:
    """All bytes of a reply, until the gateway closes the connection."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\n"
    address = urlsplit(gateway.url)
    with socket.create_connection((address.hostname, address.port), timeout=TIMEOUT) as connection:
        connection.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        received = b""
        while piece := connection.recv(65536):
            received += piece
        return received


@pytest.mark.parametrize("scenario", ["text", "empty", "crash", "fail-quota", "killed", "truncated"])
def test_every_stream_ends_and_the_connection_is_closed(gateway: RunningGateway, scenario: str) -> None:
    """Some clients hang until the socket closes (AI SDK), others ask again without end after a bare one (OpenCode)."""
    reply = raw_reply(gateway, "/v1/chat/completions", question(standin(scenario), stream=True))
    assert b"\r\ntransfer-encoding: chunked\r\n" in reply
    assert reply.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    reply = raw_reply(gateway, "/v1/chat", {"message": standin(scenario), "stream": True})
    assert reply.endswith(b"}\n\n\r\n0\r\n\r\n")
    assert reply.rindex(b"event: done\n") > reply.rfind(b"event: document_")


def test_a_connection_is_used_again_after_a_stream(gateway: RunningGateway) -> None:
    address = urlsplit(gateway.url)
    assert address.hostname is not None
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=TIMEOUT)
    try:
        headers = {"content-type": "application/json"}
        for scenario in ("text", "crash", "fail-auth", "hang-after-result", "text"):
            body = json.dumps(question(standin(scenario), stream=True))
            connection.request("POST", "/v1/chat/completions", body, headers)
            response = connection.getresponse()
            assert response.read()
            assert not response.will_close
    finally:
        connection.close()
