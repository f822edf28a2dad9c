"""What the SDK is asked for."""

from typing import Any

import pytest

from cursor_gateway.model.caller_tools import Tool, ToolResult
from cursor_gateway.sources.base import Offered, Turn
from cursor_gateway.sources.sdk.requests import allowed_tools, denied_tools, mode_of, selection, setting_sources
from tests.runs.scripted import new_run


class NoRunner:
    tools: list[Tool] = []

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        raise AssertionError


def turn(**fields: Any) -> Turn:
    return Turn(**{"run_id": "r", "prompt": "p", "model": "auto", "workspace": "/w", "folder": "/f", **fields})


def test_an_agent_has_its_tools_unless_it_only_answers_or_works_for_a_caller() -> None:
    offered = Offered(server="caller", url="", runner=NoRunner())
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
            turn(offered=Offered(server="caller", url="", runner=NoRunner())), loads_settings=loads
        ) == ["project"]
