"""A gateway whose agent is `cursor-gateway acp`, which uses another gateway: what comes out is what went in."""

import shlex
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.gateways import RunningGateway, running_gateway
from tests.mcp_server.host import environment_of
from tests.preloaded import command
from tests.server.conftest import chat, http_client, invocation, text_of, unique


@pytest.fixture(scope="module")
def inner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with running_gateway(tmp_path_factory.mktemp("inner")) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def outer(tmp_path_factory: pytest.TempPathFactory, inner: RunningGateway) -> Iterator[httpx2.Client]:
    """Both work in the same folder."""
    home = tmp_path_factory.mktemp("outer")
    environment = environment_of(inner)
    program, started = home / "agent", shlex.join(command(environment))
    settings = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in environment.items())
    # The options of Cursor's own agent, before `acp`, are left out.
    program.write_text(
        f'#!/bin/sh\n{settings}\ncase "$1" in --version|--help) exec {started} "$1";; *) exec {started} acp;; esac\n'
    )
    program.chmod(0o755)
    chosen = {"agent_program": str(program), "source": "acp", "workspace": str(inner.workspace), "spare_agents": "0"}
    with running_gateway(home, settings=chosen, has_agent=False) as gateway, http_client(gateway) as client:
        yield client


def kinds(response: dict[str, Any]) -> list[str]:
    return [document["type"] for document in response["documents"]]


def test_text_comes_through(outer: httpx2.Client, inner: RunningGateway) -> None:
    mark = unique()
    first = chat(outer, f"{mark} Hello.")
    assert text_of(first) == f"You said: {mark} Hello."
    again = chat(outer, "And again.", conversationId=first["conversationId"])
    assert text_of(again) == "You said: And again."
    assert invocation(inner, mark)["workspace"] == str(inner.workspace)


def test_tools_come_through_with_their_outputs_and_diffs(outer: httpx2.Client) -> None:
    response = chat(outer, "standin: tools")
    assert text_of(response).startswith("I'll look around first.")
    assert text_of(response).endswith("All done: the price is 2, and there is a tax.")
    assert {"terminal_command", "file_edit", "tool_call", "todo_update"} <= set(kinds(response))
    (edit,) = [
        one["metadata"] for one in response["documents"] if one["metadata"].get("filePath", "").endswith("price.py")
    ]
    assert (edit["diff"]["oldString"], edit["diff"]["newString"]) == ("    return 1", "    return 2")
    commands = [one["metadata"] for one in response["documents"] if one["type"] == "terminal_command"]
    assert [(one["command"], one["exitCode"], one["output"]) for one in commands] == [
        ("pytest -q", 0, "2 passed in 0.02s\n"),
        ("ruff check", 1, "src/tax.py:1:1: D100\n"),
    ]


@pytest.mark.parametrize(("decision", "output"), [("once", "42\n"), ("deny", "")])
def test_a_permission_is_asked_through_both(outer: httpx2.Client, decision: str, output: str) -> None:
    asked = outer.post("/v1/chat", json={"message": 'standin: shell command="expr 20 + 22"', "mayAsk": True}).json()
    assert asked["status"] == "streaming"
    (document,) = [one for one in asked["documents"] if one["type"] == "clarification"]
    assert document["metadata"]["permission"]["subject"] == "expr 20 + 22"
    answer = {"permissions": [{"documentId": document["id"], "decision": decision}]}
    done = outer.post(f"/v1/chat/{asked['id']}/answer", json=answer).json()
    assert done["status"] == "completed"
    (ran,) = [one["metadata"] for one in done["documents"] if one["type"] == "terminal_command"]
    assert ran["output"] == output


def test_a_failure_comes_through(outer: httpx2.Client) -> None:
    failed = outer.post("/v1/chat", json={"message": "standin: fail-auth"})
    assert failed.status_code >= 400
    assert "cursor-agent login" in failed.text
