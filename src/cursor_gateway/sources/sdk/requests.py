"""A turn in; which tools, mode and model the SDK is asked for, out."""

from typing import Literal

from cursor_gateway.model.documents import Mode
from cursor_gateway.sources.base import Turn

# What changes nothing. The SDK has no mode of this name.
_READING = ("read", "grep", "glob", "ls", "semSearch", "readLints", "readTodos", "webSearch", "webFetch")
_CALLERS = ("mcp",)  # the caller's tools are reached by it, and nothing of the agent's own is left
_ALWAYS_DENIED = ("askQuestion",)  # nothing in the bridge's protocol could answer it
# The agent asks nobody, so what the CLI does not do without `--force` is not there; a task's agent has its own tools.
_FORCED = ("shell", "task", "webFetch", "webSearch")


def allowed_tools(turn: Turn) -> list[str] | None:
    """None: all that the agent has."""
    if turn.offered is not None:
        return list(_CALLERS)
    return list(_READING) if turn.mode == "ask" else None


def denied_tools(*, force: bool) -> list[str]:
    """These win over those that are allowed."""
    return [*_ALWAYS_DENIED, *(() if force else _FORCED)]


def mode_of(mode: Mode) -> Literal["agent", "plan"]:
    """The SDK has these two."""
    return "plan" if mode == "plan" else "agent"


def selection(model: str) -> dict[str, object]:
    """`name[parameter=value,…]`, as the CLI takes it."""
    name, bracket, rest = model.partition("[")
    if not bracket or not rest.endswith("]"):
        return {"id": model}
    pairs = [pair.partition("=") for pair in rest[:-1].split(",") if pair]
    return {"id": name, "params": [{"id": id.strip(), "value": value.strip()} for id, _, value in pairs]}
