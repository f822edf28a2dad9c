"""What the SDK is asked for."""

from typing import Any

import pytest

from cursor_gateway.model.caller_tools import Tool, ToolResult
from cursor_gateway.sources.base import Offered, Turn
from cursor_gateway.sources.sdk.requests import allowed_tools, denied_tools, mode_of, selection


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


def test_nobody_is_asked_so_what_needs_permission_is_denied() -> None:
    assert denied_tools(force=True) == ["askQuestion"]
    assert {"askQuestion", "shell", "task", "webFetch"} <= {*denied_tools(force=False)}


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
