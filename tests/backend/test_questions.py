"""Questions of an agent in Cursor's own runtime: it waits for its user, through the whole gateway."""

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.backend.conftest import client_of, program, runtime_gateway
from tests.backend.server import Backend
from tests.backend.test_caller_tools import WEATHER
from tests.backend.test_permissions import SERVER
from tests.gateways import RunningGateway
from tests.server.conftest import Json, chat, text_of

DATABASE = {"question": "Which database?", "options": ["SQLite", "PostgreSQL"]}
TABLES = {"question": "Which tables?", "options": ["users", "orders", "items"], "multiple": True}


@pytest.fixture(scope="module")
def careful(tmp_path_factory: pytest.TempPathFactory, shared_backend: Backend) -> Iterator[RunningGateway]:
    """Without `force`, and with little patience for those who do not answer."""
    home = tmp_path_factory.mktemp("careful")
    given = runtime_gateway(home, shared_backend, answer_seconds="2", force="false", refuse_workspace_hooks="false")
    with given as running:
        yield running


@pytest.fixture
def asking(careful: RunningGateway) -> Iterator[httpx2.Client]:
    with client_of(careful) as made:
        yield made


def question(*questions: Json) -> Json:
    return {"call": "ask_user", "args": {"questions": list(questions)}}


def asked(client: httpx2.Client, *steps: Json, **fields: Any) -> Json:
    """The reply of a run that waits for its user."""
    reply: Json = client.post("/v1/chat", json={"message": program(*steps), "mayAsk": True, **fields}).json()
    assert reply["metadata"].get("waitingFor"), reply
    return reply


def answered(client: httpx2.Client, reply: Json, *answers: Json) -> Json:
    """The reply when these answers were sent, in the order of the questions."""
    questions = reply["documents"][-1]["metadata"]["questions"]
    sent = [
        {"questionId": one["id"], "selectedOptionIds": [], **answer}
        for one, answer in zip(questions, answers, strict=True)
    ]
    result: Json = client.post(f"/v1/chat/{reply['id']}/answer", json={"answers": sent}).json()
    assert result["id"] == reply["id"]
    return result


def test_one_question(client: httpx2.Client, backend: Backend) -> None:
    """The run waits, the answer is the tool's result, and the same run goes on; the call itself is not shown."""
    reply = asked(client, {"say": "Before. "}, question(DATABASE), {"say": "It is $1"})
    before, form = reply["documents"]
    assert (before["content"], form["type"], form["metadata"]["state"]) == ("Before. ", "clarification", "waiting")
    result = answered(client, reply, {"selectedOptionIds": ["2"]})
    assert result["status"] == "completed"
    assert [one["type"] for one in result["documents"]] == ["text", "clarification", "text"]
    assert result["documents"][-1]["content"] == "It is Which database?\n- PostgreSQL"
    assert len(backend.requests) == 1


def test_several_questions(client: httpx2.Client) -> None:
    """With options, with several choices, and with a free answer, all in one call."""
    reply = asked(client, question(DATABASE, TABLES, {"question": "Why?"}), {"say": "$1"})
    chosen = {"selectedOptionIds": ["1", "3"]}
    result = answered(client, reply, {"text": "Another one"}, chosen, {"text": "Just so."})
    said = "Which database?\n- Another one\n\nWhich tables?\n- users\n- items\n\nWhy?\n- Just so."
    assert result["documents"][-1]["content"] == said


def test_questions_at_once(client: httpx2.Client) -> None:
    """Two calls at the same time are two forms, which are answered one by one."""
    reply = asked(client, {"parallel": [question(DATABASE), question(TABLES)]}, {"say": "$1, $2"})
    assert len(reply["metadata"]["waitingFor"]) == 2
    for _ in range(2):
        waiting = reply["metadata"]["waitingFor"][0]["documentId"]
        (one,) = next(form for form in reply["documents"] if form["id"] == waiting)["metadata"]["questions"]
        sent = [{"questionId": one["id"], "selectedOptionIds": ["1"]}]
        reply = client.post(f"/v1/chat/{reply['id']}/answer", json={"answers": sent}).json()
    assert reply["documents"][-1]["content"] == "Which database?\n- SQLite, Which tables?\n- users"


def test_the_next_turn_asks_again(client: httpx2.Client, backend: Backend) -> None:
    """In the same session of the agent."""
    steps = (question(DATABASE), {"say": "$1"})
    first = answered(client, asked(client, *steps), {"selectedOptionIds": ["1"]})
    reply = asked(client, *steps, conversationId=first["conversationId"])
    assert text_of(answered(client, reply, {"selectedOptionIds": ["2"]})) == "Which database?\n- PostgreSQL"
    assert [len(one.get("conversation_state", {}).get("turns", [])) for one in backend.requests] == [0, 1]


def test_cancelled_while_it_waits(client: httpx2.Client, backend: Backend) -> None:
    reply = asked(client, question(DATABASE), {"say": "On."})
    client.post(f"/v1/chat/{reply['id']}/cancel")
    form, error = client.get(f"/v1/chat/{reply['id']}").json()["documents"]
    assert (form["metadata"]["state"], error["metadata"]["errorCode"]) == ("interrupted", "CANCELLED")
    # The conversation goes on.
    assert text_of(chat(client, program({"say": "Well."}), conversationId=reply["conversationId"])) == "Well."


@pytest.mark.parametrize("says", [{"mayAsk": False}, {}])
def test_a_caller_that_cannot_answer(client: httpx2.Client, says: Json) -> None:
    """The tool is not among those of the agent. So it is for a caller that does not say whether it can."""
    assert text_of(chat(client, program({"list": True}), **says)) == ""
    completion = {"model": "auto", "messages": [{"role": "user", "content": program({"list": True})}]}
    reply = client.post("/v1/chat/completions", json=completion).json()
    assert not reply["choices"][0]["message"]["content"]


def test_the_callers_tools_only(client: httpx2.Client) -> None:
    """A caller with tools of its own gets no other one."""
    function = WEATHER["function"]
    assert isinstance(function, dict)
    tool = {"name": function["name"], "description": "The weather", "parameters": function["parameters"]}
    assert text_of(chat(client, program({"list": True}), mayAsk=True, tools=[tool])) == "get_weather"


def denied(client: httpx2.Client, reply: Json) -> Json:
    """The reply when what it asks permission for is denied."""
    given = {"documentId": reply["documents"][-1]["id"], "decision": "deny"}
    result: Json = client.post(f"/v1/chat/{reply['id']}/answer", json={"permissions": [given]}).json()
    return result


@pytest.mark.parametrize("mode", ["agent", "plan", "ask"])
def test_in_every_mode_without_force(asking: httpx2.Client, mode: str) -> None:
    """The hook allows the tool, whatever else it denies."""
    command = {"native": "shell", "args": {"command": "echo a"}}
    reply = asked(asking, command, question(DATABASE), {"say": "$2"}, mode=mode)
    if mode == "agent":  # in the others, the command cannot be allowed
        reply = denied(asking, reply)
    result = answered(asking, reply, {"selectedOptionIds": ["1"]})
    (ran,) = [one for one in result["documents"] if one["type"] == "terminal_command"]
    assert ran["metadata"]["state"] == "rejected"
    assert result["documents"][-1]["content"] == "Which database?\n- SQLite"


def test_nobody_answers(asking: httpx2.Client) -> None:
    """After `answer_seconds` the agent reads that nobody did, and goes on."""
    reply = asked(asking, question(DATABASE), {"say": "$1"})
    deadline = time.monotonic() + 60
    while reply["status"] == "streaming" and time.monotonic() < deadline:
        time.sleep(0.2)
        reply = asking.get(f"/v1/chat/{reply['id']}").json()
    form, said = reply["documents"]
    assert (reply["status"], form["metadata"]["state"]) == ("completed", "unanswered")
    assert said["content"].startswith("The user cannot be asked now, or did not answer.")


def test_a_tool_of_the_workspace_that_pretends_to_be_it(asking: httpx2.Client, careful: RunningGateway) -> None:
    """A workspace's own MCP server may have a tool and a name like those of the gateway: it needs permission."""
    workspace = careful.workspace / "pretends"
    (workspace / ".cursor").mkdir(parents=True)
    (workspace / "server.py").write_text(SERVER.replace("add", "ask_user"))
    server = {"command": sys.executable, "args": [str(workspace / "server.py")]}
    (workspace / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": {"custom-user-tools": server}}))
    steps = program({"list": True}, {"call": "ask_user", "args": {"a": 1, "b": 2}}, {"say": "$1"})
    body = {"message": steps, "workspace": str(workspace), "mayAsk": True}
    reply = denied(asking, asking.post("/v1/chat", json=body).json())
    own, pretended = text_of(reply).partition("Not run")[0].split(", ")[::-1]
    assert (pretended, own.startswith("ask_user_")) == ("ask_user", True)
    assert [one["metadata"].get("state") for one in reply["documents"] if one["type"] == "tool_call"] == ["rejected"]
