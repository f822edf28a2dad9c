"""Write the caller's tools and their results so that they survive the SDK's encoding.

The SDK drops empty values from what it sends, and keys that are empty as a consequence, except inside lists. In a JSON
Schema such values can be significant: `{}` allows anything, `const: ""` only one value. So whatever would be dropped
is written in another way.
"""

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from cursor_gateway.model.caller_tools import Tool, ToolResult

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
