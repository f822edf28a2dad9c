"""What is denied is denied on this machine, whatever Cursor's servers send; a person who can answer is asked, and the
run waits; and whose settings the runtime loads."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.backend.conftest import client_of, program, runtime_gateway
from tests.backend.server import Backend
from tests.backend.test_caller_tools import WEATHER
from tests.gateways import RunningGateway
from tests.server.conftest import Json, chat, text_of

ALLOWED = "Shell(echo),Shell(printenv)"


@pytest.fixture(scope="session")
def careful(tmp_path_factory: pytest.TempPathFactory, shared_backend: Backend) -> Iterator[RunningGateway]:
    """Without `force`, for a user with settings of their own."""
    home = tmp_path_factory.mktemp("careful")
    (home / ".cursor").mkdir()
    (home / ".gitconfig").write_text("[user]\n")
    log = home / "users-hook.log"
    hook = {"command": f"cat > /dev/null; echo ran >> {log}; echo '{{}}'"}
    (home / ".cursor" / "hooks.json").write_text(json.dumps({"version": 1, "hooks": {"preToolUse": [hook]}}))
    given = runtime_gateway(home, shared_backend, allow=ALLOWED, force="false", refuse_workspace_hooks="false")
    with given as running:
        rules = running.workspace / ".cursor" / "rules"
        rules.mkdir(parents=True)
        (rules / "style.mdc").write_text("---\nalwaysApply: true\n---\nSay please.\n")
        (running.workspace / "AGENTS.md").write_text("Be kind.\n")
        yield running


@pytest.fixture
def asking(careful: RunningGateway) -> Iterator[httpx2.Client]:
    with client_of(careful) as made:
        yield made


def shell(command: str) -> Json:
    return {"native": "shell", "args": {"command": command}}


def unasked(client: httpx2.Client, *steps: Json, **fields: Any) -> Json:
    """The answer to somebody who cannot be asked."""
    return chat(client, program(*steps), mayAsk=False, **fields)


def states(reply: Json) -> list[str]:
    return [one["metadata"].get("state", "completed") for one in reply["documents"] if one["type"] != "error"]


def test_a_command_that_no_rule_allows(asking: httpx2.Client, careful: RunningGateway) -> None:
    """Without `force`, a command that Cursor sends all the same is not run, and says why."""
    file = careful.workspace / "made"
    reply = unasked(asking, shell(f"touch {file}"), {"say": "Tried."})
    metadata = reply["documents"][0]["metadata"]
    assert metadata["state"] == "rejected"
    assert metadata["reason"] == "Not run: no rule allows it. Allow it, or add `Shell(touch)` to the setting `allow`."
    assert metadata["permission"]["rules"] == ["Shell(touch)"]
    assert not file.exists()


def test_a_command_that_a_rule_allows(asking: httpx2.Client, careful: RunningGateway) -> None:
    """A rule in `allow` allows its command, which sees the user's own home folder; and no other one with it."""
    home = str(careful.home)
    reply = unasked(asking, shell("printenv HOME"), shell("echo a; touch b"), {"say": "Done."})
    ran = reply["documents"][0]
    assert (ran["metadata"]["output"].strip(), states(reply)[:2]) == (home, ["completed", "rejected"])


def test_files_may_be_changed_but_not_the_gateways(asking: httpx2.Client, careful: RunningGateway) -> None:
    """Without `force`, files can be edited as with the CLI, but none of the gateway's own, also through a link."""
    (careful.workspace / "link").symlink_to(careful.data)
    paths = [careful.workspace / "mine.txt", careful.data / "sdk/home/.cursor/hooks.json", careful.workspace / "link/x"]
    edits = [{"native": "edit", "args": {"path": str(path), "streamContent": "x\n"}} for path in paths]
    reply = unasked(asking, *edits, {"say": "Done."})
    assert states(reply)[:3] == ["completed", "rejected", "rejected"]
    assert "preToolUse" in (careful.data / "sdk/home/.cursor/hooks.json").read_text()
    assert not (careful.data / "x").exists()


@pytest.mark.parametrize("mode", ["ask", "plan"])
def test_a_mode_that_only_reads(client: httpx2.Client, gateway: RunningGateway, mode: str) -> None:
    """In the modes `ask` and `plan`, even with `force`, nothing is run or changed."""
    (gateway.workspace / "seen.txt").write_text("seen\n")
    calls = [
        {"native": "read", "args": {"path": str(gateway.workspace / "seen.txt")}},
        shell(f"touch {gateway.workspace}/{mode}"),
        {"native": "edit", "args": {"path": str(gateway.workspace / mode), "streamContent": "x\n"}},
        {"native": "delete", "args": {"path": str(gateway.workspace / "seen.txt")}},
    ]
    reply = chat(client, program(*calls, {"say": "Done."}), mode=mode)
    assert states(reply)[:4] == ["completed", "rejected", "rejected", "rejected"]
    assert (gateway.workspace / "seen.txt").exists()
    assert not (gateway.workspace / mode).exists()


def test_the_callers_tools_and_nothing_else(client: httpx2.Client, gateway: RunningGateway) -> None:
    """With the caller's tools, even with `force`, no tool of the agent's own works."""
    file = gateway.workspace / "confined"
    secret = gateway.workspace / "secret.txt"
    secret.write_text("plum")
    calls = [shell(f"touch {file}"), {"native": "read", "args": {"path": str(secret)}}]
    messages = [{"role": "user", "content": program(*calls, {"say": "It is: $2"})}]
    body = {"model": "auto", "messages": messages, "tools": [WEATHER]}
    said = client.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]
    assert not file.exists()
    assert "plum" not in said


def test_a_sub_agent(asking: httpx2.Client, careful: RunningGateway) -> None:
    """A sub-agent may do no more than the run that started it, although Cursor is not told so."""
    file = careful.workspace / "sub"
    task = {"native": "task", "args": {"steps": [shell(f"touch {file}"), {"say": "Sub."}]}}
    unasked(asking, task, {"say": "Done."})
    assert not file.exists()


def test_settings_of_the_workspace_and_the_user(
    asking: httpx2.Client, careful: RunningGateway, backend: Backend
) -> None:
    """Rules, AGENTS.md and the user's hooks are loaded, as with the CLI; the user's files stay as they are."""
    before = (careful.home / ".cursor" / "hooks.json").read_text()
    unasked(asking, shell("echo hi"), {"say": "Hi."})
    told = json.dumps(backend.contexts[0], default=repr)
    assert "Say please." in told
    assert "Be kind." in told
    assert (careful.home / "users-hook.log").exists()
    assert (careful.home / ".cursor" / "hooks.json").read_text() == before
    assert not (careful.home / ".cursor" / "projects").exists()
    assert os.path.realpath(careful.data / "sdk/home/.gitconfig") == str(careful.home / ".gitconfig")


def test_a_hook_without_its_gateway(careful: RunningGateway) -> None:
    """The hook fails if nobody answers, so the runtime makes no call."""
    hooks: dict[str, Any] = json.loads((careful.data / "sdk/home/.cursor/hooks.json").read_text())
    (hook, *_) = hooks["hooks"]["preToolUse"]
    assert hook["failClosed"] is True
    program_, socket = hook["command"].rsplit(" ", 1)
    done = subprocess.run([*program_.split(" "), f"{socket}.gone"], input=b"{}", capture_output=True, check=False)
    assert (done.returncode != 0, done.stdout) == (True, b"")


def test_text_is_not_changed_by_hooks(asking: httpx2.Client) -> None:
    """A run without calls asks nothing."""
    assert text_of(chat(asking, program({"say": "Plain."}))) == "Plain."


SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    match asked.get("method"):
        case "initialize":
            told = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}},
                    "serverInfo": {"name": "sums", "version": "1"}}
        case "tools/list":
            told = {"tools": [{"name": "add", "description": "Adds", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            numbers = asked["params"]["arguments"]
            told = {"content": [{"type": "text", "text": str(numbers["a"] + numbers["b"])}]}
        case _:
            told = {}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": told}), flush=True)
"""


@pytest.mark.parametrize("forced", [True, False])
def test_a_server_of_the_workspace(
    client: httpx2.Client, gateway: RunningGateway, asking: httpx2.Client, careful: RunningGateway, forced: bool
) -> None:
    """MCP servers of the workspace are started, and called if a rule or `force` allows it."""
    used, asked = (gateway, client) if forced else (careful, asking)
    workspace = used.workspace / "served"
    (workspace / ".cursor").mkdir(parents=True)
    (workspace / "server.py").write_text(SERVER)
    server = {"command": sys.executable, "args": [str(workspace / "server.py")]}
    (workspace / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": {"sums": server}}))
    reply = unasked(asked, {"call": "add", "args": {"a": 2, "b": 3}}, {"say": "$1"}, workspace=str(workspace))
    assert (text_of(reply) == "5") is forced
    assert states(reply)[0] == ("completed" if forced else "rejected")
