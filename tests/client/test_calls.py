"""Each call: the request that it makes, and what the reply means."""

import json
from typing import Any

import msgspec
import pytest

from cursor_gateway.client import calls
from cursor_gateway.client.calls import ModelEntry
from cursor_gateway.client.failures import CallFailed
from cursor_gateway.dialects.documents.encoder import encode_response
from cursor_gateway.dialects.documents.request import (
    ChosenTool,
    OfferedTool,
    QuestionAnswer,
    ToolAnswer,
    read_answer,
    read_chat_request,
)
from cursor_gateway.model.changes import CommitRequest, KeepRequest, RevertRequest
from cursor_gateway.model.documents import Envelope
from cursor_gateway.model.health import Health, HealthRuns, HealthSource
from cursor_gateway.model.history import ConversationEntry
from tests.client.scripted import LINK, LOST, Scripted, Shell, answer
from tests.laws.laws import RUN, assemble, response_of

RESPONSE = response_of(assemble([], RUN))
NOT_FOUND = answer(404, b'{"error":{"message":"There is none.","code":"not_found"}}')


def entry(number: int) -> dict[str, Any]:
    result = {"id": f"conv_{number}", "title": "T", "created": "c", "updated": "u", "workspace": "/w"}
    return {**result, "mode": "agent", "model": "auto", "isRunning": False}


def page(*numbers: int, next: str | None) -> Scripted:
    return answer(200, json.dumps({"conversations": [entry(number) for number in numbers], "next": next}).encode())


def requested(shell: Shell) -> list[str]:
    return [
        f"{one.method} /{'/'.join(one.path)} {' '.join(f'{k}={v}' for k, v in one.query.items())}".strip()
        for one in shell.requests
    ]


# --- a message ------------------------------------------------------------------------------------------


def test_a_message() -> None:
    request = calls.chat_request("hello", "key", ["data:1"], {"model": "auto", "mode": "ask", "include": {"thinking"}})
    assert (request.method, request.path) == ("POST", ("v1", "chat"))
    assert request.headers["idempotency-key"] == "key"
    assert request.headers["content-type"] == "application/json"
    asked = read_chat_request(request.body)
    assert (asked.message, asked.model, asked.mode, asked.include) == ("hello", "auto", "ask", {"thinking"})
    assert (asked.images, asked.stream, asked.when_client_leaves) == (["data:1"], True, "finish")
    assert (asked.conversation_id, asked.fences, asked.workspace) == (None, None, None)


def test_the_other_fields_of_a_message() -> None:
    fields: calls.ChatFields = {"conversation_id": "conv_1", "fences": "inline", "workspace": "/w"}
    asked = read_chat_request(calls.chat_request("hello", "key", (), fields).body)
    assert (asked.conversation_id, asked.fences, asked.workspace) == ("conv_1", "inline", "/w")
    assert (asked.tools, asked.tool_choice, asked.source) == ([], "auto", None)
    assert asked.may_ask is False  # somebody must be there to answer


def test_a_message_with_tools() -> None:
    tool, choice = OfferedTool(name="weather", parameters={"type": "object"}), ChosenTool(name="weather")
    fields: calls.ChatFields = {"tools": [tool], "tool_choice": choice, "source": "acp", "may_ask": True}
    asked = read_chat_request(calls.chat_request("hello", "key", (), fields).body)
    assert (asked.tools, asked.tool_choice, asked.source, asked.may_ask) == ([tool], choice, "acp", True)


@pytest.mark.parametrize("key", ["", "a\nb", "é", "x" * 256])
def test_a_key_that_no_header_can_carry(key: str) -> None:
    with pytest.raises(ValueError, match="printable"):
        calls.chat_request("hello", key, (), {})


# --- a run ----------------------------------------------------------------------------------------------


def test_events() -> None:
    request = calls.events_request("chat_1", 7)
    assert (request.method, request.path) == ("GET", ("v1", "chat", "chat_1", "events"))
    assert request.headers["last-event-id"] == "7"


def test_a_response() -> None:
    shell = Shell(answer(200, encode_response(RESPONSE)))
    assert shell.asked(calls.response(LINK, "chat_1")) == RESPONSE
    assert requested(shell) == ["GET /v1/chat/chat_1"]


@pytest.mark.parametrize(
    "fields",
    [
        {"tool_results": [ToolAnswer(tool_call_id="call_1", content={"sky": "blue"}, is_error=True)]},
        {"answers": [QuestionAnswer(question_id="file", selected_option_ids=["a"], text="or b")]},
        {"plan": "reject", "text": "Keep SQLite."},
    ],
)
def test_an_answer(fields: calls.AnswerFields) -> None:
    shell = Shell(LOST, answer(202, encode_response(RESPONSE)))
    assert shell.asked(calls.answer(LINK, "chat_1", **fields)) == RESPONSE.id
    assert requested(shell) == ["POST /v1/chat/chat_1/answer"] * 2
    assert shell.requests[0].headers["prefer"] == "respond-async"
    result = read_answer(shell.requests[0].body)
    for name, value in fields.items():
        assert getattr(result, name) == value
    assert result.when_client_leaves == "finish"


def test_start() -> None:
    request = calls.chat_request("hello", "key", [], {})
    shell = Shell(LOST, answer(202, encode_response(RESPONSE)))
    assert shell.asked(calls.start(LINK, request)) == RESPONSE
    assert requested(shell) == ["POST /v1/chat"] * 2
    assert shell.requests[0].headers == {**request.headers, "prefer": "respond-async"}
    assert shell.requests[0].body == request.body


def test_cancel() -> None:
    envelope = msgspec.convert(msgspec.to_builtins(RESPONSE), Envelope)
    shell = Shell(LOST, answer(200, msgspec.json.encode(envelope)))
    assert shell.asked(calls.cancel(LINK, "chat_1")) == envelope
    assert requested(shell) == ["POST /v1/chat/chat_1/cancel"] * 2
    assert shell.requests[0].body == b"{}"
    assert shell.requests[0].headers == {"content-type": "application/json"}


# --- the history ----------------------------------------------------------------------------------------


def listed(shell: Shell, query: str | None = None, limit: int | None = None) -> list[str]:
    batches = shell.batches(calls.conversations(LINK, query, limit))
    assert all(isinstance(one, ConversationEntry) for batch in batches for one in batch)
    return [one.id for batch in batches for one in batch]


def test_all_conversations_page_by_page() -> None:
    shell = Shell(page(1, 2, next="b2"), page(3, 4, next="b4"), page(5, next=None))
    assert listed(shell) == ["conv_1", "conv_2", "conv_3", "conv_4", "conv_5"]
    assert requested(shell) == [
        "GET /v1/conversations limit=100",
        "GET /v1/conversations limit=100 before=b2",
        "GET /v1/conversations limit=100 before=b4",
    ]


def test_a_page_is_returned_before_the_next_one_is_asked_for() -> None:
    shell = Shell(page(1, next="b1"))
    result = shell.next_batch(calls.conversations(LINK, None, None))
    assert result is not None
    assert [one.id for one in result] == ["conv_1"]


def test_a_limit() -> None:
    shell = Shell(page(*range(100), next="more"), page(*range(50), next="more"))
    assert len(listed(shell, query="two words", limit=150)) == 150
    assert requested(shell) == [
        "GET /v1/conversations limit=100 q=two words",
        "GET /v1/conversations limit=50 q=two words before=more",
    ]
    assert listed(Shell(), limit=0) == []


def test_a_conversation() -> None:
    result = {**entry(1), "messages": [], "runs": []}
    shell = Shell(answer(200, json.dumps(result).encode()))
    assert shell.asked(calls.conversation(LINK, "conv_1")).title == "T"
    assert requested(shell) == ["GET /v1/conversations/conv_1"]


def test_deleting() -> None:
    shell = Shell(answer(204))
    shell.asked(calls.delete_conversation(LINK, "conv_1"))
    assert requested(shell) == ["DELETE /v1/conversations/conv_1"]
    with pytest.raises(CallFailed, match="none"):
        Shell(NOT_FOUND).asked(calls.delete_conversation(LINK, "conv_1"))
    with pytest.raises(CallFailed, match="No"):
        Shell(LOST, answer(401, b'{"error":{"message":"No."}}')).asked(calls.delete_conversation(LINK, "conv_1"))


def test_what_the_lost_reply_has_deleted_is_gone() -> None:
    Shell(LOST, NOT_FOUND).asked(calls.delete_conversation(LINK, "conv_1"))


# --- files ----------------------------------------------------------------------------------------------


def test_who_wrote_which_lines_is_asked_for() -> None:
    record = {
        "version": "0.1.0",
        "id": "x",
        "timestamp": "2026-11-18T10:00:00Z",
        "files": [],
        "tool": {"name": "a", "version": "1"},
    }
    shell = Shell(answer(200, json.dumps(record).encode()))
    assert shell.asked(calls.trace(LINK, "conv_1")).files == []
    assert requested(shell) == ["GET /v1/conversations/conv_1/trace"]


def test_changes_are_listed_and_reverted_and_files_found() -> None:
    change = {"path": "a.txt", "operation": "edit", "language": "text", "diffs": []}
    shell = Shell(*[answer(200, json.dumps({"files": [change], "notes": ["n"]}).encode())] * 2)
    assert [file.path for file in shell.asked(calls.changes(LINK, "conv_1")).files] == ["a.txt"]
    assert shell.asked(calls.changes(LINK, "conv_1", "chat_1")).notes == ["n"]
    assert requested(shell) == [
        "GET /v1/conversations/conv_1/changes",
        "GET /v1/conversations/conv_1/changes chatId=chat_1",
    ]
    shell = Shell(answer(200, b'{"files": [{"path": "a.txt", "action": "restored"}], "token": "t"}'))
    assert shell.asked(calls.revert(LINK, "conv_1", RevertRequest(chat_id="chat_1", preview=True))).token == "t"
    assert requested(shell) == ["POST /v1/conversations/conv_1/revert"]
    assert json.loads(shell.requests[0].body)["chatId"] == "chat_1"
    shell = Shell(*[answer(200, b'{"files": ["src/price.py"]}')] * 2)
    assert shell.asked(calls.files(LINK, "pri")) == ["src/price.py"]
    assert shell.asked(calls.files(LINK, "pri", "/work")) == ["src/price.py"]
    assert requested(shell) == ["GET /v1/workspace/files q=pri", "GET /v1/workspace/files q=pri workspace=/work"]


def test_changes_are_listed_reverted_kept_and_committed() -> None:
    files = [{"path": "x", "action": "restored"}]
    bodies: list[object] = [{"files": [], "notes": ["why"]}, {"files": files, "undo": "undo_1"}, {"files": ["x"]}]
    bodies.append({"message": "m", "files": ["x"], "token": "t"})
    replies = [answer(200, json.dumps(body).encode()) for body in bodies]
    shell = Shell(replies[0], answer(200, b"diff --git a/x b/x\n"), *replies[1:])
    assert shell.asked(calls.changes(LINK, "conv_1", "chat_1")).notes == ["why"]
    assert shell.asked(calls.patch(LINK, "conv_1", path="x")) == b"diff --git a/x b/x\n"
    assert shell.asked(calls.revert(LINK, "conv_1", RevertRequest(path="x"))).undo == "undo_1"
    assert shell.asked(calls.keep(LINK, "conv_1", KeepRequest())).files == ["x"]
    assert shell.asked(calls.commit(LINK, "conv_1", CommitRequest())).token == "t"
    assert requested(shell) == [
        "GET /v1/conversations/conv_1/changes chatId=chat_1",
        "GET /v1/conversations/conv_1/changes dialect=patch path=x",
        "POST /v1/conversations/conv_1/revert",
        "POST /v1/conversations/conv_1/keep",
        "POST /v1/conversations/conv_1/commit",
    ]


# --- read-only links ------------------------------------------------------------------------------------


def test_links_are_listed_page_by_page_created_and_revoked() -> None:
    pages = [b'{"conversations": [], "next": %b, "canCreate": true}' % after for after in (b'"abc"', b"null")]
    shell = Shell(*(answer(200, page) for page in pages))
    assert shell.batches(calls.links(LINK)) == [[], []]
    assert requested(shell) == ["GET /v1/links limit=100", "GET /v1/links limit=100 before=abc"]
    shell = Shell(answer(201, b'{"url": "http://x/shared/y"}'))
    assert shell.asked(calls.create_link(LINK, "conv_1")) == "http://x/shared/y"
    assert requested(shell) == ["POST /v1/conversations/conv_1/link"]
    shell = Shell(answer(204))
    shell.asked(calls.revoke_link(LINK, "conv_1"))
    assert requested(shell) == ["DELETE /v1/conversations/conv_1/link"]


# --- permissions ----------------------------------------------------------------------------------------


def test_permissions_are_listed_and_revoked() -> None:
    result = {"permissions": [], "settings": ["Shell(git)"], "canAllow": True, "allowsEverything": False}
    shell = Shell(answer(200, json.dumps(result).encode()))
    found = shell.asked(calls.permissions(LINK))
    assert (found.permissions, found.settings, found.can_allow) == ([], ["Shell(git)"], True)
    assert requested(shell) == ["GET /v1/permissions"]
    shell = Shell(answer(204))
    shell.asked(calls.revoke_permission(LINK, "perm_1"))
    assert requested(shell) == ["DELETE /v1/permissions/perm_1"]


# --- the gateway ----------------------------------------------------------------------------------------


def test_models() -> None:
    result = {"object": "list", "data": [{"id": "auto", "name": "Auto", "created": 1}, {"id": "x"}]}
    shell = Shell(answer(200, json.dumps(result).encode()))
    assert shell.asked(calls.models(LINK)) == [ModelEntry("auto", "Auto"), ModelEntry("x")]
    assert requested(shell) == ["GET /v1/models"]


HEALTH = Health(
    status="ok",
    version="1",
    source=HealthSource("cli", "d", demo=False),
    sources=["cli"],
    mode="agent",
    model="auto",
    runs=HealthRuns(0, 4),
)


def test_health() -> None:
    shell = Shell(answer(200, msgspec.json.encode(HEALTH)))
    assert shell.asked(calls.health(LINK)) == HEALTH
    assert requested(shell) == ["GET /health"]


def test_health_of_a_gateway_without_an_agent() -> None:
    """Its reply is an error for all who look at the status, and says all the same how it is."""
    error = {"error": {"message": "cursor-agent is gone.", "code": "agent_missing"}}
    result = {**error, **msgspec.to_builtins(HEALTH), "status": "unavailable", "workspace": "/w"}
    health = Shell(answer(503, json.dumps(result).encode())).asked(calls.health(LINK))
    assert (health.status, health.workspace) == ("unavailable", "/w")


def test_health_of_an_older_or_newer_gateway() -> None:
    """Discovery depends on it: a client reads what it knows, and does without the rest."""
    old = {"status": "ok", "version": "0", "source": {"name": "cli", "detail": "d"}, "runs": {"running": 0, "limit": 4}}
    health = Shell(answer(200, json.dumps(old).encode())).asked(calls.health(LINK))
    assert (health.version, health.sources, health.mode, health.model) == ("0", [], "agent", "")
    assert not health.workspace
    new = {**old, "status": "asleep", "mode": "dream", "model": "m", "sources": ["cli", "new"], "more": {"a": 1}}
    health = Shell(answer(200, json.dumps(new).encode())).asked(calls.health(LINK))
    assert (health.status, health.mode, health.sources) == ("asleep", "dream", ["cli", "new"])


def test_health_is_asked_for_again_like_anything_else() -> None:
    busy = answer(503, b'{"error":{"message":"Later.","code":"shutting_down"}}')
    shell = Shell(LOST, busy, answer(200, msgspec.json.encode(HEALTH)))
    assert shell.asked(calls.health(LINK)).version == "1"
    assert shell.pauses == [0.1, 1.0]


@pytest.mark.parametrize("body", [b"<html>", b"{}", b"\xff", b"[" * 100_000])
def test_what_is_no_health_is_no_gateways(body: bytes) -> None:
    with pytest.raises(CallFailed) as caught:
        Shell(answer(200, body)).asked(calls.health(LINK))
    assert caught.value.code == "not_a_gateway"


# --- devices --------------------------------------------------------------------------------------------


def test_devices_log_in_are_listed_and_forgotten() -> None:
    device = {"id": "dev_1", "name": "phone", "created_at": 1, "expires_at": 2}
    shell = Shell(
        answer(201, b'{"url": "https://gateway.test/#/login/x", "expires_at": 5}'),
        answer(200, json.dumps({"devices": [device]}).encode()),
        answer(204, b""),
    )
    assert shell.asked(calls.new_login(LINK)).expires_at == 5
    assert [one.id for one in shell.asked(calls.devices(LINK))] == ["dev_1"]
    shell.asked(calls.forget_device(LINK, "dev_1"))
    assert requested(shell) == ["POST /v1/logins", "GET /v1/devices", "DELETE /v1/devices/dev_1"]
