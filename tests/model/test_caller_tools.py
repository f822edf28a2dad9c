"""The caller's tools: what an offer leaves to be called, what the model is told of it, and which schemas are taken."""

from typing import Any

import pytest

from cursor_gateway.errors import InvalidRequest
from cursor_gateway.model.caller_tools import (
    AutoTool,
    CallerCall,
    NamedTool,
    NoTool,
    Offer,
    RequiredTool,
    Tool,
    ToolChoice,
    make_tool,
    preamble,
    usable,
)

BASH, READ = Tool("bash"), Tool("read")


@pytest.mark.parametrize(
    ("choice", "left"),
    [(NoTool(), []), (AutoTool(), [BASH, READ]), (RequiredTool(), [BASH, READ]), (NamedTool("read"), [READ])],
)
def test_a_choice_leaves_some_of_the_tools(choice: ToolChoice, left: list[Tool]) -> None:
    assert list(usable(Offer(tools=[BASH, READ], choice=choice))) == left


def test_left_out_all_tools_may_be_called_several_at_once() -> None:
    offer = Offer(tools=[BASH, READ])
    assert (offer.choice, offer.parallel) == (AutoTool(), True)


# --- what the model is told -------------------------------------------------------------------------

TOLD: dict[str, tuple[ToolChoice, list[str], list[str]]] = {  # what is said, and what is not
    "none": (NoTool(), ["without any tool"], ["`bash`", "`read`", "must call", "`mine`"]),
    "any": (AutoTool(), ["server `mine`: `bash`, `read`."], ["must call", "without any tool"]),
    "some": (RequiredTool(), ["server `mine`: `bash`, `read`.", "must call at least one"], ["without any tool"]),
    "one": (NamedTool("read"), ["server `mine`: `read`.", "must call it"], ["`bash`", "without any tool"]),
}


@pytest.mark.parametrize(("choice", "said", "unsaid"), TOLD.values(), ids=TOLD)
def test_the_model_is_told_what_it_may_use_and_what_it_must(
    choice: ToolChoice, said: list[str], unsaid: list[str]
) -> None:
    result = preamble(Offer(tools=[BASH, READ], choice=choice), "mine")
    assert "your own tools (shell, reading, searching and editing files, the web) are switched off" in result
    assert all(words in result for words in said)
    assert not any(words in result for words in unsaid)


# --- schemas ----------------------------------------------------------------------------------------

OBJECT: dict[str, Any] = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


@pytest.mark.parametrize(
    ("parameters", "schema"),
    [
        (None, {"type": "object", "properties": {}}),
        ({}, {"type": "object", "properties": {}}),
        (OBJECT, OBJECT),
        ({"properties": {"a": {}}}, {"type": "object", "properties": {"a": {}}}),
        ({"$ref": "#/$defs/x", "$defs": {"x": {}}}, {"type": "object", "$ref": "#/$defs/x", "$defs": {"x": {}}}),
    ],
)
def test_a_tool_takes_an_object_also_where_its_schema_does_not_say_so(
    parameters: dict[str, Any] | None, schema: dict[str, Any]
) -> None:
    tool = make_tool("read", None, parameters, "tools[0]")
    assert tool == Tool("read", "", schema, strict=False)


def test_the_rest_of_a_tool_stays_as_it_is() -> None:
    assert make_tool("read", "Reads.", OBJECT, "x", strict=True) == Tool("read", "Reads.", OBJECT, strict=True)


@pytest.mark.parametrize("type", ["string", "array", None, ["string", "null"]])
def test_a_tool_that_takes_no_object_is_refused(type: object) -> None:
    with pytest.raises(InvalidRequest, match=r"^tools\[3\]\.parameters: .*`object`") as caught:
        make_tool("read", None, {"type": type}, "tools[3]")
    assert caught.value.param == "tools[3].parameters"


@pytest.mark.parametrize("name", ["", "a b", "a\nb", "`x`", "Mcp(*)", "x" * 129])
def test_a_name_that_could_mean_something_else_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a valid tool name") as caught:
        make_tool(name, None, None, "tools[1]")
    assert caught.value.param == "tools[1].name"


def test_a_schema_that_is_nested_too_deeply_is_refused() -> None:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(300):
        schema = {"type": "object", "properties": {"a": schema}}
    with pytest.raises(InvalidRequest, match="nested too deeply") as raised:
        make_tool("read", None, schema, "tools[2]")
    assert raised.value.param == "tools[2].parameters"


def test_a_schema_that_is_too_large_to_be_checked_is_refused() -> None:
    large = {"type": "object", "properties": {f"field{number}": {"type": "string"} for number in range(10_000)}}
    with pytest.raises(InvalidRequest, match="over 131072 bytes") as raised:
        make_tool("read", None, large, "tools[2]")
    assert raised.value.param == "tools[2].parameters"


# --- calls ------------------------------------------------------------------------------------------


def test_the_same_call_has_the_same_key_whatever_its_id_and_the_order_of_its_arguments() -> None:
    assert CallerCall("1", "read", {"a": 1, "b": [2]}).key() == CallerCall("2", "read", {"b": [2], "a": 1}).key()


@pytest.mark.parametrize(
    "other",
    [
        CallerCall("1", "bash", {"a": [1, 2]}),
        CallerCall("1", "read", {"a": [2, 1]}),
        CallerCall("1", "read", {"a": "[1, 2]"}),
        CallerCall("1", "read", {}),
    ],
    ids=lambda call: call.key(),
)
def test_another_call_has_another_key(other: CallerCall) -> None:
    assert other.key() != CallerCall("1", "read", {"a": [1, 2]}).key()
