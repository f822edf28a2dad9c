"""The agent, and the text it reads: what it is given, what it may do for callers, and who reaches its tools."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from msgspec import Struct

from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import (
    NO_TLS,
    Json,
    eventually,
    http_client,
    invocation,
    invocations,
    question,
    standin,
    unique,
)
from tests.server.test_caller_tools import WEATHER, Caller, call, only_call, program, say, tool

HELLO: Json = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
}
ACCEPT = {"accept": "application/json, text/event-stream"}


class Waiting(Struct, frozen=True):
    """A run that waits for its caller, and the address of its tools."""

    caller: Caller
    call_id: str
    url: str


@contextmanager
def waiting(gateway: RunningGateway, client: httpx2.Client, name: str = "weather") -> Iterator[Waiting]:
    mark = unique()
    caller = Caller(client, f"{mark} {program(call(name, city='A'), say('It is $1.'))}", [tool(name)])
    asked = only_call(caller.ask())
    place = Path(invocation(gateway, mark)["workspace"]) / ".cursor" / "mcp.json"
    url = json.loads(place.read_text())["mcpServers"]["caller"]["url"]
    yield Waiting(caller, asked["id"], url)
    caller.give((asked["id"], "sunny"))
    assert caller.ask()["content"] == "It is sunny."


# --- the address of its tools ---------------------------------------------------------------------------------


def test_the_tools_address_is_on_loopback_alone(open_gateway: RunningGateway, anybody: httpx2.Client) -> None:
    with waiting(open_gateway, anybody) as run:
        address = urlsplit(run.url)
        assert address.hostname == "127.0.0.1"
        with pytest.raises(OSError, match=r"refused|assign|unreachable|timed out"):
            socket.create_connection(("127.0.0.2", address.port or 0), timeout=5)


def test_nobody_finds_the_tools_without_the_address(open_gateway: RunningGateway, anybody: httpx2.Client) -> None:
    with waiting(open_gateway, anybody) as run:
        base, _, secret = run.url.rpartition("/")
        for near in (
            "",
            "x" * 43,
            secret[:-1],
            secret + "x",
            secret.swapcase(),
            f"../mcp/{secret}/",
            f"{secret}/",
            "%00",
        ):
            for method in ("GET", "POST", "DELETE", "OPTIONS"):
                assert httpx2.request(method, f"{base}/{near}", headers=ACCEPT, verify=NO_TLS).status_code == 404
        assert httpx2.get(f"{base.removesuffix('/mcp')}/", verify=NO_TLS).status_code == 404


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "localhost"},
        {"host": "127.0.0.1"},
        {"host": "127.0.0.1.evil.example"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:3000"},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
    ],
    ids=str,
)
def test_no_web_page_reaches_the_tools_even_with_the_address(
    open_gateway: RunningGateway, anybody: httpx2.Client, headers: dict[str, str]
) -> None:
    with waiting(open_gateway, anybody) as run:
        given = {"content-type": "application/json", **ACCEPT, **headers}
        refused = httpx2.post(run.url, content=json.dumps(HELLO), headers=given, verify=NO_TLS)
        assert refused.status_code in (400, 403, 415, 421)
        assert not [name for name in refused.headers if name.startswith("access-control-")]
        assert "evil.example" not in open_gateway.log.read_text()


def test_each_runs_tools_are_its_own_and_gone_with_it(open_gateway: RunningGateway, anybody: httpx2.Client) -> None:
    with waiting(open_gateway, anybody, "mine") as mine, http_client(open_gateway) as client:
        with waiting(open_gateway, client, "theirs") as theirs:
            assert mine.url != theirs.url
            assert _tools(mine.url) == {"mine"}
            assert _tools(theirs.url) == {"theirs"}
        assert eventually(lambda: _is_gone(theirs.url))
        assert _tools(mine.url) == {"mine"}


def _is_gone(url: str) -> bool:
    try:
        return httpx2.post(url, json=HELLO, headers=ACCEPT, verify=NO_TLS).status_code == 404
    except httpx2.RemoteProtocolError:  # it is just being closed
        return False


def _tools(url: str) -> set[str]:
    """As an MCP client lists them."""
    begun = httpx2.post(url, json=HELLO, headers=ACCEPT, verify=NO_TLS)
    assert begun.status_code == 200
    session = {**ACCEPT, "mcp-session-id": begun.headers["mcp-session-id"], "mcp-protocol-version": "2025-06-18"}
    httpx2.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=session, verify=NO_TLS)
    listed = httpx2.post(url, json={"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, headers=session, verify=NO_TLS)
    data = next(line for line in listed.text.splitlines() if line.startswith(("data: {", "{")))
    found: list[Json] = json.loads(data.removeprefix("data: "))["result"]["tools"]
    return {one["name"] for one in found}


# --- what it is given ------------------------------------------------------------------------------------------


FIELDS: list[Json] = [
    {"force": True},
    {"trust": True},
    {"agentHeaders": {"a": "b"}},
    {"environment": {"A": "b"}},
    {"args": ["--force"]},
    {"sessionId": "--force"},
    {"mode": "agent --force"},
    {"mode": "--force"},
    {"source": "--force"},
    {"workspace": "--force"},
    {"include": ["--force"]},
]


@pytest.mark.parametrize("fields", FIELDS, ids=str)
def test_no_request_gives_the_agent_more_leave(
    open_gateway: RunningGateway, anybody: httpx2.Client, fields: Json
) -> None:
    """What the operator decides is no field, and no field is an option."""
    mark = unique()
    refused = anybody.post("/v1/chat", json={"message": mark, **fields})
    assert 400 <= refused.status_code < 500
    assert 400 <= anybody.post("/v1/chat/completions", json=question(mark, cursor=fields)).status_code < 500
    assert invocations(open_gateway, mark) == []


def test_no_header_gives_the_agent_more_leave(open_gateway: RunningGateway, anybody: httpx2.Client) -> None:
    mark = unique()
    headers = {f"x-cursor-{name}": "true" for name in ("force", "trust", "yolo", "environment", "session")}
    asked = anybody.post("/v1/chat/completions", json=question(f"{standin('text')} {mark}"), headers=headers)
    assert asked.status_code == 200
    assert not {"--force", "-f", "--yolo", "--header"} & set(invocation(open_gateway, mark)["argv"])


def test_the_operator_alone_adds_to_the_environment(tmp_path: Path) -> None:
    environment = {"LISTED": "yes", "LISTED_TOO": "yes", "UNLISTED": "no", "AWS_SECRET_ACCESS_KEY": "no"}
    environment |= {
        "LD_PRELOAD": "",
        "NODE_OPTIONS": "--no-deprecation",
        "PYTHONPATH": "/nowhere",
        "SSH_AUTH_SOCK": "/x",
    }
    settings = {"agent_environment": "LISTED*"}
    with (
        running_gateway(tmp_path, settings=settings, environment=environment) as gateway,
        http_client(gateway) as client,
    ):
        result = client.post("/v1/chat", json={"message": standin("echo-env")}).json()
        names = json.loads("".join(document["content"] for document in result["documents"]))["names"]
        assert {"LISTED", "LISTED_TOO", "PATH"} <= set(names)
        unlisted = {"UNLISTED", "AWS_SECRET_ACCESS_KEY", "LD_PRELOAD", "NODE_OPTIONS", "PYTHONPATH", "SSH_AUTH_SOCK"}
        assert not unlisted & set(names)


# --- what it may do for a caller with tools ---------------------------------------------------------------------


def test_an_agent_with_the_callers_tools_touches_nothing_here(tmp_path: Path) -> None:
    """Whatever the operator allows other agents, and whatever it tries: the machine is not the caller's."""
    with running_gateway(tmp_path, settings={"force": "true"}) as gateway, http_client(gateway) as client:
        secret, made = gateway.workspace / "secret", gateway.workspace / "made"
        secret.write_text("the secret of this machine")
        steps = [
            {"native": "shell", "args": {"command": f"touch {made}"}},
            {"native": "read", "args": {"path": str(secret)}},
            {"native": "write", "args": {"path": str(made), "contents": "x"}},
            {"native": "delete", "args": {"path": str(secret)}},
        ]
        for step in steps:
            mark = unique()
            caller = Caller(client, f"{mark} {program(step)}", [WEATHER])
            reply = caller.request()
            assert "the secret" not in reply.text
            started = invocation(gateway, mark)
            assert "--force" not in started["argv"]
            assert Path(started["cwd"]) != gateway.workspace
            assert not str(started["workspace"]).startswith(str(gateway.workspace))
        assert not made.exists()
        assert secret.exists()
