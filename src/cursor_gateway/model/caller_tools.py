"""Tools that the caller runs: what is offered, what may be called, the calls, and their results."""

import json
import re
from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Struct

from cursor_gateway.errors import InvalidRequest
from cursor_gateway.model.messages import Image
from cursor_gateway.wire.payload import too_deep

LARGEST_SCHEMA = 128 * 1024  # bytes: checking a schema of this size blocks the event loop for a second
_NAME = re.compile(r"[A-Za-z0-9_./:-]{1,128}")  # part of the prompt and of the agent's rules


class Tool(Struct, frozen=True):
    """One of the caller's functions."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}  # JSON Schema of an object; empty: any object
    strict: bool = False


class NoTool(Struct, frozen=True, tag=True):
    pass


class AutoTool(Struct, frozen=True, tag=True):
    """The model decides whether to call any."""


class RequiredTool(Struct, frozen=True, tag=True):
    """At least one must be called."""


class NamedTool(Struct, frozen=True, tag=True):
    name: str


ToolChoice: TypeAlias = NoTool | AutoTool | RequiredTool | NamedTool


class Offer(Struct, frozen=True, kw_only=True):
    """The tools that one request offers. The agent's own tools are disabled in such a run."""

    tools: Sequence[Tool]
    choice: ToolChoice = AutoTool()
    parallel: bool = True  # whether the caller may get several calls at once


class CallerCall(Struct, frozen=True):
    """One call, for the caller to run."""

    id: str
    name: str
    arguments: dict[str, Any]

    def key(self) -> str:
        """Equal for equal calls."""
        return f"{self.name} {json.dumps(self.arguments, sort_keys=True)}"


class ToolResult(Struct, frozen=True, kw_only=True):
    """The result of a caller's tool."""

    text: str
    images: tuple[Image, ...] = ()
    structured: Any = UNSET  # if it is not just text: the value that `text` has as JSON
    is_error: bool = False


def make_tool(
    name: str, description: str | None, parameters: dict[str, Any] | None, param: str, *, strict: bool = False
) -> Tool:
    """Raises `InvalidRequest`. `param` is the tool's path in the request."""
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"{param}.name: {name[:100]!r} is not a valid tool name; use up to 128 letters, digits and _ - . : /.",
            param=f"{param}.name",
        )
    schema = parameters or {"properties": {}}
    if "object" not in (kind if isinstance(kind := schema.get("type", "object"), list) else [kind]):
        raise InvalidRequest(
            f"{param}.parameters: The parameters must be an object; send a JSON Schema of type `object`, or omit it.",
            param=f"{param}.parameters",
        )
    if too_deep(schema):
        raise InvalidRequest(
            f"{param}.parameters: The schema is nested too deeply; send a flatter one.",
            param=f"{param}.parameters",
        )
    if len(msgspec.json.encode(schema)) > LARGEST_SCHEMA:
        raise InvalidRequest(
            f"{param}.parameters: The schema is over {LARGEST_SCHEMA} bytes; send a smaller one.",
            param=f"{param}.parameters",
        )
    return Tool(name, description or "", {**schema, "type": "object"}, strict)


def preamble(offer: Offer, server: str) -> str:
    """What the model must know about such a run."""
    off = (
        "In this conversation your own tools (shell, reading, searching and editing files, the web) are switched off: "
        "do not try them. Your workspace is an empty folder; what the user speaks of is on the user's side."
    )
    names = ", ".join(f"`{tool.name}`" for tool in usable(offer))
    use = f"{off} To do or look up anything there, call the tools of the MCP server `{server}`: {names}."
    match offer.choice:
        case NoTool():
            return f"{off} Answer without any tool."
        case AutoTool():
            return use
        case RequiredTool():
            return f"{use} You must call at least one of them now."
        case NamedTool():
            return f"{use} You must call it now."


def usable(offer: Offer) -> Sequence[Tool]:
    """The tools that the choice allows."""
    match offer.choice:
        case NoTool():
            return ()
        case AutoTool() | RequiredTool():
            return offer.tools
        case NamedTool(name=name):
            return [tool for tool in offer.tools if tool.name == name]
