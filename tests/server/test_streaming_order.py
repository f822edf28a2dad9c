"""A stream grows with the run: what the agent has said is there before it says more, and every stream has an end.

What comes before what is decided by files: the agent goes on when a test, which has read the first part, makes one.
"""

import http.client
import json
import os
import signal
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.gateways import RunningGateway, running_gateway
from tests.openai_shapes import read_stream
from tests.server.conftest import (
    TIMEOUT,
    Dialect,
    ask,
    eventually,
    growing,
    http_client,
    invocation,
    is_gone,
    question,
    sse,
    standin,
    unique,
)

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


def test_two_streams_do_not_wait_for_each_other(http: httpx2.Client, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with growing(http, "openai", wait_for(first)) as one, growing(http, "documents", wait_for(second)) as other:
        one.until(b"file.")
        other.until(b"file.")
        second.touch()
        assert b"event: done" in other.rest()
        first.touch()
        assert read_stream(one.rest()).text == BOTH


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


def test_a_silent_stream_of_lines_has_no_empty_ones(tmp_path: Path) -> None:
    """The next line begins with what kept the connection open: JSON allows white space there."""
    file = tmp_path / "go"
    lines = {"accept": "application/x-ndjson"}
    with (
        running_gateway(tmp_path / "home", settings={"keep_alive_seconds": "0.05"}) as gateway,
        http_client(gateway) as http,
        growing(http, "documents", wait_for(file), headers=lines) as reply,
    ):
        reply.until(b"file.")
        reply.until(b"\n  ")
        id = reply.response.headers["x-chat-id"]
        with http.stream("GET", f"/v1/chat/{id}/events", headers=lines) as joined:  # and waits at once
            pieces = joined.iter_raw()
            beginning = next(pieces)
            file.touch()
            rest = b"".join([beginning, *pieces])
        assert [json.loads(line) for line in rest.splitlines()] == [
            json.loads(line) for line in reply.rest().splitlines()
        ]
        assert b"\n\n" not in rest


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("dialect", "fields"),
    [("documents", {}), ("openai", {}), ("openai", {"response_format": {"type": "json_object"}})],
    ids=["documents", "openai", "checked"],
)
def test_after_a_long_silence_the_200_comes_and_a_failure_is_an_event(
    tmp_path: Path, dialect: Dialect, fields: dict[str, Any]
) -> None:
    settings = {"hold_seconds": "0.1", "keep_alive_seconds": "0.05"}
    mark = unique()
    with (
        running_gateway(tmp_path, settings=settings) as gateway,
        http_client(gateway) as http,
        growing(http, dialect, f"{mark} {standin('hang-after-init')}", **fields) as reply,
    ):
        assert reply.response.status_code == 200  # and nothing was said yet
        assert b"data:" not in reply.until(b": keep-alive\n\n")
        os.kill(invocation(gateway, mark)["pid"], signal.SIGKILL)
        body = reply.rest()
    if dialect == "openai":
        error = read_stream(body).error
        assert error is not None
        assert error.code == "agent_crashed"
    else:
        names = [event.event for event in sse(body)]
        assert names == ["document_start", "content_delta", "document_end", "done"]
        assert json.loads(sse(body)[-1].data)["status"] == "error"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_event_that_says_nothing_does_not_release_the_200(http: httpx2.Client, dialect: Dialect) -> None:
    """Three reconnections come first; they are no reason to promise an answer."""
    expected = 502 if dialect == "documents" else 424
    assert ask(http, dialect, standin("fail-internal"), stream=True).status_code == expected


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


JSON_ONLY = {"response_format": {"type": "json_object"}}


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("path", "scenario", "fields"),
    [
        ("/v1/chat", "hang-mid", {}),
        ("/v1/chat", "hang-after-init", {}),
        ("/v1/chat/completions", "hang-mid", {}),
        ("/v1/chat/completions", "hang", {}),
        ("/v1/chat/completions", "hang-mid", JSON_ONLY),
    ],
)
def test_when_the_client_goes_the_agent_does_too(
    gateway: RunningGateway, path: str, scenario: str, fields: dict[str, Any], stream: bool
) -> None:
    """Whether the reply has begun or not."""
    mark = unique()
    prompt = f"{mark} {standin(scenario)}"
    body = question(prompt, stream=stream, **fields) if path.endswith("s") else {"message": prompt, "stream": stream}
    data = json.dumps(body).encode()
    address = urlsplit(gateway.url)
    with socket.create_connection((address.hostname, address.port), timeout=TIMEOUT) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        if stream and scenario == "hang-mid" and not fields:
            connection.recv(1)
        pid = invocation(gateway, mark)["pid"]
    eventually(lambda: is_gone(pid))


def test_a_run_may_go_on_without_its_client(tmp_path: Path) -> None:
    """`when_client_leaves = finish`: what the agent was to do is done, though nobody reads what it says."""
    file = tmp_path / "go"
    with (
        running_gateway(tmp_path / "home", settings={"when_client_leaves": "finish"}) as gateway,
        http_client(gateway) as http,
    ):
        mark = unique()
        with growing(http, "openai", f"{mark} {wait_for(file)}") as reply:
            reply.until(b"file.")
            id = reply.response.headers["x-chat-id"]
        file.touch()
        pid = invocation(gateway, mark)["pid"]
        eventually(lambda: is_gone(pid))
        assert http.post(f"/v1/chat/{id}/cancel", json={}).json()["status"] == "completed"
