"""Real MCP hosts: the JavaScript clients, over both transports; Claude Code and Codex over HTTP, with a key."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from cursor_gateway.keys import hash_key
from tests.clients.programs import Drivers, Project, ask_launched, call, command_of, launched_client, program, say
from tests.gateways import RunningGateway
from tests.mcp_server.host import environment_of
from tests.server.conftest import unique
from tests.server.test_caller_tools import own_gateway

NEWEST = {"versionNegotiation": {"mode": "auto"}}
HOSTS = [("sdk", {}, "2025-11-25"), ("client", {}, "2025-11-25"), ("client", NEWEST, "2026-07-28")]


@pytest.mark.parametrize("transport", ["http", "stdio"])
@pytest.mark.parametrize(("name", "options", "version"), HOSTS)
def test_a_host_in_javascript_shows_its_user_what_the_agent_asks(
    drivers: Drivers,
    gateway: RunningGateway,
    project: Project,
    name: str,
    options: dict[str, Any],
    version: str,
    transport: str,
) -> None:
    way: dict[str, Any] = {"name": name, "options": options}
    if transport == "stdio":
        words = ["-m", "cursor_gateway", "mcp", "--workspace", str(gateway.workspace)]
        way |= {"command": [sys.executable, *words], "env": environment_of(gateway)}
    prompt = f'{unique()} standin: shell command="expr 20 + 22"'
    reply = drivers.ask("mcp_host.mjs", json.dumps(way), gateway.url, project, prompt)
    assert "answer" in reply, reply
    answer = reply["answer"]
    assert answer["tools"] == ["ask", "run", "status", "answer", "cancel"]
    assert len(answer["asked"]) == 1
    assert answer["result"]["status"] == "completed"
    assert "42\n" in [document["metadata"].get("output") for document in answer["result"]["documents"]]
    assert "Waiting for an answer" in answer["lines"]
    assert answer["version"] in (version, "")


def test_claude_code_uses_a_remote_gateway_with_its_key(tmp_path: Path, project: Project) -> None:
    """Configured as the docs say. Its model gets the result; a question is not shown to a user who is not there."""
    mark, key = unique(), "key-of-alice-0123456789"
    with own_gateway(tmp_path / "remote", settings={"api_keys": f"alice={hash_key(key)}"}) as (remote, _):
        claude = command_of("claude")
        header = f"Authorization: Bearer {key}"
        options = ["--transport", "http", "cursor", f"{remote.url}/mcp", "--header", header]
        project.run(*claude, "mcp", "add", *options)
        assert "Connected" in project.run(*claude, "mcp", "list")
        steps = program([call("mcp__cursor__ask", prompt=f"{mark}\nstandin: text"), say("Result: $1")], mark)
        prompt = steps.replace("nstandin: text", "nstand\\u0069n: text")  # for the agent that it asks
        with own_gateway(tmp_path / "local") as (local, _):
            said = ask_launched(project, "claude", local.url, "--allowedTools", "mcp__cursor__ask", "-p", prompt)
    assert "is completed" in json.loads(said.partition("Result: ")[2].strip())["summary"]


def test_codex_uses_a_remote_gateway_with_its_key(tmp_path: Path, project: Project) -> None:
    mark, key = unique(), "key-of-alice-0123456789"
    with own_gateway(tmp_path / "remote", settings={"api_keys": f"alice={hash_key(key)}"}) as (remote, _):
        add = ["mcp", "add", "cursor", "--url", f"{remote.url}/mcp", "--bearer-token-env-var", "CURSOR_GATEWAY_API_KEY"]
        project.run(*command_of("codex"), *add)
        steps = program([call("mcp__cursor__ask", prompt=f"{mark}\nstandin: text"), say("Result: $1")], mark)
        prompt = steps.replace("nstandin: text", "nstand\\u0069n: text")  # for the agent that it asks
        with own_gateway(tmp_path / "local") as (local, _):
            codex = launched_client(project, "codex", local.url)
            environment = {**codex.environment, "CURSOR_GATEWAY_API_KEY": key}
            said = project.run(*codex.command, "exec", "--skip-git-repo-check", prompt, environment=environment)
    assert "is completed" in said
    assert "The quick brown fox" in said
