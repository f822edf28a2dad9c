"""Questions of the CLI's agent: how it gets the tool for them, and what happens if they are not answered."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import Json, chat, conversation_folder, eventually, http_client, invocations, text_of, unique
from tests.server.test_caller_tools import own_gateway, program, say
from tests.server.test_leaks import ended_agents

CLI = {"source": "cli"}
ASK: Json = {"call": "ask_user", "args": {"question": "Why?"}}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with ended_agents(tmp_path_factory.mktemp("cli")) as home, running_gateway(home, settings=CLI) as running:
        yield running


@pytest.fixture
def http(gateway: RunningGateway) -> Iterator[httpx2.Client]:
    with http_client(gateway) as client:
        yield client


def asked(client: httpx2.Client, mark: str, *steps: Json, **fields: Any) -> Json:
    """The reply of a run that waits for its user."""
    body = {"message": f"{mark} {program(*steps)}", "mayAsk": True, **fields}
    reply: Json = client.post("/v1/chat", json=body).json()
    assert reply["metadata"].get("waitingFor"), reply
    return reply


def answered(client: httpx2.Client, reply: Json, text: str) -> Json:
    (question,) = reply["documents"][-1]["metadata"]["questions"]
    answers = [{"questionId": question["id"], "selectedOptionIds": [], "text": text}]
    result: Json = client.post(f"/v1/chat/{reply['id']}/answer", json={"answers": answers}).json()
    return result


def ended(client: httpx2.Client, id: str) -> Json:
    """The reply, when the run is over."""
    eventually(lambda: client.get(f"/v1/chat/{id}").json()["status"] != "streaming")
    reply: Json = client.get(f"/v1/chat/{id}").json()
    return reply


def allowed(gateway: RunningGateway, reply: Json) -> list[str]:
    """The rules of the agent's configuration."""
    settings = conversation_folder(gateway, reply["conversationId"]) / "cursor" / "cli-config.json"
    rules: list[str] = json.loads(settings.read_text()).get("permissions", {}).get("allow", [])
    return rules


def test_the_tool_is_for_this_run_alone(gateway: RunningGateway, http: httpx2.Client) -> None:
    """A plugin has its server, under a new name for each run, and a rule allows this server's tool. Nothing else is
    approved, and nothing is written to the workspace."""
    before, mark = sorted(gateway.workspace.rglob("*")), unique()
    reply = asked(http, mark, ASK, say("$1"))
    (own,) = set(allowed(gateway, reply)) - {"Shell(ls)"}
    assert text_of(answered(http, reply, "So.")) == "Why?\n- So."
    again = asked(http, mark, ASK, say("$1"), conversationId=reply["conversationId"])
    (other,) = set(allowed(gateway, reply)) - {"Shell(ls)"}
    assert own != other
    for rule in (own, other):
        assert rule.startswith("Mcp(plugin-cursor-gateway-user_")
        assert rule.endswith(":ask_user)")
    answered(http, again, "So.")
    for started in invocations(gateway, mark):
        assert "--plugin-dir" in started["argv"]
        assert not {"--approve-mcps", "--force"} & {*started["argv"]}
    assert sorted(gateway.workspace.rglob("*")) == before
    # A caller that cannot answer leaves no trace of it.
    plain = chat(http, f"{mark} last", conversationId=reply["conversationId"])
    assert set(allowed(gateway, plain)) <= {"Shell(ls)"}
    assert "--plugin-dir" not in invocations(gateway, f"{mark} last")[0]["argv"]


def test_a_workspace_whose_own_list_does_not_allow_the_tool(tmp_path: Path) -> None:
    """Its list replaces that of the configuration: the call is rejected, which the user sees, and the run goes on."""
    with own_gateway(tmp_path, settings=CLI) as (gateway, client):
        (gateway.workspace / ".cursor").mkdir()
        rules = {"permissions": {"allow": [], "deny": ["Mcp(*:*)"]}}
        (gateway.workspace / ".cursor" / "cli.json").write_text(json.dumps(rules))
        reply = chat(client, program(ASK, say("On.")), mayAsk=True)
        call, said = reply["documents"]
        assert (call["metadata"]["state"], said["content"]) == ("rejected", "On.")
        assert "permission" not in call["metadata"]  # which could not help


def test_an_agent_that_gives_its_question_up(tmp_path: Path) -> None:
    """Its MCP client waits a second, and hears of no progress. The question is then an open one of a run that went on,
    and its answer the next message."""
    knobs = {"mcp_seconds": "1", "mcp_progress": "0"}
    with own_gateway(tmp_path, knobs=knobs, settings=CLI) as (_, client):
        reply = asked(client, "", ASK, say("On."))
        over = ended(client, reply["id"])
        form, said = over["documents"]
        assert (form["type"], form["metadata"]["state"], said["content"]) == ("clarification", "unanswered", "On.")
        later = answered(client, {**over, "documents": [form]}, "So.")
        assert (later["id"] != over["id"], later["conversationId"]) == (True, over["conversationId"])
        assert later["status"] == "completed"


def test_nobody_answers(tmp_path: Path) -> None:
    with own_gateway(tmp_path, settings={"answer_seconds": "0.5", **CLI}) as (_, client):
        over = ended(client, asked(client, "", ASK, say("$1"))["id"])
        form, said = over["documents"]
        assert (over["status"], form["metadata"]["state"]) == ("completed", "unanswered")
        assert said["content"].startswith("The user cannot be asked now, or did not answer.")


def test_an_agent_that_dies_while_it_asks(gateway: RunningGateway, http: httpx2.Client) -> None:
    mark = unique()
    reply = asked(http, mark, ASK, say("$1"))
    os.killpg(invocations(gateway, mark)[0]["pgid"], signal.SIGKILL)
    over = ended(http, reply["id"])
    form, error = over["documents"]
    assert (form["metadata"]["state"], error["metadata"]["errorCode"]) == ("interrupted", "AGENT_CRASHED")
    assert answered(http, {**over, "documents": [form]}, "So.")["status"] == "completed"
