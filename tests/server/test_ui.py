"""The streams of user interfaces over HTTP, for any run: new, stored, resumed; by the documents API, and their own."""

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.gateways import RunningGateway
from tests.server.conftest import Json, chat, http_client, invocations, standin, unique
from tests.ui_streams import AgUiThread, AiSdkMessage

HEADER = "x-vercel-ai-ui-message-stream"


@pytest.fixture
def client(gateway: RunningGateway) -> Iterator[httpx2.Client]:
    with http_client(gateway) as opened:
        yield opened


def body(text: str, id: str = "", **more: Any) -> Json:
    message = {"id": f"m {text}", "role": "user", "parts": [{"type": "text", "text": text}]}
    return {"id": id or unique(), "messages": [message], "trigger": "submit-message", **more}


def test_the_documents_api_replies_in_the_dialect_that_is_asked_for(client: httpx2.Client) -> None:
    asked = {"message": standin("tools")}
    first = client.post("/v1/chat?dialect=ai-sdk", json=asked)
    assert first.headers[HEADER] == "v1"
    message = AiSdkMessage().read(first.content)
    assert message.id == first.headers["x-chat-id"]
    assert any(call["toolName"] == "run_terminal_cmd" for call in message.calls.values())
    second = AgUiThread().read(client.post("/v1/chat?dialect=ag-ui", json=asked).content)
    assert second.text == message.text
    assert second.started["threadId"].startswith("conv_")
    whole = client.post("/v1/chat?dialect=documents", json=asked).json()
    assert whole["status"] == "completed"


def test_a_dialect_that_is_no_reply_is_refused(client: httpx2.Client) -> None:
    reply = client.post("/v1/chat?dialect=morse", json={"message": "Hi"})
    assert reply.status_code == 400
    assert reply.json()["error"]["message"] == "`dialect` must be documents, ai-sdk or ag-ui."


def test_a_stored_run_is_read_and_resumed_in_both(client: httpx2.Client) -> None:
    run = chat(client, standin("tools"))
    for dialect, reader in (("ai-sdk", AiSdkMessage), ("ag-ui", AgUiThread)):
        reply = client.get(f"/v1/chat/{run['id']}/events", params={"dialect": dialect})
        assert (reply.headers.get(HEADER) == "v1") == (dialect == "ai-sdk")
        whole = reader().read(reply.content)
        rest = client.get(f"/v1/chat/{run['id']}/events?dialect={dialect}", headers={"last-event-id": "3"})
        assert reply.content.endswith(rest.content)
        assert whole.text
    done = client.get(f"/v1/chat/{run['id']}/events", params={"dialect": "ai-sdk", "after": len_of(client, run["id"])})
    assert done.status_code == 204


def len_of(client: httpx2.Client, id: str) -> int:
    lines = client.get(f"/v1/chat/{id}/events", params={"dialect": "ndjson"}).text.splitlines()
    return len([line for line in lines if line])


def test_an_answer_is_streamed_in_the_dialect_that_is_asked_for(client: httpx2.Client) -> None:
    tool = {"name": "look", "parameters": {"type": "object"}}
    prompt = standin("program", '[{"say": "I look. "}, {"call": "look", "args": {}}, {"say": "It is $1."}]')
    asked = client.post("/v1/chat?dialect=ai-sdk", json={"message": prompt, "tools": [tool]})
    message = AiSdkMessage().read(asked.content)
    (call,) = message.calls
    results = {"toolResults": [{"toolCallId": call, "content": "rain"}]}
    reply = client.post(f"/v1/chat/{asked.headers['x-chat-id']}/answer?dialect=ai-sdk", json=results)
    message.read(reply.content)
    assert message.text == "I look. It is rain."
    assert message.finish == "stop"


def test_a_message_is_answered_and_the_same_one_again_joins_its_run(
    gateway: RunningGateway, client: httpx2.Client
) -> None:
    mark = unique()
    asked = body(mark)
    first, second = (client.post("/v1/ai-sdk", json=asked) for _ in range(2))
    assert first.headers[HEADER] == "v1"
    assert first.content == second.content
    (_,) = invocations(gateway, mark)
    other = client.post("/v1/ai-sdk", json={**asked, "trigger": "regenerate-message"})
    assert other.headers["x-chat-id"] != first.headers["x-chat-id"]


def test_a_history_that_is_not_known_here_is_told_to_the_agent(gateway: RunningGateway, client: httpx2.Client) -> None:
    mark = unique()
    asked = body(mark)
    unknown = {"id": f"chat_{'0' * 32}", "role": "assistant", "parts": [{"type": "text", "text": "Blue."}]}
    asked["messages"] = [{**asked["messages"][0], "id": "m0"}, unknown, *asked["messages"]]
    message = AiSdkMessage().read(client.post("/v1/ai-sdk", json=asked).content)
    assert "Blue." in message.text  # the stand-in says its prompt back
    (_,) = invocations(gateway, mark)


def test_an_older_answer_is_followed_in_a_new_conversation(gateway: RunningGateway, client: httpx2.Client) -> None:
    mark, asked = unique(), body("")
    question = {"id": "m0", "role": "user", "parts": [{"type": "text", "text": f"{mark} one"}]}
    first = client.post("/v1/ai-sdk", json={**asked, "messages": [question]})
    answer = {"id": first.headers["x-chat-id"], "role": "assistant", "parts": [{"type": "text", "text": "One."}]}
    conversations = []
    for number in range(2):  # the second is an edit of what was said after the first answer
        next = {"id": f"n{number}", "role": "user", "parts": [{"type": "text", "text": f"{mark} next {number}"}]}
        reply = client.post("/v1/ai-sdk", json={**asked, "messages": [question, answer, next]})
        assert reply.status_code == 200
        conversations.append(reply.headers["x-conversation-id"])
    assert conversations[0] == first.headers["x-conversation-id"] != conversations[1]
    sessions = [one["session"] for one in invocations(gateway, mark)]
    assert sessions[0] == sessions[1] != sessions[2]


def test_there_is_nothing_to_resume(client: httpx2.Client) -> None:
    assert client.get(f"/v1/ai-sdk/{unique()}/stream").status_code == 204
    asked = body("Hi")
    client.post("/v1/ai-sdk", json=asked)
    assert client.get(f"/v1/ai-sdk/{asked['id']}/stream").status_code == 204


def test_errors_are_in_the_protocols_own_form(client: httpx2.Client) -> None:
    refused = client.post("/v1/ai-sdk", json=body(standin("fail-trust")))
    assert refused.status_code == 403
    assert refused.headers["content-type"].startswith("text/plain")
    assert refused.text.startswith("The agent does not trust")
    asked = {
        "threadId": "t",
        "runId": unique(),
        "messages": [{"id": "m", "role": "user", "content": standin("fail-trust")}],
    }
    failed = client.post("/v1/ag-ui", json=asked)
    assert failed.status_code == 200
    assert AgUiThread().read(failed.content).finished["code"] == "workspace_untrusted"
    assert client.post("/v1/ag-ui", json={}).json()["error"]["code"] == "invalid_request"
