"""Usage, cost and budgets of API keys at a real gateway."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx2
import msgspec
import pytest
from msgspec import Struct
from openai import APIStatusError

from cursor_gateway.keys import hash_key, new_key
from tests.gateways import RunningGateway, running_gateway
from tests.mcp_server.host import http_host
from tests.server.conftest import WAYS, Dialect, ask, chat, http_client, invocations, openai_client, standin, unique
from tests.ui_streams import frames_of

PRICES = '{"*": {"input": 2, "output": 10, "cached": 0.5}}'
ALICE, BOB = new_key(), new_key()
DAY = 24 * 3600


class Limited(Struct, frozen=True):
    gateway: RunningGateway
    alice: httpx2.Client  # has a budget of one token a day
    bob: httpx2.Client  # has none


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Limited]:
    given = {
        "prices": PRICES,
        "budgets": '{"alice": {"tokens_per_day": 1, "usd_per_month": 100}}',
        "api_keys": msgspec.json.encode({"alice": hash_key(ALICE), "bob": hash_key(BOB)}).decode(),
    }
    with (
        running_gateway(tmp_path_factory.mktemp("budgets"), settings=given) as gateway,
        http_client(gateway) as alice,
        http_client(gateway) as bob,
    ):
        alice.headers["authorization"], bob.headers["authorization"] = f"Bearer {ALICE}", f"Bearer {BOB}"
        chat(alice, standin("text"))  # uses all of it
        yield Limited(gateway, alice, bob)


def test_a_run_has_its_cost_wherever_it_is_shown(limited: Limited) -> None:
    answer = chat(limited.bob, standin("text"))
    usage = answer["usage"]
    cached = usage.get("cachedTokens", 0)
    cost = (usage["promptTokens"] - cached) * 2 + cached * 0.5 + usage["completionTokens"] * 10
    assert usage["cost"] == pytest.approx(cost / 1_000_000)
    assert cost > 0
    runs = limited.bob.get("/v1/runs").json()["runs"]
    assert next(run for run in runs if run["id"] == answer["id"])["usage"] == usage
    detail = limited.bob.get(f"/v1/conversations/{answer['conversationId']}").json()
    assert detail["runs"][0]["usage"] == usage
    completion = ask(limited.bob, "openai", standin("text")).json()
    assert completion["cursor"]["usage"]["cost"] > 0
    response = ask(limited.bob, "responses", standin("text")).json()
    assert response["cursor"]["usage"]["cost"] > 0
    metrics = limited.bob.get("/metrics").text
    (spent,) = re.findall(r"^cursor_gateway_cost_usd_total (\S+)$", metrics, re.MULTILINE)
    assert float(spent) >= usage["cost"]
    assert "alice" not in metrics  # a key does not see what others use


def test_usage_is_that_of_the_callers_key(limited: Limited) -> None:
    report = limited.alice.get("/v1/usage").json()
    assert report["key"] == "alice"
    assert (report["today"]["runs"], report["today"]["maxTokens"], report["month"]["maxCost"]) == (1, 1, 100)
    assert "maxCost" not in report["today"]
    (day,) = report["days"]
    assert day["totalTokens"] == report["today"]["totalTokens"] == report["month"]["totalTokens"] > 0
    assert day["cost"] == day["models"][0]["cost"] == report["today"]["cost"] > 0
    assert report["today"]["resets"].endswith("T00:00:00Z")
    assert report["month"]["resets"].endswith("-01T00:00:00Z")
    limited.bob.get("/v1/usage").raise_for_status()
    assert limited.alice.get("/v1/usage?days=1").json()["days"] == report["days"]
    for wrong in ("0", "367", "x", "1234", "-1"):
        assert limited.alice.get("/v1/usage", params={"days": wrong}).status_code == 400


@pytest.mark.parametrize(("dialect", "stream"), WAYS)
def test_a_used_up_budget_refuses_before_an_agent_starts_in_every_dialect(
    limited: Limited, dialect: Dialect, stream: bool
) -> None:
    mark = unique()
    reply = ask(limited.alice, dialect, f"{mark} {standin('text')}", stream=stream)
    assert reply.status_code == (429 if dialect == "documents" else 402)  # clients of the others would retry 429
    assert reply.headers["x-should-retry"] == "false"
    assert 0 < int(reply.headers["retry-after"]) <= DAY
    error = reply.json()["error"]
    assert "may use 1 tokens a day" in error["message"]
    assert "00:00 UTC" in error["message"]
    assert error["type"] == {"messages": "billing_error", "documents": "rate_limit_error"}.get(
        dialect, "insufficient_quota"
    )
    assert invocations(limited.gateway, mark) == []
    assert ask(limited.bob, dialect, standin("text"), stream=stream).status_code == 200


def test_web_pages_and_mcp_hosts_are_refused_too(limited: Limited) -> None:
    mark, client = unique(), limited.alice
    parts = [{"type": "text", "text": mark}]
    page = client.post("/v1/ai-sdk", json={"id": mark, "messages": [{"id": "m", "role": "user", "parts": parts}]})
    assert (page.status_code, "may use 1 tokens a day" in page.text) == (429, True)
    thread = {"threadId": mark, "runId": mark, "messages": [{"id": "m", "role": "user", "content": mark}]}
    (event,) = [json.loads(line) for line in frames_of(client.post("/v1/ag-ui", json=thread).content)]
    assert (event["type"], event["code"]) == ("RUN_ERROR", "key_quota_exhausted")
    with http_host(limited.gateway.url, key=ALICE) as host:
        assert "may use 1 tokens a day" in host.error("ask", prompt=mark)
    assert invocations(limited.gateway, mark) == []


def test_openais_client_asks_once(limited: Limited) -> None:
    """Although it retries by default."""
    with (
        openai_client(limited.gateway, api_key=ALICE, max_retries=3) as client,
        pytest.raises(APIStatusError) as raised,
    ):
        client.chat.completions.create(model="auto", messages=[{"role": "user", "content": "hello"}])
    assert (raised.value.status_code, raised.value.code) == (402, "key_quota_exhausted")
    assert raised.value.response.headers["x-should-retry"] == "false"


def test_money_needs_prices(tmp_path: Path) -> None:
    given = {"budgets": '{"*": {"usd_per_day": 1}}'}
    with pytest.raises(AssertionError), running_gateway(tmp_path, settings=given):
        pass
    assert "without `prices` nothing has a cost" in (tmp_path / "gateway.log").read_text()
