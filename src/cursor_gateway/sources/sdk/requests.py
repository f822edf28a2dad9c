"""What is requested from the SDK: the tools, the mode and the model of a turn in; the SDK's form of them out."""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec.structs import replace

from cursor_gateway.model.caller_tools import Tool, ToolResult
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


# --- The caller's tools and their results, written so that they survive the SDK's encoding ---------
# The SDK drops empty values from what it sends, and keys that are empty as a consequence, except inside lists. In a
# JSON Schema such values can be significant: `{}` allows anything, `const: ""` only one value. So whatever would be
# dropped is written in another way.

_ANYTHING = {"description": "Anything."}
_SCHEMAS = frozenset(
    [
        "additionalProperties",
        "unevaluatedProperties",
        "items",
        "additionalItems",
        "unevaluatedItems",
        "contains",
        "propertyNames",
        "not",
        "if",
        "then",
        "else",
        "contentSchema",
    ]
)
_MAPS_OF_SCHEMAS = frozenset(
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"]
)


def definitions(tools: Iterable[Tool]) -> list[Tool]:
    """Each with a description: without one, and a schema, the SDK drops the tool."""
    return [
        replace(
            tool,
            description=tool.description or f"The caller's tool {tool.name}.",
            parameters={"type": "object", **guarded(tool.parameters)},
        )
        for tool in tools
    ]


def guarded(schema: Mapping[str, Any]) -> dict[str, Any]:
    """An equivalent schema of which nothing is dropped; never empty."""
    kept: dict[str, Any] = {}
    also: list[Any] = []  # for `allOf`
    for key, value in schema.items():
        if key == "default" and _loses(value):
            note = f"The default is {json.dumps(value, ensure_ascii=False)}."
            kept["description"] = " ".join(filter(None, (_description(schema), note)))
        elif key == "description":
            if value:
                kept.setdefault(key, value)
        elif key == "const" and _loses(value):
            also.append({"const": value})
        elif key == "enum" and value == []:
            also.append({"not": {}})
        elif key in _SCHEMAS and isinstance(value, Mapping):
            kept[key] = guarded(value)
        elif key in _MAPS_OF_SCHEMAS and isinstance(value, Mapping):
            kept[key] = {name: guarded(below) if isinstance(below, Mapping) else below for name, below in value.items()}
        elif key == "$ref" and value == "":
            kept[key] = "#"
        else:
            kept[key] = value
    if also:
        others = kept.get("allOf")
        kept["allOf"] = [*(others if isinstance(others, list) else ()), *also]
    return {key: value for key, value in kept.items() if not _vanishes(value)} or dict(_ANYTHING)


def _description(schema: Mapping[str, Any]) -> str:
    described = schema.get("description")
    return described if isinstance(described, str) else ""


def _is_empty(value: object) -> bool:
    return value is None or value == "" or value == [] or value == {}


def _vanishes(value: object) -> bool:
    """Whether the SDK would drop all of it."""
    return _is_empty(value) or (isinstance(value, Mapping) and all(_vanishes(below) for below in value.values()))


def _loses(value: object) -> bool:
    """Whether the SDK would drop any of it."""
    return _is_empty(value) or (isinstance(value, Mapping) and any(_loses(below) for below in value.values()))


def content_of(result: ToolResult) -> dict[str, Any]:
    """Always an object with `content`: anything else the SDK would encode as a Python repr."""
    content: list[dict[str, Any]] = [{"type": "text", "text": result.text}] if result.text or not result.images else []
    content += [
        {"type": "image", "data": base64.b64encode(image.data).decode(), "mimeType": image.media_type}
        for image in result.images
    ]
    encoded: dict[str, Any] = {"content": content}
    if result.is_error:
        encoded["isError"] = True
    if isinstance(result.structured, dict):
        encoded["structuredContent"] = result.structured
    return encoded
