"""The same request once more, with its `Idempotency-Key`, where it brings results to a run that has ended since."""

import re
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.gateways import RunningGateway
from tests.server.conftest import Json, invocations, unique
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
