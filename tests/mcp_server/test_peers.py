"""What a host says about itself."""

from typing import Any

import pytest

from cursor_gateway.mcp_server.messages import RpcError
from cursor_gateway.mcp_server.peers import Peer, initialized_peer, is_modern, need_tasks, requesting_peer


def meta(capabilities: Any = None, **more: Any) -> dict[str, Any]:
    said = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", **more}
    return {"_meta": {**said, "io.modelcontextprotocol/clientCapabilities": capabilities or {}}}


@pytest.mark.parametrize(
    ("version", "capabilities", "peer"),
    [
        ("2025-11-25", {"elicitation": {}}, Peer("2025-11-25", True, name="x")),
        ("2025-06-18", {"elicitation": {"form": {}}}, Peer("2025-06-18", True, name="x")),
        ("2025-06-18", {"elicitation": {"url": {}}}, Peer("2025-06-18", name="x")),
        ("2025-03-26", {"elicitation": {}}, Peer("2025-03-26", name="x")),  # there was none yet
        ("2099-01-01", {}, Peer("2025-11-25", name="x")),
    ],
)
def test_a_host_says_once_what_it_can_do(version: str, capabilities: Any, peer: Peer) -> None:
    said = {"protocolVersion": version, "capabilities": capabilities, "clientInfo": {"name": "x"}}
    assert initialized_peer(said) == peer


def test_a_host_says_what_it_can_do_with_each_request() -> None:
    tasks: dict[str, Any] = {"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}
    named = {"io.modelcontextprotocol/clientInfo": {"name": "x" * 50}}
    assert requesting_peer(meta(tasks, **named)) == Peer("2026-07-28", True, True, "x" * 40)
    assert requesting_peer(meta()) == Peer("2026-07-28")
    assert is_modern(meta())
    assert not is_modern({"_meta": {}})


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({}, -32602),
        ({"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}, -32602),
        (meta([]) | {"_meta": {**meta()["_meta"], "io.modelcontextprotocol/clientCapabilities": 1}}, -32602),
        ({"_meta": {"io.modelcontextprotocol/protocolVersion": "1999-01-01"}}, -32022),
    ],
)
def test_a_request_that_does_not_say_it_is_refused(params: dict[str, Any], code: int) -> None:
    with pytest.raises(RpcError) as raised:
        requesting_peer(params)
    assert raised.value.code == code


def test_initialize_needs_a_version() -> None:
    with pytest.raises(RpcError, match="not valid"):
        initialized_peer({})


def test_tasks_need_a_host_that_has_them() -> None:
    need_tasks(Peer("2026-07-28", has_tasks=True))
    with pytest.raises(RpcError) as raised:
        need_tasks(Peer("2026-07-28"))
    assert raised.value.data == {"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}


def test_versions_differ_in_what_hosts_understand() -> None:
    new, middle, old = (Peer(version) for version in ("2026-07-28", "2025-11-25", "2025-06-18"))
    assert [peer.is_modern for peer in (new, middle, old)] == [True, False, False]
    assert [peer.has_titled_choices for peer in (new, middle, old)] == [True, True, False]
    assert [peer.takes_priming for peer in (new, middle, old)] == [True, True, False]
