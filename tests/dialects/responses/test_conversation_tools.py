"""Tools as requests declare them, and as the agent calls them."""

from typing import Any

import pytest

from cursor_gateway.dialects.responses.conversation import Declared, Forms, Toolbox, arguments_of, input_of, read_tools
from cursor_gateway.errors import InvalidRequest
from cursor_gateway.model.caller_tools import AutoTool, NamedTool, NoTool, RequiredTool, ToolChoice

CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {"type": "function", "name": "weather", "description": "The weather.", "parameters": CITY, "strict": True}
PATCH = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Changes files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"},
}
NOTES = {"type": "namespace", "name": "notes", "description": "All notes.", "tools": [WEATHER, PATCH]}


def read(*tools: dict[str, Any], choice: Any = None, parallel: bool = True) -> Toolbox:
    return read_tools([(f"tools[{number}]", tool) for number, tool in enumerate(tools)], choice, parallel=parallel)


def offered(toolbox: Toolbox) -> list[str]:
    return [] if toolbox.offer is None else [tool.name for tool in toolbox.offer.tools]


def chosen(toolbox: Toolbox) -> ToolChoice:
    assert toolbox.offer is not None
    return toolbox.offer.choice


def test_a_function_is_offered_as_it_is() -> None:
    toolbox = read(WEATHER, parallel=False)
    assert toolbox.offer is not None
    (tool,) = toolbox.offer.tools
    assert (tool.name, tool.description, tool.parameters, tool.strict) == ("weather", "The weather.", CITY, True)
    assert not toolbox.offer.parallel
    assert toolbox.forms.of("weather") == Declared("function", "weather")


def test_a_custom_tool_takes_a_text_that_its_grammar_describes() -> None:
    toolbox = read(PATCH, {"type": "custom", "name": "free"})
    assert toolbox.offer is not None
    patch, free = toolbox.offer.tools
    assert patch.parameters["required"] == ["input"]
    assert "Changes files." in patch.description
    assert "lark grammar:\n\nstart: /.+/" in patch.description
    assert free.description == ""
    assert toolbox.forms.of("free") == Declared("custom", "free")
    assert input_of({"input": "x"}) == "x"
    assert input_of({"other": 1}) == '{"other":1}'
    assert arguments_of('a "b"') == '{"input":"a \\"b\\""}'


def test_a_grammar_may_be_nested() -> None:
    nested = {"type": "grammar", "grammar": {"definition": "x+"}}
    toolbox = read({"type": "custom", "name": "f", "format": nested})
    assert toolbox.offer is not None
    assert "text grammar:\n\nx+" in toolbox.offer.tools[0].description


def test_tools_of_a_namespace_have_names_of_their_own() -> None:
    toolbox = read(WEATHER, NOTES)
    assert offered(toolbox) == ["weather", "notes__weather", "notes__apply_patch"]
    assert toolbox.forms.of("notes__weather") == Declared("function", "weather", "notes")
    assert toolbox.forms.of("notes__apply_patch") == Declared("custom", "apply_patch", "notes")
    assert toolbox.offer is not None
    assert toolbox.offer.tools[1].description == "All notes.\n\nThe weather."
    assert toolbox.forms.flat_name("weather", "notes") == "notes__weather"
    assert toolbox.forms.flat_name("gone", "notes") == "notes__gone"
    assert Forms().of("gone") == Declared("function", "gone")


def test_names_are_made_valid_and_unique() -> None:
    long = "x" * 100
    toolbox = read(
        {"type": "function", "name": "a b"},
        {"type": "function", "name": "a.b"},
        {"type": "function", "name": "a.b"},
        {"type": "function", "name": long},
        {"type": "function", "name": long + "y"},
        {"type": "function", "name": "é"},
    )
    names = offered(toolbox)
    assert names[:2] == ["a_b", "a_b_2"]
    assert len(names) == 5
    assert all(0 < len(name) <= 64 for name in names)
    assert toolbox.forms.of(names[2]).name == long
    with pytest.raises(InvalidRequest, match="length >= 1"):
        read({"type": "function", "name": ""})


@pytest.mark.parametrize(
    "type",
    [
        "web_search",
        "web_search_preview",
        "tool_search",
        "mcp",
        "file_search",
        "code_interpreter",
        "shell",
        "local_shell",
        "apply_patch",
        "computer_use_preview",
        "image_generation",
        "new",
    ],
)
def test_other_types_are_ignored(type: str) -> None:
    assert read({"type": type}).offer is None
    assert offered(read({"type": "namespace", "name": "n", "tools": [{"type": type}, NOTES]})) == []
    assert read({"type": type}, choice="required").offer is None


def test_chats_form_of_a_function_is_understood() -> None:
    assert offered(read({"type": "function", "function": {"name": "weather"}})) == ["weather"]


def test_a_wrong_tool_names_its_place() -> None:
    with pytest.raises(InvalidRequest) as raised:
        read(WEATHER, {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": 7}]})
    assert raised.value.param == "tools[1].tools[0]"


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, AutoTool()),
        ("auto", AutoTool()),
        ("none", NoTool()),
        ("required", RequiredTool()),
        ({"type": "function", "name": "weather"}, NamedTool("weather")),
        ({"type": "custom", "name": "apply_patch"}, NamedTool("notes__apply_patch")),
        ({"type": "function", "name": "weather", "namespace": "notes"}, NamedTool("notes__weather")),
        ({"type": "web_search"}, AutoTool()),
    ],
)
def test_the_choice(choice: Any, expected: ToolChoice) -> None:
    assert chosen(read(WEATHER, NOTES, choice=choice)) == expected


def test_only_allowed_tools_are_offered() -> None:
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "weather"}]}
    toolbox = read(WEATHER, PATCH, choice=allowed)
    assert (offered(toolbox), chosen(toolbox)) == (["weather"], RequiredTool())
    either = {"type": "allowed_tools", "tools": [{"type": "web_search"}, {"type": "custom", "name": "apply_patch"}]}
    toolbox = read(WEATHER, PATCH, choice=either)
    assert (offered(toolbox), chosen(toolbox)) == (["apply_patch"], AutoTool())


@pytest.mark.parametrize(
    "choice",
    [
        7,
        "all",
        {},
        {"type": "function"},
        {"type": "function", "name": "other"},
        {"type": "function", "name": "weather", "namespace": 7},
        {"type": "allowed_tools", "tools": [{"type": "function", "name": "other"}]},
        {"type": "allowed_tools", "tools": 7},
        {"type": "allowed_tools", "tools": [{"name": 7}]},
    ],
)
def test_a_wrong_choice_is_refused(choice: Any) -> None:
    with pytest.raises(InvalidRequest) as raised:
        read(WEATHER, choice=choice)
    assert raised.value.param == "tool_choice"


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "other"}])
def test_nothing_can_be_chosen_of_nothing(choice: Any) -> None:
    with pytest.raises(InvalidRequest):
        read(choice=choice)
