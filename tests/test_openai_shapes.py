"""The strict shapes take what is right, ours included, and name the rule that a wrong reply breaks."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from cursor_gateway import ChunkEncoder, CompletionFold, read_events
from cursor_gateway.dialects.deltas import AgentTools
from tests import openai_shapes as shapes
from tests.openai_shapes import read_stream, validate_stream
from tests.scenarios.golden import HEAD, Scenario, scenarios

Json = dict[str, Any]

USAGE = {
    "prompt_tokens": 3,
    "completion_tokens": 2,
    "total_tokens": 5,
    "prompt_tokens_details": {"cached_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 0},
}
ERROR = {"error": {"message": "No.", "type": "api_error", "param": None, "code": "agent_crashed"}}


def chunk(delta: Json | None = None, finish: str | None = None, **more: Any) -> Json:
    choices = [{"index": 0, "delta": delta or {}, "finish_reason": finish}]
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "auto"}
    return {**head, "choices": choices, **more}


def called(index: int = 0, id: str = "call_1", **more: Any) -> Json:
    opening = {"index": index, "id": id, "type": "function", "function": {"name": "ls", "arguments": ""}}
    return chunk({"tool_calls": [{**opening, **more}]})


def arguments(text: str, index: int = 0, **more: Any) -> Json:
    return chunk({"tool_calls": [{"index": index, "function": {"arguments": text}, **more}]})


def sse(*events: Json | str) -> bytes:
    texts = [event if isinstance(event, str) else json.dumps(event) for event in events]
    return "".join(f"data: {text}\n\n" for text in texts).encode()


ROLE = chunk({"role": "assistant", "content": ""})
TEXT = chunk({"content": "Hi é"})
STOP = chunk(finish="stop")
COUNTED = chunk(choices=[], usage=USAGE)
DONE = "[DONE]"


# --- good streams ------------------------------------------------------------------------------------


# --- bad streams -------------------------------------------------------------------------------------

BAD: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "the stream is empty"),
    "only a comment": (b": keep-alive\n\n", "the stream is empty"),
    "only the end": (sse(DONE), "neither a chunk nor an error"),
    "a bare end": (sse(ROLE, TEXT), r"must be \[DONE\]"),
    "an end inside an event": (sse(ROLE, STOP, DONE) + b"data: {", "ends inside an event"),
    "something after the end": (sse(ROLE, STOP, DONE, TEXT), r"must be \[DONE\]"),
    "two ends": (sse(ROLE, STOP, DONE, DONE), "more follows"),
    "no finish reason": (sse(ROLE, TEXT, DONE), "neither a finish reason nor an error"),
    "two finish reasons": (sse(ROLE, STOP, STOP, DONE), "after the finish reason"),
    "text after the finish reason": (sse(ROLE, STOP, TEXT, DONE), "after the finish reason"),
    "an unknown finish reason": (sse(ROLE, chunk(finish="banana"), DONE), "Invalid enum value 'banana'"),
    "a finish reason and an error": (sse(ROLE, STOP, ERROR, DONE), "both the finish reason 'stop' and an error"),
    "something after an error": (sse(ROLE, ERROR, TEXT, DONE), "after the error"),
    "no role": (sse(TEXT, STOP, DONE), "must have the role"),
    "a first delta with text": (sse(chunk({"role": "assistant", "content": "H"}), STOP, DONE), "must be empty"),
    "a first chunk without a choice": (sse(chunk(choices=[]), STOP, DONE), "first chunk has no choice"),
    "another id": (sse(ROLE, {**TEXT, "id": "chatcmpl-2"}, STOP, DONE), "`id` must be the same"),
    "another time": (sse(ROLE, {**TEXT, "created": 2}, STOP, DONE), "`created` must be the same"),
    "another model": (sse(ROLE, {**TEXT, "model": "gpt"}, STOP, DONE), "`model` must be the same"),
    "another object": (sse(ROLE, {**TEXT, "object": "chat.completion"}, STOP, DONE), "Invalid enum value"),
    "no model": (sse(ROLE, {key: TEXT[key] for key in TEXT if key != "model"}, DONE), "required field `model`"),
    "a second choice": (sse({**ROLE, "choices": ROLE["choices"] * 2}, STOP, DONE), "one choice, with index 0"),
    "another index": (sse(ROLE, {**STOP, "choices": [{**STOP["choices"][0], "index": 1}]}, DONE), "with index 0"),
    "no index": (sse({**ROLE, "choices": [{"delta": {}, "finish_reason": None}]}, DONE), "required field `index`"),
    "an unknown field": (sse(ROLE, chunk({"thoughts": "Hm."}), STOP, DONE), "unknown field `thoughts`"),
    "an event without data": (sse(ROLE, "", STOP, DONE), "event 2 has no data"),
    "an empty object": (sse(ROLE, "{}", STOP, DONE), "required field `id`"),
    "no object": (sse(ROLE, "[1]", STOP, DONE), "is no JSON object"),
    "no JSON": (sse(ROLE, "{", STOP, DONE), "is no JSON object"),
    "a named ping": (sse(ROLE) + b"event: ping\ndata: {}\n\n" + sse(STOP, DONE), "is named 'ping'"),
    "an error without a code": (sse(ROLE, {"error": {"message": "No."}}, DONE), "required field"),
    "usage that nobody asked for": (sse(ROLE, STOP, COUNTED, DONE), "was not asked for"),
    "a call without an id": (sse(ROLE, arguments("{}"), STOP, DONE), "has no id"),
    "a call without a name": (sse(ROLE, called(function={"arguments": ""}), STOP, DONE), "has no name"),
    "a call without a type": (sse(ROLE, arguments("", id="call_1"), STOP, DONE), "has no type"),
    "a call that begins with arguments": (
        sse(ROLE, called(function={"name": "ls", "arguments": "{}"}), STOP, DONE),
        'must have `arguments: ""`',
    ),
    "a call that begins without arguments": (
        sse(ROLE, called(function={"name": "ls"}), STOP, DONE),
        'must have `arguments: ""`',
    ),
    "an id that is repeated": (sse(ROLE, called(), arguments("{}", id="call_1"), STOP, DONE), "repeats its id"),
    "a call that begins twice": (sse(ROLE, called(), called(), STOP, DONE), "repeats its id"),
    "two calls with one id": (sse(ROLE, called(), called(1), STOP, DONE), "two calls have the id"),
    "an index that is left out": (sse(ROLE, called(1), STOP, DONE), "has index 0, not 1"),
    "a later delta without arguments": (
        sse(ROLE, called(), chunk({"tool_calls": [{"index": 0}]}), STOP, DONE),
        "has no arguments",
    ),
    "calls that are none": (sse(ROLE, chunk(finish="tool_calls"), DONE), "there are none"),
}
BAD_WITH_USAGE: dict[str, tuple[bytes, str]] = {
    "none": (sse(ROLE, STOP, DONE), "asked for, but is missing"),
    "before the finish reason": (sse(ROLE, COUNTED, STOP, DONE), "before the finish reason"),
    "twice": (sse(ROLE, STOP, COUNTED, COUNTED, DONE), "after the usage"),
    "beside a choice": (sse(ROLE, {**STOP, "usage": USAGE}, DONE), "usage beside choices"),
    "neither": (sse(ROLE, STOP, chunk(choices=[]), DONE), "neither choices nor usage"),
    "a wrong sum": (sse(ROLE, STOP, chunk(choices=[], usage={**USAGE, "total_tokens": 4}), DONE), "not the sum 5"),
    "no details": (
        sse(ROLE, STOP, chunk(choices=[], usage={key: USAGE[key] for key in list(USAGE)[:3]}), DONE),
        "lacks `prompt_tokens_details`",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_stream_is_refused(name: str) -> None:
    body, rule = BAD[name]
    with pytest.raises(AssertionError, match=rule):
        validate_stream(body)


@pytest.mark.parametrize("name", BAD_WITH_USAGE)
def test_bad_usage_is_refused(name: str) -> None:
    body, rule = BAD_WITH_USAGE[name]
    with pytest.raises(AssertionError, match=rule):
        validate_stream(body, include_usage=True)


# --- one value ---------------------------------------------------------------------------------------

COMPLETION: Json = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "auto",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hi", "refusal": None, "reasoning_content": "Hm."},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ],
    "usage": USAGE,
}
MODEL: Json = {"id": "auto", "object": "model", "created": 0, "owned_by": "cursor"}


def changed(value: Json, **changes: Any) -> bytes:
    """`None` takes a field away."""
    return json.dumps({key: new for key, new in {**value, **changes}.items() if new is not None}).encode()


@pytest.mark.parametrize(
    ("validate", "body"),
    [
        *((shapes.validate_completion, changed(COMPLETION, **{key: None})) for key in COMPLETION),
        (shapes.validate_completion, changed(COMPLETION, **ERROR)),
        (shapes.validate_completion, changed(COMPLETION, choices=[])),
        (shapes.validate_completion, changed(COMPLETION, choices=[{**COMPLETION["choices"][0], "index": 1}])),
        (
            shapes.validate_completion,
            changed(COMPLETION, choices=[{**COMPLETION["choices"][0], "finish_reason": "tool_calls"}]),
        ),
        (shapes.validate_failed_completion, changed(COMPLETION)),
        *((shapes.validate_model, changed(MODEL, **{key: None})) for key in MODEL),
        (shapes.validate_model, changed(MODEL, label="Auto")),
        (shapes.validate_models, changed({"object": "list", "data": [MODEL, MODEL]})),
        *((shapes.validate_error, changed({"error": {**ERROR["error"], key: 1}})) for key in ERROR["error"]),
        (shapes.validate_error, changed(ERROR, detail="No.")),
        (shapes.validate_error, b"<h1>Bad gateway</h1>"),
        (shapes.validate_error, b"\xff"),
    ],
)
def test_a_wrong_value_is_refused(validate: Callable[[bytes], object], body: bytes) -> None:
    with pytest.raises(AssertionError):
        validate(body)


# --- ours --------------------------------------------------------------------------------------------

AGENT_TOOLS: tuple[AgentTools, ...] = ("reasoning", "tool_calls", "none")


@pytest.mark.parametrize("found", scenarios(), ids=lambda found: found.name)
def test_every_scenario_keeps_to_the_rules(found: Scenario) -> None:
    events = list(read_events(found.lines, found.run))
    for agent_tools in AGENT_TOOLS:
        fold = CompletionFold(HEAD, agent_tools=agent_tools)
        for event in events:
            fold.push(event)
        whole = fold.completion()
        for include_usage in (False, True):
            encoder = ChunkEncoder(HEAD, include_usage=include_usage, agent_tools=agent_tools)
            stream = read_stream(b"".join(map(encoder.push, events)), include_usage=include_usage)
            if stream.error is None:
                message = shapes.validate_completion(msgspec.json.encode(whole)).choices[0].message
            else:
                failed = shapes.validate_failed_completion(msgspec.json.encode(whole))
                assert failed.error == stream.error
                message = failed.choices[0].message
            assert (stream.text, stream.reasoning) == (message.content, message.reasoning_content or "")
