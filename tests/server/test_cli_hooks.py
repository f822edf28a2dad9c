"""`approvals = "hooks"`: the CLI asks by a hook before each command, and the run waits; with the stand-in agent."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from cursor_gateway.cli.commands.verify import HELD, CheckResult, holds_commands, store_verified, verified_now
from tests.agent.account import VERSION
from tests.agent.install import install
from tests.cli.processes import finished
from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import Json, chat, eventually, http_client, standin
from tests.server.test_orphans import linux
from tests.server.test_permissions import asking, command_of, counter, counting, runs_of

SETTINGS = {"source": "cli", "approvals": "hooks"}


def verified(data: Path, version: str = VERSION, outcome: str = "same") -> None:
    """As `cursor-gateway verify` would have found."""
    results = [CheckResult("hook", "same", ""), CheckResult(HELD, "same" if outcome == "same" else "different", "")]
    store_verified(data, verified_now("cli", version, results))


@pytest.fixture(scope="module")
def hooked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    home = tmp_path_factory.mktemp("hooked")
    verified(home / "data")
    with running_gateway(home, settings=SETTINGS) as running:
        yield running


@pytest.fixture
def person(hooked: RunningGateway) -> Iterator[httpx2.Client]:
    with http_client(hooked) as client:
        yield client
        for entry in client.get("/v1/permissions").json()["permissions"]:
            client.delete(f"/v1/permissions/{entry['id']}")


def decide(client: httpx2.Client, answer: Json, asked: Json, decision: str, **fields: str) -> Json:
    given = {"documentId": asked["id"], "decision": decision, **fields}
    done: Json = client.post(f"/v1/chat/{answer['id']}/answer", json={"permissions": [given]}).json()
    assert (done["id"], done["status"]) == (answer["id"], "completed"), done
    return done


def configurations(gateway: RunningGateway) -> list[Path]:
    return [file.parent for file in gateway.data.rglob("cli-config.json")]


@pytest.mark.parametrize("decision", ["once", "conversation", "deny"])
def test_it_waits(hooked: RunningGateway, person: httpx2.Client, decision: str) -> None:
    mark = counter(hooked)
    answer, asked = asking(person, mark, mayAsk=True)
    assert asked["metadata"]["permission"]["rules"] == ["Shell(python3)"]
    assert not [one for one in answer["documents"] if one["type"] == "terminal_command"]  # nothing runs yet
    assert runs_of(hooked, mark) == 0
    if decision == "deny":
        metadata = command_of(decide(person, answer, asked, decision, reason="Use node."))["metadata"]
        assert (metadata["state"], metadata["reason"]) == ("rejected", "Not run: it was not allowed.")
        assert runs_of(hooked, mark) == 0
        return
    assert command_of(decide(person, answer, asked, decision))["metadata"]["exitCode"] == 0
    assert runs_of(hooked, mark) == 1
    again = person.post(
        "/v1/chat", json={"message": counting(mark), "conversationId": answer["conversationId"], "mayAsk": True}
    ).json()
    assert again["status"] == ("completed" if decision == "conversation" else "streaming")
    assert runs_of(hooked, mark) == (2 if decision == "conversation" else 1)
    person.post(f"/v1/chat/{again['id']}/cancel", json={})


def test_the_users_own_rules_need_no_decision(person: httpx2.Client) -> None:
    """`Shell(ls)` is the agent's default."""
    assert command_of(chat(person, standin("shell command=ls")))["metadata"]["exitCode"] == 0


def test_without_a_person_it_is_rejected_and_can_be_allowed_afterwards(
    hooked: RunningGateway, person: httpx2.Client
) -> None:
    mark = counter(hooked)
    answer = chat(person, counting(mark), mayAsk=False)
    metadata = command_of(answer)["metadata"]
    assert (metadata["state"], metadata["permission"]["rules"]) == ("rejected", ["Shell(python3)"])
    given = {"documentId": command_of(answer)["id"], "decision": "once"}
    person.post(f"/v1/chat/{answer['id']}/answer", json={"permissions": [given]})
    assert runs_of(hooked, mark) == 1


def test_a_web_page_can_be_allowed_afterwards(person: httpx2.Client) -> None:
    """The agent's own rules decide about pages, so what was allowed is among them."""
    steps = standin("program", json.dumps([{"native": "webFetch", "args": {"url": "http://127.0.0.1:1/"}}]))
    answer = chat(person, steps, mayAsk=False)
    (refused,) = [one for one in answer["documents"] if one["type"] == "tool_call"]
    assert refused["metadata"]["permission"]["rules"] == ["WebFetch(127.0.0.1)"]
    given = {"documentId": refused["id"], "decision": "conversation"}
    person.post(f"/v1/chat/{answer['id']}/answer", json={"permissions": [given]})
    again = chat(person, steps, conversationId=answer["conversationId"], mayAsk=False)
    (fetched,) = [one for one in again["documents"] if one["type"] == "tool_call"]
    assert fetched["metadata"]["state"] != "rejected", fetched["metadata"]


def test_a_question_needs_no_permission(hooked: RunningGateway, person: httpx2.Client) -> None:
    """The tool with which the agent asks its user is allowed, by a name that nobody can guess."""
    steps = standin("program", json.dumps([{"call": "ask_user", "args": {"question": "Why?"}}, {"say": "$1"}]))
    reply = person.post("/v1/chat", json={"message": steps, "mayAsk": True}).json()
    (form,) = reply["documents"]
    assert "permission" not in form["metadata"]
    given = {"questionId": form["metadata"]["questions"][0]["id"], "selectedOptionIds": [], "text": "So."}
    done = person.post(f"/v1/chat/{reply['id']}/answer", json={"answers": [given]}).json()
    assert (done["status"], "So." in done["documents"][-1]["content"]) == ("completed", True)


@linux
def test_cancelled_while_it_waits(hooked: RunningGateway, person: httpx2.Client) -> None:
    """The command is never run, and neither the hook's program nor its socket is left."""
    mark = counter(hooked)
    answer, _ = asking(person, mark, mayAsk=True)
    hook = json.loads(max(hooked.data.rglob("hooks.json"), key=lambda file: file.stat().st_mtime_ns).read_text())
    socket = hook["hooks"]["preToolUse"][0]["command"].rsplit(" ", 1)[1]
    assert waiting_at(socket)
    assert person.post(f"/v1/chat/{answer['id']}/cancel", json={}).status_code == 200
    eventually(lambda: not waiting_at(socket) and not Path(socket).exists())
    assert runs_of(hooked, mark) == 0


def waiting_at(socket: str) -> list[str]:
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().split(b"\0")
        except OSError:
            continue
        found += [file.parent.name] if socket.encode() in words else []
    return found


def test_without_proof_the_gateway_does_not_start(tmp_path: Path) -> None:
    """Nor with the proof of another version, or of one that did not wait."""
    install(tmp_path / "bin")
    environment = {
        "PATH": f"{tmp_path}/bin:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "CURSOR_GATEWAY_APPROVALS": "hooks",
        "CURSOR_GATEWAY_DATA_DIR": str(tmp_path / "data"),
    }
    for version, outcome in (("", ""), ("2026.01.01", "same"), (VERSION, "different")):
        if version:
            verified(tmp_path / "data", version, outcome)
        done = finished("serve", "--port", "0", stdin=b"", **environment)
        assert done.returncode == 2, done.stderr
        assert f"cursor-agent {VERSION} waits for its" in " ".join(done.stderr.decode().split())
        assert b"cursor-gateway verify --source cli" in done.stderr
    told = finished("doctor", "--json", stdin=b"", **environment).stdout
    assert "approvals" in [one["subject"] for one in json.loads(told)["findings"] if one["level"] == "broken"]
    verified(tmp_path / "data")
    assert holds_commands(tmp_path / "data", VERSION)
    told = finished("doctor", "--json", stdin=b"", **environment).stdout
    assert "approvals" in [one["subject"] for one in json.loads(told)["findings"] if one["level"] == "good"]


def test_it_cannot_be_used_with_agents_of_another_user(tmp_path: Path) -> None:
    done = finished("serve", "--port", "0", CURSOR_GATEWAY_APPROVALS="hooks", CURSOR_GATEWAY_AGENT_USER="root")
    assert done.returncode != 0
    assert b"agent_user" in done.stderr


@pytest.mark.slow  # gateways of their own
def test_an_agent_that_was_updated_meanwhile_is_not_used(tmp_path: Path) -> None:
    """And turning it off removes the hook, whose socket is gone."""
    verified(tmp_path / "data")
    with running_gateway(tmp_path, settings=SETTINGS) as gateway, http_client(gateway) as client:
        first = chat(client, standin("shell command=ls"))
        (configuration,) = configurations(gateway)
        assert (configuration / "hooks.json").exists()
        install(tmp_path / "bin", knobs={"version": "2026.11.01-new"})
        refused = client.post("/v1/chat", json={"message": "Hi.", "conversationId": first["conversationId"]}).json()
        assert refused["error"]["code"] == "agent_misconfigured", refused
        install(tmp_path / "bin")
    with running_gateway(tmp_path, settings={"source": "cli"}) as gateway, http_client(gateway) as client:
        again = chat(client, standin("shell command=ls"), conversationId=first["conversationId"])
        assert command_of(again)["metadata"]["exitCode"] == 0
        assert not (configuration / "hooks.json").exists()
        assert "Shell(*)" not in (configuration / "cli-config.json").read_text()
    shutil.rmtree(tmp_path / "data")
