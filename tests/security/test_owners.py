"""Two holders of keys: for each of them, what belongs to the other is as if it did not exist."""

from collections.abc import Callable

import httpx2
import pytest

from cursor_gateway.keys import hash_key
from tests.gateways import RunningGateway
from tests.security.conftest import ALICE, BOB, with_key
from tests.server.conftest import chat, eventually, growing, invocations, question, standin, unique
from tests.server.test_caller_tools import WEATHER, Caller, call, only_call, program, say

NOBODYS_CHAT, NOBODYS_CONVERSATION = "chat_" + 32 * "0", "conv_" + 32 * "0"

Ask = Callable[[httpx2.Client, str, str], httpx2.Response]

# Every way to name a run or a conversation, in any place of a request.
WAYS: dict[str, Ask] = {
    "look": lambda client, chat, _: client.get(f"/v1/chat/{chat}"),
    "look, as HTML": lambda client, chat, _: client.get(f"/v1/chat/{chat}?dialect=html"),
    "export": lambda client, chat, _: client.get(f"/v1/chat/{chat}?dialect=page"),
    "head": lambda client, chat, _: client.head(f"/v1/chat/{chat}/events"),
    "events": lambda client, chat, _: client.get(f"/v1/chat/{chat}/events"),
    "events, as HTML": lambda client, chat, _: client.get(f"/v1/chat/{chat}/events?dialect=html"),
    "events, as chunks": lambda client, chat, _: client.get(f"/v1/chat/{chat}/events?dialect=openai"),
    "events, as NDJSON": lambda client, chat, _: client.get(f"/v1/chat/{chat}/events?dialect=ndjson"),
    "events, at their end": lambda client, chat, _: client.get(f"/v1/chat/{chat}/events?after=99999"),
    "cancel": lambda client, chat, _: client.post(f"/v1/chat/{chat}/cancel", json={}),
    "answer a question": lambda client, chat, _: client.post(
        f"/v1/chat/{chat}/answer", json={"answers": [{"questionId": "file", "selectedOptionIds": ["notes.txt"]}]}
    ),
    "decide about a plan": lambda client, chat, _: client.post(f"/v1/chat/{chat}/answer", json={"plan": "accept"}),
    "bring results": lambda client, chat, _: client.post(
        f"/v1/chat/{chat}/answer", json={"toolResults": [{"toolCallId": "call_1", "content": "evil"}]}
    ),
    "allow a command": lambda client, chat, _: client.post(
        f"/v1/chat/{chat}/answer", json={"permissions": [{"documentId": "doc_001", "decision": "once"}]}
    ),
    "look at the conversation": lambda client, _, conversation: client.get(f"/v1/conversations/{conversation}"),
    "delete it": lambda client, _, conversation: client.delete(f"/v1/conversations/{conversation}"),
    "go on with it": lambda client, _, conversation: client.post(
        "/v1/chat", json={"message": "go on", "conversationId": conversation}
    ),
    "go on after the answer": lambda client, chat, _: client.post(
        "/v1/chat", json={"message": "go on", "conversationId": chat}
    ),
    "go on, as OpenAI's clients do": lambda client, _, conversation: client.post(
        "/v1/chat/completions", json=question("go on", cursor={"conversationId": conversation})
    ),
    "go on after a completion": lambda client, chat, _: client.post(
        "/v1/chat/completions",
        json=question("go on", cursor={"conversationId": f"chatcmpl-{chat.removeprefix('chat_')}"}),
    ),
    "go on by a header": lambda client, _, conversation: client.post(
        "/v1/chat/completions", json=question("go on"), headers={"x-cursor-conversation-id": conversation}
    ),
}


def refusal(reply: httpx2.Response, chat: str, conversation: str) -> tuple[int, str]:
    bare = chat.removeprefix("chat_")
    return reply.status_code, reply.text.replace(chat, "ID").replace(conversation, "ID").replace(bare, "ID")


@pytest.mark.quick_cases(14)
@pytest.mark.parametrize("way", WAYS)
def test_what_belongs_to_another_owner_does_not_exist(alice: httpx2.Client, bob: httpx2.Client, way: str) -> None:
    hers = chat(alice, standin("text"))
    refused = WAYS[way](bob, hers["id"], hers["conversationId"])
    assert refused.status_code == 404
    unknown = WAYS[way](bob, NOBODYS_CHAT, NOBODYS_CONVERSATION)
    assert refusal(refused, hers["id"], hers["conversationId"]) == refusal(unknown, NOBODYS_CHAT, NOBODYS_CONVERSATION)
    assert alice.get(f"/v1/chat/{hers['id']}").json()["documents"] == hers["documents"]


@pytest.mark.quick_cases(7)
@pytest.mark.parametrize("way", WAYS)
def test_nor_does_it_while_it_runs(
    keyed_gateway: RunningGateway, alice: httpx2.Client, bob: httpx2.Client, way: str
) -> None:
    with growing(alice, "documents", standin("hang-mid")) as stream:
        stream.until(b"about")
        id, conversation = stream.response.headers["x-chat-id"], stream.response.headers["x-conversation-id"]
        assert WAYS[way](bob, id, conversation).status_code == 404
        with with_key(keyed_gateway, ALICE) as also:
            assert also.get(f"/v1/chat/{id}").json()["status"] == "streaming"
            also.post(f"/v1/chat/{id}/cancel", json={})
        stream.rest()


def test_lists_and_searches_hold_ones_own(alice: httpx2.Client, bob: httpx2.Client) -> None:
    hers, his = unique(), unique()
    chat(alice, f"{standin('text')} {hers}")
    chat(bob, f"{standin('text')} {his}")
    for path in ("/v1/conversations?limit=100", "/v1/runs?limit=100", f"/v1/conversations?q={hers}"):
        assert hers in alice.get(path).text
        assert hers not in bob.get(path).text
    assert bob.get(f"/v1/conversations?q={hers}").json()["conversations"] == []
    assert his in bob.get(f"/v1/conversations?q={his}").text


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("query", ['"', "*", "mark*", "title:*", "owner:alice", 'x" OR "1"="1', "NEAR(a b)", "%", "\0"])
def test_a_search_is_words_and_no_program(alice: httpx2.Client, bob: httpx2.Client, query: str) -> None:
    hers = unique()
    chat(alice, f"{standin('text')} {hers}")
    found = bob.get("/v1/conversations", params={"q": query, "limit": "100"})
    assert found.status_code == 200
    assert hers not in found.text


def test_a_place_in_anothers_list_shows_nothing(alice: httpx2.Client, bob: httpx2.Client) -> None:
    """`before` is a place in a list; one that somebody else was given leads nowhere else."""
    hers = unique()
    for _ in range(2):
        chat(alice, f"{standin('text')} {hers}")
    place = alice.get("/v1/conversations?limit=1").json()["next"]
    shown = bob.get("/v1/conversations", params={"before": place})
    assert shown.status_code in (200, 400)
    assert hers not in shown.text


def test_an_idempotency_key_is_its_owners_own(alice: httpx2.Client, bob: httpx2.Client) -> None:
    key = {"idempotency-key": unique()}
    body = {"message": standin("text")}
    hers, again, his = (client.post("/v1/chat", json=body, headers=key).json() for client in (alice, alice, bob))
    assert again["id"] == hers["id"]
    assert his["id"] != hers["id"]


def test_the_same_words_do_not_lead_into_anothers_session(
    keyed_gateway: RunningGateway, alice: httpx2.Client, bob: httpx2.Client
) -> None:
    """A plain client's conversation is found by what was said in it; who says the same is still somebody else."""
    mark = unique()
    messages = [{"role": "user", "content": f"{standin('text')} {mark}"}]
    headers = {"x-session-id": "the same"}
    first = alice.post("/v1/chat/completions", json={"model": "auto", "messages": messages}, headers=headers)
    answer = first.json()["choices"][0]["message"]["content"]
    messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": f"{standin('text')} again"}]

    def conversation(client: httpx2.Client) -> str:
        result = client.post("/v1/chat/completions", json={"model": "auto", "messages": messages}, headers=headers)
        return str(result.headers["x-conversation-id"])

    eventually(lambda: conversation(alice) == first.headers["x-conversation-id"])
    assert conversation(bob) != first.headers["x-conversation-id"]
    hers = {invoked["config_dir"] for invoked in invocations(keyed_gateway, mark)}
    assert len(hers) >= 2


def test_results_for_anothers_call_start_a_run_of_ones_own(alice: httpx2.Client, bob: httpx2.Client) -> None:
    hers = Caller(alice, program(call("weather", city="A"), say("It is $1.")), [WEATHER])
    asked = only_call(hers.ask())
    his = Caller(bob, "", [WEATHER])
    his.messages = [*hers.messages]
    his.give((asked["id"], "evil"))
    his.ask()
    assert his.chat_id != hers.chat_id
    hers.give((asked["id"], "sunny"))
    assert hers.ask()["content"] == "It is sunny."


def test_a_token_of_one_kind_is_none_of_another(keyed_gateway: RunningGateway) -> None:
    """Neither a hash, nor a name, nor a key in another's clothes opens the gateway."""
    with with_key(keyed_gateway, "") as client:
        for key in ("alice", hash_key(ALICE), ALICE.lower(), ALICE[:-1], ALICE + "x", f"{ALICE},{BOB}", "local", "*"):
            client.headers["authorization"] = f"Bearer {key}"
            assert client.get("/v1/conversations").status_code == 401
        client.headers["authorization"] = f"Basic {ALICE}"
        assert client.get("/v1/conversations").status_code == 401
        del client.headers["authorization"]
        assert client.get(f"/v1/conversations?api_key={ALICE}&access_token={ALICE}").status_code == 401
        assert client.get("/v1/conversations", headers={"cookie": f"key={ALICE}; session={ALICE}"}).status_code == 401


def test_health_tells_strangers_no_path_of_the_machine(keyed_gateway: RunningGateway, keyed_home: str) -> None:
    with with_key(keyed_gateway, "") as stranger:
        del stranger.headers["authorization"]
        result = stranger.get("/health")
        assert result.json()["status"] == "ok"
        assert str(keyed_home) not in result.text
        assert "workspace" not in result.json()


RESPONSES: dict[str, Callable[[httpx2.Client, str], httpx2.Response]] = {
    "look": lambda client, hers: client.get(f"/v1/responses/{hers}"),
    "stream": lambda client, hers: client.get(f"/v1/responses/{hers}", params={"stream": "true"}),
    "items": lambda client, hers: client.get(f"/v1/responses/{hers}/input_items"),
    "cancel": lambda client, hers: client.post(f"/v1/responses/{hers}/cancel", json={}),
    "delete": lambda client, hers: client.delete(f"/v1/responses/{hers}"),
    "go on": lambda client, hers: client.post("/v1/responses", json={"input": "go on", "previous_response_id": hers}),
}


@pytest.mark.parametrize("way", RESPONSES)
def test_a_response_of_another_owner_does_not_exist(alice: httpx2.Client, bob: httpx2.Client, way: str) -> None:
    hers = alice.post("/v1/responses", json={"input": standin("text")}).json()
    refused, unknown = (RESPONSES[way](bob, id) for id in (hers["id"], f"resp_{32 * '0'}"))
    assert refused.status_code == unknown.status_code == (400 if way == "go on" else 404)
    assert refused.text.replace(hers["id"], "ID") == unknown.text.replace(f"resp_{32 * '0'}", "ID")
    assert alice.get(f"/v1/responses/{hers['id']}").json() == hers
