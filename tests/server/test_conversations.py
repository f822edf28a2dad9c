"""A conversation goes on where it was: in the same session of the agent, which is sent only what is new."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.gateways import RunningGateway
from tests.server.conftest import Dialect, ask, chat, growing, invocation, option, standin, text_of, unique

DIALECTS: list[Dialect] = ["documents", "openai"]


def continued(dialect: Dialect, conversation: str) -> dict[str, Any]:
    """The field that continues a conversation."""
    return {"conversationId": conversation} if dialect == "documents" else {"cursor": {"conversationId": conversation}}


def test_the_agent_remembers(gateway: RunningGateway, http: httpx2.Client) -> None:
    first, second = unique(), unique()
    conversation = chat(http, first)["conversationId"]
    result = chat(http, f"{second} {standin('history')}", conversationId=conversation)
    assert result["conversationId"] == conversation
    assert json.loads(text_of(result)) == {"turns": 1, "prompts": [first], "answers": [f"You said: {first}"]}
    before, after = invocation(gateway, first), invocation(gateway, second)
    assert "--resume" not in before["argv"]
    assert option(after["argv"], "--resume") == before["session"] == after["session"]
    assert after["prompt"] == f"{second} {standin('history')}"
    assert (after["config_dir"], after["cwd"]) == (before["config_dir"], before["cwd"])


@pytest.mark.parametrize("by", ["field", "header"])
def test_an_openai_client_sends_all_and_the_agent_is_given_what_is_new(
    gateway: RunningGateway, http: httpx2.Client, by: str
) -> None:
    first, second = unique(), unique()
    reply = ask(http, "openai", first)
    conversation = reply.headers["x-conversation-id"]
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": first},
        reply.json()["choices"][0]["message"],
        {"role": "user", "content": f"{second} {standin('history')}"},
    ]
    fields = {"cursor": {"conversationId": conversation}} if by == "field" else {}
    headers = {"x-cursor-conversation-id": conversation} if by == "header" else {}
    result = http.post("/v1/chat/completions", json={"messages": messages, **fields}, headers=headers)
    assert result.headers["x-conversation-id"] == conversation
    known = json.loads(result.json()["choices"][0]["message"]["content"])
    assert known["prompts"] == [first]
    assert invocation(gateway, second)["prompt"] == f"{second} {standin('history')}"


def test_a_conversation_may_change_its_dialect(http: httpx2.Client) -> None:
    first = unique()
    conversation = chat(http, first)["conversationId"]
    reply = ask(http, "openai", standin("history"), **continued("openai", conversation))
    assert json.loads(reply.json()["choices"][0]["message"]["content"])["prompts"] == [first]


def test_without_its_id_a_conversation_is_a_new_one(http: httpx2.Client) -> None:
    ids = {chat(http, "hello")["conversationId"], chat(http, "hello")["conversationId"]}
    assert len(ids) == 2
    assert json.loads(text_of(chat(http, standin("history"))))["turns"] == 0


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_who_has_the_answer_can_go_on_at_once(http: httpx2.Client, dialect: Dialect, stream: bool) -> None:
    """Though the agent takes its time to go: this one would never."""
    reply = ask(http, dialect, standin("hang-after-result"), stream=stream)
    for turns in (1, 2):
        fields = continued(dialect, reply.headers["x-conversation-id"])
        next_reply = ask(http, dialect, standin("history"), **fields)
        assert next_reply.status_code == 200, next_reply.text
        answer = next_reply.json()
        text = text_of(answer) if dialect == "documents" else answer["choices"][0]["message"]["content"]
        assert json.loads(text)["turns"] == turns


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("stream", [False, True])
def test_who_has_enough_of_an_answer_can_go_on_at_once(http: httpx2.Client, stream: bool) -> None:
    """An answer that was cut is over for the client, though this agent does not listen when it is told to stop."""
    cut = ask(http, "openai", standin("ignore-term"), stream=stream, max_tokens=1)
    assert cut.status_code == 200
    result = ask(http, "openai", standin("history"), **continued("openai", cut.headers["x-conversation-id"]))
    assert result.status_code == 200, result.text
    assert json.loads(result.json()["choices"][0]["message"]["content"])["turns"] == 1


@pytest.mark.parametrize("dialect", DIALECTS)
def test_one_turn_at_a_time(http: httpx2.Client, tmp_path: Path, dialect: Dialect) -> None:
    file = tmp_path / "go"
    with growing(http, dialect, standin(f"wait-for file={file}")) as reply:
        reply.until(b"file.")
        conversation = reply.response.headers["x-conversation-id"]
        for stream in (False, True):
            busy = ask(http, dialect, "hello", stream=stream, **continued(dialect, conversation))
            assert (busy.status_code, busy.json()["error"]["code"]) == (409, "conversation_busy")
            assert busy.headers["retry-after"] == "1"
        file.touch()
        reply.rest()
    assert ask(http, dialect, "hello", **continued(dialect, conversation)).status_code == 200


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_conversation_goes_on_after_a_cancelled_turn(http: httpx2.Client, dialect: Dialect) -> None:
    with growing(http, dialect, standin("hang-mid")) as reply:
        reply.until(b"more")
        headers = reply.response.headers
        assert http.post(f"/v1/chat/{headers['x-chat-id']}/cancel", json={}).status_code == 200
        reply.rest()
    again = ask(http, dialect, standin("history"), **continued(dialect, headers["x-conversation-id"]))
    assert again.status_code == 200, again.text
    assert "I was about to say" in again.text


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_unknown_conversation(http: httpx2.Client, dialect: Dialect) -> None:
    for stream in (False, True):
        unknown = ask(http, dialect, "hello", stream=stream, **continued(dialect, "conv_0000"))
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "not_found")
        assert unknown.json()["error"]["param"] == "conversationId"
