"""Choose the tools, the mode and the model to request from the SDK."""

from typing import Literal

from cursor_gateway.model.documents import Mode
from cursor_gateway.sources.base import Turn

# Read-only tools, for the mode `ask`, which the SDK lacks.
_READING = ("read", "grep", "glob", "ls", "semSearch", "readLints", "readTodos", "webSearch", "webFetch")
_CALLERS = ("mcp",)  # gives access to the caller's tools and none of the agent's own
_ALWAYS_DENIED = ("askQuestion",)  # the bridge's protocol has no way to answer
# The agent never asks for permission, so what the CLI only does with `--force` is denied; a subagent has its own tools.
_FORCED = ("shell", "task", "webFetch", "webSearch")


def allowed_tools(turn: Turn) -> list[str] | None:
    """None: all of the agent's tools."""
    if turn.offered is not None:
        return list(_CALLERS)
    return list(_READING) if turn.mode == "ask" else None


def denied_tools(*, force: bool) -> list[str]:
    """These take precedence over allowed ones."""
    return [*_ALWAYS_DENIED, *(() if force else _FORCED)]


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
