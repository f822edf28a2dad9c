"""The Messages request: what real clients send is taken, little is refused, nothing crashes."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.dialects.messages.dialect import IGNORED, MessagesOptions, MessagesRequest, countable, read_request
from cursor_gateway.errors import InvalidRequest
from cursor_gateway.model.caller_tools import AutoTool, NamedTool, NoTool, Offer, RequiredTool, Tool, ToolChoice
from cursor_gateway.model.messages import UserMessage
from cursor_gateway.prompting.structured import JsonSchema
from tests.strategies import examples

HI = [{"role": "user", "content": "Hi"}]
LOOK = {"name": "look", "description": "Looks.", "input_schema": {"type": "object", "properties": {"a": {}}}}
SCHEMA = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}


def read(**body: Any) -> MessagesRequest:
    return read_request(json.dumps({"model": "claude-opus-5-5", "max_tokens": 100, "messages": HI, **body}).encode())


def test_the_smallest_request() -> None:
    asked = read()
    assert (asked.model, asked.conversation.messages) == ("claude-opus-5-5", (UserMessage("Hi"),))
    assert (asked.stream, asked.max_tokens, asked.stop, asked.user_id) == (False, 100, (), "")
    assert (asked.thinking, asked.tool_types, asked.offer, asked.format) == (False, (), None, None)
    assert (asked.cursor, asked.takes_blocks) == (MessagesOptions(), False)


def test_all_that_is_honoured() -> None:
    asked = read(
        stream=True,
        stop_sequences=["END"],
        metadata={"user_id": "me"},
        cursor={"mode": "ask", "actions": "native", "conversationId": "conv_1"},
    )
    assert (asked.stream, asked.stop, asked.user_id) == (True, ("END",), "me")
    assert asked.cursor == MessagesOptions(mode="ask", actions="native", conversation_id="conv_1")


@pytest.mark.parametrize(("limit", "expected"), [(1, 1), (15_999, 15_999), (16_000, None), (128_000, None)])
def test_the_largest_limits_are_none(limit: int, expected: int | None) -> None:
    assert read(max_tokens=limit).max_tokens == expected


@pytest.mark.parametrize(
    ("thinking", "expected"),
    [
        ({"type": "enabled", "budget_tokens": 1024}, True),
        ({"type": "adaptive"}, True),
        ({"type": "adaptive", "display": "summarized"}, True),
        ({"type": "adaptive", "display": "omitted"}, False),
        ({"type": "disabled"}, False),
        (None, False),
    ],
)
def test_thinking_is_on_or_off(thinking: Any, expected: bool) -> None:
    asked = read(thinking=thinking)
    assert (asked.thinking, asked.takes_blocks) == (expected, expected)


def test_what_changes_nothing_is_ignored() -> None:
    ignored = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 5,
        "context_management": {"edits": []},
        "container": "c",
        "mcp_servers": [{"type": "url", "url": "https://x", "name": "x"}],
        "service_tier": "auto",
        "speed": "fast",
        "betas": ["x"],
        "diagnostics": {},
        "cache_control": {"type": "ephemeral"},
        "output_config": {"effort": "high"},
        "thinking": {"type": "disabled", "budget_tokens": 5},
        "something_new": [1],
    }
    assert read(**ignored) == read()
    assert {name.partition(".")[0].partition("[")[0] for name in IGNORED} - ignored.keys() == {"tools", "messages"}


# --- tools ------------------------------------------------------------------------------------------


def test_tools_with_a_schema_are_the_callers() -> None:
    more = {"type": "custom", "defer_loading": True, "strict": True, "cache_control": {"type": "ephemeral"}}
    asked = read(tools=[{**LOOK, **more}, {"name": "nothing"}, {"type": "web_search_20250305", "name": "web_search"}])
    nothing = Tool("nothing", "", {"type": "object", "properties": {}})
    assert asked.offer == Offer(tools=(Tool("look", "Looks.", LOOK["input_schema"]), nothing))  # type: ignore[arg-type] # a schema is a dict
    assert asked.tool_types == ("custom", "custom", "web_search_20250305")
    assert asked.takes_blocks


@pytest.mark.parametrize(
    "type",
    [
        *("web_search_20250305", "web_fetch_20250910", "code_execution_20250825", "bash_20250124", "memory_20250818"),
        *("text_editor_20250728", "computer_20250124", "tool_search_tool_regex_20251119", "something_new"),
    ],
)
def test_anthropics_own_tools_are_never_refused(type: str) -> None:
    asked = read(tools=[{"type": type, "name": "x"}], tool_choice={"type": "tool", "name": "x"})
    assert (asked.offer, asked.tool_types) == (None, (type,))


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, AutoTool()),
        ({"type": "auto"}, AutoTool()),
        ({"type": "any"}, RequiredTool()),
        ({"type": "none"}, NoTool()),
        ({"type": "tool", "name": "look"}, NamedTool("look")),
        ({"type": "tool", "name": "web_search"}, AutoTool()),
    ],
)
def test_what_may_be_called(choice: Any, expected: ToolChoice) -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    asked = read(tools=[LOOK, search], **({"tool_choice": choice} if choice else {}))
    assert asked.offer is not None
    assert (asked.offer.choice, asked.offer.parallel) == (expected, True)


def test_one_call_at_a_time() -> None:
    asked = read(tools=[LOOK], tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    assert asked.offer is not None
    assert not asked.offer.parallel


# --- formats ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["output_config", "output_format"])
def test_an_answer_may_have_to_be_json(where: str) -> None:
    format = {"type": "json_schema", "schema": SCHEMA}
    asked = read(**{where: {"format": format} if where == "output_config" else format})
    assert asked.format == JsonSchema(SCHEMA, strict=True)


# --- refusals ---------------------------------------------------------------------------------------

LARGE = {"type": "object", "description": "x" * 140_000}
REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "messages"),
    ({"messages": None}, "messages"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": "many"}, "max_tokens"),
    ({"model": ""}, "model"),
    ({"stop_sequences": [""]}, "stop_sequences[0]"),
    ({"tools": [LOOK, LOOK]}, "tools[1].name"),
    ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
    ({"tools": [{"name": "look", "input_schema": 5}]}, "tools[0].input_schema"),
    ({"tools": [LOOK], "tool_choice": {"type": "tool", "name": "see"}}, "tool_choice.name"),
    ({"tools": [LOOK], "tool_choice": {"type": "every"}}, "tool_choice.type"),
    ({"tool_choice": {"type": "any"}}, "tool_choice"),
    ({"output_config": {"format": {"type": "grammar"}}}, "output_config.format.type"),
    ({"output_config": {"format": {"type": "json_schema", "schema": {"type": 5}}}}, "output_config.format.schema"),
    ({"output_format": {"type": "json_schema", "schema": LARGE}}, "output_format.schema"),
    ({"cursor": {"mode": "quick"}}, "cursor.mode"),
    ({"cursor": {"action": "text"}}, "cursor.action"),
    ({"cursor": {"actions": "loud"}}, "cursor.actions"),
]


@pytest.mark.parametrize(("body", "param"), REFUSALS, ids=[param for _, param in REFUSALS])
def test_what_is_wrong_is_named(body: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read(**body)
    assert refused.value.param == param


@pytest.mark.parametrize("missing", ["model", "max_tokens", "messages"])
def test_what_is_missing_is_named(missing: str) -> None:
    body: dict[str, Any] = {"model": "auto", "max_tokens": 5, "messages": HI}
    del body[missing]
    with pytest.raises(InvalidRequest, match=f"{missing} is missing"):
        read_request(json.dumps(body).encode())


# --- counting ---------------------------------------------------------------------------------------


def test_all_texts_are_counted_and_no_limit_is_needed() -> None:
    call = {"type": "tool_use", "id": "call_1", "name": "look", "input": {"a": 1}}
    messages = [*HI, {"role": "assistant", "content": [call]}]
    body = json.dumps({"messages": messages, "system": "Be kind.", "tools": [LOOK]}).encode()
    assert countable(body) == ["Be kind.", "Hi", "", 'look {"a":1}', json.dumps(LOOK, separators=(",", ":"))]
    assert countable(json.dumps({"model": "x", "messages": HI}).encode()) == ["Hi"]


_values = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.lists(st.text(max_size=3)))
_names = st.sampled_from(
    [*IGNORED, "thinking", "tools", "tool_choice", "output_config", "metadata", "system", "cursor"]
)


@examples(200)
@given(st.dictionaries(_names, _values | st.dictionaries(st.sampled_from(["type", "name", "format"]), _values)))
def test_any_values_are_read_or_refused(body: dict[str, Any]) -> None:
    with suppress(InvalidRequest):
        read(**body)
