"""OpenAI's own client against the gateway, over a socket: what it can do works, and failures are its errors."""

from pathlib import Path
from typing import Any

import httpx2
import openai as sdk
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam

from tests.gateways import running_gateway
from tests.openai_shapes import validate_completion, validate_stream
from tests.server.conftest import (
    WAYS,
    Dialect,
    ask,
    http_client,
    invocations,
    openai_client,
    question,
    read_reply,
    standin,
    unique,
)

AGENTS_WORK = [
    "Used read_file: {root}/notes.txt",
    "Used grep: price",
    "Used glob_file_search: **/*.py",
    "Used list_dir: {root}",
    "Edited {root}/src/price.py",
    "Created {root}/src/tax.py, 1 line",
    "Deleted {root}/old.txt",
    "Ran `pytest -q` (exit status 0)",
    "Ran `ruff check` (failed: The command exited with status 1.)",
    "Updated the to-dos (1 completed, 1 in progress)",
    "Used get_issue",
]
SAID_WITH_TOOLS = "I'll look around first.Now the changes.All done: the price is 2, and there is a tax."
WEATHER: Any = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}


def user(text: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "user", "content": text}]


def completed(client: OpenAI, text: str, **fields: Any) -> ChatCompletion:
    completion = client.chat.completions.create(model="auto", messages=user(text), **fields)
    assert isinstance(completion, ChatCompletion)
    return completion


# --- the ordinary ways --------------------------------------------------------------------------------


def test_a_completion(openai: OpenAI) -> None:
    completion = completed(openai, "hello")
    assert completion.choices[0].message.content == "You said: hello"
    assert completion.choices[0].finish_reason == "stop"
    assert completion.object == "chat.completion"
    assert completion.id.startswith("chatcmpl-")
    assert completion.model == "auto"


def test_a_stream(openai: OpenAI) -> None:
    with openai.chat.completions.create(model="auto", messages=user("hello"), stream=True) as stream:
        chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "You said: hello"
    assert (chunks[0].choices[0].delta.role, chunks[-1].choices[0].finish_reason) == ("assistant", "stop")
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1


def test_the_streaming_helper(openai: OpenAI) -> None:
    """It is stricter than the plain stream: each missing field is an exception in it."""
    with openai.chat.completions.stream(model="auto", messages=user(standin("tools"))) as stream:
        events = list(stream)
        final = stream.get_final_completion()
    assert final.choices[0].message.content == SAID_WITH_TOOLS
    assert final.choices[0].finish_reason == "stop"
    deltas = [event.delta for event in events if event.type == "content.delta"]
    assert "".join(deltas) == SAID_WITH_TOOLS


# --- models -------------------------------------------------------------------------------------------


def test_models(openai: OpenAI) -> None:
    models = {model.id: model for model in openai.models.list()}
    assert {"auto", "gpt-5-mini", "claude-sonnet-5-thinking-high"} <= set(models)
    assert (models["auto"].object, models["auto"].owned_by) == ("model", "cursor")
    assert openai.models.retrieve("gpt-5-mini") == models["gpt-5-mini"]
    with pytest.raises(sdk.NotFoundError) as caught:
        openai.models.retrieve("gpt-5-mino")
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
    assert "gpt-5-mini" in caught.value.message


# --- usage, stop, max_tokens ----------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_max_tokens_cuts_the_answer(http: httpx2.Client, stream: bool) -> None:
    """The rest of the run serves nobody: it ends, though the agent would hang for ever."""
    reply = ask(http, "openai", standin("hang-mid"), stream=stream, max_tokens=2)
    if stream:
        chunks = validate_stream(reply.content)
        text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
        reason = chunks[-1].choices[0].finish_reason
    else:
        choice = validate_completion(reply.content).choices[0]
        text, reason = choice.message.content or "", choice.finish_reason
    assert reason == "length"
    assert 0 < len(text) < len("I was about to say more.")
    assert "I was about to say more.".startswith(text)


# --- the agent's text, exactly ------------------------------------------------------------------------

TEXTS = {
    "emoji": "👩‍👩‍👧‍👦 family, 🏳️‍🌈 flag, é composed, e\u0301 combined",
    "line separators": "one\u2028two\u2029three\x85four",
    "line ends": "unix\nwindows\r\nold mac\rend",
    "control characters": "".join(map(chr, range(1, 32))) + "\x7f end",
    "sse lookalikes": "data: [DONE]\n\nevent: done\ndata: {}\n\n: comment\nid: 7",
    "code fences": "Look:\n\n```python\nprint('hi')\n```\n\nand\n\n~~~\nplain\n~~~\n\ndone",
    "fence that never ends": "Look:\n\n```python\nprint('hi')\n",
    "html": "<script>alert('x')</script> &amp; <b>bold</b>",
    "json": '{"error": {"message": "no"}} \\u0000 \\"',
    "white space around": "\n\n  indented first line\nlast line  \n\n\n",
    "long": "lorem ipsum dolor sit amet " * 20_000,
}


@pytest.mark.parametrize(("dialect", "stream"), WAYS)
@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.quick_cases(11)
def test_the_text_is_what_the_agent_said(http: httpx2.Client, name: str, dialect: Dialect, stream: bool) -> None:
    """In deltas of one UTF-16 unit, so that every emoji is cut into halves of a character; the long text in larger."""
    text = TEXTS[name]
    prompt = standin(f"say size={1 if len(text) < 1000 else 4001}", text)
    fields = {"fences": "inline"} if dialect == "documents" else {}
    said = read_reply(ask(http, dialect, prompt, stream=stream, **fields), dialect).text
    if dialect == "documents":  # white space around a document's text is no part of its content
        assert said.strip() == text.strip()
    else:
        assert said == text


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("scenario", ["tools", "thinking", "parallel", "question", "query-flush", "text", "plan"])
def test_all_dialects_streaming_or_not_say_the_same(http: httpx2.Client, scenario: str) -> None:
    """Where nothing but text is said between two tools, a document is that text."""
    said = {read_reply(ask(http, dialect, standin(scenario), stream=stream), dialect).text for dialect, stream in WAYS}
    assert len(said) == 1
    assert said != {""}


# --- thinking and the agent's own tools -----------------------------------------------------------------


def both_ways(client: httpx2.Client, text: str, **fields: Any) -> dict[str, Any]:
    """The message of a completion, which must be the fold of the same as a stream."""
    whole: dict[str, Any] = ask(client, "openai", text, **fields).json()["choices"][0]
    chunks = validate_stream(ask(client, "openai", text, stream=True, **fields).content)
    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    message = whole["message"]
    assert "".join(delta.reasoning_content or "" for delta in deltas) == message.get("reasoning_content", "")
    assert "".join(delta.content or "" for delta in deltas) == message["content"]
    assert chunks[-1].choices[0].finish_reason == whole["finish_reason"]
    return {**message, "finish_reason": whole["finish_reason"], "deltas": deltas}


def test_the_agents_tools_can_be_forwarded_as_calls(tmp_path: Path) -> None:
    """An operator's choice: then a request with tools of its own is refused, since they would be run twice."""
    with running_gateway(tmp_path, settings={"agent_tools": "tool_calls"}) as gateway, http_client(gateway) as http:
        message = both_ways(http, standin("tools"))
        names = [call["function"]["name"] for call in message["tool_calls"]]
        assert names[:2] == ["read_file", "grep"]
        assert len(names) == len(AGENTS_WORK)
        assert message["finish_reason"] == "stop"  # nobody is to run them
        streamed = [call for delta in message["deltas"] for call in delta.tool_calls or []]
        assert [call.function.name for call in streamed if call.id] == names
        with openai_client(gateway) as client:
            with pytest.raises(sdk.BadRequestError) as caught:
                completed(client, "hello", tools=[WEATHER])
            assert (caught.value.param, "omit `tools`" in caught.value.message) == ("tools", True)
            with client.chat.completions.stream(model="auto", messages=user(standin("tools"))) as stream:
                calls = stream.get_final_completion().choices[0].message.tool_calls
            assert [call.function.name for call in calls or []] == names


# --- errors as exceptions -------------------------------------------------------------------------------

RAISED: dict[str, tuple[type[sdk.APIStatusError], int, str, str]] = {
    "fail-auth": (sdk.AuthenticationError, 401, "agent_unauthenticated", "authentication_error"),
    "fail-trust": (sdk.PermissionDeniedError, 403, "workspace_untrusted", "permission_error"),
    "fail-model": (sdk.NotFoundError, 404, "model_not_found", "invalid_request_error"),
    "fail-quota-early": (sdk.APIStatusError, 402, "insufficient_quota", "insufficient_quota"),
    "fail-capacity": (sdk.APIStatusError, 424, "agent_no_capacity", "api_error"),
    "fail-sandbox": (sdk.APIStatusError, 424, "agent_misconfigured", "api_error"),
    "crash-early": (sdk.APIStatusError, 424, "agent_crashed", "api_error"),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("scenario", RAISED)
def test_an_error_before_the_first_text(openai: OpenAI, scenario: str, stream: bool) -> None:
    expected, status, code, kind = RAISED[scenario]
    with pytest.raises(expected) as caught:
        openai.chat.completions.create(model="auto", messages=user(standin(scenario)), stream=stream)
    error = caught.value
    assert (error.status_code, error.code, error.type) == (status, code, kind)
    assert error.request_id == error.response.headers["x-request-id"]
    assert len(error.message) > 40  # a sentence that says what to do


def test_an_error_in_the_middle_of_a_stream(openai: OpenAI) -> None:
    texts: list[str | None] = []
    with (
        openai.chat.completions.create(
            model="auto", messages=user(standin("fail-capacity-late")), stream=True
        ) as stream,
        pytest.raises(sdk.APIError) as caught,
    ):
        texts.extend(chunk.choices[0].delta.content for chunk in stream)
    assert "".join(text or "" for text in texts) == "I was about to say more."
    assert (caught.value.code, caught.value.type) == ("agent_no_capacity", "invalid_request_error")
    assert "wait a while, then ask again" in caught.value.message


@pytest.mark.parametrize("dialect", ["openai", "responses", "messages"])
@pytest.mark.parametrize("scenario", ["crash-early", "crash", "fail-capacity", "fail-auth"])
def test_a_question_that_comes_again_at_once_starts_no_agent(tmp_path: Path, scenario: str, dialect: Dialect) -> None:
    """Whatever the client makes of the status. It gets the failure again, and a person may ask in the documents API."""
    mark = unique()
    prompt = f"{mark} {standin(scenario)}"
    with running_gateway(tmp_path, settings={"reconnect_seconds": "600"}) as gateway, http_client(gateway) as client:
        first = ask(client, dialect, prompt)
        for _ in range(3):
            again = ask(client, dialect, prompt)
            assert again.status_code == first.status_code
            assert again.json()["error"]["message"].startswith(first.json()["error"]["message"])
            assert "no agent was started again" in again.json()["error"]["message"]
        assert len(invocations(gateway, mark)) == 1
        ask(client, dialect, f"{prompt} ")  # white space does not count
        assert len(invocations(gateway, mark)) == 1
        ask(client, "documents", prompt)
        ask(client, "documents", prompt)
        assert len(invocations(gateway, mark)) == 3
        headers = {"idempotency-key": mark}
        assert client.post("/v1/chat/completions", json=question(prompt), headers=headers).is_error
        assert len(invocations(gateway, mark)) == 4
