"""The caller's tools with Cursor's own runtime: it calls them over MCP, and waits for the caller."""

import json
from typing import Any

import httpx2
import pytest

from tests.backend.conftest import program
from tests.backend.server import Backend
from tests.gateways import RunningGateway
from tests.server.conftest import Json

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def weather(city: str) -> Json:
    return {"call": "get_weather", "args": {"city": city}}


def completion(client: httpx2.Client, messages: list[Json]) -> Json:
    body = {"model": "auto", "messages": messages, "tools": [WEATHER]}
    response = client.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    choice: Json = response.json()["choices"][0]
    return choice


def cities(choice: Json) -> list[str]:
    assert choice["finish_reason"] == "tool_calls", choice
    return [json.loads(call["function"]["arguments"])["city"] for call in choice["message"]["tool_calls"]]


def answered(messages: list[Json], choice: Json) -> list[Json]:
    """With a result for each call."""
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": f"sun in {city}"}
        for call, city in zip(choice["message"]["tool_calls"], cities(choice), strict=True)
    ]
    return [*messages, choice["message"], *results]


def asked(*steps: Any) -> list[Json]:
    return [{"role": "user", "content": program(*steps)}]


def test_one_call(client: httpx2.Client, backend: Backend) -> None:
    """The agent calls one of the caller's tools, waits, and goes on with its result."""
    messages = asked(weather("Oslo"), {"say": "It says: $1"})
    choice = completion(client, messages)
    assert cities(choice) == ["Oslo"]
    final = completion(client, answered(messages, choice))
    assert (final["finish_reason"], final["message"]["content"]) == ("stop", "It says: sun in Oslo")
    assert len(backend.requests) == 1


def test_calls_at_once(client: httpx2.Client) -> None:
    """Calls that the agent makes at once are one reply."""
    messages = asked({"parallel": [weather("Oslo"), weather("Rome")]}, {"say": "$1, $2"})
    choice = completion(client, messages)
    assert sorted(cities(choice)) == ["Oslo", "Rome"]
    final = completion(client, answered(messages, choice))
    assert final["message"]["content"] == "sun in Oslo, sun in Rome"


def test_calls_one_after_the_other(client: httpx2.Client, backend: Backend) -> None:
    """A call whose arguments depend on the result of another one: the same run goes on twice."""
    messages = asked(weather("Oslo"), weather("not $1"), {"say": "$2"})
    choice = completion(client, messages)
    messages = answered(messages, choice)
    choice = completion(client, messages)
    assert cities(choice) == ["not sun in Oslo"]
    final = completion(client, answered(messages, choice))
    assert final["message"]["content"] == "sun in not sun in Oslo"
    assert len(backend.requests) == 1


def test_only_the_callers_tools(client: httpx2.Client, backend: Backend) -> None:
    """The run sees the caller's tools, an empty folder, and asks Cursor for no others."""
    messages = asked({"list": True})
    assert completion(client, messages)["message"]["content"] == "get_weather"
    assert backend.headers[0]["x-cursor-agent-allowed-tools"].split(",")[0] == "mcp_tool_call"
    (context,) = backend.contexts
    (workspace,) = context["env"]["workspace_paths"]
    assert workspace.endswith("/scratch")
    assert not context.get("rules")


@pytest.mark.parametrize("dialect", ["responses", "messages"])
def test_other_dialects(client: httpx2.Client, dialect: str) -> None:
    """The same over Responses and Messages."""
    function = WEATHER["function"]
    assert isinstance(function, dict)
    text = program(weather("Oslo"), {"say": "It says: $1"})
    if dialect == "responses":
        tool = {"type": "function", **function}
        first = client.post("/v1/responses", json={"model": "auto", "input": text, "tools": [tool]}).json()
        (call,) = (item for item in first["output"] if item["type"] == "function_call")
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sun"}
        body = {"model": "auto", "previous_response_id": first["id"], "input": [output], "tools": [tool]}
        second = client.post("/v1/responses", json=body).json()
        (message,) = (item for item in second["output"] if item["type"] == "message")
        assert message["content"][0]["text"] == "It says: sun"
        return
    tool = {"name": "get_weather", "description": "The weather", "input_schema": function["parameters"]}
    messages: list[Json] = [{"role": "user", "content": text}]
    body = {"model": "auto", "max_tokens": 1000, "tools": [tool]}
    first = client.post("/v1/messages", json={**body, "messages": messages}).json()
    assert first["stop_reason"] == "tool_use"
    (use,) = (block for block in first["content"] if block["type"] == "tool_use")
    result = {"type": "tool_result", "tool_use_id": use["id"], "content": "sun"}
    messages += [{"role": "assistant", "content": first["content"]}, {"role": "user", "content": [result]}]
    second = client.post("/v1/messages", json={**body, "messages": messages}).json()
    assert second["content"][-1]["text"] == "It says: sun"


def test_a_deleted_conversation(client: httpx2.Client, gateway: RunningGateway) -> None:
    """Of a deleted conversation with the caller's tools, the runtime keeps nothing."""
    word = "a-word-that-nobody-says"
    body = {"model": "auto", "messages": asked({"say": word}), "tools": [WEATHER]}
    conversation = client.post("/v1/chat/completions", json=body).headers["x-conversation-id"]
    projects = gateway.data / "sdk/home/.cursor/projects"
    name = conversation.replace("_", "-")
    assert [path for path in projects.iterdir() if name in path.name]
    assert client.delete(f"/v1/conversations/{conversation}").status_code == 204
    assert not [path for path in projects.iterdir() if name in path.name]
    left = [path for path in projects.rglob("*") if path.is_file() and word.encode() in path.read_bytes()]
    assert left == []
