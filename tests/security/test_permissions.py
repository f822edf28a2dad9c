"""Who may allow the agent a command, and that nobody allows more than the operator does."""

import json
from pathlib import Path

import httpx2
import pytest

from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import Json, chat, http_client, unique
from tests.server.test_caller_tools import WEATHER, program, say


def want(client: httpx2.Client, command: str, **fields: object) -> Json:
    return chat(client, f'standin: shell command="{command}"', **fields)


def command_of(answer: Json) -> Json:
    found: Json
    (found,) = [document for document in answer["documents"] if document["type"] == "terminal_command"]
    return found


def allow(client: httpx2.Client, answer: Json, decision: str, document: str = "") -> httpx2.Response:
    result = {"documentId": document or command_of(answer)["id"], "decision": decision}
    return client.post(f"/v1/chat/{answer['id']}/answer", json={"permissions": [result]})


def forget_all(*clients: httpx2.Client) -> None:
    for client in clients:
        for entry in client.get("/v1/permissions").json()["permissions"]:
            client.delete(f"/v1/permissions/{entry['id']}")


def test_nobody_allows_anything_in_anothers_conversation(alice: httpx2.Client, bob: httpx2.Client) -> None:
    asked = want(alice, "expr 1 + 1")
    for decision in ("once", "conversation", "workspace", "deny"):
        assert allow(bob, asked, decision, command_of(asked)["id"]).status_code == 404
    assert bob.get("/v1/permissions").json()["permissions"] == []
    assert alice.get("/v1/permissions").json()["permissions"] == []


def test_a_rule_is_its_owners_alone(alice: httpx2.Client, bob: httpx2.Client) -> None:
    try:
        asked = want(alice, "expr 1 + 1")
        assert allow(alice, asked, "workspace").status_code == 200
        assert command_of(want(alice, "expr 2 + 2"))["metadata"]["exitCode"] == 0
        assert command_of(want(bob, "expr 3 + 3"))["metadata"]["state"] == "rejected"  # in the same workspace
        (entry,) = alice.get("/v1/permissions").json()["permissions"]
        assert bob.get("/v1/permissions").json()["permissions"] == []
        assert bob.delete(f"/v1/permissions/{entry['id']}").status_code == 404
        assert alice.get("/v1/permissions").json()["permissions"] == [entry]
    finally:
        forget_all(alice, bob)


@pytest.mark.parametrize("command", ["* x", "ls; *", "$(id) x", "it's"])
def test_no_command_makes_a_rule_wider_than_it_looks(anybody: httpx2.Client, command: str) -> None:
    asked = want(anybody, command)
    assert "permission" not in command_of(asked)["metadata"]
    assert allow(anybody, asked, "once").status_code == 400


def test_a_caller_cannot_write_a_rule(anybody: httpx2.Client) -> None:
    asked = want(anybody, "expr 1 + 1")
    result = {"documentId": command_of(asked)["id"], "decision": "workspace", "rules": ["Shell(*)"]}
    refused = anybody.post(f"/v1/chat/{asked['id']}/answer", json={"permissions": [result]})
    assert refused.status_code == 400
    assert anybody.get("/v1/permissions").json()["permissions"] == []


def test_what_the_operator_denies_stays_denied(tmp_path: Path) -> None:
    (tmp_path / ".cursor").mkdir()
    denied = {"version": 1, "permissions": {"allow": ["Shell(ls)"], "deny": ["Shell(expr)"]}}
    (tmp_path / ".cursor" / "cli-config.json").write_text(json.dumps(denied))
    with running_gateway(tmp_path) as gateway, http_client(gateway) as client:
        asked = want(client, "expr 1 + 1")
        again = allow(client, asked, "workspace").json()
        assert command_of(again)["metadata"]["state"] == "rejected"
        assert command_of(want(client, "ls"))["metadata"]["exitCode"] == 0  # the operator's own rules stay
        assert json.loads((tmp_path / ".cursor" / "cli-config.json").read_text()) == denied


def test_no_rule_gives_an_agent_with_the_callers_tools_its_own(
    open_gateway: RunningGateway, anybody: httpx2.Client
) -> None:
    try:
        mark = unique()
        assert allow(anybody, want(anybody, f"touch {mark}-a"), "workspace").status_code == 200
        assert (open_gateway.workspace / f"{mark}-a").exists()
        made = open_gateway.workspace / mark
        steps = program({"native": "shell", "args": {"command": f"touch {made}"}}, say("Done."))
        reply = anybody.post("/v1/chat", json={"message": steps, "tools": [WEATHER]})
        assert "no rule allows it" not in reply.text
        assert not made.exists()
    finally:
        forget_all(anybody)
