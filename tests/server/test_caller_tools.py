"""Tools that the caller runs, over real sockets, with an agent that is a true MCP client: one run, several replies."""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cursor_gateway.sources.processes import members
from tests.gateways import RunningGateway, running_gateway
from tests.openai_shapes import read_stream, validate_completion
from tests.server.conftest import TIMEOUT, Json, conversation_folder, eventually, http_client, invocations, sse, unique
from tests.server.test_leaks import ended_agents

CITY: Json = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
PNG = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def tool(name: str, parameters: Json | None = None, description: str = "") -> Json:
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters or {}}}


WEATHER = tool("weather", CITY, "The weather of a city.")
BASH = tool(
    "bash",
    {
        "type": "object",
        "properties": {"command": {"type": "string"}, "description": {"type": "string"}},
        "required": ["command", "description"],
    },
)


def program(*steps: Json) -> str:
    """A prompt that makes the stand-in carry out these steps."""
    return f"standin: program\n---\n{json.dumps(steps)}\n--- end"


def call(name: str, /, **arguments: Any) -> Json:
    return {"call": name, "args": arguments}


def say(text: str) -> Json:
    return {"say": text}


class Caller:
    """A plain client of the OpenAI API that runs its tools itself."""

    def __init__(self, client: httpx2.Client, prompt: str, tools: Sequence[Json], **fields: Any) -> None:
        self.client, self._tools, self._fields = client, tools, fields
        self.messages: list[Json] = [{"role": "user", "content": prompt}]
        self.chat_id = ""
        self.completions: list[Json] = []

    def request(self, **fields: Any) -> httpx2.Response:
        body = {"model": "auto", "messages": self.messages, "tools": self._tools, **self._fields, **fields}
        return self.client.post("/v1/chat/completions", json=body)

    def ask(self, **fields: Any) -> Json:
        """One reply's message, which from then on is part of the conversation."""
        response = self.request(**fields)
        assert response.status_code == 200, response.text
        completion = validate_completion(response.content)
        self.chat_id = response.headers["x-chat-id"]
        reply: Json = response.json()
        self.completions.append(reply)
        assert completion.choices[0].finish_reason == reply["choices"][0]["finish_reason"]
        message: Json = reply["choices"][0]["message"]
        self.messages.append(message)
        return message

    def give(self, *results: tuple[str, str]) -> None:
        self.messages += [{"role": "tool", "tool_call_id": id, "content": text} for id, text in results]

    @property
    def reason(self) -> str:
        reason: str = self.completions[-1]["choices"][0]["finish_reason"]
        return reason

    def converse(self, run: Callable[[str, Json], str], most: int = 40) -> str:
        """Until there is an answer; `run` is what the tools do."""
        for _ in range(most):
            message = self.ask()
            if self.reason != "tool_calls":
                return str(message["content"])
            for asked in calls_of(message):
                self.give((asked["id"], run(asked["function"]["name"], json.loads(asked["function"]["arguments"]))))
        raise AssertionError("it never came to an end")


def calls_of(message: Json) -> list[Json]:
    found: list[Json] = message.get("tool_calls") or []
    return found


def only_call(message: Json) -> Json:
    (only,) = calls_of(message)
    return only


def documents_of(client: httpx2.Client, id: str) -> Json:
    response = client.get(f"/v1/chat/{id}")
    assert response.status_code == 200, response.text
    reply: Json = response.json()
    return reply


def nothing_is_left(gateway: RunningGateway, mark: str) -> None:
    """No process of any agent that was started for it."""
    groups = [started["pgid"] for started in invocations(gateway, mark)]
    assert groups
    eventually(lambda: not any(members(group) for group in groups))


@contextmanager
def own_gateway(home: Path, **options: Any) -> Iterator[tuple[RunningGateway, httpx2.Client]]:
    with ended_agents(home), running_gateway(home, **options) as gateway, http_client(gateway) as client:
        yield gateway, client


# --- a round ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_the_same_run_goes_on_with_the_result(gateway: RunningGateway, http: httpx2.Client, stream: bool) -> None:
    mark = unique()
    prompt = f"{mark} {program(say('I look. '), call('weather', city='Paris'), say('It is $1.'))}"
    body: Json = {"model": "auto", "tools": [WEATHER], "messages": [{"role": "user", "content": prompt}]}
    body["stream"] = stream
    first = http.post("/v1/chat/completions", json=body)
    message = _message(first, stream)
    assert message["content"] == "I look. "
    asked = only_call(message)
    assert asked["function"] == {"name": "weather", "arguments": '{"city":"Paris"}'}
    body["messages"] += [message, {"role": "tool", "tool_call_id": asked["id"], "content": "sunny"}]
    second = http.post("/v1/chat/completions", json=body)
    assert _message(second, stream)["content"] == "It is sunny."
    assert second.headers["x-chat-id"] == first.headers["x-chat-id"]
    assert len(invocations(gateway, mark)) == 1  # the agent was held, not started again
    nothing_is_left(gateway, mark)


def _message(response: httpx2.Response, stream: bool) -> Json:
    assert response.status_code == 200, response.text
    if not stream:
        message: Json = response.json()["choices"][0]["message"]
        return message
    read = read_stream(response.content)
    choices = [choice for chunk in read.chunks for choice in chunk.choices]
    calls: list[Json] = []
    for delta in [delta for choice in choices for delta in choice.delta.tool_calls or []]:
        if delta.id:
            assert delta.function
            calls.append(
                {"id": delta.id, "type": "function", "function": {"name": delta.function.name, "arguments": ""}}
            )
        calls[delta.index]["function"]["arguments"] += (delta.function and delta.function.arguments) or ""
    assert choices[-1].finish_reason == ("tool_calls" if calls else "stop")
    return {"role": "assistant", "content": read.text or None, **({"tool_calls": calls} if calls else {})}


def test_ten_calls_in_sequence_are_one_run(gateway: RunningGateway, http: httpx2.Client) -> None:
    mark = unique()
    steps = [call("weather", city=f"city {number}") for number in range(10)]
    caller = Caller(http, f"{mark} {program(*steps, say('$all'))}", [WEATHER])
    answer = caller.converse(lambda name, arguments: arguments["city"].removeprefix("city "))
    assert answer == ", ".join("0123456789")
    assert len(caller.completions) == 11
    assert len({reply["id"] for reply in caller.completions}) == 11  # each reply has an id of its own
    assert len(invocations(gateway, mark)) == 1
    reply = documents_of(http, caller.chat_id)
    assert [document["type"] for document in reply["documents"]] == ["tool_call"] * 10 + ["text"]
    assert reply["metadata"]["toolCallCount"] == 10
    assert "waitingFor" not in reply["metadata"]
    nothing_is_left(gateway, mark)


def test_the_calls_of_one_reply_may_be_quoted_one_after_the_other(http: httpx2.Client) -> None:
    """Each with its result: none of them is made again."""
    prompt = program({"parallel": [call("weather", city="Paris"), call("weather", city="Rome")]}, say("$1 $2"))
    caller = Caller(http, prompt, [WEATHER])
    message = caller.ask()
    for asked in calls_of(caller.messages.pop()):
        caller.messages.append({**message, "tool_calls": [asked]})
        caller.give((asked["id"], json.loads(asked["function"]["arguments"])["city"].lower()))
    assert caller.ask()["content"] == "paris rome"


def test_results_in_parts_twice_and_for_an_unknown_call(gateway: RunningGateway, http: httpx2.Client) -> None:
    mark = unique()
    prompt = f"{mark} {program({'parallel': [call('weather', city='A'), call('weather', city='B')]}, say('$1 $2'))}"
    caller = Caller(http, prompt, [WEATHER])
    first, second = calls_of(caller.ask())
    caller.give((first["id"], "one"))
    rest = caller.ask()  # what is missing is asked for again, under the same id
    assert only_call(rest) == second
    # The first result again, with another value, and one that nobody asked for, change nothing.
    caller.give((first["id"], "another"), ("call_of_nobody", "nothing"), (second["id"], "two"))
    answer = caller.ask()["content"]
    given = {json.loads(one["function"]["arguments"])["city"]: one["id"] for one in (first, second)}
    expected = {first["id"]: "one", second["id"]: "two"}
    assert answer == f"{expected[given['A']]} {expected[given['B']]}"
    assert len(invocations(gateway, mark)) == 1


def test_the_same_request_again_gets_the_same_reply(gateway: RunningGateway, http: httpx2.Client) -> None:
    """A client that lost the reply asks again; the agent is not asked a second time."""
    mark = unique()
    steps = [call("weather", city="A"), call("weather", city="B"), say("$1 $2")]
    caller = Caller(http, f"{mark} {program(*steps)}", [WEATHER])
    caller.give((only_call(caller.ask())["id"], "one"))
    once = caller.ask()
    caller.messages.pop()
    again = caller.ask()
    assert only_call(again) == only_call(once)
    caller.give((only_call(again)["id"], "two"))
    assert caller.ask()["content"] == "one two"
    assert len(invocations(gateway, mark)) == 1


def test_a_result_of_no_run_is_given_to_a_fresh_agent(gateway: RunningGateway, http: httpx2.Client) -> None:
    mark = unique()
    prompt = f"{mark} {program(call('weather', city='A'), call('weather', city='B'), say('$1 $2'))}"
    caller = Caller(http, prompt, [WEATHER])
    asked: Json = {"id": "call_from_elsewhere", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    caller.messages.append({"role": "assistant", "content": None, "tool_calls": [asked]})
    caller.give((asked["id"], "old"))
    message = caller.ask()
    assert json.loads(only_call(message)["function"]["arguments"]) == {"city": "B"}
    caller.give((only_call(message)["id"], "new"))
    assert caller.ask()["content"] == "old new"
    (started,) = invocations(gateway, mark)
    assert "--resume" not in started["argv"]


def test_more_is_said_while_the_run_goes_on(gateway: RunningGateway, http: httpx2.Client) -> None:
    """It cannot be told to an agent that is at work, so another one is told all of it."""
    mark = unique()
    steps = [call("weather", city="A"), {"pause_ms": 600000}, say("It is $1.")]
    caller = Caller(http, f"{mark} {program(*steps)}", [WEATHER])
    asked = only_call(caller.ask())
    caller.give((asked["id"], "sunny"))
    body = {"model": "auto", "messages": caller.messages, "tools": [WEATHER], "stream": True}
    body["cursor"] = {"whenClientLeaves": "finish"}
    with suppress(httpx2.TimeoutException), http.stream("POST", "/v1/chat/completions", json=body, timeout=1) as left:
        left.read()
    caller.messages.append({"role": "user", "content": f"{mark} standin: say size=99\n---\nStopped."})
    assert caller.ask()["content"].startswith("Stopped.")
    for started in invocations(gateway, mark):
        with suppress(ProcessLookupError):
            os.killpg(started["pgid"], 9)


# --- what is given ------------------------------------------------------------------------------------


def test_images_of_a_result_and_of_the_user_reach_the_agent(http: httpx2.Client) -> None:
    listed = program({"list": True}, call("weather", city="A"), say("$1"))
    content = [{"type": "text", "text": listed}, {"type": "image_url", "image_url": {"url": PNG}}]
    caller = Caller(http, "", [WEATHER])
    caller.messages = [{"role": "user", "content": content}]
    message = caller.ask()
    assert "view_conversation_image" in message["content"]
    caller.messages.append(
        {
            "role": "tool",
            "tool_call_id": only_call(message)["id"],
            "content": [{"type": "text", "text": "seen"}, {"type": "image_url", "image_url": {"url": PNG}}],
        }
    )
    answer = caller.ask()["content"]
    assert "seen" in answer
    image = next(
        document
        for document in documents_of(http, caller.chat_id)["documents"]
        if document["type"] == "tool_call" and document["metadata"].get("ranBy") == "caller"
    )
    assert image["metadata"]["result"]["data"] == {"text": "seen", "images": ["image/png"]}


def test_structured_and_failed_results(http: httpx2.Client) -> None:
    prompt = program({"parallel": [call("weather", city="A"), call("weather", city="B")]}, say("$1 | $2"))
    response = http.post("/v1/chat", json={"message": prompt, "tools": [WEATHER["function"]]})
    reply = response.json()
    waiting = {one["arguments"]["city"]: one["toolCallId"] for one in reply["metadata"]["waitingFor"]}
    results = [
        {"toolCallId": waiting["A"], "content": {"sky": ["blue", None]}},
        {"toolCallId": waiting["B"], "content": "no such city", "isError": True},
    ]
    answer = http.post(f"/v1/chat/{reply['id']}/answer", json={"toolResults": results}).json()
    assert answer["status"] == "completed"
    by_type = [(document["type"], document["metadata"].get("state")) for document in answer["documents"]]
    assert ("tool_call", "failed") in by_type
    assert ("error", None) in by_type
    text = next(document["content"] for document in answer["documents"] if document["type"] == "text")
    assert text == '{"sky":["blue",null]} | no such city'


# --- the documents dialect ------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_documents_pause_and_go_on(http: httpx2.Client, stream: bool) -> None:
    prompt = program(say("I look. "), call("weather", city="Paris"), say("It is $1."))
    body = {"message": prompt, "tools": [WEATHER], "stream": stream}  # OpenAI's form of a tool will do
    first = http.post("/v1/chat", json=body)
    id = first.headers["x-chat-id"]
    envelope = _envelope(first, stream)
    (waiting,) = envelope["metadata"]["waitingFor"]
    assert envelope["status"] == "streaming"
    assert (waiting["toolName"], waiting["arguments"]) == ("weather", {"city": "Paris"})
    snapshot = documents_of(http, id)
    assert snapshot["metadata"]["waitingFor"] == [waiting]
    states = [(document["type"], document["metadata"].get("state")) for document in snapshot["documents"]]
    assert states == [("text", None), ("tool_call", "waiting")]
    results = [{"toolCallId": waiting["toolCallId"], "content": "sunny"}]
    second = http.post(f"/v1/chat/{id}/answer", json={"toolResults": results, "stream": stream})
    assert _envelope(second, stream)["status"] == "completed"
    if stream:
        numbers = [int(event.id) for event in sse(first.content) + sse(second.content)]
        assert numbers == list(range(1, len(numbers) + 1))  # the second stream begins where the first had stopped
    whole = documents_of(http, id)
    assert [document["content"] for document in whole["documents"]] == ["I look. ", None, "It is sunny."]
    events = sse(http.get(f"/v1/chat/{id}/events").content)
    assert [event.event for event in events].count("done") == 2  # the pause, and the end
    again = http.post(f"/v1/chat/{id}/answer", json={"toolResults": results})  # and once more: the same answer
    assert again.json() == whole


@pytest.mark.parametrize(("field", "names"), [("follows", "id"), ("conversationId", "conversationId")])
def test_another_message_instead_of_the_result_is_answered(http: httpx2.Client, field: str, names: str) -> None:
    first = http.post("/v1/chat", json={"message": program(call("weather", city="Paris")), "tools": [WEATHER]}).json()
    assert first["status"] == "streaming"
    second = http.post("/v1/chat", json={"message": "hello", field: first[names]})
    assert (second.status_code, second.json()["status"]) == (200, "completed")
    assert documents_of(http, first["id"])["status"] != "streaming"  # nobody waits for the call any more


def _envelope(response: httpx2.Response, stream: bool) -> Json:
    assert response.status_code == 200, response.text
    reply: Json = json.loads(sse(response.content)[-1].data) if stream else response.json()
    return reply


def test_answers_that_nobody_waits_for_are_refused(http: httpx2.Client) -> None:
    prompt = program(call("weather", city="Paris"), say("It is $1."))
    reply = http.post("/v1/chat", json={"message": prompt, "tools": [WEATHER]}).json()
    path = f"/v1/chat/{reply['id']}/answer"
    unknown = http.post(path, json={"toolResults": [{"toolCallId": "call_x", "content": "a"}]})
    assert (unknown.status_code, unknown.json()["error"]["param"]) == (404, "toolResults")
    wrong: list[Json] = [{}, {"toolResults": []}, {"toolResults": [{"content": "a"}]}, {"toolResults": "x"}]
    for body in wrong:
        assert http.post(path, json=body).status_code == 400, body
    assert (
        http.post("/v1/chat/chat_x/answer", json={"toolResults": [{"toolCallId": "a", "content": ""}]}).status_code
        == 404
    )
    http.post(f"/v1/chat/{reply['id']}/cancel", json={})


# --- choices --------------------------------------------------------------------------------------------


def test_none_offers_no_tool_and_gives_back_none_of_the_agents_own(
    gateway: RunningGateway, http: httpx2.Client
) -> None:
    mark = unique()
    file = gateway.workspace / f"{mark}.txt"
    touch = {"native": "shell", "args": {"command": f"touch {file}"}}
    prompt = f"{mark} {program(call('weather', city='A'), touch, say('end'))}"
    caller = Caller(http, prompt, [WEATHER], tool_choice="none")
    assert "no tool weather" in caller.ask()["content"]
    assert caller.reason == "stop"
    assert not file.exists()


def test_a_required_call_is_asked_for_again_once(gateway: RunningGateway, http: httpx2.Client) -> None:
    mark = unique()
    refused = http.post(
        "/v1/chat/completions",
        json={
            "model": "auto",
            "messages": [{"role": "user", "content": f"{mark} standin: say\n---\nNo."}],
            "tools": [WEATHER],
            "tool_choice": "required",
        },
    )
    assert (refused.status_code, refused.json()["error"]["code"]) == (424, "tool_not_called")
    assert len(eventually(lambda: invocations(gateway, ""))) >= 1
    sessions = [one for one in invocations(gateway, "") if one["session"] == invocations(gateway, mark)[0]["session"]]
    assert len(sessions) == 2


def test_a_named_tool_is_the_only_one(gateway: RunningGateway, http: httpx2.Client) -> None:
    mark = unique()
    prompt = f"{mark} {program({'list': True}, call('weather', city='A'), say('$1'))}"
    choice = {"type": "function", "function": {"name": "weather"}}
    caller = Caller(http, prompt, [WEATHER, BASH], tool_choice=choice)
    message = caller.ask()
    assert "bash" not in message["content"]
    assert only_call(message)["function"]["name"] == "weather"
    nothing_is_left(gateway, mark)  # nobody may ever come back: no agent waits for that
    caller.give((only_call(message)["id"], "rain"))
    assert caller.ask(tool_choice="auto")["content"] == "rain"


# --- the agent's own tools --------------------------------------------------------------------------------


def test_nothing_is_executed_on_this_machine(gateway: RunningGateway, http: httpx2.Client) -> None:
    mark = unique()
    kept, made, edited = (gateway.workspace / f"{mark}-{name}" for name in ("kept", "made", "edited"))
    kept.write_text("precious")
    edited.write_text("as it was")
    prompt = program(
        {"native": "shell", "args": {"command": f"touch {made}"}},
        {"native": "edit", "args": {"path": str(edited), "streamContent": "changed"}},
        {"native": "delete", "args": {"path": str(kept)}},
        {"native": "read", "args": {"path": str(edited)}},
        say("$all"),
    )
    caller = Caller(http, f"{mark} {prompt}", [WEATHER])
    answer = caller.ask()["content"]
    assert caller.reason == "stop"
    assert "as it was" not in answer
    assert (kept.read_text(), edited.read_text(), made.exists()) == ("precious", "as it was", False)
    (started,) = invocations(gateway, mark)
    assert not any(flag in started["argv"] for flag in ("--force", "-f", "--yolo"))
    assert Path(started["workspace"]).name == "scratch"
    left = [path for path in Path(started["workspace"]).rglob("*") if path.is_file()]
    assert [path.name for path in left] == ["mcp.json"]


def test_what_the_agent_tried_in_its_scratch_folder_has_relative_paths(
    gateway: RunningGateway, http: httpx2.Client
) -> None:
    mark = unique()
    steps: list[Json] = [
        {"think": "I look here."},
        {"native": "write", "args": {"path": "src/notes.txt", "fileText": "x"}},
    ]
    caller = Caller(http, f"{mark} {program(*steps, say('done'))}", [WEATHER])
    reasoning = caller.ask()["reasoning_content"]
    (started,) = invocations(gateway, mark)
    assert "src/notes.txt" in reasoning
    for shown in (reasoning, http.get(f"/v1/chat/{caller.chat_id}").text):
        assert started["workspace"] not in shown


def test_an_agent_that_ignores_what_is_denied_is_stopped(tmp_path: Path) -> None:
    """So what the stand-in does not do elsewhere is what was denied to it."""
    with own_gateway(tmp_path, knobs={"ignores_deny": "1"}) as (gateway, client):
        made = gateway.workspace / "made"
        prompt = program({"native": "shell", "args": {"command": f"touch {made}"}}, say("done"))
        response = client.post("/v1/chat", json={"message": prompt, "tools": [WEATHER]})
        assert made.exists()
        assert response.json()["error"]["code"] == "agent_unconfined"
        # A command that failed has run, too, and must not be run once more by the caller.
        prompt = program({"native": "shell", "args": {"command": "exit 3"}}, say("done"))
        response = client.post("/v1/chat", json={"message": prompt, "tools": [BASH]})
        assert response.json()["error"]["code"] == "agent_unconfined"


@pytest.mark.parametrize("knobs", [{"version": "2025.09.12-4852336"}, {"version": "2026.07.20-8cc9c0b"}])
@pytest.mark.quick_cases(1)
def test_an_agent_that_cannot_be_confined_is_refused(tmp_path: Path, knobs: Json) -> None:
    with own_gateway(tmp_path, knobs=knobs) as (_, client):
        refused = client.post("/v1/chat", json={"message": "hello", "tools": [WEATHER]})
        assert (refused.status_code, refused.json()["error"]["code"]) == (500, "agent_misconfigured")
        assert "cursor-agent update" in refused.json()["error"]["message"]
        assert client.post("/v1/chat", json={"message": "standin: empty"}).status_code == 200


# --- time -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["cli", "acp"])
@pytest.mark.parametrize("progress", ["1", "0"])
@pytest.mark.quick_cases(1)
def test_a_late_result_arrives(tmp_path: Path, progress: str, source: str) -> None:
    """The agent's client waits some seconds, as the real one a minute; told of progress it goes on waiting, else it
    gives up, and the result goes in by resuming the session."""
    knobs = {"mcp_seconds": "4" if progress == "1" else "1", "mcp_progress": progress}
    settings = {"progress_seconds": "0.2", "source": source}
    with own_gateway(tmp_path, knobs=knobs, settings=settings) as (gateway, client):
        mark = unique()
        caller = Caller(client, f"{mark} {program(call('weather', city='A'), say('It is $1.'))}", [WEATHER])
        asked = only_call(caller.ask())
        if progress == "1":
            time.sleep(5)
            assert source == "acp" or members(invocations(gateway, mark)[0]["pgid"])
        elif source == "acp":
            time.sleep(2.5)
        else:
            group = invocations(gateway, mark)[0]["pgid"]
            eventually(lambda: not members(group))
        reply = documents_of(client, caller.chat_id)
        assert [one["toolCallId"] for one in reply["metadata"]["waitingFor"]] == [asked["id"]]
        caller.give((asked["id"], "sunny at last"))
        assert caller.ask()["content"] == "It is sunny at last."
        if source == "cli":
            nothing_is_left(gateway, mark)


def test_a_caller_that_never_comes_back(tmp_path: Path) -> None:
    with own_gateway(tmp_path, settings={"answer_seconds": "0.5"}) as (gateway, client):
        mark = unique()
        caller = Caller(client, f"{mark} {program(call('weather', city='A'), say('It is $1.'))}", [WEATHER])
        asked = only_call(caller.ask())
        eventually(lambda: documents_of(client, caller.chat_id)["status"] != "streaming")
        ended = documents_of(client, caller.chat_id)
        assert ended["documents"][-1]["metadata"]["errorCode"] == "TOOL_RESULTS_MISSING"
        nothing_is_left(gateway, mark)
        caller.give((asked["id"], "late"))  # a fresh agent is told all of it
        assert caller.ask()["content"] == "It is late."
        assert len(invocations(gateway, mark)) == 2
        late = client.post(
            f"/v1/chat/{ended['id']}/answer", json={"toolResults": [{"toolCallId": asked["id"], "content": "later"}]}
        ).json()
        assert late["conversationId"] == ended["conversationId"]
        assert late["documents"][-1]["content"] == "It is later."
        twice = client.post(
            f"/v1/chat/{ended['id']}/answer", json={"toolResults": [{"toolCallId": asked["id"], "content": "again"}]}
        ).json()
        assert twice == late


def test_cancelled_while_waiting(gateway: RunningGateway, http: httpx2.Client) -> None:
    mark = unique()
    caller = Caller(http, f"{mark} {program(call('weather', city='A'), say('It is $1.'))}", [WEATHER])
    caller.ask()
    cancelled = http.post(f"/v1/chat/{caller.chat_id}/cancel", json={}).json()
    assert cancelled["status"] == "error"
    reply = documents_of(http, caller.chat_id)
    assert [document["metadata"].get("state") for document in reply["documents"]] == ["interrupted", None]
    assert reply["documents"][-1]["metadata"]["errorCode"] == "CANCELLED"
    nothing_is_left(gateway, mark)


def test_a_conversation_takes_its_scratch_folder_with_it(gateway: RunningGateway, http: httpx2.Client) -> None:
    caller = Caller(http, program(call("weather", city="A"), say("It is $1.")), [WEATHER])
    caller.converse(lambda name, arguments: "sunny")
    id = documents_of(http, caller.chat_id)["conversationId"]
    folder = conversation_folder(gateway, id)
    assert (folder / "scratch" / ".cursor" / "mcp.json").exists()
    assert http.delete(f"/v1/conversations/{id}").status_code in (200, 204)
    assert not folder.exists()


@pytest.mark.parametrize("way", ["killed", "stopped"])
@pytest.mark.quick_cases(1)
def test_a_restart_while_waiting(tmp_path: Path, way: str) -> None:
    mark = unique()
    prompt = f"{mark} {program(say('I look. '), call('weather', city='A'), say('It is $1.'))}"
    with own_gateway(tmp_path) as (gateway, client):
        caller = Caller(client, prompt, [WEATHER])
        asked = only_call(caller.ask())
        reply = client.post("/v1/chat", json={"message": prompt, "tools": [WEATHER]}).json()
        (waiting,) = reply["metadata"]["waitingFor"]
        if way == "killed":
            gateway.process.kill()
        else:
            gateway.process.terminate()
        gateway.process.wait(TIMEOUT)
    for folder in (tmp_path / "data" / "conversations").iterdir():
        shutil.rmtree(folder)  # what a run needs is in the history
    with own_gateway(tmp_path) as (gateway, client):
        groups = [started["pgid"] for started in invocations(gateway, mark)]
        eventually(lambda: not any(members(group) for group in groups))
        before = documents_of(client, reply["id"])
        assert before["status"] == "error"
        caller.client = client
        caller.give((asked["id"], "sunny"))
        assert caller.ask()["content"] == "It is sunny."
        results = [{"toolCallId": waiting["toolCallId"], "content": "rainy"}]
        answer = client.post(f"/v1/chat/{reply['id']}/answer", json={"toolResults": results}).json()
        assert answer["documents"][-1]["content"] == "It is rainy."
        assert answer["conversationId"] == reply["conversationId"]
        nothing_is_left(gateway, mark)


def test_an_agent_that_dies_with_the_results(gateway: RunningGateway, http: httpx2.Client) -> None:
    """All of them reach the next one, in the same run. An agent that dies again is not started again."""
    mark = unique()
    calls = {"parallel": [call("weather", city="A"), call("weather", city="B")]}
    caller = Caller(http, f"{mark} {program(calls, {'crash': 3}, say('It is $1 and $2.'))}", [WEATHER])
    asked = caller.ask()["tool_calls"]
    caller.give(*((one["id"], json.loads(one["function"]["arguments"])["city"]) for one in asked))
    assert caller.ask()["content"] == "It is A and B."
    assert agents_of(gateway, mark) == 2
    mark = unique()
    steps = program(call("weather", city="A"), {"crash": 3}, {"crash": 3}, say("It is $1."))
    caller = Caller(http, f"{mark} {steps}", [WEATHER])
    caller.give((only_call(caller.ask())["id"], "sunny"))
    failed = caller.request()
    assert (failed.status_code, failed.headers["x-should-retry"]) == (424, "false")
    assert agents_of(gateway, mark) == 2


def agents_of(gateway: RunningGateway, mark: str) -> int:
    """How many were started in the session that began with this prompt."""
    session = invocations(gateway, mark)[0]["session"]
    return len([started for started in invocations(gateway, "") if started["session"] == session])


def test_abandoned_runs_make_room(tmp_path: Path) -> None:
    with own_gateway(tmp_path, settings={"max_runs": "2"}) as (_, client):
        callers = []
        for number in range(4):
            callers.append(Caller(client, f"{program(call('weather', city=str(number)), say('It is $1.'))}", [WEATHER]))
            callers[-1].ask()
        states = [documents_of(client, caller.chat_id)["status"] for caller in callers]
        assert states == ["error", "error", "streaming", "streaming"]
        for number, caller in enumerate(callers):
            caller.give((only_call(caller.messages[-1])["id"], str(number)))
            assert caller.ask()["content"] == f"It is {number}."


# --- safety ---------------------------------------------------------------------------------------------------


def test_the_users_own_servers_and_rules_are_not_for_callers(tmp_path: Path) -> None:
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".cursor" / "mcp.json").write_text('{"mcpServers": {"mine": {"url": "http://127.0.0.1:9/"}}}')
    rules = {"permissions": {"allow": ["Shell(*)", "Mcp(mine:*)"], "deny": []}, "approvalMode": "unrestricted"}
    (tmp_path / ".cursor" / "cli-config.json").write_text(json.dumps(rules))
    with own_gateway(tmp_path, settings={"force": "true"}) as (gateway, client):
        mark = unique()
        made = gateway.workspace / "made"
        prompt = f"{mark} {program({'native': 'shell', 'args': {'command': f'touch {made}'}}, {'list': True})}"
        caller = Caller(client, prompt, [WEATHER])
        caller.ask()
        assert not made.exists()
        (started,) = invocations(gateway, mark)
        assert "--force" not in started["argv"]
        assert not (Path(started["config_dir"]) / "mcp.json").exists()
