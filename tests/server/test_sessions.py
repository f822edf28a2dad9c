"""Sessions of the agent: who goes on where he was sends only what is new, and who does not, or cannot, never notices.

Asserted on what the agent was given: its arguments, its prompt, and what its session knew.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cursor_gateway.keys import hash_key
from tests.agent.sections import sections
from tests.gateways import RunningGateway, running_gateway
from tests.openai_shapes import read_stream, validate_completion, validate_error
from tests.server.conftest import (
    Dialect,
    Json,
    ask,
    at_once,
    chat,
    conversation_folder,
    eventually,
    growing,
    http_client,
    invocation,
    invocations,
    is_gone,
    option,
    sse,
    standin,
    text_of,
    unique,
)

SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "required": ["a"]}}}


class Talk:
    """A plain client of OpenAI's API: it has no name for a conversation, and sends all of it with every request."""

    def __init__(self, http: httpx2.Client, system: str = "", **headers: str) -> None:
        self.messages: list[Json] = [{"role": "system", "content": system}] if system else []
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.ids: list[str] = []  # of the conversations that it was told of
        self._http = http

    def say(self, text: str, *, stream: bool = False, **fields: Any) -> str:
        self.messages.append({"role": "user", "content": text})
        reply = self._http.post(
            "/v1/chat/completions",
            json={"model": "auto", "messages": self.messages, "stream": stream, **fields},
            headers=self.headers,
        )
        assert reply.status_code == 200, reply.text
        answer = (
            read_stream(reply.content).text
            if stream
            else validate_completion(reply.content).choices[0].message.content or ""
        )
        self.messages.append({"role": "assistant", "content": answer})
        self.ids.append(reply.headers["x-conversation-id"])
        return answer

    def has_gone_on(self) -> bool:
        """With its last turn, in the conversation of the one before."""
        return self.ids[-1] == self.ids[-2]


def new(mark: str) -> str:
    """A message that is not an echo: the stand-in looks for the last scenario, also in a transcript."""
    return f"{mark} {standin('text')}"


def said_in(prompt: str) -> str:
    """The only message of the user: bare, or in its section where the session has seen others."""
    said = [section.body for section in sections(prompt) if section.kind not in ("instructions", "now")]
    assert len(said) <= 1, "nothing that the session knows is told again"
    return said[0] if said else prompt


def assert_resumed(gateway: RunningGateway, first: str, second: str, prompt: str | None = None) -> None:
    """The turn with the second mark, in the session of the first one's, and told nothing else."""
    before, after = invocation(gateway, first), invocation(gateway, second)
    assert option(after["argv"], "--resume") == after["session"] == before["session"]
    assert said_in(after["prompt"]) == (new(second) if prompt is None else prompt)
    assert (after["cwd"], after["config_dir"]) == (before["cwd"], before["config_dir"])


def assert_fresh(gateway: RunningGateway, mark: str, *result: str) -> None:
    """A new session, which was told all this, in this order."""
    after = eventually(lambda: invocations(gateway, mark))[-1]
    assert "--resume" not in after["argv"]
    assert after["history"] == []
    places = [after["prompt"].find(text) for text in [*result, mark]]
    assert -1 not in places, after["prompt"]
    assert places == sorted(places)


# --- a client that sends all --------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_sends_all_is_known_by_what_it_sends(
    gateway: RunningGateway, http: httpx2.Client, stream: bool
) -> None:
    talk, marks = Talk(http, system="Be brief."), [unique() for _ in range(4)]
    for mark in marks:
        talk.say(new(mark), stream=stream)
    assert len(set(talk.ids)) == 1
    for mark in marks[1:]:
        assert_resumed(gateway, marks[0], mark)
    assert len(invocation(gateway, marks[-1])["history"]) == 3


def test_several_messages_may_be_new(gateway: RunningGateway, http: httpx2.Client) -> None:
    talk, first, second, third = Talk(http), unique(), unique(), unique()
    talk.say(new(first))
    talk.messages.append({"role": "user", "content": second})
    talk.say(new(third))
    assert talk.has_gone_on()
    after = invocation(gateway, third)
    assert option(after["argv"], "--resume") == invocation(gateway, first)["session"]
    assert second in after["prompt"]
    assert first not in after["prompt"]


Change = Callable[[list[Json]], list[Json]]
CHANGES: dict[str, Change] = {
    "an edited question": lambda history: [{**history[0], "content": "Edited."}, *history[1:]],
    "an edited answer": lambda history: [history[0], {**history[1], "content": "Edited."}, *history[2:]],
    "a shorter one": lambda history: history[:2],
    "one that lacks its beginning": lambda history: history[2:],
    "another order": lambda history: [*history[2:], *history[:2]],
    "a message more": lambda history: [*history[:2], {"role": "user", "content": "And?"}, *history[2:]],
    "other instructions": lambda history: [{"role": "system", "content": "Be brief."}, *history],
    "an answer twice": lambda history: [*history, history[-1]],
}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("change", CHANGES)
def test_another_history_starts_fresh_with_all_of_it(gateway: RunningGateway, http: httpx2.Client, change: str) -> None:
    talk, first, second, third = Talk(http), unique(), unique(), unique()
    talk.say(f"{first} first")
    talk.say(f"{second} second")
    assert talk.has_gone_on()
    talk.messages = CHANGES[change](talk.messages)
    expected = [message["content"] for message in talk.messages]
    talk.say(new(third))
    assert not talk.has_gone_on()
    assert_fresh(gateway, third, *dict.fromkeys(expected))
    fourth = unique()
    talk.say(new(fourth))  # and this one is known from now on
    assert talk.has_gone_on()
    assert_resumed(gateway, third, fourth)


def test_a_conversation_that_was_left_for_another_way_goes_on_where_it_was(
    gateway: RunningGateway, http: httpx2.Client
) -> None:
    talk, first, second = Talk(http), unique(), unique()
    talk.say(f"{first} first")
    before = list(talk.messages)
    talk.say(f"{second} second")
    other = Talk(http)
    other.messages = before
    other.say(new(unique()))
    assert other.ids[0] != talk.ids[0]
    third = unique()
    talk.say(new(third))
    assert talk.has_gone_on()
    assert_resumed(gateway, second, third)


@pytest.mark.parametrize("header", ["x_session_id", "x_session_affinity"])
def test_the_clients_own_name_for_its_session_counts(gateway: RunningGateway, http: httpx2.Client, header: str) -> None:
    opening = f"{unique()} hello"
    one, two, none = Talk(http, **{header: "one"}), Talk(http, **{header: "two"}), Talk(http)
    for talk in (one, two, none):
        talk.say(opening)
    sessions = {}
    for name, talk in (("none", none), ("two", two), ("one", one)):
        mark = unique()
        talk.say(new(mark))
        assert talk.has_gone_on()
        sessions[name] = option(invocation(gateway, mark)["argv"], "--resume")
    assert len(set(sessions.values())) == 3
    assert None not in sessions.values()
    one.headers = {}
    mark = unique()
    one.say(new(mark))
    assert_fresh(gateway, mark, opening)


def test_three_at_once_from_two_that_said_the_same_are_three_sessions(
    gateway: RunningGateway, http: httpx2.Client
) -> None:
    """A session is never shared: the third begins one of its own."""
    opening = f"{unique()} hello"
    talks = [Talk(http), Talk(http), Talk(http)]
    talks[0].say(opening)
    talks[1].say(opening)
    talks[2].messages = list(talks[1].messages)
    marks = [unique() for _ in talks]
    asking = f"{standin('slow count=5 delay_ms=40')}"
    at_once({n: partial(talk.say, f"{mark} {asking}") for n, (talk, mark) in enumerate(zip(talks, marks, strict=True))})
    assert len({talk.ids[-1] for talk in talks}) == 3
    sessions = [invocation(gateway, mark)["session"] for mark in marks]
    assert len(set(sessions)) == 3
    assert sorted(len(invocation(gateway, mark)["history"]) for mark in marks) == [0, 1, 1]


def test_another_model_goes_on_with_the_session(gateway: RunningGateway, http: httpx2.Client) -> None:
    talk, first, second = Talk(http), unique(), unique()
    talk.say(new(first))
    talk.say(new(second), model="gpt-5-mini")
    assert_resumed(gateway, first, second)
    assert option(invocation(gateway, second)["argv"], "--model") == "gpt-5-mini"


# --- answers that the client has otherwise than the agent ---------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_after_an_answer_that_was_cut_the_agent_is_told_what_the_client_has(
    gateway: RunningGateway, http: httpx2.Client, stream: bool
) -> None:
    talk, first, second = Talk(http), unique(), unique()
    cut = talk.say(f"{first} {standin('say', 'One two STOP three')}", stream=stream, stop="STOP")
    assert cut == "One two "
    talk.say(new(second))
    assert_fresh(gateway, second, first, "One two")


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("scenario", "body"),
    [("json", '{"a": 1}'), ("say", 'Here:\n\n```json\n{"a": 1}\n```\n\nMore?'), ("json-bad-then-good", '{"a": 1}')],
)
def test_after_an_answer_in_a_form_the_session_goes_on(
    gateway: RunningGateway, http: httpx2.Client, scenario: str, body: str, stream: bool
) -> None:
    """The client quotes the JSON alone: neither what stood around it, nor what had to be said again."""
    talk, first, second = Talk(http), unique(), unique()
    answer = talk.say(f"{first} {standin(scenario, body)}", stream=stream, response_format=SCHEMA)
    assert json.loads(answer) == {"a": 1}
    talk.say(new(second), stream=stream)
    assert talk.has_gone_on()
    assert_resumed(gateway, first, second)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("scenario", ["crash", "fail-quota", "fail-auth", "crash-early", "killed"])
def test_a_conversation_goes_on_after_a_turn_that_failed(
    gateway: RunningGateway, http: httpx2.Client, scenario: str
) -> None:
    first, second, third = unique(), unique(), unique()
    conversation = chat(http, f"{first} first")["conversationId"]
    failed = ask(http, "documents", f"{second} {standin(scenario)}", conversationId=conversation)
    assert failed.status_code >= 400
    chat(http, new(third), conversationId=conversation)
    assert_resumed(gateway, first, third)


@pytest.mark.parametrize("scenario", ["fail-auth", "crash-early"])
def test_a_conversation_whose_first_turn_failed_goes_on_with_what_was_asked(
    gateway: RunningGateway, http: httpx2.Client, scenario: str
) -> None:
    first, second = unique(), unique()
    failed = ask(http, "documents", f"{first} {standin(scenario)}")
    chat(http, new(second), conversationId=failed.headers["x-conversation-id"])
    assert_fresh(gateway, second, first)


def test_a_client_whose_turn_failed_asks_again_without_its_answer(gateway: RunningGateway, http: httpx2.Client) -> None:
    """A turn that had said nothing changes nothing; of one that was broken off the agent knows more than is told."""
    for scenario in ("crash-early", "crash"):
        talk, first, second = Talk(http), unique(), unique()
        talk.say(new(first))
        result = [*talk.messages, {"role": "user", "content": standin(scenario)}]
        failed = ask(http, "openai", "", messages=result)
        assert (failed.status_code, failed.headers["x-conversation-id"]) == (424, talk.ids[0])
        talk.say(new(second))
        assert talk.has_gone_on() == (scenario == "crash-early")
        if talk.has_gone_on():
            assert_resumed(gateway, first, second)
        else:
            assert_fresh(gateway, second, first)


# --- a session that is gone ---------------------------------------------------------------------------------


def store_of(gateway: RunningGateway, conversation: str) -> Path:
    (store,) = conversation_folder(gateway, conversation).glob("cursor/chats/*/*/store.db")
    return store


def lose_folder(store: Path) -> None:
    shutil.rmtree(store.parents[2])


def lose_chat(store: Path) -> None:
    shutil.rmtree(store.parent)


def break_store(store: Path) -> None:
    """The agent refuses it: `Failed to resume chat`."""
    store.write_bytes(b"SQLite format 3\0 no more")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", ["documents", "openai"])
@pytest.mark.parametrize("lose", [lose_folder, lose_chat, break_store])
@pytest.mark.quick_cases(1)
def test_a_session_that_is_gone_is_made_anew_unnoticed(
    gateway: RunningGateway, http: httpx2.Client, lose: Callable[[Path], None], dialect: Dialect, stream: bool
) -> None:
    first, second, third = unique(), unique(), unique()
    talk = Talk(http)
    said = talk.say(f"{first} first")
    (conversation,) = talk.ids
    eventually(lambda: is_gone(invocation(gateway, first)["pid"]))  # it saves its chat once more when it goes
    lose(store_of(gateway, conversation))
    if dialect == "openai":
        assert talk.say(new(second), stream=stream)
        assert talk.has_gone_on()
    else:
        reply = ask(http, "documents", new(second), stream=stream, conversationId=conversation)
        assert (reply.status_code, reply.headers["x-conversation-id"]) == (200, conversation)
        assert b"error" not in reply.content
        events = sse(reply.content) if stream else []
        assert not stream or json.loads(events[-1].data)["status"] == "completed"
    assert_fresh(gateway, second, first, said)
    assert len(invocations(gateway, second)) == (2 if lose is break_store else 1)
    chat(http, new(third), conversationId=conversation)
    after = invocation(gateway, third)
    assert option(after["argv"], "--resume") == invocations(gateway, second)[-1]["session"]
    assert said_in(after["prompt"]) == new(third)


def test_a_session_is_lost_only_once_in_a_run(gateway: RunningGateway, http: httpx2.Client) -> None:
    """An agent that refuses the new session as well has failed."""
    first, second = unique(), unique()
    conversation = chat(http, first)["conversationId"]
    failed = ask(http, "documents", f"{second} {standin('fail-resume')}", conversationId=conversation)
    assert (failed.status_code, failed.json()["error"]["code"]) == (404, "session_lost")
    assert len(invocations(gateway, second)) == 2


# --- restarts, and turns at the same time -------------------------------------------------------------------


@contextmanager
def restarted(home: Path, **settings: str) -> Iterator[tuple[RunningGateway, httpx2.Client]]:
    with running_gateway(home, settings=settings) as gateway, http_client(gateway) as client:
        yield gateway, client


def test_sessions_outlive_the_gateway(tmp_path: Path) -> None:
    first, second, third, named = (unique() for _ in range(4))
    with restarted(tmp_path) as (gateway, http):
        talk, session = Talk(http), Talk(http, x_session_id="mine")
        talk.say(new(first))
        session.say(new(named))
    with restarted(tmp_path) as (gateway, http):
        talk._http = session._http = http
        talk.say(new(second))
        assert talk.has_gone_on()
        assert_resumed(gateway, first, second)
        session.say(new(again := unique()))
        assert_resumed(gateway, named, again)
    with restarted(tmp_path) as (gateway, http):
        chat(http, new(third), conversationId=talk.ids[0])
        assert_resumed(gateway, first, third)


def test_a_request_of_any_api_says_whether_it_waits(tmp_path: Path) -> None:
    file = tmp_path / "go"
    with (
        restarted(tmp_path / "home", when_busy="wait") as (_, http),
        growing(http, "documents", standin(f"wait-for file={file}")) as reply,
    ):
        reply.until(b"file.")
        options = {"conversationId": reply.response.headers["x-conversation-id"], "whenBusy": "refuse"}
        messages = [{"role": "user", "content": "Hi"}]
        with_messages = {"model": "auto", "max_tokens": 20_000, "messages": messages, "cursor": options}
        for path, body in {
            "/v1/chat": {"message": "Hi", **options},
            "/v1/chat/completions": with_messages,
            "/v1/messages": with_messages,
            "/v1/responses": {"model": "auto", "input": "Hi", "cursor": options},
        }.items():
            assert http.post(path, json=body).status_code == 409, path
        named = {**with_messages, "cursor": {"conversationId": options["conversationId"]}}
        headers = {"x-cursor-when-busy": "refuse"}
        assert http.post("/v1/chat/completions", json=named, headers=headers).status_code == 409
        file.touch()
        reply.rest()


# --- whose it is --------------------------------------------------------------------------------------------

ALICE, BOB = "key-of-alice", "key-of-bob"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    keys = f"alice={hash_key(ALICE)},bob={hash_key(BOB)}"
    with running_gateway(tmp_path_factory.mktemp("shared"), settings={"api_keys": keys}) as running:
        yield running


# --- the same request again ---------------------------------------------------------------------------------


def keyed(client: httpx2.Client, key: str, body: Json, path: str = "/v1/chat", accept: str = "*/*") -> httpx2.Response:
    return client.post(path, json=body, headers={"idempotency-key": key, "accept": accept})


def both(mark: str, scenario: str, **fields: Any) -> dict[str, Json]:
    """The same question in both dialects."""
    text = f"{mark} {standin(scenario)}"
    return {
        "/v1/chat": {"message": text, **fields},
        "/v1/chat/completions": {"model": "auto", "messages": [{"role": "user", "content": text}], **fields},
    }


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/chat", "/v1/chat/completions"])
def test_the_same_request_again_is_the_same_run(
    gateway: RunningGateway, http: httpx2.Client, path: str, stream: bool
) -> None:
    mark = unique()
    body = both(mark, "tools", stream=stream)[path]
    first, *others = [keyed(http, mark, body, path) for _ in range(3)]
    assert first.status_code == 200
    for again in others:
        assert (again.status_code, again.headers["x-chat-id"]) == (200, first.headers["x-chat-id"])
        assert again.headers["x-conversation-id"] == first.headers["x-conversation-id"]
        if path == "/v1/chat":
            assert again.content == first.content
        elif stream:
            assert read_stream(again.content).text == read_stream(first.content).text
        else:
            assert again.json()["choices"] == first.json()["choices"]
    assert len(invocations(gateway, mark)) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/chat", "/v1/chat/completions"])
@pytest.mark.parametrize("scenario", ["fail-quota-early", "fail-quota"])
@pytest.mark.quick_cases(3)
def test_a_request_that_failed_for_good_fails_in_the_same_way(
    gateway: RunningGateway, http: httpx2.Client, scenario: str, path: str, stream: bool
) -> None:
    mark = unique()
    body = both(mark, scenario, stream=stream)[path]
    first, again = keyed(http, mark, body, path), keyed(http, mark, body, path)
    assert again.status_code == first.status_code
    assert (again.status_code == 200) == (stream and scenario != "fail-quota-early")
    if path == "/v1/chat":
        assert again.content == first.content
    assert len(invocations(gateway, mark)) == 1


@pytest.mark.parametrize("path", ["/v1/chat", "/v1/chat/completions"])
def test_the_same_request_joins_a_run_that_goes_on(
    gateway: RunningGateway, http: httpx2.Client, tmp_path: Path, path: str
) -> None:
    mark, file = unique(), tmp_path / "go"
    body = both(mark, f"wait-for file={file}", stream=True)[path]
    headers = {"idempotency-key": mark}
    with http.stream("POST", path, json=body, headers=headers) as first:
        beginning = first.iter_raw()
        next(beginning)
        with http.stream("POST", path, json=body, headers=headers) as second:
            pieces = second.iter_raw()
            received = next(pieces)
            first.close()  # it may go: the other one still reads
            file.touch()
            received += b"".join(pieces)
    assert second.headers["x-chat-id"] == first.headers["x-chat-id"]
    assert b"there." in received
    assert http.get(f"/v1/chat/{first.headers['x-chat-id']}").json()["status"] == "completed"
    assert len(invocations(gateway, mark)) == 1


def test_the_same_request_in_another_form_is_the_same_run(gateway: RunningGateway, http: httpx2.Client) -> None:
    mark = unique()
    body = {"message": f"{mark} {standin('fences')}", "stream": True}
    events, lines = keyed(http, mark, body), keyed(http, mark, body, accept="application/x-ndjson")
    assert lines.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line)["data"] for line in lines.content.splitlines()] == [
        json.loads(event.data) for event in sse(events.content)
    ]
    assert len(invocations(gateway, mark)) == 1


def test_many_at_once_are_one_run(gateway: RunningGateway, http: httpx2.Client) -> None:
    mark = unique()
    body = {"message": f"{mark} {standin('slow count=5 delay_ms=20')}"}
    replies = at_once({number: partial(keyed, http, mark, body) for number in range(6)})
    assert {reply.content for reply in replies.values()} == {replies[0].content}
    assert replies[0].json()["status"] == "completed"
    assert len(invocations(gateway, mark)) == 1


@pytest.mark.parametrize(
    ("path", "other"),
    [
        ("/v1/chat", {"message": "another"}),
        ("/v1/chat", {"message": "one", "stream": True}),  # to the byte: how it is to be told belongs to it
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "one"}]}),
    ],
)
def test_a_key_is_for_one_request(http: httpx2.Client, path: str, other: Json) -> None:
    key = unique()
    assert keyed(http, key, {"message": "one"}).status_code == 200
    refused = keyed(http, key, other, path)
    assert refused.status_code == 409
    error = validate_error(refused.content)
    assert (error.code, error.param) == ("idempotency_mismatch", "Idempotency-Key")
    assert keyed(http, key, {"message": "one"}).status_code == 200


@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb"])
def test_a_key_that_is_none_is_refused(http: httpx2.Client, key: str) -> None:
    refused = keyed(http, key, {"message": "one"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "Idempotency-Key")


def test_keys_outlive_the_gateway(tmp_path: Path) -> None:
    mark = unique()
    bodies = both(mark, "tools")
    with restarted(tmp_path) as (gateway, http):
        before = {path: keyed(http, mark + path, body, path) for path, body in bodies.items()}
        failed = keyed(http, "failed", {"message": standin("fail-quota-early")})
    with restarted(tmp_path) as (gateway, http):
        for path, body in bodies.items():
            again = keyed(http, mark + path, body, path)
            assert again.headers["x-chat-id"] == before[path].headers["x-chat-id"]
            assert path != "/v1/chat" or again.content == before[path].content
        assert keyed(http, "failed", {"message": "another"}).status_code == 409
        again = keyed(http, "failed", {"message": standin("fail-quota-early")})
        assert (again.status_code, again.content) == (429, failed.content)
        assert len(invocations(gateway, mark)) == 2


def test_a_key_is_free_again_when_its_conversation_was_deleted(gateway: RunningGateway, http: httpx2.Client) -> None:
    mark = unique()
    first = keyed(http, mark, {"message": mark}).json()
    assert http.delete(f"/v1/conversations/{first['conversationId']}").status_code == 204
    assert keyed(http, mark, {"message": mark}).json()["id"] != first["id"]
    assert text_of(keyed(http, mark, {"message": mark}).json()) == f"You said: {mark}"
    assert len(invocations(gateway, mark)) == 2
