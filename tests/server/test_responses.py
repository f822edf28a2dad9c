"""OpenAI's Responses API over a socket: creating, streaming, looking up, continuing, tools, retries."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from openai import OpenAI

from tests.gateways import RunningGateway
from tests.responses_shapes import (
    Compaction,
    Failed,
    FunctionCall,
    McpCall,
    Message,
    Reasoning,
    Response,
    read_events,
    read_response,
    read_stream,
    text_of,
)
from tests.server.conftest import Json, invocations, standin, unique
from tests.server.test_caller_tools import CITY, call, own_gateway, program, say

CODEX = {"originator": "codex_cli_rs"}
TOOLS: list[Json] = [
    {"type": "function", "name": "weather", "parameters": CITY},
    {
        "type": "custom",
        "name": "apply_patch",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"},
    },
    {
        "type": "namespace",
        "name": "notes",
        "description": "The user's notes.",
        "tools": [{"type": "function", "name": "find", "parameters": CITY}, {"type": "custom", "name": "add"}],
    },
    {"type": "web_search"},
    {"type": "tool_search", "execution": "client"},
    {"type": "something_new"},
]


def create(client: httpx2.Client, input: Any, headers: Json | None = None, **fields: Any) -> httpx2.Response:
    return client.post("/v1/responses", json={"model": "auto", "input": input, **fields}, headers=headers)


def created(client: httpx2.Client, input: Any, headers: Json | None = None, **fields: Any) -> Response:
    """Whole or streamed, it must be right."""
    reply = create(client, input, headers, **fields)
    assert reply.status_code == 200, reply.text
    return read_stream(reply.content) if fields.get("stream") else read_response(reply.content)


def error(reply: httpx2.Response) -> tuple[int, str, str | None]:
    result = reply.json()["error"]
    return reply.status_code, result["code"], result["param"]


# --- creating and looking up ------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_a_response(http: httpx2.Client, stream: bool) -> None:
    response = created(http, "hello", stream=stream, metadata={"a": "b"}, temperature=0.5)
    assert text_of(response) == "You said: hello"
    assert (response.status, response.model, response.metadata) == ("completed", "auto", {"a": "b"})
    assert response.temperature == 0.5
    assert response.usage is not None
    assert response.id.startswith("resp_")


def test_openais_own_client_reads_it(openai: OpenAI) -> None:
    response = openai.responses.create(model="auto", input="hello")
    assert response.output_text == "You said: hello"
    with openai.responses.stream(model="auto", input=standin("tools")) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert [event.type for event in events][:2] == ["response.created", "response.in_progress"]
    assert final.output_text.startswith("I'll look around first.")
    assert {item.type for item in final.output} == {"message", "mcp_call"}
    assert openai.responses.retrieve(final.id).output_text == final.output_text


def test_what_the_agent_does_is_shown_and_cannot_be_run_again(http: httpx2.Client) -> None:
    response = created(http, standin("tools"), stream=True)
    actions = [item for item in response.output if isinstance(item, McpCall)]
    assert {action.server_label for action in actions} == {"cursor"}
    names = [action.name for action in actions]
    assert "run_terminal_cmd" in names
    edit = actions[names.index("edit_file")]
    assert edit.output is not None
    assert edit.output.startswith("--- ")
    failed = [action for action in actions if action.status == "failed"]
    assert [action.error is not None for action in failed] == [True] * len(failed)
    assert {type(item) for item in response.output} == {Message, McpCall}


def test_codex_gets_comments_instead(http: httpx2.Client) -> None:
    response = created(http, standin("tools"), CODEX, stream=True, store=False)
    comments = [item.content[0].text for item in response.output if isinstance(item, Message) and item.phase]
    assert "Ran `pytest -q` (exit status 0)" in comments
    assert any(
        isinstance(item, Reasoning) and "**Running `pytest -q`**" in item.summary[0].text for item in response.output
    )
    assert {type(item) for item in response.output} == {Message, Reasoning}
    assert text_of(response).startswith("I'll look around first.")


def test_an_answer_is_looked_up(http: httpx2.Client) -> None:
    first = create(http, "hello")
    id = first.json()["id"]
    again = http.get(f"/v1/responses/{id}")
    assert again.json() == first.json()
    stream = http.get(f"/v1/responses/{id}", params={"stream": "true"})
    assert read_stream(stream.content) == read_response(first.content)
    rest = http.get(f"/v1/responses/{id}", params={"stream": "true", "starting_after": "3"})
    assert stream.content.endswith(rest.content)
    assert read_events(rest.content)[0].sequence_number == 4
    replay = http.get(f"/v1/chat/{first.headers['x-chat-id']}/events", params={"dialect": "responses"})
    assert text_of(read_stream(replay.content)) == "You said: hello"


def test_what_is_not_stored_is_not_found(http: httpx2.Client) -> None:
    not_stored = create(http, "hello", store=False).json()["id"]
    deleted = create(http, "hello").json()["id"]
    create(http, "hello", previous_response_id=deleted)  # so that its conversation stays
    assert http.delete(f"/v1/responses/{deleted}").status_code == 200
    for id in (not_stored, deleted, "resp_nothing"):
        for path in ("", "?stream=true", "/input_items"):
            assert error(http.get(f"/v1/responses/{id}{path}"))[:2] == (404, "not_found")
        assert error(http.post(f"/v1/responses/{id}/cancel"))[:2] == (404, "not_found")
        assert error(http.delete(f"/v1/responses/{id}"))[:2] == (404, "not_found")


def test_what_is_not_stored_cannot_be_continued(http: httpx2.Client) -> None:
    first = create(http, program(call("weather", city="Rome"), say("It is $1.")), tools=TOOLS, store=False).json()
    given = {"type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": "hot"}
    unknown = (400, "previous_response_not_found", "previous_response_id")
    assert error(create(http, "hello", previous_response_id=first["id"])) == unknown
    assert error(create(http, [given], tools=TOOLS, previous_response_id=first["id"])) == unknown
    assert http.delete(f"/v1/responses/{first['id']}").status_code == 404
    assert error(create(http, "hello", previous_response_id=first["id"])) == unknown


def test_input_items(http: httpx2.Client) -> None:
    items = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "hello"}]
    id = create(http, items).json()["id"]
    listed = http.get(f"/v1/responses/{id}/input_items").json()
    assert [item["role"] for item in listed["data"]] == ["user", "developer"]
    assert listed["data"][0]["content"] == [{"type": "input_text", "text": "hello"}]
    page = http.get(f"/v1/responses/{id}/input_items", params={"limit": 1, "order": "asc"}).json()
    assert (page["has_more"], page["data"][0]["role"]) == (True, "developer")
    rest = http.get(f"/v1/responses/{id}/input_items", params={"order": "asc", "after": page["last_id"]}).json()
    assert (rest["has_more"], [item["role"] for item in rest["data"]]) == (False, ["user"])


@pytest.mark.parametrize("sent", [{"json": {}}, {}, {"content": b""}], ids=["JSON", "no body", "an empty body"])
def test_in_the_background_and_cancelled(http: httpx2.Client, sent: dict[str, Any]) -> None:
    reply = create(http, standin("hang-after-init"), background=True)
    response = read_response(reply.content)
    assert response.status in ("queued", "in_progress")
    cancelled = read_response(http.post(f"/v1/responses/{response.id}/cancel", **sent).content)
    assert cancelled.status == "cancelled"
    assert read_response(http.get(f"/v1/responses/{response.id}").content).status == "cancelled"


# --- going on ---------------------------------------------------------------------------------------


def test_a_response_is_continued_by_its_id(gateway: RunningGateway, http: httpx2.Client) -> None:
    mark = unique()
    first = created(http, f"{mark} one", instructions="Be brief.")
    second = created(http, f"{mark} two", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    one, two = invocations(gateway, mark)
    assert "--resume" in json.dumps(two["argv"])
    assert "Be brief." in one["prompt"]
    assert "Be brief." not in two["prompt"]


def test_responses_outlive_the_gateway(tmp_path: Path) -> None:
    mark = unique()
    headers = {**CODEX, "session-id": mark}
    with own_gateway(tmp_path) as (_, http):
        kept = create(http, standin("tools")).json()
        stream = create(http, mark, headers, stream=True, store=False)
    with own_gateway(tmp_path) as (gateway, http):
        assert http.get(f"/v1/responses/{kept['id']}").json() == kept
        assert create(http, mark, headers, stream=True, store=False).content == stream.content
        assert len(invocations(gateway, mark)) == 1


def test_an_unknown_conversation_is_named_as_this_api_calls_it(http: httpx2.Client) -> None:
    assert error(create(http, "hello", conversation="conv_1")) == (404, "not_found", "conversation")


def referring(output: list[Json], whole_calls: bool) -> list[Json]:
    """As the AI SDK sends answers back: from version 7 on, the calls of its own tools are whole."""
    calls = ("function_call", "custom_tool_call") if whole_calls else ()
    whole = [{name: value for name, value in item.items() if name != "id"} for item in output]
    return [
        item if item["type"] in calls else {"type": "item_reference", "id": given["id"]}
        for item, given in zip(whole, output, strict=True)
    ]


@pytest.mark.parametrize("whole_calls", [True, False])
@pytest.mark.parametrize("said", ["I look. ", ""])
def test_answers_that_a_client_only_refers_to_are_known(
    gateway: RunningGateway, http: httpx2.Client, whole_calls: bool, said: str
) -> None:
    mark = unique()
    steps = [*([say(said)] if said else []), call("weather", city="Paris"), call("weather", city="Rome")]
    items: list[Json] = [{"role": "user", "content": f"{mark} {program(*steps, say('It is $1 and $2.'))}"}]
    for weather in ("sunny", "cold"):
        reply = create(http, items, tools=TOOLS)
        assert reply.status_code == 200, reply.text
        first = reply.json()["output"]
        given = {"type": "function_call_output", "call_id": first[-1]["call_id"], "output": weather}
        items += [*referring(first, whole_calls), given]
    second = create(http, items, tools=TOOLS).json()["output"]
    assert second[-1]["content"][0]["text"] == "It is sunny and cold."
    assert len(invocations(gateway, mark)) == 1
    items += [*referring(second, whole_calls), {"role": "user", "content": f"{mark} again"}]
    created(http, items, tools=TOOLS)
    _, again = invocations(gateway, mark)
    assert "--resume" in json.dumps(again["argv"])


def test_an_answer_that_is_referred_to_and_unknown_is_left_out(gateway: RunningGateway, http: httpx2.Client) -> None:
    mark = unique()
    unknown = {"type": "item_reference", "id": f"msg_{'0' * 32}_0_0"}
    created(http, [{"role": "user", "content": "First"}, unknown, {"role": "user", "content": mark}])
    (started,) = invocations(gateway, mark)
    assert "First" in started["prompt"]


# --- tools ------------------------------------------------------------------------------------------


class Looping:
    """A client that runs its tools itself, and sends all items back."""

    def __init__(self, http: httpx2.Client, prompt: str, headers: Json | None = None, **fields: Any) -> None:
        self.http, self.headers, self.fields = http, headers, {"tools": TOOLS, **fields}
        self.items: list[Json] = [{"type": "message", "role": "user", "content": prompt}]

    def ask(self) -> list[Json]:
        """The items of one reply."""
        response = created(self.http, self.items, self.headers, stream=True, **self.fields)
        output: list[Json] = json.loads(json.dumps(_plain(response.output)))
        self.items += output
        return output

    def give(self, kind: str, call_id: str, output: Any) -> None:
        self.items.append({"type": f"{kind}_output", "call_id": call_id, "output": output})


def _plain(output: object) -> Any:
    return msgspec.to_builtins(output)


FORMS = [
    ("weather", {"city": "Paris"}, "function_call", {"name": "weather", "arguments": '{"city":"Paris"}'}),
    ("apply_patch", {"input": "*** Begin"}, "custom_tool_call", {"name": "apply_patch", "input": "*** Begin"}),
    (
        "notes__find",
        {"city": "Paris"},
        "function_call",
        {"name": "find", "namespace": "notes", "arguments": '{"city":"Paris"}'},
    ),
    ("notes__add", {"input": "x"}, "custom_tool_call", {"name": "add", "namespace": "notes", "input": "x"}),
]


def test_a_result_for_a_run_that_another_message_ended_starts_one_agent_however_often_it_comes(
    gateway: RunningGateway, http: httpx2.Client
) -> None:
    """Nobody waits for it any more, so the conversation up to it is a question of its own, which is asked once."""
    mark = unique()
    first = created(http, program(call("weather", city="Paris"), say(f"It is $1. {mark}")), tools=TOOLS)
    created(http, f"hello {mark}", previous_response_id=first.id)
    before = len(invocations(gateway, mark))
    result = {"type": "function_call_output", "call_id": _plain(first.output)[-1]["call_id"], "output": "sunny"}

    def give(_: int) -> httpx2.Response:
        return create(http, [result], previous_response_id=first.id, tools=TOOLS)

    with ThreadPoolExecutor() as pool:
        replies = [*pool.map(give, range(3)), give(3)]
    assert [reply.status_code for reply in replies] == [200] * 4
    assert len(invocations(gateway, mark)) - before == 1


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(("flat", "arguments", "type", "expected"), FORMS)
@pytest.mark.parametrize("headers", [None, CODEX])
def test_each_tool_is_called_in_the_form_in_which_it_was_declared(
    gateway: RunningGateway,
    http: httpx2.Client,
    flat: str,
    arguments: Json,
    type: str,
    expected: Json,
    headers: Json | None,
) -> None:
    mark = unique()
    prompt = f"{mark} {program(say('I look. '), call(flat, **arguments), say('It is $1.'))}"
    client = Looping(http, prompt, headers)
    message, called = client.ask()
    assert message["content"][0]["text"] == "I look. "
    assert called["type"] == type
    assert called | expected == called
    client.give(type, called["call_id"], "sunny")
    (answer,) = client.ask()
    assert answer["content"][0]["text"] == "It is sunny."
    assert len(invocations(gateway, mark)) == 1


def test_the_result_may_come_with_the_id_of_the_response_alone(gateway: RunningGateway, http: httpx2.Client) -> None:
    mark = unique()
    first = created(http, f"{mark} {program(call('weather', city='Rome'), say('It is $1.'))}", tools=TOOLS)
    (asked,) = first.output
    assert isinstance(asked, FunctionCall)
    given = {
        "type": "function_call_output",
        "call_id": asked.call_id,
        "output": [{"type": "input_text", "text": "hot"}],
    }
    second = created(http, [given], tools=TOOLS, previous_response_id=first.id)
    assert text_of(second) == "It is hot."
    assert first.id != second.id
    assert len(invocations(gateway, mark)) == 1
    assert read_response(http.get(f"/v1/responses/{first.id}").content) == first
    assert read_response(http.get(f"/v1/responses/{second.id}").content) == second


# --- retries ----------------------------------------------------------------------------------------


def test_codex_that_retries_gets_the_same_run_and_only_what_it_lacks(
    gateway: RunningGateway, http: httpx2.Client
) -> None:
    mark = unique()
    headers = {**CODEX, "session-id": mark}
    items: list[Json] = [{"type": "message", "role": "user", "content": f"{mark} {standin('tools')}"}]
    reply = create(http, items, headers, stream=True, store=False)
    first = read_stream(reply.content)
    known = _plain(first.output[:3])
    again = create(http, items + known, headers, stream=True, store=False)
    assert again.headers["x-chat-id"] == reply.headers["x-chat-id"]
    done = [event.item.id for event in read_events(again.content) if type(event).__name__ == "ItemDone"]  # type: ignore[union-attr] # which has an item
    assert done == [item.id for item in first.output[3:]]
    assert len(invocations(gateway, mark)) == 1


def test_codex_that_was_cut_off_joins_the_run_that_goes_on(
    gateway: RunningGateway, http: httpx2.Client, tmp_path: Path
) -> None:
    mark, file = unique(), tmp_path / "go"
    headers = {**CODEX, "session-id": mark}
    body = {"model": "auto", "input": f"{mark} {standin(f'wait-for file={file}')}", "stream": True, "store": False}
    with http.stream("POST", "/v1/responses", json=body, headers=headers) as reply:
        pieces = reply.iter_raw()
        seen = b""
        while b"output_text.delta" not in seen:
            seen += next(pieces)
    with http.stream("POST", "/v1/responses", json=body, headers=headers) as again:
        file.touch()
        whole = again.read()
    assert whole.startswith(seen)
    assert text_of(read_stream(whole)).endswith("It is there.")
    assert len(invocations(gateway, mark)) == 1


def test_an_sdk_that_retries_gets_the_same_run_but_asking_twice_gives_two(
    gateway: RunningGateway, http: httpx2.Client
) -> None:
    mark = unique()
    ids = [create(http, mark, {"x-stainless-retry-count": count}).json()["id"] for count in ("0", "1", "0")]
    assert ids[0] == ids[1] != ids[2]
    assert len(invocations(gateway, mark)) == 2


# --- failures ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_a_failure_is_a_status_for_most(http: httpx2.Client, stream: bool) -> None:
    reply = create(http, standin("fail-auth"), stream=stream)
    assert error(reply)[:2] == (401, "agent_unauthenticated")


def test_codex_is_told_in_the_stream_what_is_refused(http: httpx2.Client) -> None:
    """It would retry most statuses. It knows one code, and sends the whole conversation then."""
    *_, last = read_events(create(http, "hello", CODEX, stream=True, cursor={"workspace": "/nowhere"}).content)
    assert isinstance(last, Failed)
    assert last.response.error is not None
    assert last.response.error.code == "invalid_prompt"
    assert "workspace_roots" in last.response.error.message
    unknown = create(http, "hello", CODEX, stream=True, previous_response_id="resp_none")
    assert error(unknown) == (400, "previous_response_not_found", "previous_response_id")


def test_codex_asks_once_also_when_the_failure_is_known_before(tmp_path: Path) -> None:
    mark = unique()
    with own_gateway(tmp_path, settings={"account_error_seconds": "60"}) as (gateway, http):
        for _ in range(2):
            *_, last = read_events(create(http, f"{mark} {standin('fail-auth')}", CODEX, stream=True).content)
            assert isinstance(last, Failed)
            assert last.response.error is not None
            assert last.response.error.code == "invalid_prompt"
        assert len(invocations(gateway, mark)) == 1
        assert create(http, "hello", stream=True).status_code == 401


def test_a_websocket_is_refused_with_the_status_that_codex_knows(http: httpx2.Client) -> None:
    headers = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-version": "13", "sec-websocket-key": "x"}
    assert http.get("/v1/responses", headers=headers).status_code == 426
    assert error(http.get("/v1/responses"))[:2] == (426, "websocket_not_supported")


# --- other forms ------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_must_be_json(http: httpx2.Client, stream: bool) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    format = {"type": "json_schema", "name": "answer", "schema": schema, "strict": True}
    prompt = standin("say", 'Here:\n```json\n{"a": 1}\n```\n')
    response = created(http, prompt, stream=stream, text={"format": format})
    assert text_of(response) == '{"a": 1}'
    assert read_response(http.get(f"/v1/responses/{response.id}").content) == response
    unfit = create(http, standin("say", "No."), stream=stream, text={"format": format})
    assert error(unfit) == (424, "answer_unfit", "text.format")


def test_codex_asks_once_for_an_answer_that_is_never_json(gateway: RunningGateway, http: httpx2.Client) -> None:
    """Its titles must be JSON. A retry would start two more agents: one that answers, one that answers again."""
    mark, headers = unique(), {**CODEX, "session-id": unique()}
    format = {"type": "json_schema", "name": "title", "schema": {"type": "object", "required": ["title"]}}
    for _ in range(2):
        reply = create(
            http, f"{mark} {standin('say', 'No.')}", headers, stream=True, store=False, text={"format": format}
        )
        assert reply.status_code == 200
        *_, last = read_events(reply.content)
        assert isinstance(last, Failed)
        assert last.response.error is not None
        assert last.response.error.code == "invalid_prompt"
        assert "does not match the requested format" in last.response.error.message
    asked = [agent for agent in invocations(gateway, mark) if "--resume" not in agent["argv"]]
    assert len(asked) == 1


def test_a_compacted_conversation_is_known_when_it_comes_back(gateway: RunningGateway, http: httpx2.Client) -> None:
    mark, secret = unique(), unique()
    items = [{"role": "user", "content": secret}, {"role": "assistant", "content": "I see."}]
    packed = http.post("/v1/responses/compact", json={"model": "auto", "input": items}).json()
    assert packed["object"] == "response.compaction"
    created(http, [*packed["output"], {"role": "user", "content": mark}])
    assert secret in invocations(gateway, mark)[0]["prompt"]
    assert error(http.post("/v1/responses/compact", json={"input": items})) == (400, "invalid_request", "model")


def test_codex_compacts_with_one_item(gateway: RunningGateway, http: httpx2.Client) -> None:
    mark = unique()
    items = [{"role": "user", "content": f"{mark} {standin('tools')}"}, {"type": "compaction_trigger"}]
    response = created(http, items, CODEX, stream=True, store=False, tools=TOOLS)
    (item,) = response.output
    assert isinstance(item, Compaction)
    assert "ask" in invocations(gateway, mark)[0]["argv"]
    later = unique()
    created(http, [_plain(item), {"role": "user", "content": later}])
    assert "I'll look around first." in invocations(gateway, later)[0]["prompt"]


def test_a_run_that_waits_for_results_does_not_take_those_of_a_compaction(
    gateway: RunningGateway, http: httpx2.Client
) -> None:
    mark = unique()
    client = Looping(http, f"{mark} {program(call('weather', city='Rome'), say('It is $1.'))}", CODEX)
    (called,) = client.ask()
    client.give("function_call", called["call_id"], "hot")
    (item,) = created(http, [*client.items, {"type": "compaction_trigger"}], CODEX, stream=True, tools=TOOLS).output
    assert isinstance(item, Compaction)
    summarising = invocations(gateway, mark)[1]
    assert "ask" in summarising["argv"]
    assert "--resume" not in summarising["argv"]
    (answer,) = client.ask()
    assert answer["content"][0]["text"] == "It is hot."
    assert len(invocations(gateway, mark)) == 2
