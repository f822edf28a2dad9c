"""Choose the tools, the mode and the model to request from the SDK."""

from collections.abc import Sequence
from typing import Literal

from cursor_gateway.model.documents import Mode
from cursor_gateway.sources.base import Turn
from cursor_gateway.sources.cursor.permissions import parsed

# Read-only tools, for the mode `ask`, which the SDK lacks.
_READING = ("read", "grep", "glob", "ls", "semSearch", "readLints", "readTodos", "webSearch", "webFetch")
_CUSTOM = ("mcp",)  # gives access to the tools of the gateway and its caller, and none of the agent's own
_ALWAYS_DENIED = ("askQuestion",)  # the bridge's protocol has no way to answer
# What the CLI only does with `--force`. The gateway decides about each command, also of a sub-agent; web access cannot
# be asked about, because Cursor's servers do it.
_ASKED, _FORCED = ("shell", "task"), ("webFetch", "webSearch")


def allowed_tools(turn: Turn) -> list[str] | None:
    """None: all of the agent's tools."""
    if turn.offered is not None:
        return list(_CUSTOM)
    if turn.mode == "ask":
        return [*_READING, *(_CUSTOM if turn.person is not None else ())]
    return None


def denied_tools(rules: Sequence[str], *, force: bool, asks: bool) -> list[str]:
    """What Cursor is told not to use; this takes precedence over what is allowed. With `asks`, or with a rule that
    allows commands, the gateway decides about each."""
    if force:
        return list(_ALWAYS_DENIED)
    kept = _ASKED if asks else ("shell",) if parsed(rules, "Shell") else ()
    return [*_ALWAYS_DENIED, *(tool for tool in (*_ASKED, *_FORCED) if tool not in kept)]


def setting_sources(turn: Turn, *, loads_settings: bool) -> list[str]:
    """Where the runtime finds its hooks, and with them rules and MCP servers."""
    if turn.offered is not None:
        return ["project"]  # the gateway's own folder
    return ["project", "user"] if loads_settings else ["user"]


def mode_of(mode: Mode) -> Literal["agent", "plan"]:
    """The SDK has only these two modes."""
    return "plan" if mode == "plan" else "agent"


def selection(model: str) -> dict[str, object]:
    """Parses `name[parameter=value,…]`, as in the CLI."""
    name, bracket, rest = model.partition("[")
    if not bracket or not rest.endswith("]"):
        return {"id": model}
    pairs = [pair.partition("=") for pair in rest[:-1].split(",") if pair]
    return {"id": name, "params": [{"id": id.strip(), "value": value.strip()} for id, _, value in pairs]}
