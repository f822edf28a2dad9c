"""Requests without tools by clients that run tools themselves (titles, summaries): the agent must not write."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import Json, at_once, http_client, invocation, invocations, option, unique
from tests.server.test_caller_tools import WEATHER, Caller, call, only_call, program, say

TITLE = {"role": "system", "content": "You write titles. Answer with a title and nothing else."}


def title_request(mark: str) -> Json:
    return {"model": "auto", "messages": [TITLE, {"role": "user", "content": f"{mark} touch a file"}]}


def mode_of(gateway: RunningGateway, mark: str) -> str | None:
    return option(invocation(gateway, mark)["argv"], "--mode")


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("header", ["x-session-id", "x-session-affinity"])
@pytest.mark.parametrize("order", ["first", "at once", "last"])
def test_a_title_is_asked_for_without_writing(
    gateway: RunningGateway, http: httpx2.Client, header: str, order: str
) -> None:
    headers = {header: unique()}
    main, side = unique(), unique()
    tools = {"model": "auto", "messages": [{"role": "user", "content": f"{main} hello"}], "tools": [WEATHER]}

    def post(body: Json) -> httpx2.Response:
        return http.post("/v1/chat/completions", json=body, headers=headers)

    requests: dict[str, Callable[[], httpx2.Response]] = {
        "side": lambda: post(title_request(side)),
        "main": lambda: post(tools),
    }
    match order:
        case "first":
            replies = {name: ask() for name, ask in requests.items()}
        case "at once":
            replies = at_once(requests)
        case _:
            replies = {name: requests[name]() for name in ("main", "side")}
    assert {reply.status_code for reply in replies.values()} == {200}
    assert mode_of(gateway, side) == "ask"
    assert mode_of(gateway, main) is None
    ids = {reply.headers["x-conversation-id"] for reply in replies.values()}
    assert len(ids) == 2


def test_a_summary_leaves_the_conversation_alone(gateway: RunningGateway, http: httpx2.Client) -> None:
    """Known by the calls that it quotes, without a session's name; and the conversation goes on after it."""
    mark, summary, then = unique(), unique(), unique()
    caller = Caller(http, f"{mark} {program(call('weather', city='A'), say('It is $1.'))}", [WEATHER])
    caller.converse(lambda name, arguments: "sunny")
    asked = [*caller.messages, {"role": "user", "content": f"{summary} Summarise this."}]
    reply = http.post("/v1/chat/completions", json={"model": "auto", "messages": asked})
    assert reply.status_code == 200
    assert mode_of(gateway, summary) == "ask"
    assert "--resume" not in invocation(gateway, summary)["argv"]
    caller.messages.append({"role": "user", "content": f"{then} hello"})
    caller.ask()
    assert option(invocation(gateway, then)["argv"], "--resume") == invocations(gateway, mark)[0]["session"]
    assert mode_of(gateway, then) is None


def test_results_without_tools_still_reach_the_run_that_waits(gateway: RunningGateway, http: httpx2.Client) -> None:
    mark = unique()
    caller = Caller(http, f"{mark} {program(call('weather', city='A'), say('It is $1.'))}", [WEATHER])
    caller.give((only_call(caller.ask())["id"], "sunny"))
    reply = http.post("/v1/chat/completions", json={"model": "auto", "messages": caller.messages})
    assert reply.json()["choices"][0]["message"]["content"] == "It is sunny."
    assert len(invocations(gateway, mark)) == 1


def test_a_request_that_names_its_mode_gets_it(gateway: RunningGateway, http: httpx2.Client) -> None:
    mark = unique()
    headers = {"x-session-id": unique(), "x-cursor-mode": "agent"}
    assert http.post("/v1/chat/completions", json=title_request(mark), headers=headers).status_code == 200
    assert mode_of(gateway, mark) is None


def test_a_plain_client_is_not_touched(gateway: RunningGateway, http: httpx2.Client) -> None:
    mark = unique()
    assert http.post("/v1/chat/completions", json=title_request(mark)).status_code == 200
    assert mode_of(gateway, mark) is None


def test_a_named_conversation_with_tools(gateway: RunningGateway, http: httpx2.Client) -> None:
    caller = Caller(http, program(say("Hello.")), [WEATHER])
    caller.ask()
    id = http.get(f"/v1/chat/{caller.chat_id}").json()["conversationId"]
    mark = unique()
    side: Json = {"message": f"{mark} a title", "conversationId": id}
    assert http.post("/v1/chat", json=side).status_code == 200
    assert mode_of(gateway, mark) == "ask"
    mark = unique()
    assert http.post("/v1/chat", json={**side, "message": f"{mark} do it", "mode": "agent"}).status_code == 200
    assert mode_of(gateway, mark) is None


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("settings", "mode"),
    [({"agent_tools": "tool_calls"}, None), ({"mode": "plan"}, "plan"), ({"mode": "debug"}, "ask")],
)
def test_the_operators_settings(tmp_path: Path, settings: dict[str, Any], mode: str | None) -> None:
    """Where the agent's own tools are shown as calls, a client quotes those; a mode that does not write stays."""
    mark = unique()
    with running_gateway(tmp_path, settings=settings) as gateway, http_client(gateway) as http:
        asked = http.post("/v1/chat/completions", json=title_request(mark), headers={"x-session-id": "one"})
        assert asked.status_code == 200, asked.text
        assert mode_of(gateway, mark) == mode
