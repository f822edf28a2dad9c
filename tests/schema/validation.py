"""A value and the name of a definition in; what is wrong with it out."""

import copy
from typing import Any

from jsonschema import Draft202012Validator

from cursor_gateway.schema import json_schema


def _closed(schema: Any) -> Any:
    """The same, but with no room for fields that it does not name: a field we forgot to describe must be seen."""
    match schema:
        case {"properties": dict()}:
            return {**{key: _closed(value) for key, value in schema.items()}, "additionalProperties": False}
        case dict():
            return {key: _closed(value) for key, value in schema.items()}
        case list():
            return [_closed(item) for item in schema]
        case _:
            return schema


SCHEMA = json_schema()
_CLOSED = {name: _closed(definition) for name, definition in SCHEMA["$defs"].items()}
_VALIDATORS = {name: Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": _CLOSED}) for name in _CLOSED}


def complaints(value: Any, definition: str) -> list[str]:
    return [
        f"{error.json_path}: {error.message}"
        for found in _VALIDATORS[definition].iter_errors(value)
        for error in [found, *(found.context or [])]
    ]


def without(value: dict[str, Any], *path: str) -> dict[str, Any]:
    changed, (*way, last) = copy.deepcopy(value), path
    place = changed
    for name in way:
        place = place[name]
    del place[last]
    return changed


def replaced(value: dict[str, Any], *path: str, by: Any) -> dict[str, Any]:
    changed, (*way, last) = copy.deepcopy(value), path
    place = changed
    for name in way:
        place = place[name]
    place[last] = by
    return changed
