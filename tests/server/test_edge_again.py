"""The same request once more, where it brings results to a run that has ended since, or that goes on."""

import json
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.gateways import RunningGateway
from tests.server.conftest import Json, at_once, invocations, unique
from tests.server.test_caller_tools import WEATHER, call, only_call, own_gateway, program, say


def _body(mark: str, *more: Json, **fields: Any) -> Json:
    prompt = f"{program(call('weather', city='Bonn'), say('So much for the weather.'))} {mark}"
    return {"model": "auto", "messages": [{"role": "user", "content": prompt}, *more], "tools": [WEATHER], **fields}


def _asked(client: httpx2.Client, body: Json, key: str) -> httpx2.Response:
    return client.post("/v1/chat/completions", json=body, headers={"idempotency-key": key})


@pytest.mark.parametrize("stream", [False, True])
def test_results_that_come_again_get_the_reply_that_they_got(
    gateway: RunningGateway, http: httpx2.Client, stream: bool
) -> None:
    mark, key = unique(), unique()
    message = _asked(http, _body(mark), f"{key}-1").json()["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": only_call(message)["id"], "content": "sunny"}
    body = _body(mark, message, result, stream=stream)
    first = _asked(http, body, key)
    assert first.status_code == 200
    assert "So much" in "".join(re.findall(r'"content":"([^"]*)"', first.text))
    again = _asked(http, body, key)
    assert again.headers["x-chat-id"] == first.headers["x-chat-id"]
    assert again.content == first.content
    assert len(invocations(gateway, mark)) == 1
    other = _asked(http, _body(mark, message, {**result, "content": "rainy"}, stream=stream), key)
    assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_mismatch")


def test_a_key_whose_run_was_stopped_is_free_for_another_try(tmp_path: Path) -> None:
    mark, key = unique(), unique()
    with own_gateway(tmp_path) as (_, client):
        prompt = f"{program(call('weather', city='Bonn'), call('weather', city='Köln'), say('Done.'))} {mark}"
        body: Json = {"model": "auto", "messages": [{"role": "user", "content": prompt}], "tools": [WEATHER]}
        first = client.post("/v1/chat/completions", json=body)
        message = first.json()["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": only_call(message)["id"], "content": "sunny"}
        body = {**body, "messages": [*body["messages"], message, result]}
        assert _asked(client, body, key).status_code == 200
        client.post(f"/v1/chat/{first.headers['x-chat-id']}/cancel", json={})
        again = _asked(client, body, key)
        assert again.status_code == 200
        assert again.headers["x-chat-id"] != first.headers["x-chat-id"]
        client.post(f"/v1/chat/{again.headers['x-chat-id']}/cancel", json={})


# --- without a key: a request with results is known by what it asks ----------------------------------------


def _results(client: httpx2.Client, mark: str, *steps: Json) -> Json:
    """The request that brings the result of the first call."""
    steps = steps or (call("weather", city="Bonn"), say("It is $1."))
    body: Json = {
        "model": "auto",
        "messages": [{"role": "user", "content": f"{program(*steps)} {mark}"}],
        "tools": [WEATHER],
    }
    message = client.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": only_call(message)["id"], "content": "sunny"}
    return {**body, "messages": [*body["messages"], message, result]}


def _told(response: httpx2.Response) -> str:
    assert response.status_code == 200, response.text
    return "".join(re.findall(r'"content":"([^"]*)"', response.text))


@pytest.mark.parametrize("stream", [False, True])
def test_the_last_request_again_gets_the_same_reply(gateway: RunningGateway, http: httpx2.Client, stream: bool) -> None:
    mark = unique()
    body = {**_results(http, mark), "stream": stream}
    first, again = (http.post("/v1/chat/completions", json=body) for _ in range(2))
    assert _told(first) == "It is sunny."
    assert again.content == first.content
    other_form = http.post("/v1/chat/completions", json={**body, "stream": not stream})
    assert _told(other_form) == "It is sunny."
    assert {reply.headers["x-chat-id"] for reply in (again, other_form)} == {first.headers["x-chat-id"]}
    assert len(invocations(gateway, mark)) == 1


def test_the_last_request_twice_at_once_is_one_run(gateway: RunningGateway, http: httpx2.Client) -> None:
    mark = unique()
    body = _results(http, mark, call("weather", city="Bonn"), {"pause_ms": 300}, say("It is $1."))
    replies = at_once({number: lambda: http.post("/v1/chat/completions", json=body) for number in range(3)})
    assert [_told(reply) for reply in replies.values()] == ["It is sunny."] * 3
    assert len(invocations(gateway, mark)) == 1


def test_the_last_request_again_after_a_restart(tmp_path: Path) -> None:
    mark = unique()
    with own_gateway(tmp_path) as (_, client):
        body = _results(client, mark)
        first = client.post("/v1/chat/completions", json=body)
        assert _told(first) == "It is sunny."
    with own_gateway(tmp_path) as (gateway, client):
        for stream in (False, True):
            again = client.post("/v1/chat/completions", json={**body, "stream": stream})
            assert _told(again) == "It is sunny."
            assert again.headers["x-chat-id"] == first.headers["x-chat-id"]
        assert len(invocations(gateway, mark)) == 1


def test_results_of_a_run_that_is_gone_start_one_agent_however_often_they_come(tmp_path: Path) -> None:
    mark = unique()
    with own_gateway(tmp_path) as (gateway, client):
        body = _results(client, mark)
        gateway.process.kill()
        gateway.process.wait()
    with own_gateway(tmp_path) as (_, client):
        replies = at_once({number: lambda: client.post("/v1/chat/completions", json=body) for number in range(3)})
        assert [_told(reply) for reply in replies.values()] == ["It is sunny."] * 3
    with own_gateway(tmp_path) as (gateway, client):
        assert _told(client.post("/v1/chat/completions", json=body)) == "It is sunny."
        assert len(invocations(gateway, mark)) == 2


def test_results_of_calls_that_were_not_made_here_are_a_new_question_each_time(
    gateway: RunningGateway, http: httpx2.Client
) -> None:
    """Somebody who samples several answers to one recorded conversation gets several answers."""
    mark = unique()
    body = _results(http, mark)
    text = json.dumps(body).replace(body["messages"][-1]["tool_call_id"], "call_from_elsewhere")
    first, again = (http.post("/v1/chat/completions", json=json.loads(text)) for _ in range(2))
    assert _told(first) == _told(again) == "It is sunny."
    assert first.headers["x-chat-id"] != again.headers["x-chat-id"]
