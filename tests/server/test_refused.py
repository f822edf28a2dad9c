"""A run in which a tool call was not run says so in every dialect, whatever the model claims, and where to allow it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import Json, chat, http_client, invocations, question, sse, unique

REFUSED, FINE = "standin: shell command=curl", "standin: text"
READABLE = {"x-cursor-text": "readable"}
MARK = "▸\u2063 "
LINE = f"\n\n{MARK}The agent was not allowed to run `curl`. Allow it: "


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    home: Path = tmp_path_factory.mktemp("refused")
    with running_gateway(home, settings={"source": "cli"}) as gateway:
        yield gateway


@pytest.fixture
def client(gateway: RunningGateway) -> Iterator[httpx2.Client]:
    with http_client(gateway) as client:
        yield client


def assert_says_where(gateway: RunningGateway, told: Any, chat_id: str) -> str:
    """What was not run, once; the address of it on the page."""
    (call,) = told
    assert (call["subject"], call["rules"]) == ("curl", ["Shell(curl)"])
    assert "no rule allows it" in call["reason"]
    assert call["link"].endswith(f"/{chat_id}/{call['document']}")
    assert call["link"].startswith("/#/c/conv_")
    assert call["url"] == f"{gateway.url}{call['link']}"
    url: str = call["url"]
    return url


def test_documents(gateway: RunningGateway, client: httpx2.Client) -> None:
    result = chat(client, REFUSED)
    assert (result["status"], result["metadata"]["refusedCount"]) == ("completed", 1)
    assert_says_where(gateway, result["metadata"]["refused"], result["id"])
    assert "not allowed to run" not in json.dumps(result["documents"])
    fine = chat(client, FINE)["metadata"]
    assert not {"refused", "refusedCount"} & set(fine)


def test_chat_completions(gateway: RunningGateway, client: httpx2.Client) -> None:
    for headers in ({}, READABLE):
        reply = client.post("/v1/chat/completions", json=question(REFUSED), headers=headers)
        whole, id = reply.json(), reply.headers["x-chat-id"]
        assert whole["cursor"]["refused_count"] == 1
        url = assert_says_where(gateway, whole["cursor"]["refused"], id)
        text = whole["choices"][0]["message"]["content"]
        assert text.endswith(LINE + url) if headers else MARK not in text
        reply = client.post("/v1/chat/completions", json=question(REFUSED, stream=True), headers=headers)
        chunks = [json.loads(event.data) for event in sse(reply.content)[:-1]]
        last = chunks[-1]
        assert last["choices"][0]["finish_reason"] == "stop"
        assert last["cursor"]["refused_count"] == 1
        url = assert_says_where(gateway, last["cursor"]["refused"], reply.headers["x-chat-id"])
        streamed = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
        assert streamed.partition(MARK)[0] == text.partition(MARK)[0]
        assert streamed.endswith(LINE + url) if headers else MARK not in streamed
    fine = client.post("/v1/chat/completions", json=question(FINE), headers=READABLE).json()
    assert not {"refused", "refused_count"} & set(fine["cursor"])
    assert MARK not in fine["choices"][0]["message"]["content"]


def test_responses(gateway: RunningGateway, client: httpx2.Client) -> None:
    body = {"model": "auto", "input": REFUSED}
    for headers in ({}, READABLE):
        reply = client.post("/v1/responses", json=body, headers=headers)
        url = assert_says_where(gateway, reply.json()["cursor"]["refused"], reply.headers["x-chat-id"])
        assert last_text(reply.json()).endswith(LINE + url) == bool(headers)
        reply = client.post("/v1/responses", json={**body, "stream": True}, headers=headers)
        *_, last = sse(reply.content)
        whole = json.loads(last.data)["response"]
        assert whole["cursor"]["refused_count"] == 1
        url = assert_says_where(gateway, whole["cursor"]["refused"], reply.headers["x-chat-id"])
        assert last_text(whole).endswith(LINE + url) == bool(headers)
        stored = client.get(f"/v1/responses/{whole['id']}").json()
        assert last_text(stored) == last_text(whole)


def last_text(response: Json) -> str:
    text: str = response["output"][-1]["content"][-1]["text"]
    return text


def test_messages(gateway: RunningGateway, client: httpx2.Client) -> None:
    body = question(REFUSED, max_tokens=1000)
    for headers in ({}, READABLE):
        reply = client.post("/v1/messages", json=body, headers=headers)
        whole = reply.json()
        assert whole["cursor"]["refused_count"] == 1
        url = assert_says_where(gateway, whole["cursor"]["refused"], reply.headers["x-chat-id"])
        assert whole["content"][-1]["text"].endswith(LINE + url) == bool(headers)
        reply = client.post("/v1/messages", json={**body, "stream": True}, headers=headers)
        events = [json.loads(event.data) for event in sse(reply.content)]
        (delta,) = (event for event in events if event["type"] == "message_delta")
        url = assert_says_where(gateway, delta["cursor"]["refused"], reply.headers["x-chat-id"])
        said = "".join(event["delta"].get("text", "") for event in events if event["type"] == "content_block_delta")
        assert said.endswith(LINE + url) == bool(headers)
    fine = question(FINE, max_tokens=1000)
    assert "cursor" not in client.post("/v1/messages", json=fine, headers=READABLE).json()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
def test_an_answer_with_the_line_continues_its_session(
    gateway: RunningGateway, client: httpx2.Client, path: str
) -> None:
    """A client sends back what it got: the line is not the agent's, and the history is known."""
    first, then = f"{unique()} {REFUSED}", f"{unique()} {FINE}"
    asked = [{"role": "user", "content": first}]
    more: Json = {"max_tokens": 32_000} if path == "/v1/messages" else {}
    field = "input" if path == "/v1/responses" else "messages"
    reply = client.post(path, json={"model": "auto", field: asked, **more}, headers=READABLE)
    body = reply.json()
    said: Any
    match path:
        case "/v1/chat/completions":
            said = [body["choices"][0]["message"]]
            assert LINE in said[0]["content"]
        case "/v1/messages":
            said = [{"role": "assistant", "content": body["content"]}]
        case _:
            said = body["output"]
    assert MARK in json.dumps(said, ensure_ascii=False)
    history = [*asked, *said, {"role": "user", "content": then}]
    again = client.post(path, json={"model": "auto", field: history, **more}, headers=READABLE)
    assert again.headers["x-conversation-id"] == reply.headers["x-conversation-id"]
    (invocation,) = invocations(gateway, then.split()[0])
    assert "--resume" in invocation["argv"]


@pytest.mark.parametrize("stream", [False, True])
def test_structured_output_has_no_line(client: httpx2.Client, stream: bool) -> None:
    steps = [{"native": "shell", "args": {"command": "curl"}}, {"say": '{"a":1}'}]
    prompt = f"standin: program\n---\n{json.dumps(steps)}\n--- end"
    asked = question(prompt, response_format={"type": "json_object"}, stream=stream)
    reply = client.post("/v1/chat/completions", json=asked, headers=READABLE)
    assert reply.status_code == 200
    assert MARK not in reply.text
    schema = {"type": "json_schema", "name": "a", "schema": {"type": "object"}}
    asked = {"model": "auto", "input": prompt, "text": {"format": schema}, "stream": stream}
    reply = client.post("/v1/responses", json=asked, headers=READABLE)
    assert reply.status_code == 200
    assert MARK not in reply.text
    output = {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}}
    reply = client.post(
        "/v1/messages", json=question(prompt, max_tokens=32_000, stream=stream, **output), headers=READABLE
    )
    assert reply.status_code == 200
    assert MARK not in reply.text


def test_a_gateway_on_which_nobody_can_allow_anything_has_no_link(tmp_path: Path) -> None:
    settings = {"source": "cli", "permissions": "deny", "text": "readable"}
    with running_gateway(tmp_path, settings=settings) as gateway, http_client(gateway) as client:
        whole = client.post("/v1/chat/completions", json=question(REFUSED)).json()
        (call,) = whole["cursor"]["refused"]
        assert not {"link", "url"} & set(call)
        assert MARK not in whole["choices"][0]["message"]["content"]


def test_the_address_of_the_page_is_a_setting(tmp_path: Path) -> None:
    settings = {"source": "cli", "page_url": "https://agents.example.com/"}
    with running_gateway(tmp_path, settings=settings) as gateway, http_client(gateway) as client:
        (call,) = chat(client, REFUSED)["metadata"]["refused"]
        assert call["url"] == f"https://agents.example.com{call['link']}"
