"""Runs of clients that cannot be asked wait for somebody else to allow a command, and go on in the same reply."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from tests.agent.bridge_install import install_bridge
from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import Dialect, Json, ask, eventually, growing, http_client, question, sse, unique

DIALECTS: list[Dialect] = ["documents", "openai", "responses", "messages"]
KEEP_ALIVE = {"messages": b"event: ping"}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    settings = {"wait_for_approval_seconds": "60", "keep_alive_seconds": "0.05", "reconnect_seconds": "0.05"}
    with running_gateway(tmp_path_factory.mktemp("approvals"), settings=settings) as gateway:
        yield gateway


@pytest.fixture
def client(gateway: RunningGateway) -> Iterator[httpx2.Client]:
    with http_client(gateway) as client:
        yield client


@pytest.fixture
def mark(gateway: RunningGateway) -> str:
    """The name of a program that counts how often it was run."""
    name = unique()
    script = gateway.workspace / f"{name}.py"
    script.write_text(f"open({str(gateway.workspace / name)!r}, 'a').write('ran\\n')\n")
    return name


def counting(mark: str) -> str:
    return f'{mark} standin: shell command="python3 {mark}.py"'


def times(gateway: RunningGateway, mark: str) -> int:
    path = gateway.workspace / mark
    return len(path.read_text().splitlines()) if path.exists() else 0


def waiting_run(client: httpx2.Client, mark: str) -> str:
    """The id of the only run that was asked this, once it waits."""

    def look() -> str:
        runs = [run for run in client.get("/v1/runs").json()["runs"] if mark in run["prompt"]]
        assert len(runs) < 2, "a second agent was started"
        found = client.get("/v1/conversations", params={"limit": 100}).json()["conversations"]
        is_waiting = {one["id"] for one in found if one.get("isWaiting")}
        return next((run["id"] for run in runs if run["conversationId"] in is_waiting), "")

    return eventually(look)


def allow(client: httpx2.Client, run_id: str, decision: str = "once") -> Json:
    """What the page sends; the whole answer of the run, which goes on."""
    documents = client.get(f"/v1/chat/{run_id}").json()["documents"]
    (asked,) = [one["id"] for one in documents if one["type"] == "clarification" and "permission" in one["metadata"]]
    decided = {"permissions": [{"documentId": asked, "decision": decision}]}
    reply = client.post(f"/v1/chat/{run_id}/answer", json=decided)
    assert reply.status_code == 200, reply.text
    answer: Json = reply.json()
    assert answer["id"] == run_id
    return answer


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_stream_is_kept_alive_and_the_same_run_goes_on(
    gateway: RunningGateway, client: httpx2.Client, mark: str, dialect: Dialect
) -> None:
    more = {"mayAsk": False} if dialect == "documents" else {}
    with growing(client, dialect, counting(mark), **more) as reply, http_client(gateway) as person:
        assert reply.response.status_code == 200
        run_id = waiting_run(person, mark)
        assert reply.response.headers["x-chat-id"] == run_id
        reply.until(KEEP_ALIVE.get(dialect, b": keep-alive"))
        assert times(gateway, mark) == 0
        answer = allow(person, run_id)
        body = reply.rest()
    assert times(gateway, mark) == 1
    said = answer["documents"][-1]["content"]
    assert said in text_of(dialect, body)
    assert not any(word in body for word in (b"refused", b'"tool_calls"', b'"tool_use"'))
    replayed = client.get(f"/v1/chat/{run_id}/events", params={"dialect": dialect})
    assert said in text_of(dialect, replayed.content)


def text_of(dialect: Dialect, body: bytes) -> str:
    events = [json.loads(event.data) for event in sse(body) if event.data != "[DONE]"]
    match dialect:
        case "documents":
            return "".join(event.get("delta", "") for event in events)
        case "openai":
            choices = [choice for event in events for choice in event["choices"]]
            return "".join(choice["delta"].get("content") or "" for choice in choices)
        case "responses":
            return "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
        case "messages":
            deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
            return "".join(delta.get("text", "") for delta in deltas)


def test_codex_gets_events_as_keep_alives(gateway: RunningGateway, client: httpx2.Client, mark: str) -> None:
    headers = {"originator": "codex_exec", "x-cursor-mode": "agent"}
    with growing(client, "responses", counting(mark), headers=headers) as reply, http_client(gateway) as person:
        run_id = waiting_run(person, mark)
        reply.until(b"event: keepalive")
        allow(person, run_id)
        assert b"event: response.completed" in reply.rest()
    assert times(gateway, mark) == 1


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_whole_reply_waits_too(gateway: RunningGateway, client: httpx2.Client, mark: str, dialect: Dialect) -> None:
    more = {"mayAsk": False} if dialect == "documents" else {}
    with ThreadPoolExecutor(1) as pool, http_client(gateway) as person:
        asked = pool.submit(lambda: ask(client, dialect, counting(mark), **more))
        allow(person, waiting_run(person, mark))
        reply = asked.result()
    assert reply.status_code == 200
    assert times(gateway, mark) == 1
    assert "refused" not in reply.text
    assert '"finish_reason":"tool_calls"' not in reply.text


def test_what_a_person_denies_is_not_run_and_not_offered_again(
    gateway: RunningGateway, client: httpx2.Client, mark: str
) -> None:
    with ThreadPoolExecutor(1) as pool, http_client(gateway) as person:
        asked = pool.submit(lambda: ask(client, "openai", counting(mark), cursor={"text": "readable"}))
        allow(person, waiting_run(person, mark), "deny")
        reply = asked.result().json()
    assert times(gateway, mark) == 0
    (call,) = reply["cursor"]["refused"]
    assert "link" not in call
    assert "not allowed to run" not in reply["choices"][0]["message"]["content"]


@pytest.mark.parametrize("dialect", ["openai", "messages"])
def test_a_client_that_gives_up_and_asks_again_joins_the_run(
    gateway: RunningGateway, client: httpx2.Client, mark: str, dialect: Dialect
) -> None:
    with growing(client, dialect, counting(mark)) as reply, http_client(gateway) as person:
        run_id = waiting_run(person, mark)
        reply.until(KEEP_ALIVE.get(dialect, b": keep-alive"))
    with growing(client, dialect, counting(mark)) as again, http_client(gateway) as person:
        assert again.response.headers["x-chat-id"] == run_id
        assert waiting_run(person, mark) == run_id
        allow(person, run_id)
        again.rest()
    assert times(gateway, mark) == 1
    with growing(client, dialect, counting(mark)) as new:  # the same question later is another one
        assert new.response.headers["x-chat-id"] != run_id


def test_an_answer_that_nobody_read_is_for_who_asks_again(
    gateway: RunningGateway, client: httpx2.Client, mark: str
) -> None:
    with growing(client, "openai", counting(mark)) as reply, http_client(gateway) as person:
        run_id = waiting_run(person, mark)
        reply.until(b": keep-alive")
    with http_client(gateway) as person:
        documents = person.get(f"/v1/chat/{run_id}").json()["documents"]
        decided = [{"documentId": one["id"], "decision": "once"} for one in documents if one["type"] == "clarification"]
        later = {"prefer": "respond-async"}
        assert person.post(f"/v1/chat/{run_id}/answer", json={"permissions": decided}, headers=later).is_success
        eventually(lambda: person.get(f"/v1/chat/{run_id}").json()["status"] == "completed")
    again = client.post("/v1/chat/completions", json=question(counting(mark)))
    assert again.headers["x-chat-id"] == run_id
    assert again.json()["choices"][0]["finish_reason"] == "stop"
    assert times(gateway, mark) == 1


def test_an_agent_of_the_sdk_waits_by_its_hook(tmp_path: Path) -> None:
    settings = {
        "source": "sdk",
        "sdk_bridge": ",".join(install_bridge(tmp_path / "bridge")),
        "wait_for_approval_seconds": "60",
    }
    environment = {"CURSOR_API_KEY": "key_of_a_test"}
    with running_gateway(tmp_path, settings=settings, environment=environment) as gateway:
        mark = unique()
        (gateway.workspace / f"{mark}.py").write_text(f"open({str(gateway.workspace / mark)!r}, 'a').write('ran\\n')\n")
        with ThreadPoolExecutor(1) as pool, http_client(gateway) as client, http_client(gateway) as person:
            asked = pool.submit(lambda: ask(client, "openai", counting(mark)))
            allow(person, waiting_run(person, mark))
            reply = asked.result()
        assert reply.status_code == 200
        assert "refused" not in reply.text
        assert times(gateway, mark) == 1


def test_questions_are_not_waited_for(client: httpx2.Client) -> None:
    reply = ask(client, "openai", f"{unique()} standin: question")
    assert reply.status_code == 200
    assert reply.json()["choices"][0]["finish_reason"] == "stop"


def test_what_nobody_allows_in_time_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    home = tmp_path_factory.mktemp("late")
    with (
        running_gateway(home, settings={"wait_for_approval_seconds": "0.1"}) as gateway,
        http_client(gateway) as client,
    ):
        reply = ask(client, "openai", counting(unique()), cursor={"text": "readable"}).json()
        (call,) = reply["cursor"]["refused"]
        assert reply["choices"][0]["message"]["content"].endswith(f"Allow it: {call['url']}")
        conversation = call["link"].split("/")[3]
        decided = {"permissions": [{"documentId": call["document"], "decision": "deny"}]}
        run_id = call["link"].split("/")[4]
        assert client.get(f"/v1/conversations/{conversation}").json()["isWaiting"]
        assert client.post(f"/v1/chat/{run_id}/answer", json=decided).is_success


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        ({"user-agent": "opencode/1.2.3 ai-sdk/provider-utils/4"}, "OpenCode"),
        ({"user-agent": "claude-cli/2.1.0 (external, cli)"}, "Claude Code"),
        ({"user-agent": "curl/8.1", "originator": "codex_exec"}, "Codex"),
        ({"user-agent": "weather-bot/3"}, "weather-bot"),
        ({"user-agent": "Mozilla/5.0 (X11; Linux)"}, None),
        ({"user-agent": ""}, None),
    ],
)
def test_a_conversation_names_the_program_that_began_it(
    client: httpx2.Client, headers: dict[str, str], name: str | None
) -> None:
    asked = {"message": f"{unique()} standin: text"}
    answer = client.post("/v1/chat", json=asked, headers=headers).json()
    detail = client.get(f"/v1/conversations/{answer['conversationId']}").json()
    assert detail.get("client") == name
