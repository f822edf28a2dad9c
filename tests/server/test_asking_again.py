"""Asking again: what a retry, a repair, a glance and a cut answer leave behind."""

from pathlib import Path

import httpx2
import pytest

from tests.gateways import RunningGateway, running_gateway
from tests.openai_shapes import read_stream
from tests.server.conftest import (
    Json,
    at_once,
    chat,
    eventually,
    http_client,
    invocation,
    invocations,
    question,
    standin,
    unique,
)


def completion(
    http: httpx2.Client, text: str, headers: dict[str, str] | None = None, **fields: object
) -> httpx2.Response:
    return http.post("/v1/chat/completions", json=question(text, **fields), headers=headers or {})


# --- idempotency keys -----------------------------------------------------------------------------------


def test_a_key_whose_run_failed_in_a_way_that_may_pass_is_free_again(
    gateway: RunningGateway, http: httpx2.Client
) -> None:
    mark = unique()
    asking, key = f"{mark} {standin('fail-capacity')}", {"idempotency-key": unique()}
    assert [completion(http, asking, key).status_code for _ in range(2)] == [424, 424]
    assert len(invocations(gateway, mark)) == 2


def test_a_key_whose_request_was_wrong_stays(gateway: RunningGateway, http: httpx2.Client) -> None:
    mark = unique()
    asking, key = f"{mark} {standin('fail-quota-early')}", {"idempotency-key": unique()}
    assert [completion(http, asking, key).status_code for _ in range(2)] == [402, 402]
    assert len(invocations(gateway, mark)) == 1  # the account's limit does not pass by asking


def test_an_sdk_that_gave_up_waiting_joins_the_run_but_asking_twice_gives_two(
    gateway: RunningGateway, http: httpx2.Client, tmp_path: Path
) -> None:
    mark, file = unique(), tmp_path / "go"
    body = question(f"{mark} {standin(f'wait-for file={file}')}", stream=True)
    tries = [{"x-stainless-retry-count": count} for count in ("0", "1", "0")]
    with http.stream("POST", "/v1/chat/completions", json=body, headers=tries[0]) as first:
        next(first.iter_raw())
    with http.stream("POST", "/v1/chat/completions", json=body, headers=tries[1]) as retry:
        file.touch()
        assert "It is there." in read_stream(retry.read()).text
    anew = http.post("/v1/chat/completions", json=body, headers=tries[2])
    ids = [reply.headers["x-chat-id"] for reply in (first, retry, anew)]
    assert ids[0] == ids[1] != ids[2]
    assert len(invocations(gateway, mark)) == 2


def test_who_joins_a_run_joins_its_repair(gateway: RunningGateway, http: httpx2.Client) -> None:
    mark, key = unique(), {"idempotency-key": unique()}
    asking = standin(f"json-bad-then-good mark={mark}", '{"a": 1}')
    format = {"response_format": {"type": "json_object"}}
    replies = at_once({number: lambda: completion(http, asking, key, **format) for number in range(3)})
    replies[3] = completion(http, asking, key, **format)
    assert {reply.status_code for reply in replies.values()} == {200}
    assert {reply.json()["choices"][0]["message"]["content"] for reply in replies.values()} == {'{"a": 1}'}
    conversation = replies[3].headers["x-conversation-id"]
    assert len(http.get(f"/v1/conversations/{conversation}").json()["runs"]) == 2


# --- sessions -------------------------------------------------------------------------------------------


def test_a_turn_that_never_began_does_not_cost_the_session(gateway: RunningGateway, http: httpx2.Client) -> None:
    first, then = unique(), unique()
    messages: list[Json] = [{"role": "user", "content": first}]
    answer = http.post("/v1/chat/completions", json={"messages": messages}).json()["choices"][0]["message"]["content"]
    messages.append({"role": "assistant", "content": answer})
    failed = [*messages, {"role": "user", "content": standin("fail-capacity")}]
    assert http.post("/v1/chat/completions", json={"messages": failed}).status_code == 424
    continued = [*messages, {"role": "user", "content": then}]
    assert http.post("/v1/chat/completions", json={"messages": continued}).status_code == 200
    assert invocation(gateway, then)["prompt"] == then


def test_the_latest_answers_id_stands_for_its_conversation(gateway: RunningGateway, http: httpx2.Client) -> None:
    first, then, last = unique(), unique(), unique()
    answer = chat(http, first)
    continued = completion(http, then, cursor={"conversationId": f"chatcmpl-{answer['id'].removeprefix('chat_')}"})
    assert continued.headers["x-conversation-id"] == answer["conversationId"]
    assert invocation(gateway, then)["prompt"] == then
    assert chat(http, last, conversationId=continued.headers["x-chat-id"])["conversationId"] == answer["conversationId"]
    early = http.post("/v1/chat", json={"message": "again", "conversationId": answer["id"]})
    assert (early.status_code, early.json()["error"]["param"]) == (400, "conversationId")
    assert http.post("/v1/chat", json={"message": "x", "conversationId": "chat_none"}).status_code == 404


def test_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    with running_gateway(tmp_path) as gateway, http_client(gateway) as http:
        (gateway.workspace / "project").mkdir()
        conversation = chat(http, "hello", workspace="project")["conversationId"]
        eventually(lambda: not http.get(f"/v1/conversations/{conversation}").json()["isRunning"])
        (gateway.workspace / "project").rmdir()
        refused = http.post("/v1/chat", json={"message": "more", "conversationId": conversation})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "conversationId")
        assert "project" in refused.json()["error"]["message"]


# --- glances and cuts -----------------------------------------------------------------------------------


def test_who_wants_only_to_know_the_run_gets_it_at_once_and_may_come_and_go(
    gateway: RunningGateway, http: httpx2.Client, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    asking = {"message": standin(f"wait-for file={go}")}
    begun = http.post("/v1/chat", json=asking, headers={"prefer": "respond-async"})
    assert (begun.status_code, begun.json()["status"]) == (202, "streaming")
    id = begun.headers["x-chat-id"]
    assert begun.headers["location"] == f"/v1/chat/{id}"
    assert http.head(f"/v1/chat/{id}/events").status_code == 200
    with http.stream("GET", f"/v1/chat/{id}/events") as glance:
        next(glance.iter_raw())
    assert http.get(f"/v1/chat/{id}").json()["status"] == "streaming"
    go.touch()
    eventually(lambda: http.get(f"/v1/chat/{id}").json()["status"] == "completed")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("leaving", ["cancel", "finish"])
def test_a_cut_answer_says_that_it_was_cut(http: httpx2.Client, stream: bool, leaving: str) -> None:
    cut = completion(
        http, standin("slow count=50 delay_ms=100"), max_tokens=1, stream=stream, cursor={"whenClientLeaves": leaving}
    )
    assert cut.status_code == 200
    id = cut.headers["x-chat-id"]
    eventually(lambda: http.get(f"/v1/chat/{id}").json()["status"] == "error")
    assert "max_tokens" in http.get(f"/v1/chat/{id}").json()["documents"][-1]["content"]


def test_a_run_is_read_as_it_was_answered(tmp_path: Path) -> None:
    with running_gateway(tmp_path, settings={"agent_tools": "none"}) as gateway, http_client(gateway) as http:
        first = completion(http, standin("tools"), stream=True, stream_options={"include_usage": True})
        again = http.get(f"/v1/chat/{first.headers['x-chat-id']}/events?dialect=openai")
        one, two = (read_stream(reply.content, include_usage=True) for reply in (first, again))
        assert (one.text, one.reasoning, one.usage) == (two.text, two.reasoning, two.usage)
        assert {(chunk.id, chunk.created) for chunk in (*one.chunks, *two.chunks)} == {
            (one.chunks[0].id, one.chunks[0].created)
        }
