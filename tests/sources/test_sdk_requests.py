"""What the SDK is asked for."""

from typing import Any

import pytest
from cursor_sdk import AgentOptions, CustomTool, LocalAgentOptions
from cursor_sdk.types import strip_empty
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from cursor_gateway.model.caller_tools import Tool, ToolResult
from cursor_gateway.model.messages import Image
from cursor_gateway.sources.base import OfferedTools, Turn
from cursor_gateway.sources.sdk.requests import (
    allowed_tools,
    content_of,
    definitions,
    denied_tools,
    guarded,
    mode_of,
    selection,
    setting_sources,
)
from tests.runs.scripted import new_run


class NoRunner:
    tools: list[Tool] = []

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        raise AssertionError


def turn(**fields: Any) -> Turn:
    return Turn(**{"run_id": "r", "prompt": "p", "model": "auto", "workspace": "/w", "folder": "/f", **fields})


def test_an_agent_has_its_tools_unless_it_only_answers_or_works_for_a_caller() -> None:
    offered = OfferedTools(server="caller", url="", runner=NoRunner())
    assert allowed_tools(turn()) is None
    assert allowed_tools(turn(mode="plan")) is None
    assert allowed_tools(turn(offered=offered)) == ["mcp"]
    assert allowed_tools(turn(mode="ask", offered=offered)) == ["mcp"]
    reading = allowed_tools(turn(mode="ask"))
    assert reading is not None
    assert not {"shell", "edit", "delete", "task", "mcp"} & {*reading}
    assert allowed_tools(turn(mode="ask", person=new_run())) == [*reading, "mcp"]


def test_what_needs_permission_is_denied_unless_the_gateway_can_be_asked_about_it() -> None:
    assert denied_tools([], force=True, asks=False) == ["askQuestion"]
    assert denied_tools([], force=False, asks=False) == ["askQuestion", "shell", "task", "webFetch", "webSearch"]
    assert denied_tools([], force=False, asks=True) == ["askQuestion", "webFetch", "webSearch"]


def test_the_sdk_has_two_modes() -> None:
    assert [mode_of(mode) for mode in ("agent", "ask", "debug", "plan")] == ["agent", "agent", "agent", "plan"]


@pytest.mark.parametrize(
    ("model", "meant"),
    [
        ("auto", {"id": "auto"}),
        (
            "opus[context=1m, effort=high]",
            {"id": "opus", "params": [{"id": "context", "value": "1m"}, {"id": "effort", "value": "high"}]},
        ),
        ("opus[]", {"id": "opus", "params": []}),
        ("opus[x", {"id": "opus[x"}),
    ],
)  # fmt: skip
def test_a_model_may_have_parameters(model: str, meant: dict[str, object]) -> None:
    assert selection(model) == meant


def test_commands_are_left_to_the_rules_if_there_is_one() -> None:
    assert "shell" not in denied_tools(["Shell(git)"], force=False, asks=False)
    assert "shell" in denied_tools(["Mcp(*:a)"], force=False, asks=False)


def test_settings_are_loaded_from_the_workspace_and_the_user_but_not_for_the_callers_tools() -> None:
    assert setting_sources(turn(), loads_settings=True) == ["project", "user"]
    assert setting_sources(turn(), loads_settings=False) == ["user"]
    for loads in (True, False):
        assert setting_sources(
            turn(offered=OfferedTools(server="caller", url="", runner=NoRunner())), loads_settings=loads
        ) == ["project"]


# --- The caller's tools ----------------------------------------------------------------------------


def sent(schema: dict[str, Any]) -> Any:
    """What arrives of a schema: the SDK's own stripping, as often as it does it."""
    (tool,) = definitions([Tool("add", "Adds.", schema)])
    custom = CustomTool(lambda arguments, context: None, tool.description, tool.parameters)
    options = AgentOptions(local=LocalAgentOptions(custom_tools={"add": custom})).to_json()
    return strip_empty(options)["local"]["customTools"]["add"]["inputSchema"]


def test_a_tool_without_a_word_is_still_a_tool() -> None:
    (tool,) = definitions([Tool("add")])
    assert tool.description == "The caller's tool add."
    assert sent({}) == {"type": "object", "description": "Anything."}
    assert definitions([Tool("add", "Adds.", {"properties": {}})])[0].description == "Adds."


def test_a_plain_schema_is_sent_as_it_is() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer", "default": 0}, "b": {"enum": ["", None]}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert sent(schema) == schema


@pytest.mark.parametrize(
    ("schema", "meant"),
    [
        ({"properties": {"a": {}}}, {"properties": {"a": {"description": "Anything."}}}),
        ({"properties": {"a": {"required": []}}}, {"properties": {"a": {"description": "Anything."}}}),
        ({"properties": {"a": {"dependentRequired": {"b": []}}}}, {"properties": {"a": {"description": "Anything."}}}),
        ({"required": [], "title": ""}, {"description": "Anything."}),
        ({"properties": {"a": {"type": "string", "default": ""}}},
         {"properties": {"a": {"type": "string", "description": 'The default is "".'}}}),
        ({"default": {"a": ""}, "description": "What."}, {"description": 'What. The default is {"a": ""}.'}),
        ({"description": "What.", "default": None}, {"description": "What. The default is null."}),
        ({"description": "", "default": []}, {"description": "The default is []."}),
        ({"description": 7, "default": []}, {"description": "The default is []."}),
        ({"default": {"a": 1}}, {"default": {"a": 1}}),
        ({"const": ""}, {"allOf": [{"const": ""}]}),
        ({"const": None, "allOf": [{}]}, {"allOf": [{}, {"const": None}]}),
        ({"const": {"a": []}, "allOf": "nonsense"}, {"allOf": [{"const": {"a": []}}]}),
        ({"const": 0}, {"const": 0}),
        ({"enum": []}, {"allOf": [{"not": {}}]}),
        ({"not": {}}, {"not": {"description": "Anything."}}),
        ({"items": {}}, {"items": {"description": "Anything."}}),
        ({"items": True}, {"items": True}),
        ({"$ref": ""}, {"$ref": "#"}),
        ({"$defs": {"x": {}, "y": True}}, {"$defs": {"x": {"description": "Anything."}, "y": True}}),
        ({"dependencies": {"a": [], "b": ["c"]}}, {"dependencies": {"b": ["c"]}}),
    ],
)  # fmt: skip
def test_what_would_be_dropped_is_written_in_another_way(schema: dict[str, Any], meant: dict[str, Any]) -> None:
    assert strip_empty(guarded(schema)) == meant


values = st.recursive(
    st.sampled_from([None, "", "x", 0, 1, True, False]),
    lambda below: st.one_of(st.lists(below, max_size=2), st.dictionaries(st.sampled_from("ab"), below, max_size=2)),
    max_leaves=4,
)


def _schemas(below: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    named = st.dictionaries(st.sampled_from("ab"), below, max_size=2)
    many = st.lists(below, min_size=1, max_size=2)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "string", "array", ["null", "integer"]]),
            "const": values,
            "enum": st.lists(values, max_size=2),
            "default": values,
            "description": st.sampled_from(["", "What."]),
            "required": st.lists(st.sampled_from("ab"), max_size=2, unique=True),
            "properties": named,
            "patternProperties": st.dictionaries(st.sampled_from(["^a", ""]), below, max_size=1),
            "additionalProperties": below,
            "dependentRequired": st.dictionaries(st.sampled_from("ab"), st.sampled_from([[], ["a"]]), max_size=1),
            "dependentSchemas": named,
            "items": below,
            "contains": below,
            "not": below,
            "if": below,
            "then": below,
            "else": below,
            "allOf": many,
            "anyOf": many,
            "pattern": st.sampled_from(["", "^x"]),
            "propertyNames": below,
            "unevaluatedProperties": st.booleans(),
        },
    )


schemas: st.SearchStrategy[Any] = st.recursive(st.one_of(st.booleans(), st.just({})), _schemas, max_leaves=6)


@given(schemas.filter(lambda schema: isinstance(schema, dict)), st.lists(values, min_size=1, max_size=5))
def test_a_schema_that_has_lost_what_is_dropped_means_the_same(schema: dict[str, Any], instances: list[Any]) -> None:
    before, after = Draft202012Validator(schema), Draft202012Validator(strip_empty(guarded(schema)))
    for instance in instances:
        assert after.is_valid(instance) == before.is_valid(instance), instance


@given(schemas.filter(lambda schema: isinstance(schema, dict)))
def test_nothing_of_a_guarded_schema_is_dropped_that_means_something(schema: dict[str, Any]) -> None:
    assert strip_empty({"schema": guarded(schema)})["schema"]
    assert guarded(guarded(schema)) == guarded(schema)


def test_a_result_is_always_content() -> None:
    image = Image(0, "image/png", b"hi")
    picture = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    said = {"type": "text", "text": "2"}
    assert content_of(ToolResult(text="2")) == {"content": [said]}
    assert content_of(ToolResult(text="")) == {"content": [{"type": "text", "text": ""}]}
    assert content_of(ToolResult(text="", images=(image,))) == {"content": [picture]}
    assert content_of(ToolResult(text="2", images=(image,), is_error=True)) == {
        "content": [said, picture],
        "isError": True,
    }
    assert content_of(ToolResult(text="{}", structured={"a": 1}))["structuredContent"] == {"a": 1}
    assert "structuredContent" not in content_of(ToolResult(text="[]", structured=[]))
