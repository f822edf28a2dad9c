"""Tools that the caller runs: what is offered, what may be called, what was asked for, and what came back."""

import json
import re
from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Struct

from cursor_gateway.errors import InvalidRequest
from cursor_gateway.model.images import Image
from cursor_gateway.wire.payload import too_deep

LARGEST_SCHEMA = 128 * 1024  # bytes: it is checked while everybody else waits, a second for as much as this
_NAME = re.compile(r"[A-Za-z0-9_./:-]{1,128}")  # it stands in the prompt and in the agent's rules


class Tool(Struct, frozen=True):
    """A function of the caller's."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}  # JSON Schema of an object; empty takes any
    strict: bool = False


class NoTool(Struct, frozen=True):
    pass


class AutoTool(Struct, frozen=True):
    """The model decides whether to call any."""


class RequiredTool(Struct, frozen=True):
    """At least one must be called."""


class NamedTool(Struct, frozen=True):
    name: str


ToolChoice: TypeAlias = NoTool | AutoTool | RequiredTool | NamedTool


class Offer(Struct, frozen=True, kw_only=True):
    """What one request lets the agent use. The agent's own tools are not for such a run."""

    tools: Sequence[Tool]
    choice: ToolChoice = AutoTool()
    parallel: bool = True  # several calls may be asked of the caller at once


class CallerCall(Struct, frozen=True):
    """One use of a tool, for the caller to carry out."""

    id: str
    name: str
    arguments: dict[str, Any]

    def key(self) -> str:
        """The same for the same call."""
        return f"{self.name} {json.dumps(self.arguments, sort_keys=True)}"


class ToolResult(Struct, frozen=True, kw_only=True):
    """What the caller's tool gave."""

    text: str
    images: tuple[Image, ...] = ()
    structured: Any = UNSET  # where it is more than text: the value that `text` writes as JSON
    is_error: bool = False


def make_tool(
    name: str, description: str | None, parameters: dict[str, Any] | None, param: str, *, strict: bool = False
) -> Tool:
    """Raises `InvalidRequest`. `param` is the tool's place in the request."""
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"{param}.name: {name[:100]!r} cannot be a tool's name; use up to 128 letters, digits and _ - . : /.",
            param=f"{param}.name",
        )
    schema = parameters or {"properties": {}}
    if "object" not in (kind if isinstance(kind := schema.get("type", "object"), list) else [kind]):
        raise InvalidRequest(
            f"{param}.parameters: A tool takes an object; send a JSON Schema of the type `object`, or leave it out.",
            param=f"{param}.parameters",
        )
    if too_deep(schema):
        raise InvalidRequest(
            f"{param}.parameters: The schema is nested too deeply to be handed on; send a flatter one.",
            param=f"{param}.parameters",
        )
    if len(msgspec.json.encode(schema)) > LARGEST_SCHEMA:
        raise InvalidRequest(
            f"{param}.parameters: It is over {LARGEST_SCHEMA} bytes; let the tool take less at once.",
            param=f"{param}.parameters",
        )
    return Tool(name, description or "", {**schema, "type": "object"}, strict)


def preamble(offer: Offer, server: str) -> str:
    """What the model must know of such a run."""
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
    """Those that the choice leaves."""
    match offer.choice:
        case NoTool():
            return ()
        case AutoTool() | RequiredTool():
            return offer.tools
        case NamedTool(name=name):
            return [tool for tool in offer.tools if tool.name == name]
