"""Anthropic's Messages API over a socket: messages, streams, tools, retries, and what Claude Code sends beside."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from tests import anthropic_shapes
from tests.failure_table import ROWS, Row
from tests.gateways import RunningGateway
from tests.server.conftest import (
    Json,
    ask,
    at_once,
    eventually,
    invocation,
    invocations,
    option,
    read_reply,
    standin,
    unique,
)
from tests.server.test_caller_tools import CITY, call, own_gateway, program, say
from tests.sources.test_native_requests import ASK

WEATHER: Json = {"name": "weather", "description": "The weather of a city.", "input_schema": CITY}
SEARCH: Json = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
TITLE: Json = {
    "format": {
        "type": "json_schema",
        "schema": {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]},
    }
}
BILLING: Json = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.325; cch=00000;"}


def user(content: Any) -> Json:
    return {"role": "user", "content": content}


def create(http: httpx2.Client, messages: Any, headers: Json | None = None, **fields: Any) -> httpx2.Response:
    messages = [user(messages)] if isinstance(messages, str) else messages
    body = {"model": "auto", "max_tokens": 32_000, "messages": messages, **fields}
    return http.post("/v1/messages", params={"beta": "true"}, json=body, headers=headers)


def read(reply: httpx2.Response) -> anthropic_shapes.Message:
    """Whole or streamed, it must be right."""
    assert reply.status_code == 200, reply.text
    if not reply.headers["content-type"].startswith("text/event-stream"):
        return anthropic_shapes.read_message(reply.content)
    message = anthropic_shapes.fold(anthropic_shapes.events_of(reply.content))
    assert isinstance(message, anthropic_shapes.Message), message
    return message


def created(http: httpx2.Client, messages: Any, headers: Json | None = None, **fields: Any) -> anthropic_shapes.Message:
    return read(create(http, messages, headers, **fields))


def echoed(message: anthropic_shapes.Message) -> Json:
    """As a client sends it back."""
    return {"role": "assistant", "content": json.loads(msgspec.json.encode(message.content))}


def results(message: anthropic_shapes.Message, *texts: str, **more: Any) -> Json:
    uses = [block for block in message.content if isinstance(block, anthropic_shapes.ToolUse)]
    blocks = [
        {"type": "tool_result", "tool_use_id": use.id, "content": text, **more}
        for use, text in zip(uses, texts, strict=True)
    ]
    return user(blocks)


def claude_code(session: str = "", **more: str) -> Json:
    """It says of each of its requests that it is the first try."""
    return {
        "user-agent": "claude-cli/2.1.325 (external, cli)",
        "x-claude-code-session-id": session or unique(),
        "x-stainless-retry-count": "0",
        "anthropic-version": "2023-06-01",
        **more,
    }


# --- messages ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_a_message(http: httpx2.Client, stream: bool) -> None:
    reply = create(http, "hello", stream=stream)
    message = read(reply)
    assert anthropic_shapes.text_of(message) == "You said: hello"
    assert (message.model, message.stop_reason) == ("auto", "end_turn")
    assert message.usage.input_tokens + message.usage.cache_read_input_tokens > 0
    assert reply.headers["request-id"] == reply.headers["x-request-id"]
    assert message.id == reply.headers["x-chat-id"].replace("chat_", "msg_")


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("scenario", ["tools", "thinking", "parallel", "question", "query-flush", "text", "plan"])
def test_the_text_is_that_of_the_other_dialects(http: httpx2.Client, scenario: str, stream: bool) -> None:
    expected = read_reply(ask(http, "openai", standin(scenario)), "openai").text
    for actions in ("text", "native"):
        options: Json = {"thinking": {"type": "adaptive"}, "cursor": {"actions": actions}, "stream": stream}
        assert anthropic_shapes.text_of(created(http, standin(scenario), **options)) == expected


def test_a_name_of_claudes_is_answered_and_repeated(gateway: RunningGateway, http: httpx2.Client) -> None:
    mark = unique()
    assert created(http, mark, model="claude-sonnet-4-5-20250929").model == "claude-sonnet-4-5-20250929"
    assert option(invocation(gateway, mark)["argv"], "--model") == "claude-sonnet-5-thinking-high"


def test_a_conversation_goes_on_in_the_agents_session(gateway: RunningGateway, http: httpx2.Client) -> None:
    """However the client writes what was said before."""
    first, second = unique(), unique()
    system = [BILLING, {"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}]
    environment = {"role": "system", "content": [{"type": "text", "text": "Today is Monday."}]}
    answer = created(http, [user(first), environment], system=system)
    again = [
        user([{"type": "text", "text": first, "cache_control": {"type": "ephemeral"}}]),
        {"role": "system", "content": "Today is Monday."},
        echoed(answer),
        user(second),
    ]
    other = [{"type": "text", "text": f"{BILLING['text']} cch=11111"}, system[1]]
    created(http, again, system=other, stream=True)
    assert option(invocation(gateway, second)["argv"], "--resume") == invocation(gateway, first)["session"]


@pytest.mark.parametrize("actions", ["thinking", "text", "native", "none"])
def test_actions_do_not_hide_the_session(gateway: RunningGateway, http: httpx2.Client, actions: str) -> None:
    first, second = unique(), unique()
    thinking = {"type": "enabled", "budget_tokens": 1024}
    options: Json = {"thinking": thinking, "cursor": {"actions": actions}}
    answer = created(http, f"{first} {standin('tools')}", stream=True, **options)
    assert answer.stop_reason == "end_turn"
    created(http, [user(f"{first} {standin('tools')}"), echoed(answer), user(second)], **options)
    assert option(invocation(gateway, second)["argv"], "--resume") == invocation(gateway, first)["session"]


def test_a_run_can_be_read_again_as_a_message(http: httpx2.Client) -> None:
    reply = create(http, "hello", stream=True)
    again = http.get(f"/v1/chat/{read(reply).id}/events", params={"dialect": "messages"})
    assert anthropic_shapes.text_of(read(again)) == "You said: hello"


# --- beside messages --------------------------------------------------------------------------------


def test_tokens_are_counted_at_once(gateway: RunningGateway, http: httpx2.Client) -> None:
    mark = unique()
    body = {"model": "claude-opus-5-5", "messages": [user(mark)], "tools": [WEATHER, SEARCH]}
    reply = http.post("/v1/messages/count_tokens", params={"beta": "true"}, json=body)
    assert (reply.status_code, list(reply.json())) == (200, ["input_tokens"])
    assert reply.json()["input_tokens"] > 20
    assert not invocations(gateway, mark)


def test_what_claude_code_asks_at_its_start_does_no_harm(http: httpx2.Client) -> None:
    assert http.head("/").status_code == 200
    assert http.head("/api/hello").status_code == 404
    assert http.post("/api/event_logging/batch", json={"events": []}).status_code == 404


# --- tools ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_of_the_callers_in_one_run(gateway: RunningGateway, http: httpx2.Client, stream: bool) -> None:
    mark, then = unique(), unique()
    messages = [user(f"{mark} {program(call('weather', city='A'), say('It is $1.'))}")]
    asked = created(http, messages, tools=[WEATHER], stream=stream)
    (use,) = [block for block in asked.content if isinstance(block, anthropic_shapes.ToolUse)]
    assert (use.name, use.input, asked.stop_reason) == ("weather", {"city": "A"}, "tool_use")
    messages += [echoed(asked), results(asked, "sunny")]
    answer = created(http, messages, tools=[WEATHER], stream=stream)
    assert (anthropic_shapes.text_of(answer), answer.stop_reason) == ("It is sunny.", "end_turn")
    assert answer.id != asked.id
    assert len(invocations(gateway, mark)) == 1
    created(http, [*messages, echoed(answer), user(then)], tools=[WEATHER])
    assert option(invocation(gateway, then)["argv"], "--resume") == invocation(gateway, mark)["session"]


def test_several_tools_at_once_and_reminders_beside_their_results(gateway: RunningGateway, http: httpx2.Client) -> None:
    mark = unique()
    steps = {"parallel": [call("weather", city="A"), call("weather", city="B")]}
    messages = [user(f"{mark} {program(steps, say('They are $1 and $2.'))}")]
    asked = created(http, messages, tools=[WEATHER], stream=True)
    weather = {"A": "sunny", "B": "rainy"}  # the two calls may come in either order
    uses = [block for block in asked.content if isinstance(block, anthropic_shapes.ToolUse)]
    given = results(asked, *(weather[use.input["city"]] for use in uses))
    given["content"].append({"type": "text", "text": "<system-reminder>Be quick.</system-reminder>"})
    answer = created(http, [*messages, echoed(asked), given], tools=[WEATHER], stream=True)
    reminder = "\n\n<system-reminder>Be quick.</system-reminder>"  # beside the last result
    assert reminder in anthropic_shapes.text_of(answer)
    assert anthropic_shapes.text_of(answer).replace(reminder, "").startswith("They are sunny and rainy")
    assert len(invocations(gateway, mark)) == 1


def test_the_agents_question_is_claude_codes(gateway: RunningGateway, http: httpx2.Client) -> None:
    """Its answer goes on with the same run."""
    asking = {"name": ASK.name, "description": "Asks.", "input_schema": ASK.parameters}
    messages, headers = [user(standin("question"))], claude_code()
    reply = create(http, messages, headers, tools=[asking, WEATHER], stream=True)
    asked = read(reply)
    (use,) = [block for block in asked.content if isinstance(block, anthropic_shapes.ToolUse)]
    assert (use.name, asked.stop_reason) == ("AskUserQuestion", "tool_use")
    assert use.input["questions"][0]["question"] == "Which file is meant?"
    messages += [echoed(asked), results(asked, "User has answered: notes.txt")]
    answer = create(http, messages, headers, tools=[asking, WEATHER], stream=True)
    assert answer.headers["x-chat-id"] == reply.headers["x-chat-id"]
    assert "notes.txt" in anthropic_shapes.text_of(read(answer))


# --- retries ----------------------------------------------------------------------------------------


def test_claude_codes_retries_and_its_fallback_join_the_run(gateway: RunningGateway, http: httpx2.Client) -> None:
    mark, headers = unique(), claude_code()
    fields: Json = {"tools": [WEATHER], "headers": headers}
    prompt = f"{mark} hello"
    replies = at_once({way: partial(create, http, prompt, stream=way, **fields) for way in (True, False)})
    late = create(http, prompt, stream=True, **fields)
    assert len({read(reply).id for reply in (*replies.values(), late)}) == 1
    assert len(invocations(gateway, mark)) == 1
    assert read(create(http, prompt, tools=[WEATHER], headers=claude_code())).id != read(late).id


def test_a_rewind_gets_a_new_answer(gateway: RunningGateway, http: httpx2.Client) -> None:
    """The client has gone on since, so it has got the answer to what it asks again; a retry of that joins it."""
    mark, headers = unique(), claude_code()
    first = [user(f"{mark} hello")]
    answer = created(http, first, headers, tools=[WEATHER])
    assert created(http, first, headers, tools=[WEATHER]).id == answer.id
    created(http, [*first, echoed(answer), user("More.")], headers, tools=[WEATHER])
    again = created(http, first, headers, tools=[WEATHER])
    assert again.id != answer.id
    assert created(http, first, headers, tools=[WEATHER], stream=True).id == again.id
    assert len(invocations(gateway, f"{mark} hello")) == 2


def test_a_rewind_to_before_a_tool_call_gets_a_new_answer(gateway: RunningGateway, http: httpx2.Client) -> None:
    mark, headers = unique(), claude_code()
    first = [user(f"{mark} {program(call('weather', city='A'), say('It is $1.'))}")]
    asked = created(http, first, headers, tools=[WEATHER])
    assert created(http, first, headers, tools=[WEATHER]).id == asked.id
    second = [*first, echoed(asked), results(asked, "sunny")]
    answer = created(http, second, headers, tools=[WEATHER])
    assert created(http, second, headers, tools=[WEATHER]).id == answer.id
    assert created(http, first, headers, tools=[WEATHER]).id != asked.id
    assert len(invocations(gateway, mark)) == 2


@contextmanager
def killed_gateway(home: Path) -> Iterator[httpx2.Client]:
    """On leaving, it is killed."""
    with own_gateway(home) as (gateway, http):
        yield http
        gateway.process.kill()


def test_another_agent_continues_when_the_gateway_was_killed(tmp_path: Path) -> None:
    """The first could do nothing but call the client's tools, and their results are in the request."""
    mark, headers = unique(), claude_code()
    steps = [call("weather", city="A"), say("Weather: "), {"pause_ms": 3_000}, say("$1.")]
    messages = [user(f"{mark} {program(*steps)}")]
    with killed_gateway(tmp_path) as http:
        asked = created(http, messages, headers, tools=[WEATHER])
        messages += [echoed(asked), results(asked, "sunny")]
        body = {"model": "auto", "max_tokens": 32_000, "messages": messages, "tools": [WEATHER], "stream": True}
        with http.stream("POST", "/v1/messages", json=body, headers=headers) as reply:
            assert any("Weather" in text for text in accumulate(reply.iter_text()))
    with own_gateway(tmp_path) as (gateway, http):
        answers = [created(http, messages, headers, tools=[WEATHER], stream=stream) for stream in (True, False)]
        assert len(invocations(gateway, mark)) == 2
    assert [anthropic_shapes.text_of(answer) for answer in answers] == ["Weather: sunny."] * 2
    assert answers[0].id == answers[1].id


def test_an_agent_with_its_own_tools_is_not_started_again_when_the_gateway_was_killed(tmp_path: Path) -> None:
    """What it had begun may be done already."""
    mark, retry = unique(), {"x-stainless-retry-count": "1"}
    prompt = f"{mark} {program(say('Weather: '), {'pause_ms': 60_000})}"
    with killed_gateway(tmp_path) as http:
        body = {"model": "auto", "max_tokens": 32_000, "messages": [user(prompt)], "stream": True}
        with http.stream("POST", "/v1/messages", json=body, headers=retry) as reply:
            assert any("Weather" in text for text in accumulate(reply.iter_text()))
    with own_gateway(tmp_path) as (gateway, http):
        again = create(http, prompt, retry)
        assert "The gateway was killed during this run" in again.text
        assert len(invocations(gateway, mark)) == 1


def test_calls_that_were_made_are_made_again_when_the_gateway_was_killed(tmp_path: Path) -> None:
    """With the same ids, and by no other agent; another one gets the results."""
    mark, headers = unique(), claude_code()
    steps = [call("weather", city="A"), call("weather", city="B"), say("It is $1 and $2.")]
    messages = [user(f"{mark} {program(*steps)}")]
    with killed_gateway(tmp_path) as http:
        first = created(http, messages, headers, tools=[WEATHER])
        messages += [echoed(first), results(first, "sunny")]
        second = created(http, messages, headers, tools=[WEATHER])
    with own_gateway(tmp_path) as (gateway, http):
        assert created(http, messages, headers, tools=[WEATHER]) == second
        assert len(invocations(gateway, mark)) == 1
        assert created(http, messages[:1], headers, tools=[WEATHER]).id != first.id  # a rewind: its result had come
        answer = created(http, [*messages, echoed(second), results(second, "rainy")], headers, tools=[WEATHER])
        assert anthropic_shapes.text_of(answer) == "It is sunny and rainy."


# --- Claude Code ------------------------------------------------------------------------------------


def mode_of(gateway: RunningGateway, mark: str) -> str | None:
    return option(invocation(gateway, mark)["argv"], "--mode")


def test_what_it_asks_beside_a_turn_runs_apart_and_writes_nothing(gateway: RunningGateway, http: httpx2.Client) -> None:
    headers, main, title, search = claude_code(), unique(), unique(), unique()
    replies = at_once(
        {
            "main": lambda: create(http, main, headers, tools=[WEATHER], stream=True),
            "title": lambda: create(
                http, f"{title} {standin('say', json.dumps({'title': 'A'}))}", headers, output_config=TITLE, stream=True
            ),
            "search": lambda: create(
                http, f"Perform a web search for the query: {search}", headers, tools=[SEARCH], stream=True
            ),
        }
    )
    assert json.loads(anthropic_shapes.text_of(read(replies["title"]))) == {"title": "A"}
    assert (mode_of(gateway, main), mode_of(gateway, title), mode_of(gateway, search)) == (None, "ask", "ask")
    assert len({reply.headers["x-conversation-id"] for reply in replies.values()}) == 3


def test_a_search_has_what_the_agent_found(tmp_path: Path) -> None:
    with own_gateway(tmp_path, settings={"force": "true"}) as (_, http):
        message = created(http, standin("websearch"), claude_code(), tools=[SEARCH], stream=True)
    _, use, found, _ = message.content
    assert isinstance(use, anthropic_shapes.ServerToolUse)
    assert isinstance(found, anthropic_shapes.SearchResult)
    assert (use.name, use.input, found.tool_use_id) == ("web_search", {"query": "standin"}, use.id)
    assert isinstance(found.content, list)
    assert [(hit.title, hit.url) for hit in found.content] == [("A page", "https://example.com")]
    assert anthropic_shapes.text_of(message) == "Searching the web.There is one page."


def test_a_summary_leaves_the_run_that_waits_alone(gateway: RunningGateway, http: httpx2.Client) -> None:
    headers, mark, summary = claude_code(), unique(), unique()
    messages = [user(f"{mark} {program(call('weather', city='A'), say('It is $1.'))}")]
    asked = created(http, messages, headers, tools=[WEATHER], stream=True)
    messages += [echoed(asked), results(asked, "sunny")]
    compaction = f"CRITICAL: Respond with TEXT ONLY. {summary}"
    summed = create(http, [*messages, user(compaction)], headers, tools=[WEATHER], stream=True)
    assert read(summed).stop_reason == "end_turn"
    assert mode_of(gateway, summary) == "ask"
    answer = created(http, messages, headers, tools=[WEATHER], stream=True)
    assert anthropic_shapes.text_of(answer) == "It is sunny."
    assert [option(run["argv"], "--mode") for run in invocations(gateway, mark)] == [None, "ask"]


def test_a_subagent_has_a_conversation_of_its_own(gateway: RunningGateway, http: httpx2.Client) -> None:
    mark, session = unique(), unique()
    agents = [claude_code(session), claude_code(session, **{"x-claude-code-agent-id": "a1"})]
    ids = {create(http, mark, headers, tools=[WEATHER]).headers["x-conversation-id"] for headers in agents}
    assert len(ids) == 2


def test_its_folder_is_used_if_it_is_allowed(gateway: RunningGateway, http: httpx2.Client) -> None:
    (gateway.workspace / "app").mkdir(exist_ok=True)
    places = {str(gateway.workspace / "app"): gateway.workspace / "app", "/etc": gateway.workspace}
    for named, expected in places.items():
        mark = unique()
        environment = {"role": "system", "content": f"# Environment\n - Primary working directory: {named}\n"}
        created(http, [user(mark), environment], claude_code())
        assert invocation(gateway, mark)["cwd"] == str(expected)


# --- failures ---------------------------------------------------------------------------------------

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    424: "api_error",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def error_of(reply: httpx2.Response) -> anthropic_shapes.Error:
    if reply.headers["content-type"].startswith("text/event-stream"):
        error = anthropic_shapes.fold(anthropic_shapes.events_of(reply.content))
        assert isinstance(error, anthropic_shapes.Error)
        return error
    return msgspec.json.decode(reply.content, type=anthropic_shapes.Error)


@pytest.mark.quick_cases(19)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("row", ROWS, ids=[row.prompt for row in ROWS])
def test_failures_have_anthropics_form(gateway: RunningGateway, http: httpx2.Client, row: Row, stream: bool) -> None:
    """And a client that retries nevertheless gets the same failure."""
    mark, headers = unique(), claude_code()
    body = f"{mark} {standin(row.prompt)}"
    reply = create(http, body, headers, tools=[WEATHER], stream=stream)
    error, request_id = error_of(reply).error, error_of(reply).request_id
    assert row.advice in error.message
    assert request_id == (msgspec.UNSET if reply.status_code in (402, 424) else reply.headers["request-id"])
    if reply.status_code == 200:
        assert error.type == ("rate_limit_error" if row.status == 429 else "invalid_request_error")
    else:
        assert (reply.status_code, error.type) == (row.client_status, TYPES[row.client_status])
        assert reply.headers["x-should-retry"] == "false"
        assert "retry-after" not in reply.headers
    again = error_of(create(http, body, headers, tools=[WEATHER], stream=stream)).error
    assert (again.type, again.message.startswith(error.message)) == (error.type, True)
    assert len(eventually(lambda: invocations(gateway, mark))) == 1
