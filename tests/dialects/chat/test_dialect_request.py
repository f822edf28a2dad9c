"""The chat request: what real clients send is taken, what would be answered wrongly is refused, nothing crashes."""

import base64
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.dialects.chat.dialect import IGNORED, REFUSED, CompletionRequest, read_request
from cursor_gateway.dialects.requests import CursorOptions
from cursor_gateway.errors import InvalidRequest
from cursor_gateway.model.caller_tools import AutoTool, NamedTool, NoTool, Offer, RequiredTool, Tool, ToolChoice
from cursor_gateway.model.messages import (
    AssistantMessage,
    Image,
    Instructions,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from cursor_gateway.prompting.prompt import render
from cursor_gateway.prompting.structured import Format, JsonObject, JsonSchema
from tests.strategies import examples

HI = [{"role": "user", "content": "Hi"}]
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
URI = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"


def read(**body: Any) -> CompletionRequest:
    return read_request(json.dumps({"messages": HI, **body}).encode())


def refusal(body: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        read_request(body if isinstance(body, bytes) else json.dumps(body).encode())
    assert str(caught.value)[-1] in ".?"
    return caught.value


def content(*parts: Any, role: str = "user") -> list[dict[str, Any]]:
    return [{"role": role, "content": list(parts)}]


# --- what real clients send -------------------------------------------------------------------------


def function(name: str, **more: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
    return {"type": "function", "function": {"name": name, "description": "d", "parameters": parameters, **more}}


def called(id: str, name: str = "bash") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": '{"command":"ls"}'}}


def text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


USAGE = {"stream": True, "stream_options": {"include_usage": True}}

CLIENTS: dict[str, dict[str, Any]] = {
    "OpenCode": {
        "model": "auto",
        "max_tokens": 32000,
        "tools": [function("bash")],
        "tool_choice": "auto",
        **USAGE,
        "messages": [
            {"role": "system", "content": "You are opencode."},
            {"role": "user", "content": "ls"},
            {"role": "assistant", "content": "", "reasoning_content": "Hm.", "tool_calls": [called("call_1")]},
            {"role": "tool", "tool_call_id": "call_1", "content": "a.py"},
            {"role": "user", "content": [text("And this?"), {"type": "image_url", "image_url": {"url": URI}}]},
        ],
    },
    "OpenCode's title": {"model": "auto", "max_tokens": 32000, "reasoning_effort": "low", **USAGE, "messages": HI},
    "Kilo": {
        "model": "auto",
        "max_tokens": 32000,
        "tools": [function("bash")],
        "tool_choice": "auto",
        **USAGE,
        "messages": [
            {"role": "system", "content": "You are Kilo."},
            {"role": "user", "content": [text("ls"), text("<environment_details>")]},
            {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [called("call_1")]},
            {"role": "tool", "tool_call_id": "call_1", "content": "a.py"},
        ],
    },
    "Cline": {
        "model": "auto",
        "tools": [function("submit_and_exit")],
        "tool_choice": "auto",
        **USAGE,
        "messages": [
            {"role": "system", "content": "You are Cline."},
            {"role": "user", "content": "task"},
            {"role": "user", "content": "environment"},
            {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [called("call_1")]},
            {"role": "tool", "tool_call_id": "call_1", "content": "done"},
        ],
    },
    "Qwen": {
        "model": "auto",
        "max_tokens": 32000,
        "tools": [function("run_shell_command")],
        **USAGE,
        "messages": [
            {"role": "system", "content": "You are Qwen Code."},
            {"role": "user", "content": [text("ls")]},
            {"role": "assistant", "content": "", "reasoning_content": "Hm.", "tool_calls": [called("call_1")]},
            {"role": "tool", "tool_call_id": "call_1", "content": [text("a.py")]},
        ],
    },
    "pi": {
        "model": "auto",
        "max_completion_tokens": 8192,
        "store": False,
        "reasoning_effort": "medium",
        "tools": [function("bash", strict=False)],
        **USAGE,
        "messages": [
            {"role": "developer", "content": "You are pi."},
            {"role": "user", "content": [text("ls")]},
            {"role": "assistant", "content": None, "reasoning": "Hm.", "tool_calls": [called("call_1")]},
            {"role": "tool", "tool_call_id": "call_1", "content": "a.py"},
        ],
    },
    "Continue": {
        "model": "auto",
        "tools": [function("Bash")],
        **USAGE,
        "messages": [{"role": "system", "content": "You are an agent."}, *HI],
    },
    "llm": {
        "model": "auto",
        "stream": False,
        "stream_options": {"include_usage": True},
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "output", "schema": {"type": "object", "properties": {"a": {"type": "string"}}}},
        },
        "messages": [*HI, {"role": "assistant", "content": None, "tool_calls": [called("call_1")]}, *HI],
    },
    "aider": {
        "model": "auto",
        "temperature": 0,
        "stream": True,
        "messages": [{"role": "system", "content": "Act as an expert."}, *HI, {"role": "assistant", "content": "Ok."}],
    },
    "langchain": {
        "model": "auto",
        "stream": False,
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "Person",
                "strict": True,
                "schema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
            },
        },
        "messages": [
            *HI,
            {"role": "assistant", "content": None, "tool_calls": [called("call_1")]},
            {"role": "tool", "tool_call_id": "call_1", "content": "a.py"},
        ],
    },
    "pydantic-ai": {
        "model": "auto",
        "tools": [function("final_result", strict=True)],
        "tool_choice": "required",
        **USAGE,
        "messages": [
            {"role": "system", "content": "s"},
            *HI,
            {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [called("call_1")]},
            {"role": "tool", "tool_call_id": "call_1", "content": "a.py"},
        ],
    },
    "instructor": {
        "model": "auto",
        "tools": [function("Person")],
        "tool_choice": {"type": "function", "function": {"name": "Person"}},
        "messages": HI,
    },
    "a client of 2023": {
        "model": "gpt-3.5-turbo",
        "functions": [],
        "function_call": "auto",
        "messages": [
            *HI,
            {"role": "assistant", "content": None, "function_call": {"name": "now", "arguments": "{}"}},
            {"role": "function", "name": "now", "content": "12:00"},
        ],
    },
}


@pytest.mark.parametrize("body", CLIENTS.values(), ids=CLIENTS)
def test_what_clients_send_is_taken(body: dict[str, Any]) -> None:
    request = read_request(json.dumps(body).encode())
    assert len(request.messages) == len(body["messages"])
    assert (request.model, request.stream) == (body["model"], body.get("stream", False))
    assert request.include_usage == ("stream_options" in body)
    assert request.max_tokens == body.get("max_tokens", body.get("max_completion_tokens"))
    names = [tool["function"]["name"] for tool in body.get("tools", [])]
    assert [tool.name for tool in request.offer.tools] == names if request.offer is not None else not names
    assert "Hm." not in render(request.messages, b""), "thinking that came back"


# --- messages ---------------------------------------------------------------------------------------

MESSAGES: dict[str, tuple[list[dict[str, Any]], list[Message]]] = {
    "a string": (HI, [UserMessage("Hi")]),
    "parts": (content(text("a"), text("b")), [UserMessage("a\nb")]),
    "a name": ([{"role": "user", "content": "Hi", "name": "bob"}], [UserMessage("Hi", name="bob")]),
    "instructions": (
        [{"role": "system", "content": "a"}, {"role": "developer", "content": [text("b")], "name": "x"}],
        [Instructions("a"), Instructions("b")],
    ),
    "an assistant's text": (content(text("a"), role="assistant"), [AssistantMessage("a")]),
    "an assistant's refusal": (
        [*content({"type": "refusal", "refusal": "No."}, role="assistant"), {"role": "assistant", "refusal": "Never."}],
        [AssistantMessage("No."), AssistantMessage("Never.")],
    ),
    "an assistant that says nothing": ([{"role": "assistant"}, *HI], [AssistantMessage(""), UserMessage("Hi")]),
    "thinking is no part of it": (
        [{"role": "assistant", "content": "a", "reasoning_content": "x", "reasoning": 5, "tool_calls": None}],
        [AssistantMessage("a")],
    ),
    "a call and its result": (
        [
            {"role": "assistant", "content": None, "tool_calls": [called("1"), called("2", "read")]},
            {"role": "tool", "tool_call_id": "2", "content": [text("x"), text("y")], "name": "other"},
            {"role": "tool", "tool_call_id": "3", "content": None, "name": "known"},
            {"role": "tool", "tool_call_id": "4"},
        ],
        [
            AssistantMessage(
                "", (ToolCall("1", "bash", '{"command":"ls"}'), ToolCall("2", "read", '{"command":"ls"}'))
            ),
            ToolMessage("x\ny", "2", "read"),
            ToolMessage("", "3", "known"),
            ToolMessage("", "4"),
        ],
    ),
    "a function and its result": (
        [
            {"role": "assistant", "content": None, "function_call": {"name": "now", "arguments": "{}"}},
            {"role": "function", "name": "now", "content": None},
        ],
        [AssistantMessage("", (ToolCall("", "now", "{}"),)), ToolMessage("", "", "now")],
    ),
    "fields that nobody knows": (
        [{"role": "user", "content": [{**text("a"), "cache_control": {"type": "ephemeral"}}], "x": [1]}],
        [UserMessage("a")],
    ),
}


@pytest.mark.parametrize(("wire", "expected"), MESSAGES.values(), ids=MESSAGES)
def test_messages_of_every_kind_are_read(wire: list[dict[str, Any]], expected: list[Message]) -> None:
    request = read(messages=wire)
    assert list(request.messages) == expected
    assert request.images == ()


def test_half_a_character_is_no_reason_to_refuse() -> None:
    assert read(messages=[{"role": "user", "content": "a\ud83d"}]).messages == (UserMessage("a\ufffd"),)
    assert read(messages=[{"role": "user", "content": "\U0001f600"}]).messages == (UserMessage("\U0001f600"),)
    assert read_request(b'\xef\xbb\xbf{"messages":[{"role":"user","content":"Hi"}]}').messages == (UserMessage("Hi"),)


def test_a_call_or_an_image_alone_is_something_to_go_on_with() -> None:
    for message in (
        {"role": "assistant", "tool_calls": [called("1")]},
        {"role": "user", "content": [{"type": "image_url", "image_url": URI}]},
    ):
        assert len(read(messages=[message]).messages) == 1


# --- images -----------------------------------------------------------------------------------------


def test_images_are_read_in_order_with_their_messages() -> None:
    jpeg = "DATA:image/JPG;charset=utf-8;base64," + base64.b64encode(b"jpeg!").decode().rstrip("=") + "\n"
    request = read(
        messages=[
            {"role": "system", "content": "s"},
            *content({"type": "image_url", "image_url": {"url": URI, "detail": "low"}}, text("Look."), text("Here.")),
            {"role": "tool", "tool_call_id": "1", "content": [{"type": "image_url", "image_url": jpeg}]},
            *content({"type": "image_url", "image_url": URI}),
        ]
    )
    assert request.images == (Image(1, "image/png", PNG), Image(2, "image/jpeg", b"jpeg!"), Image(3, "image/png", PNG))
    first, second, third = (image.name for image in request.images)
    assert first == third != second
    assert (first[-4:], second[-4:], len(first)) == (".png", ".jpg", 20)
    assert list(request.messages) == [
        Instructions("s"),
        UserMessage("Look.\nHere.", images=(first,)),
        ToolMessage("", "1", images=(second,)),
        UserMessage("", images=(first,)),
    ]


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/a.png",
        "file:///etc/passwd",
        "/etc/passwd",
        "",
        "data:image/svg+xml;base64,PHN2Zz4=",
        "data:text/plain;base64,eA==",
        "data:image/png,xyz",
    ],
)
def test_an_image_that_is_no_data_uri_of_a_known_kind_is_refused(url: str) -> None:
    for image_url in (url, {"url": url}):
        error = refusal({"messages": content(text("a"), {"type": "image_url", "image_url": image_url})})
        assert error.param == "messages[0].content[1].image_url"
        assert "data: URI" in str(error)


def test_files_are_text_or_images() -> None:
    data = base64.b64encode("Grüße".encode()).decode()
    parts = [
        {"type": "file", "file": {"file_data": data}},
        {"type": "file", "file": {"file_data": f"data:text/csv;base64,{data}", "filename": "a.csv"}},
        {"type": "file", "file": {"file_data": URI, "filename": "a.png"}},
    ]
    request = read(messages=content(text("Look."), *parts))
    (image,) = request.images
    assert list(request.messages) == [UserMessage("Look.\nGrüße\nFile a.csv:\n\nGrüße", images=(image.name,))]
    read_request(json.dumps({"messages": content(*parts[:2], parts[2])}).encode(), max_images=1)
    with pytest.raises(InvalidRequest, match="the limit is 1"):
        read_request(json.dumps({"messages": content(parts[2], parts[2])}).encode(), max_images=1)


@pytest.mark.parametrize("data", ["", "!!!!", "é", "A"])
def test_an_image_that_is_no_base64_is_refused(data: str) -> None:
    error = refusal({"messages": content({"type": "image_url", "image_url": f"data:image/gif;base64,{data}"})})
    assert error.param == "messages[0].content[0].image_url"
    assert "valid base64" in str(error)


@pytest.mark.parametrize("role", ["system", "developer", "assistant", "function"])
def test_an_image_of_anybody_else_is_refused(role: str) -> None:
    message = {"role": role, "name": "x", "content": [{"type": "image_url", "image_url": URI}]}
    assert refusal({"messages": [*HI, message]}).param == "messages[1].content"


# --- fields -----------------------------------------------------------------------------------------


def test_a_request_needs_nothing_but_messages() -> None:
    assert read() == CompletionRequest(
        model=None,
        messages=(UserMessage("Hi"),),
        images=(),
        stream=False,
        include_usage=False,
        stop=(),
        max_tokens=None,
        format=None,
        offer=None,
        cursor=CursorOptions(),
    )


def test_null_is_the_same_as_nothing() -> None:
    fields = [name for name in CompletionRequest.__struct_fields__ if name not in ("messages", "cursor")]
    fields += ["stream_options", "max_completion_tokens", "response_format", "functions", "function_call", "cursor"]
    fields += ["tools", "tool_choice", "parallel_tool_calls"]
    fields += ["n", "logprobs", "top_logprobs", "modalities"]
    known = [name for name in IGNORED if "[" not in name]
    assert read(**dict.fromkeys([*fields, *known])) == read()
    assert read(stream_options={"include_usage": None}) == read()
    assert read(cursor=dict.fromkeys(["mode", "workspace", "fences", "include", "conversationId"])) == read()


def test_what_is_ignored_changes_nothing() -> None:
    ignored = {
        "temperature": 0.7,
        "top_p": 1,
        "presence_penalty": -2,
        "frequency_penalty": 2.0,
        "logit_bias": {"50256": -100},
        "seed": 42,
        "verbosity": "low",
        "reasoning_effort": "high",
        "prediction": {"type": "content", "content": "x"},
        "web_search_options": {},
        "audio": {"voice": "alloy", "format": "wav"},
        "service_tier": "auto",
        "prompt_cache_key": "k",
        "prompt_cache_retention": "24h",
        "safety_identifier": "s",
        "store": True,
        "metadata": {"a": "b"},
        "user": "u",
    }
    assert ignored.keys() == {name for name in IGNORED if "[" not in name}
    assert read(**ignored) == read()
    assert read(top_k=5, extra={"deep": [[]]}, max_token="x") == read()


@pytest.mark.parametrize(
    ("given", "limit"),
    [
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 6}, 6),
        ({"max_tokens": 5, "max_completion_tokens": 6}, 5),
        ({"max_tokens": 7, "max_completion_tokens": 6}, 6),
        ({"max_tokens": None, "max_completion_tokens": 6}, 6),
    ],
)
def test_the_smaller_limit_holds(given: dict[str, Any], limit: int) -> None:
    assert read(**given).max_tokens == limit


@pytest.mark.parametrize(
    ("stop", "read_as"), [("a", ("a",)), (["a"], ("a",)), ([], ()), (["a", "\n", "b", "c"], ("a", "\n", "b", "c"))]
)
def test_stop_is_one_or_up_to_four(stop: Any, read_as: tuple[str, ...]) -> None:
    assert read(stop=stop).stop == read_as


def test_n_logprobs_and_modalities_may_say_what_is_so_anyway() -> None:
    assert read(n=1, logprobs=False, top_logprobs=0, modalities=["text"]) == read()
    assert read(modalities=[]) == read()


SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}


@pytest.mark.parametrize(
    ("given", "format"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, JsonObject()),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True, "description": "d"}},
            JsonSchema(SCHEMA, "n", "d", strict=True),
        ),
        ({"type": "json_schema", "json_schema": {"name": "n", "strict": None}}, JsonSchema({}, "n")),
        ({"type": "json_schema", "json_schema": {"schema": SCHEMA}}, JsonSchema(SCHEMA)),
    ],
)
def test_a_format_is_kept(given: dict[str, Any], format: Format | None) -> None:
    assert read(response_format=given).format == format


def test_a_schema_that_is_none_is_refused_at_once() -> None:
    format = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "nothing"}}}
    assert refusal({"messages": HI, "response_format": format}).param == "response_format.json_schema.schema"


def test_a_schema_that_would_take_long_to_check_is_refused() -> None:
    schema = {"description": "x" * 200_000}
    format = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    refused = refusal({"messages": HI, "response_format": format})
    assert refused.param == "response_format.json_schema.schema"
    assert "131072 bytes" in str(refused)


BASH, READ = function("bash"), function("read")


@pytest.mark.parametrize(
    ("given", "choice"),
    [
        ({}, AutoTool()),
        ({"tool_choice": "auto"}, AutoTool()),
        ({"tool_choice": "none"}, NoTool()),
        ({"tool_choice": "required"}, RequiredTool()),
        ({"tool_choice": {"type": "function", "function": {"name": "read"}}}, NamedTool("read")),
        ({"tool_choice": {"function": {"name": "bash"}}}, NamedTool("bash")),
    ],
)
def test_a_choice_of_tools_has_four_forms(given: dict[str, Any], choice: ToolChoice) -> None:
    offer = read(tools=[BASH, READ], **given).offer
    assert offer is not None
    assert [tool.name for tool in offer.tools] == ["bash", "read"]
    assert offer.choice == choice


def test_tools_are_kept_as_they_are() -> None:
    offer = read(tools=[{**BASH, "x": 1}, {"type": "function", "function": {"name": "now", "strict": True}}]).offer
    assert offer == Offer(
        tools=(
            Tool("bash", "d", BASH["function"]["parameters"], strict=False),
            Tool("now", "", {"type": "object", "properties": {}}, strict=True),
        )
    )


@pytest.mark.parametrize(("given", "parallel"), [({}, True), ({"parallel_tool_calls": False}, False)])
def test_several_calls_at_once_may_be_forbidden(given: dict[str, Any], parallel: bool) -> None:
    offer = read(tools=[BASH], **given).offer
    assert offer is not None
    assert offer.parallel is parallel


@pytest.mark.parametrize("given", [{"tools": []}, {"tool_choice": "auto"}, {"tool_choice": "none"}])
def test_without_tools_there_is_no_offer(given: dict[str, Any]) -> None:
    assert read(**given).offer is None


def test_the_extension_says_what_openai_has_no_field_for() -> None:
    options = {"mode": "plan", "workspace": "/w", "fences": "inline", "include": ["raw"], "conversationId": "conv_1"}
    assert read(cursor=options).cursor == CursorOptions(
        mode="plan", workspace="/w", fences="inline", include={"raw"}, conversation_id="conv_1"
    )


# --- refusals ---------------------------------------------------------------------------------------

WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"n": 2}, "n", REFUSED["n"]),
    ({"n": 0}, "n", REFUSED["n"]),
    ({"logprobs": True}, "logprobs", REFUSED["logprobs"]),
    ({"top_logprobs": 3}, "top_logprobs", REFUSED["top_logprobs"]),
    ({"modalities": ["text", "audio"]}, "modalities", REFUSED["modalities"]),
    ({"model": ""}, "model", "length >= 1"),
    ({"model": 5}, "model", "Expected `str"),
    ({"stream": "yes"}, "stream", "Expected `bool"),
    ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage", "Expected `bool"),
    ({"max_tokens": 0}, "max_tokens", ">= 1"),
    ({"max_completion_tokens": -1}, "max_completion_tokens", ">= 1"),
    ({"max_tokens": "5"}, "max_tokens", "Expected `int"),
    ({"stop": ""}, "stop", "length >= 1"),
    ({"stop": ["a", ""]}, "stop[1]", "length >= 1"),
    ({"stop": list("abcde")}, "stop", "length <= 4"),
    ({"temperature": "hot"}, "temperature", "Expected `float"),
    ({"messages": []}, "messages", "length >= 1"),
    ({"messages": None}, "messages", "Expected `array"),
    ({"messages": "Hi"}, "messages", "Expected `array"),
    ({"messages": ["Hi"]}, "messages[0]", "Expected `object"),
    ({"messages": [*HI, {"content": "x"}]}, "messages[1].role", "is missing"),
    ({"messages": [{"role": "user"}]}, "messages[0].content", "is missing"),
    ({"messages": [{"role": "user", "content": None}]}, "messages[0].content", "Expected `str | array`"),
    ({"messages": [{"role": "bot", "content": "x"}]}, "messages[0].role", "Send one of system, developer"),
    ({"messages": [{"role": 5, "content": "x"}]}, "messages[0].role", "Send one of system, developer"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id", "is missing"),
    ({"messages": content({"type": "text"})}, "messages[0].content[0].text", "is missing"),
    ({"messages": content({"text": "x"})}, "messages[0].content[0].type", "is missing"),
    (
        {"messages": [*HI, *HI, *content({"type": "input_audio", "input_audio": {}})]},
        "messages[2].content[0].type",
        REFUSED["messages[].content[].type"],
    ),
    (
        {"messages": content(text("x"), {"type": "file", "file": {"file_id": "file-1"}})},
        "messages[0].content[1].file.file_data",
        "is missing",
    ),
    (
        {"messages": content({"type": "file", "file": {"file_data": "data:application/pdf;base64,/w=="}})},
        "messages[0].content[0].file.file_data",
        "Only text files and images",
    ),
    (
        {"messages": content({"type": "file", "file": {"file_data": "data:image/svg+xml;base64,eA=="}})},
        "messages[0].content[0].file.file_data",
        "png, jpeg",
    ),
    ({"messages": content({"type": "video_url"})}, "messages[0].content[0].type", "text, image_url or file"),
    ({"messages": content({"type": "image_url", "image_url": 5})}, "messages[0].content[0].image_url", "Expected"),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "1"}]}]},
        "messages[0].tool_calls[0].function",
        "missing",
    ),
    ({"messages": [{"role": "user", "content": " \n"}, {"role": "assistant"}]}, "messages", "no text and no image"),
    ({"messages": content()}, "messages", "no text and no image"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type", REFUSED["tools[].type"]),
    ({"tools": [{**BASH, "type": "custom"}]}, "tools[0].type", REFUSED["tools[].type"]),
    ({"tools": [function("")]}, "tools[0].function.name", "length >= 1"),
    ({"tools": [BASH, READ, BASH]}, "tools[2].function.name", "Two tools"),
    ({"functions": [{"name": "a"}]}, "functions", REFUSED["functions"]),
    ({"tools": [BASH], "functions": [7]}, "functions", REFUSED["functions"]),
    (
        {"tools": [BASH, {"function": {"name": "a", "parameters": {"type": "string"}}}]},
        "tools[1].function.parameters",
        "must be an object",
    ),
    ({"tools": [BASH], "tool_choice": "any"}, "tool_choice", REFUSED["tool_choice.type"]),
    (
        {"tools": [BASH], "tool_choice": {"type": "allowed_tools", "function": {"name": "bash"}}},
        "tool_choice.type",
        REFUSED["tool_choice.type"],
    ),
    ({"tool_choice": "required"}, "tool_choice", "`tools` is empty"),
    ({"tool_choice": {"function": {"name": "a"}}}, "tool_choice", "there are none"),
    ({"tools": [BASH, READ], "tool_choice": {"function": {"name": "a"}}}, "tool_choice", "there are bash, read"),
    ({"response_format": {"type": "xml"}}, "response_format.type", REFUSED["response_format.type"]),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "is missing"),
    ({"cursor": {"mode": "agnet"}}, "cursor.mode", "Send one of agent, plan, ask, debug."),
    ({"cursor": {"fences": "no"}}, "cursor.fences", "Send one of split, inline."),
    ({"cursor": {"include": ["all"]}}, "cursor.include[0]", "Send one of thinking, raw, context."),
    ({"cursor": {"moed": "agent"}}, "cursor.moed", "did you mean `mode`?"),
    ({"cursor": {"conversation_id": "x"}}, "cursor.conversation_id", "did you mean `conversationId`?"),
    ({"cursor": {"xyz": 1}}, "cursor.xyz", "known fields: mode, workspace, fences, include, "),
    ({"cursor": {"conversationId": ""}}, "cursor.conversationId", "length >= 1"),
    ({"cursor": []}, "cursor", "Expected `object"),
]


@pytest.mark.parametrize(
    ("fields", "param", "expected"), WRONG, ids=[f"{param}-{expected[:20]}" for _, param, expected in WRONG]
)
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str, expected: str) -> None:
    error = refusal({"messages": HI, **fields})
    assert error.param == param
    assert expected in str(error)
    assert error.failure().status == 400


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", "empty"),
        (b"hello", "not JSON"),
        (b'{"messages": [', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b'{"messages":[{"role":"user","content":"\xff"}]}', "not JSON"),
        (b'{"messages": NaN}', "not JSON"),
        (b'{"x": "\\ud800", "n": NaN, "messages": []}', "not JSON"),
        (b'{"x": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", "nested"),
        (b'{"x": "\\ud800", "y": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", "nested"),
        (b"[]", "must be a JSON object"),
        (b"null", "must be a JSON object"),
    ],
)
def test_a_body_that_is_no_object_is_refused(body: bytes, expected: str) -> None:
    error = refusal(body)
    assert error.param is None
    assert expected in str(error)


def test_a_refusal_does_not_repeat_a_long_value() -> None:
    assert len(str(refusal({"messages": [{"role": "x" * 10_000, "content": ""}]}))) < 500


def test_messages_may_be_missing_altogether() -> None:
    assert (refusal({}).param, str(refusal({}))) == ("messages", "messages is missing.")


# --- laws -------------------------------------------------------------------------------------------

NAMES = [*IGNORED, *REFUSED, "messages", "tools", "functions", "cursor", "stop"]
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.sampled_from(["user", "text"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "content", "type", "text", "name", "function", "url"]), inner)
    ),
    max_leaves=6,
)


@examples(400)
@given(st.dictionaries(st.sampled_from(NAMES), junk, max_size=3), st.booleans())
def test_any_body_is_read_or_refused(fields: dict[str, Any], with_messages: bool) -> None:
    body = json.dumps({**fields, "messages": HI} if with_messages else fields).encode()
    with suppress(InvalidRequest):
        read_request(body)


@given(st.binary(max_size=20))
def test_any_bytes_are_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        read_request(body)


def test_the_tables_say_a_sentence_for_each_field() -> None:
    for name, reason in {**IGNORED, **REFUSED}.items():
        assert name
        assert reason.endswith(".")
    assert not IGNORED.keys() & REFUSED.keys()


def test_images_are_counted_before_any_of_them_is_decoded() -> None:
    part = {"type": "image_url", "image_url": "no image"}
    with pytest.raises(InvalidRequest, match="4 images, but the limit is 3"):
        read_request(json.dumps({"messages": content(part, part) + content(part, text("a"), part)}).encode(), 3)


def test_a_conversation_may_be_long_but_not_endless() -> None:
    message = {"role": "user", "content": "x"}
    assert len(read(messages=[message] * 10_000).messages) == 10_000
    with pytest.raises(InvalidRequest, match="limit is 10,000") as refused:
        read(messages=[message] * 10_001)
    assert refused.value.param == "messages"
