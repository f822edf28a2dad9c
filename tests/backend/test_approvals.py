"""A person is asked before a call of Cursor's own runtime, and the run waits: through the whole gateway."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cursor_gateway.sources.processes import snapshot, start_of
from tests.backend.conftest import client_of, program, runtime_gateway
from tests.backend.server import Backend
from tests.backend.test_permissions import SERVER, shell
from tests.gateways import RunningGateway
from tests.server.conftest import Json, chat, eventually, growing, text_of
from tests.server.test_orphans import above, kill, linux


@pytest.fixture(scope="module")
def careful(tmp_path_factory: pytest.TempPathFactory, shared_backend: Backend) -> Iterator[RunningGateway]:
    home = tmp_path_factory.mktemp("careful")
    with runtime_gateway(home, shared_backend, force="false", refuse_workspace_hooks="false") as running:
        yield running


@pytest.fixture
def person(careful: RunningGateway) -> Iterator[httpx2.Client]:
    """Who can answer."""
    with client_of(careful) as made:
        yield made
        for entry in made.get("/v1/permissions").json()["permissions"]:
            made.delete(f"/v1/permissions/{entry['id']}")


def asked(client: httpx2.Client, *steps: Json, **fields: Any) -> tuple[Json, Json]:
    """A run that waits, and the document in which it asks."""
    reply = client.post("/v1/chat", json={"message": program(*steps), "mayAsk": True, **fields}).json()
    assert reply["status"] == "streaming", reply
    return reply, waiting_in(reply)


def waiting_in(reply: Json) -> Json:
    found: Json
    (found,) = [one for one in reply["documents"] if one["metadata"].get("state") == "waiting"]
    assert (found["type"], "permission" in found["metadata"]) == ("clarification", True)
    return found


def decide(client: httpx2.Client, reply: Json, document: Json, decision: str, reason: str = "") -> Json:
    given = {"documentId": document["id"], "decision": decision, **({"reason": reason} if reason else {})}
    result: Json = client.post(f"/v1/chat/{reply['id']}/answer", json={"permissions": [given]}).json()
    assert result["id"] == reply["id"], result  # the same run goes on
    return result


def only(reply: Json, type: str) -> list[Json]:
    return [one for one in reply["documents"] if one["type"] == type]


def socket_of(gateway: RunningGateway) -> str:
    hooks = json.loads((gateway.data / "sdk/home/.cursor/hooks.json").read_text())
    command: str = hooks["hooks"]["preToolUse"][0]["command"]
    return command.rsplit(" ", 1)[1]


def waiting_hooks(socket: str) -> list[int]:
    """The hook's programs that wait for an answer at this socket."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().split(b"\0")
        except OSError:
            continue
        if socket.encode() in words and not any(word == b"-c" for word in words):
            found.append(int(file.parent.name))
    return found


def test_it_waits_and_runs_once(person: httpx2.Client, careful: RunningGateway) -> None:
    """A command waits for a person, and does not look as if it ran. `once` is one call: the next one asks again."""
    file = careful.workspace / "once"
    step = shell(f"echo ran >> {file}")
    reply, document = asked(person, {"say": "First."}, step, step, {"say": "It said nothing."})
    assert [one["type"] for one in reply["documents"]] == ["text", "clarification"]
    assert document["metadata"]["permission"]["subject"] == f"echo ran >> {file}"
    assert document["metadata"]["permission"]["rules"] == ["Shell(echo)"]
    assert not file.exists()
    reply = decide(person, reply, document, "once")
    assert reply["status"] == "streaming"
    assert file.read_text() == "ran\n"
    (ran,) = only(reply, "terminal_command")
    assert ran["metadata"]["exitCode"] == 0
    done = decide(person, reply, waiting_in(reply), "once")
    assert (done["status"], file.read_text()) == ("completed", "ran\nran\n")
    kinds = [one["type"] for one in done["documents"]]
    assert kinds == ["text", "clarification", "terminal_command", "clarification", "terminal_command", "text"]
    answers = [one["metadata"]["answers"][0]["selectedOptionIds"] for one in only(done, "clarification")]
    assert answers == [["once"], ["once"]]


def test_a_denial_reaches_the_agent_with_its_reason(person: httpx2.Client, careful: RunningGateway) -> None:
    """A person who denies a command can say why, and the same run continues with that."""
    file = careful.workspace / "denied"
    reply, document = asked(person, shell(f"touch {file}"), {"say": "$1"})
    done = decide(person, reply, document, "deny", "Use the other folder.")
    assert done["status"] == "completed"
    metadata = only(done, "terminal_command")[0]["metadata"]
    assert (metadata["state"], metadata["reason"]) == ("rejected", "Not run: it was not allowed.")
    assert "permission" not in metadata  # it was decided
    assert "Continue without it. Use the other folder." in text_of(done)
    assert not file.exists()


@pytest.mark.parametrize("decision", ["conversation", "workspace"])
@pytest.mark.quick_cases(1)
def test_what_is_always_allowed_is_not_asked_again(
    person: httpx2.Client, careful: RunningGateway, decision: str
) -> None:
    """What a person always allows is asked about neither in the same run nor in later ones, until it is revoked."""
    reply, document = asked(person, shell("touch a"), shell("touch b"), {"say": "Done."})
    done = decide(person, reply, document, decision)
    assert (done["status"], len(only(done, "terminal_command"))) == ("completed", 2)
    later = chat(person, program(shell("touch c"), {"say": "Done."}), conversationId=done["conversationId"])
    assert only(later, "terminal_command")[0]["metadata"]["exitCode"] == 0
    (entry,) = person.get("/v1/permissions").json()["permissions"]
    person.delete(f"/v1/permissions/{entry['id']}")
    reply, document = asked(person, shell("touch c"), {"say": "Done."}, conversationId=done["conversationId"])
    assert decide(person, reply, document, "deny")["status"] == "completed"


def test_calls_at_once_are_asked_each(person: httpx2.Client, careful: RunningGateway) -> None:
    """Calls that are made at once are asked about one by one, also the same one twice."""
    file = careful.workspace / "at-once"
    step = shell(f"echo ran >> {file}")
    message = program({"parallel": [step, step]}, {"say": "Done."})
    reply = person.post("/v1/chat", json={"message": message, "mayAsk": True}).json()
    path = f"/v1/chat/{reply['id']}"
    eventually(lambda: len(only(person.get(path).json(), "clarification")) == 2)
    first, second = only(person.get(path).json(), "clarification")
    given = [{"documentId": first["id"], "decision": "once"}, {"documentId": second["id"], "decision": "deny"}]
    done = person.post(f"{path}/answer", json={"permissions": given}).json()
    assert done["status"] == "completed"
    assert file.read_text() == "ran\n"


def test_a_tool_of_a_server(person: httpx2.Client, careful: RunningGateway) -> None:
    """A tool of an MCP server is asked about with its server, and then allowed by a rule that names it."""
    workspace = careful.workspace / "asking-server"
    (workspace / ".cursor").mkdir(parents=True)
    (workspace / "server.py").write_text(SERVER)
    server = {"command": sys.executable, "args": [str(workspace / "server.py")]}
    (workspace / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": {"sums": server}}))
    call = {"call": "add", "args": {"a": 2, "b": 3}}
    reply, document = asked(person, call, call, {"say": "$1 $2"}, workspace=str(workspace))
    assert document["metadata"]["permission"] == {"subject": "sums: add", "rules": ["Mcp(sums:add)"]}
    assert text_of(decide(person, reply, document, "conversation")) == "5 5"


def test_a_sub_agent_is_asked_for_in_its_run(person: httpx2.Client, careful: RunningGateway) -> None:
    """A sub-agent's command is asked about in the run that started it."""
    file = careful.workspace / "sub-agent"
    task = {"native": "task", "args": {"steps": [shell(f"touch {file}"), {"say": "Sub."}]}}
    reply, document = asked(person, task, {"say": "Done."})
    (parent,) = only(reply, "tool_call")
    assert document["metadata"]["parentId"] == parent["id"]
    assert not file.exists()
    assert decide(person, reply, document, "once")["status"] == "completed"
    assert file.exists()


@linux
@pytest.mark.slow  # a bridge of its own
def test_two_runs_with_sub_agents_at_once(tmp_path: Path, shared_backend: Backend) -> None:
    """Sub-agents of two runs, in different workspaces, are each asked about in their own run."""

    def task(folder: Path) -> Json:
        return {"native": "task", "args": {"steps": [shell(f"touch {folder}/made"), {"say": "Sub."}]}}

    folders = [tmp_path / "work" / name for name in ("one", "two")]
    with runtime_gateway(tmp_path, shared_backend, force="false") as gateway, client_of(gateway) as client:
        for folder in folders:
            folder.mkdir(parents=True)
        runs = [asked(client, task(folder), {"say": "Done."}, workspace=str(folder)) for folder in folders]
        for folder, (reply, document) in zip(folders, runs, strict=True):
            assert document["metadata"]["permission"]["subject"] == f"touch {folder}/made"
            assert decide(client, reply, document, "once")["status"] == "completed"
            assert (folder / "made").exists()


@linux
def test_cancelled_while_it_waits(person: httpx2.Client, careful: RunningGateway) -> None:
    """A run that is cancelled while it waits does not run the command, and leaves nothing."""
    file = careful.workspace / "cancelled"
    reply, _ = asked(person, shell(f"touch {file}"), {"say": "Done."})
    assert len(waiting_hooks(socket_of(careful))) == 1
    assert person.post(f"/v1/chat/{reply['id']}/cancel", json={}).status_code == 200
    eventually(lambda: waiting_hooks(socket_of(careful)) == [])
    assert person.get(f"/v1/chat/{reply['id']}").json()["status"] == "error"
    assert text_of(chat(person, program({"say": "Next."}), conversationId=reply["conversationId"])) == "Next."
    assert not file.exists()


@linux
@pytest.mark.slow  # as a cancel, which is tested above
def test_the_client_leaves_while_it_waits(person: httpx2.Client, careful: RunningGateway) -> None:
    """Nor does one whose client leaves."""
    file = careful.workspace / "left"
    message = program(shell(f"touch {file}"))
    with growing(person, "documents", message, mayAsk=True, whenClientLeaves="cancel") as growing_reply:
        growing_reply.until(b'"waiting"')
        run = growing_reply.response.headers["x-chat-id"]
    eventually(lambda: person.get(f"/v1/chat/{run}").json()["status"] == "error")
    eventually(lambda: waiting_hooks(socket_of(careful)) == [])
    assert not file.exists()


@linux
def test_a_hook_that_is_killed_allows_nothing(person: httpx2.Client, careful: RunningGateway) -> None:
    """If the hook's program is killed, the run goes on without the command, and says that nobody waits any more."""
    file = careful.workspace / "hook-killed"
    reply, _ = asked(person, shell(f"touch {file}"), {"say": "Done."})
    (hook,) = waiting_hooks(socket_of(careful))
    os.kill(hook, signal.SIGKILL)
    path = f"/v1/chat/{reply['id']}"
    done = eventually(lambda: (found := person.get(path).json())["status"] == "completed" and found)
    assert only(done, "clarification")[0]["metadata"]["state"] == "unanswered"
    assert only(done, "terminal_command")[0]["metadata"]["state"] == "rejected"
    assert not file.exists()


@linux
@pytest.mark.slow  # two gateways of their own
@pytest.mark.parametrize("killed", ["gateway", "bridge"])
def test_one_that_is_killed_while_it_waits(tmp_path: Path, shared_backend: Backend, killed: str) -> None:
    """If the gateway or the bridge is killed while a command waits, it is never run, and nothing is left."""
    with runtime_gateway(tmp_path, shared_backend, force="false") as gateway, client_of(gateway) as client:
        file = gateway.workspace / "killed"
        reply, _ = asked(client, shell(f"touch {file}"), {"say": "Done."})
        socket = socket_of(gateway)
        (hook,) = waiting_hooks(socket)
        bridge = bridge_above(hook, gateway)
        if killed == "gateway":
            kill(gateway)
        else:
            os.kill(bridge, signal.SIGKILL)
            path = f"/v1/chat/{reply['id']}"
            eventually(lambda: client.get(path).json()["status"] == "error")
        eventually(lambda: waiting_hooks(socket) == [] and start_of(bridge) is None)
        assert not file.exists()


def bridge_above(pid: int, gateway: RunningGateway) -> int:
    return above(snapshot(), pid, gateway.process.pid)


@pytest.mark.slow  # a gateway of its own
def test_nobody_decides(tmp_path: Path, shared_backend: Backend) -> None:
    """After `answer_seconds` the run goes on without the call, which can be allowed afterwards, in the same session."""
    settings = {"force": "false", "answer_seconds": "1"}
    with runtime_gateway(tmp_path, shared_backend, None, **settings) as gateway, client_of(gateway) as client:
        file = gateway.workspace / "late"
        reply, _ = asked(client, shell(f"touch {file}"), {"say": "Done."})
        path = f"/v1/chat/{reply['id']}"
        done = eventually(lambda: (found := client.get(path).json())["status"] == "completed" and found)
        assert only(done, "clarification")[0]["metadata"]["state"] == "unanswered"
        (command,) = only(done, "terminal_command")
        assert command["metadata"]["permission"]["rules"] == ["Shell(touch)"]
        given = {"documentId": command["id"], "decision": "once"}
        after = client.post(f"{path}/answer", json={"permissions": [given]}).json()
        assert (after["conversationId"], after["status"]) == (done["conversationId"], "completed")
        assert not file.exists()


def test_a_call_that_the_runtime_repeats_is_asked_once(
    person: httpx2.Client, careful: RunningGateway, backend: Backend
) -> None:
    """A connection that breaks while the call waits makes the runtime start again, with the same call."""
    file = careful.workspace / "repeated"
    reply, document = asked(person, shell(f"echo ran >> {file}"), {"say": "Done."})
    before = waiting_hooks(socket_of(careful))
    backend.cut()
    eventually(lambda: len(now := waiting_hooks(socket_of(careful))) == 1 and now != before)
    done = decide(person, reply, document, "once")
    assert (done["status"], file.read_text()) == ("completed", "ran\n")
    assert (len(only(done, "clarification")), len(only(done, "terminal_command"))) == (1, 1)


def test_the_hook_waits_for_a_day(careful: RunningGateway, person: httpx2.Client) -> None:
    """Without a limit of its own, Cursor waits for a minute, and then makes the call."""
    chat(person, program({"say": "Hi."}))
    (hook,) = json.loads((careful.data / "sdk/home/.cursor/hooks.json").read_text())["hooks"]["preToolUse"]
    assert (hook["timeout"], hook["failClosed"]) == (86_400, True)
