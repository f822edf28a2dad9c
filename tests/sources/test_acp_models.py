"""The CLI's names of models as ACP's, with the options that make them the wanted variant."""

import pytest

from cursor_gateway.sources.acp.models import Choice, Option, candidates, nearest_variants, settings_for
from cursor_gateway.wire.payload import Fields

ONE_VARIANT = [
    "default[]",
    "grok-4.6[effort=high,fast=true]",
    "gpt-5[effort=low,fast=false]",
    "gpt-5-mini[]",
    "claude[thinking=true,effort=high]",
    "composer-2.5",
]


def variant(wanted: str, available: list[str]) -> str | None:
    names = dict.fromkeys(available, "")
    fitting = (id for id, rest in candidates(wanted, names) if settings_for(id, rest, {}) is not None)
    return next(fitting, None)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("auto", "default[]"),
        ("default", "default[]"),
        ("default[]", "default[]"),
        ("auto-smart[]", "default[]"),
        ("auto-smart[optimize_for=cost]", None),
        ("autopilot", None),
        ("grok-4.6", None),  # the fast variant must be asked for
        ("grok-4.6-high", None),
        ("grok-4.6-fast", "grok-4.6[effort=high,fast=true]"),
        ("grok-4.6-high-fast", "grok-4.6[effort=high,fast=true]"),
        ("grok-4.6-fast-fast", None),
        ("grok-4.6[effort=high,fast=true]", "grok-4.6[effort=high,fast=true]"),
        ("grok-4.6[fast=true]", "grok-4.6[effort=high,fast=true]"),
        ("grok-4.6[fast=true,reasoning=high]", "grok-4.6[effort=high,fast=true]"),
        ("grok-4.6[fast=true,size=big]", None),
        ("grok-4.6-low", None),
        ("gpt-5-low", "gpt-5[effort=low,fast=false]"),
        ("gpt-5", "gpt-5[effort=low,fast=false]"),
        ("gpt-5-fast", None),
        ("gpt-5-mini", "gpt-5-mini[]"),
        ("claude", "claude[thinking=true,effort=high]"),
        ("claude-high", None),
        ("claude-thinking-high", "claude[thinking=true,effort=high]"),
        ("composer-2.5", "composer-2.5"),
        ("composer-2.5-fast", None),
        ("opus", None),
    ],
)
def test_a_name_is_found_where_there_is_one_variant_of_each(wanted: str, expected: str | None) -> None:
    assert variant(wanted, ONE_VARIANT) == expected


@pytest.mark.parametrize("id", ["default", "default[]", "auto", "auto-smart[optimize_for=balanced]", "x9"])
@pytest.mark.parametrize("wanted", ["auto", "default", "auto-smart"])
def test_auto_is_found_under_any_id(wanted: str, id: str) -> None:
    names = {"gpt-5": "GPT", "auto-other": "Other", id: "Auto"}
    assert candidates(wanted, names)[0][0] == id
    assert settings_for(id, "[", {"fast": Option("fast", {"true": "", "false": ""})}) in ({}, {"fast": "false"})


def test_a_model_that_is_really_called_so_is_not_auto() -> None:
    assert candidates("auto-mini", {"default": "Auto"}) == []


def option(id: str, current: str, *values: str) -> Option:
    return Option(id, {value: value.title() for value in values}, current)


OPTIONS = {
    one.id: one
    for one in (
        option("reasoning_effort", "high", "low", "high", "xhigh"),
        option("fast", "true", "false", "true"),
        option("thinking", "true", "false", "true"),
        option("context", "256k", "256k", "1m"),
    )
}


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ("[", {"fast": "false"}),
        ("fast[", {"fast": "true", "thinking": "false"}),
        ("high[", {"reasoning_effort": "high", "fast": "false", "thinking": "false"}),
        ("thinking-xhigh-1m[", {"thinking": "true", "reasoning_effort": "xhigh", "context": "1m", "fast": "false"}),
        ("[effort=low, context=1m]", {"reasoning_effort": "low", "context": "1m", "fast": "false"}),
        ("low[fast=true]", {"reasoning_effort": "low", "fast": "true", "thinking": "false"}),
        ("high-low[", None),
        ("highest[", None),
        ("[effort=max]", None),
        ("[colour=red]", None),
    ],
)
def test_options_are_set_to_what_the_name_says(rest: str, expected: dict[str, str] | None) -> None:
    assert settings_for("grok-4.7", rest, OPTIONS) == expected


def test_what_cannot_be_turned_off_must_be_asked_for_or_is_left() -> None:
    always = {"fast": option("fast", "true", "true"), "thinking": option("thinking", "true", "true")}
    assert settings_for("m", "[", always) is None
    assert settings_for("m", "fast[", always) is None
    assert settings_for("m", "fast-thinking[", always) == {"fast": "true", "thinking": "true"}
    assert settings_for("m", "[", {"thinking": option("thinking", "true", "true")}) == {}
    assert settings_for("m", "thinking[", {"thinking": option("thinking", "false", "false")}) is None


def test_suggestions_can_be_had() -> None:
    choice = Choice(
        model="grok-4.7", names={"grok-4.7": "Grok", "grok-4.6[effort=high,fast=true]": "Grok", "default": "Auto"}
    )
    choice.options = OPTIONS
    assert "grok-4.7-high" in nearest_variants("grok-4.7-hight", choice)
    assert "grok-4.6-fast" in nearest_variants("grok-4.6", choice)
    assert nearest_variants("auto-mini", choice)[0] == "auto"


def test_answers_are_read() -> None:
    choice = Choice()
    model = {"id": "model", "currentValue": "b", "options": [{"value": "b", "name": "B"}]}
    grouped = {"id": "effort", "currentValue": "low", "options": [{"group": "g", "options": [{"value": "low"}]}]}
    listed = {"currentModelId": "a", "availableModels": [{"modelId": "a", "name": "A"}]}
    choice.learn(Fields({"models": listed, "configOptions": [model, grouped, {"id": "mode"}]}))
    assert (choice.model, choice.names, choice.label) == ("b", {"a": "A", "b": "B"}, "B")
    assert choice.options == {"effort": Option("effort", {"low": ""}, "low")}
    choice.learn(Fields({}))
    assert (choice.model, len(choice.options)) == ("b", 1)
    choice.learn(Fields({"models": {"availableModels": "elided"}, "configOptions": []}))
    assert (choice.model, choice.names, choice.options) == ("b", {"a": "A", "b": "B"}, {})
