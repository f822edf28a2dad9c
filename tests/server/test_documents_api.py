"""`POST /v1/chat` over a socket: documents whole, as events and as lines; and what the agent is told to do."""

import base64
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.agent.records import records
from tests.gateways import RunningGateway
from tests.server.conftest import (
    TIMEOUT,
    Json,
    chat,
    conversation_folder,
    eventually,
    growing,
    invocation,
    is_gone,
    option,
    sse,
    standin,
    unique,
)

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PIXEL = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"


def kinds(response: dict[str, Any]) -> list[str]:
    return [document["type"] for document in response["documents"]]


# --- the three forms of a reply -------------------------------------------------------------------------


def test_whole(http: httpx2.Client) -> None:
    reply = http.post("/v1/chat", json={"message": standin("tools")})
    result = reply.json()
    assert reply.headers["content-type"] == "application/json"
    assert (reply.headers["x-chat-id"], reply.headers["x-conversation-id"]) == (result["id"], result["conversationId"])
    assert kinds(result) == [
        *("text", "tool_call", "tool_call", "tool_call", "tool_call", "text", "file_edit", "file_edit", "file_edit"),
        *("terminal_command", "terminal_command", "error", "todo_update", "tool_call", "text"),
    ]
    assert [document["sequence"] for document in result["documents"]] == list(range(1, 16))
    assert (result["status"], result["mode"], result["model"]) == ("completed", "agent", "auto")


def test_events(http: httpx2.Client) -> None:
    """Named and numbered; folded they are the whole reply, and the last one says all but the documents."""
    reply = http.post("/v1/chat", json={"message": standin("tools"), "stream": True})
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    events = sse(reply.content)
    assert [event.id for event in events] == [str(number) for number in range(1, len(events) + 1)]
    assert {event.event for event in events} == {
        *("document_start", "content_delta", "tool_call_start", "tool_call_arguments", "tool_result"),
        *("document_end", "done"),
    }
    data = [(event.event, json.loads(event.data)) for event in events]
    name, done = data[-1]
    assert name == "done"
    assert list(done) == ["id", "conversationId", "model", "mode", "created", "status", "usage", "metadata"]
    assert (reply.headers["x-chat-id"], reply.headers["x-conversation-id"]) == (done["id"], done["conversationId"])
    assert (done["status"], done["metadata"]["toolCallCount"]) == ("completed", 5)
    whole = http.post("/v1/chat", json={"message": standin("tools")}).json()
    started = [(result["id"], result["type"], result["sequence"]) for name, result in data if name == "document_start"]
    assert started == [(one["id"], one["type"], one["sequence"]) for one in whole["documents"]]
    ended = {result["documentId"]: result.get("finalContent") for name, result in data if name == "document_end"}
    assert ended == {one["id"]: one["content"] for one in whole["documents"]}
    for id, content in ended.items():
        deltas = [result["delta"] for name, result in data if name == "content_delta" and result["documentId"] == id]
        assert "".join(deltas) == (content or "")


def test_lines(http: httpx2.Client) -> None:
    headers = {"accept": "application/x-ndjson"}
    prompt = {"message": standin("fences"), "stream": True}
    reply = http.post("/v1/chat", json=prompt, headers=headers)
    assert reply.headers["content-type"] == "application/x-ndjson"
    assert reply.headers["x-chat-id"].startswith("chat_")
    lines = [json.loads(line) for line in reply.content.splitlines()]
    events = sse(http.post("/v1/chat", json=prompt).content)
    assert [line["type"] for line in lines if line["type"] != "content_delta"] == [
        event.event for event in events if event.event != "content_delta"
    ]
    assert all("documentId" in line for line in lines[:-1])
    assert lines[-1]["data"]["status"] == "completed"
    ends = [line["data"] for line in lines if line["type"] == "document_end"]
    assert ends == [json.loads(event.data) for event in events if event.event == "document_end"]


# --- what a request may ask for -------------------------------------------------------------------------


def test_thinking_on_request(http: httpx2.Client) -> None:
    shown = chat(http, standin("thinking"), include=["thinking"])
    assert kinds(shown) == ["thinking", "text", "thinking", "text"]
    assert shown["documents"][0]["content"] == "The user wants an answer.\n\nI should think about it first."
    assert kinds(chat(http, standin("thinking"))) == ["text", "text"]


@pytest.mark.parametrize("mode", ["agent", "plan", "ask", "debug"])
def test_modes(gateway: RunningGateway, http: httpx2.Client, mode: str) -> None:
    mark = unique()
    assert chat(http, mark, mode=mode)["mode"] == mode
    started = invocation(gateway, mark)
    assert option(started["argv"], "--mode") == (mode if mode in ("plan", "ask") else None)
    assert "--force" not in started["argv"]
    if mode == "debug":
        assert started["prompt"].index("Work as a debugger.") < started["prompt"].index(mark)
    else:
        assert started["prompt"] == mark


def test_what_the_agent_is_started_with(gateway: RunningGateway, http: httpx2.Client) -> None:
    mark = unique()
    conversation = chat(http, mark)["conversationId"]
    started = invocation(gateway, mark)
    folder = conversation_folder(gateway, conversation)
    assert started["argv"] == [
        *("-p", "--output-format", "stream-json", "--stream-partial-output", "--model", "auto"),
        *("--workspace", str(gateway.workspace), "--trust"),
    ]
    assert (started["cwd"], started["source"]) == (str(gateway.workspace), "stdin")
    assert started["config_dir"] == str(folder / "cursor")
    assert started["pgid"] == started["pid"]


def test_the_agent_can_open_the_image(gateway: RunningGateway, http: httpx2.Client) -> None:
    """The name of a file is made of its bytes, so the prompt can say it before it exists."""
    first = unique()
    chat(http, first, images=[PIXEL])
    name = Path(re.findall(r"^- (/.*\.png)$", invocation(gateway, first)["prompt"], re.MULTILINE)[0]).name
    conversation = chat(http, unique())["conversationId"]
    path = conversation_folder(gateway, conversation) / "images" / name
    result = chat(http, standin(f"read path={path}"), images=[PIXEL], conversationId=conversation)
    assert kinds(result) == ["text", "tool_call", "text"]
    assert result["documents"][1]["metadata"]["result"]["status"] == "success"


# --- how the prompt gets there --------------------------------------------------------------------------

LONG = 120 * 1024
PROMPTS = {
    "two words": "argument",
    "--help": "argument",
    "-p": "argument",
    "--": "argument",
    "logout": "stdin",
    "agent": "stdin",
    "models": "stdin",
    "logout now": "argument",
    "é" * (LONG // 2 - 40): "argument",
}
LONGER = ["é" * (LONG // 2 + 1), "x" * 2_000_000]


def short(value: str) -> str:
    return value if len(value) < 20 else f"{len(value)} letters"


def started_with(gateway: RunningGateway, http: httpx2.Client, prompt: str) -> Json:
    id = chat(http, prompt)["conversationId"]
    config = str(conversation_folder(gateway, id) / "cursor")
    (started,) = [line for line in records(gateway.agent_log) if line["config_dir"] == config]
    return started


@pytest.mark.parametrize("prompt", [*PROMPTS, *LONGER], ids=short)
def test_a_prompt_reaches_the_agent_and_is_no_argument(
    gateway: RunningGateway, http: httpx2.Client, prompt: str
) -> None:
    started = started_with(gateway, http, prompt)
    assert (started["prompt"], started["source"]) == (prompt, "stdin")
    assert started["argv"][-1] == "--trust"


# --- cancel -----------------------------------------------------------------------------------------------


def cancel(http: httpx2.Client, id: str) -> httpx2.Response:
    return http.post(f"/v1/chat/{id}/cancel", json={})


@pytest.mark.parametrize("scenario", ["hang-mid", "ignore-term"])
def test_cancel(gateway: RunningGateway, http: httpx2.Client, scenario: str) -> None:
    mark = unique()
    with growing(http, "documents", f"{mark} {standin(scenario)}") as reply:
        reply.until(b"content_delta")
        id = reply.response.headers["x-chat-id"]
        first, second = cancel(http, id), cancel(http, id)
        events = sse(reply.rest())
    assert first.status_code == second.status_code == 200
    assert first.json() == second.json() == json.loads(events[-1].data)
    assert first.json()["status"] == "error"
    document = json.loads(events[-2].data)
    assert document["metadata"]["errorCode"] == "CANCELLED"
    pid = invocation(gateway, mark)["pid"]
    eventually(lambda: is_gone(pid))


def test_cancel_what_somebody_waits_for_in_one_piece(http: httpx2.Client, gateway: RunningGateway) -> None:
    """The id of such a run is told when it is over; here it is taken from the log, as an operator would."""
    mark = unique()
    body = {"message": standin("hang-mid")}
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(http.post, "/v1/chat", json=body, headers={"x-request-id": mark})
        (id,) = eventually(lambda: _runs_of(gateway, mark))
        assert cancel(http, id).status_code == 200
        reply = asked.result(TIMEOUT)
    assert (reply.status_code, reply.json()["error"]["code"]) == (499, "cancelled")


def _runs_of(gateway: RunningGateway, request_id: str) -> list[str]:
    lines = [json.loads(line) for line in gateway.log.read_bytes().split(b"\n")[:-1]]
    return [line["run_id"] for line in lines if line.get("request_id") == request_id]


def test_cancel_what_has_ended_changes_nothing(http: httpx2.Client) -> None:
    result = chat(http, "hello")
    cancelled = cancel(http, result["id"])
    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "completed")


def test_cancel_what_never_was(http: httpx2.Client) -> None:
    unknown = cancel(http, "chat_0000")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "not_found")
