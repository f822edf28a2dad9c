"""Write the msgspec types as JSON Schema 2020-12, as the schemas of an OpenAPI 3.1 document, or as TypeScript with the
names of the specification's own interfaces."""

import json
from functools import reduce
from operator import or_
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin

import msgspec
from msgspec import UNSET, Struct, UnsetType

from cursor_gateway.dialects.openapi import described
from cursor_gateway.model import documents
from cursor_gateway.model.document_events import StreamEvent, StreamEventType

Json: TypeAlias = dict[str, Any]

_DEFS = "#/$defs/"
_COMPONENTS = "#/components/schemas/"
# Unions and literals have no name and no description of their own at run time.
_NAMED: dict[str, tuple[Any, str]] = {
    "Document": (documents.Document, "One part of an answer. Its kind is its `type`."),
    "DocumentMetadata": (
        documents.Metadata,
        "The metadata of any document; which one follows from the document's type.",
    ),
    "DocumentType": (documents.DocumentType, "The document types. `thinking` is an extension, sent only on request."),
    "StreamEvent": (
        StreamEvent,
        "One line of an NDJSON stream. In a Server-Sent Event, `type` is the event name and `data` its data.",
    ),
    "StreamEventType": (StreamEventType, "The names of the streaming events."),
}
_RENAMED: dict[type[Struct], str] = {documents.Usage: "UsageInfo", documents.Envelope: "DonePayload"}
_ROOTS = (documents.ChatResponse, documents.DocumentType, documents.Document, StreamEventType, StreamEvent)


def json_schema() -> Json:
    """A response validates against the whole, a line of NDJSON against `#/$defs/StreamEvent`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "cursor-gateway",
        "description": "A ChatResponse. A line of the NDJSON stream is a `#/$defs/StreamEvent`.",
        "$ref": f"{_DEFS}ChatResponse",
        "$defs": {name: _definition(name, hint, _DEFS) for name, hint in _definitions().items()},
    }


def openapi_components() -> Json:
    schemas = {}
    for name, hint in _definitions().items():
        schemas[name] = _definition(name, hint, _COMPONENTS)
        if "oneOf" in schemas[name]:
            tags = {str(member.__struct_config__.tag): f"{_COMPONENTS}{_name(member)}" for member in get_args(hint)}
            schemas[name]["discriminator"] = {"propertyName": "type", "mapping": tags}
    return {"schemas": schemas}


def is_extension(field: Json) -> bool:
    """Whether the specification does not have this property."""
    return str(field.get("description", "")).startswith("Extension:")


# --- definitions --------------------------------------------------------------------------------


def _definitions() -> dict[str, Any]:
    """The types that a response or a stream is made of, by name, each before what it refers to."""
    found: dict[str, Any] = {}
    waiting: list[Any] = list(_ROOTS)
    while waiting:
        hint = waiting.pop(0)
        name = _name(hint)
        if name is None:
            waiting = [*get_args(hint), *waiting]
        elif name not in found:
            found[name] = hint
            parts = msgspec.structs.fields(hint) if _is_record(hint) else ()
            waiting = [*(_present(field.type)[0] for field in parts), *get_args(hint), *waiting]
    return found


def _name(hint: Any) -> str | None:
    if _is_record(hint):
        return _RENAMED.get(hint) or str(hint.__name__)
    return next((name for name, (named, _) in _NAMED.items() if named == hint), None)


def _is_record(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Struct)


def _present(hint: Any) -> tuple[Any, str]:
    """The type of a field that is there, and its description."""
    hint, about = described(hint)
    members = [member for member in get_args(hint) if member is not UnsetType]
    return reduce(or_, members) if len(members) < len(get_args(hint)) else hint, about


def _definition(name: str, hint: Any, refs: str) -> Json:
    if _is_record(hint):
        return _record(name, hint, refs)
    head = {"title": name, "description": _NAMED[name][1]}
    if get_origin(hint) is Literal:
        return {**head, **_literal(get_args(hint))}
    members = get_args(hint)
    # Without a tag, a value may match several.
    keyword = "oneOf" if all(member.__struct_config__.tag_field for member in members) else "anyOf"
    return {**head, keyword: [_schema(member, refs) for member in members]}


def _record(name: str, type: type[Struct], refs: str) -> Json:
    """The fields of the specification come first."""
    fields = msgspec.structs.fields(type)
    properties = {field.encode_name: _property(field, refs) for field in fields}
    config = type.__struct_config__
    if config.tag_field is not None:
        properties = {config.tag_field: _literal((config.tag,)), **properties}
    optional = {field.encode_name for field in fields if field.default is UNSET}  # any other default is written out
    ordered = dict(sorted(properties.items(), key=lambda item: is_extension(item[1])))
    return {
        "title": name,
        "description": _about(type),
        "type": "object",
        "properties": ordered,
        "required": [field for field in ordered if field not in optional],
    }


def _about(type: type[Struct]) -> str:
    if own := type.__dict__.get("__doc__"):  # without what it inherits
        return " ".join(own.split())
    kind = next(kind for kind, metadata in documents.METADATA_TYPES.items() if metadata is type)
    return f"The metadata of {'an' if kind[0] in 'aeiou' else 'a'} `{kind}` document."


def _property(field: msgspec.structs.FieldInfo, refs: str) -> Json:
    hint, about = _present(field.type)
    about = "Always null." if hint is NoneType else about
    return {**_schema(hint, refs), **({"description": about} if about else {})}


# --- values -------------------------------------------------------------------------------------


def _schema(hint: Any, refs: str) -> Json:
    if (name := _name(hint)) is not None:
        return {"$ref": f"{refs}{name}"}
    parts = get_args(hint)
    match get_origin(hint):
        case None:
            return dict(_PLAIN[hint])
        case origin if origin is Literal:
            return _literal(parts)
        case origin if origin is list:
            return {"type": "array", "items": _schema(parts[0], refs)}
        case origin if origin is dict:
            return {"type": "object", "additionalProperties": _schema(parts[1], refs) or True}
        case origin if origin in (Union, UnionType):
            return {"anyOf": [_schema(part, refs) for part in parts]}
        case _:
            raise TypeError(f"no schema for {hint!r}")


def _literal(values: tuple[Any, ...]) -> Json:
    return {"type": "string", **({"const": values[0]} if len(values) == 1 else {"enum": list(values)})}


_PLAIN: dict[Any, Json] = {
    Any: {},
    NoneType: {"type": "null"},
    bool: {"type": "boolean"},
    float: {"type": "number"},
    int: {"type": "integer"},
    str: {"type": "string"},
}


# --- TypeScript --------------------------------------------------------------------------------------


_HEAD = """\
// The documents of cursor-gateway. Written by `cursor-gateway schema --typescript` from the types
// that the gateway itself uses. What a comment calls an extension is not in the specification.
"""

_SCALARS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def typescript() -> str:
    return "\n".join([_HEAD, *(f"{_declaration(definition)}\n" for definition in json_schema()["$defs"].values())])


def _declaration(definition: Json) -> str:
    name, about = definition["title"], f"/** {definition['description']} */\nexport"
    if "properties" in definition:
        fields = [_field(name, field, definition["required"]) for name, field in definition["properties"].items()]
        return "\n".join([f"{about} interface {name} {{", *fields, "}"])
    members = "".join(f"\n  | {member}" for member in _members(definition))
    return f"{about} type {name} ={members};"


def _field(name: str, schema: Json, required: list[str]) -> str:
    about = f"  /** {schema['description']} */\n" if "description" in schema else ""
    return f"{about}  {name}{'' if name in required else '?'}: {type_of(schema)};"


def type_of(schema: Json) -> str:
    return " | ".join(_members(schema))


def _members(schema: Json) -> list[str]:
    """Of the union that it is; most are unions of one."""
    match schema:
        case {"const": value}:
            return [json.dumps(value)]
        case {"enum": list(values)}:
            return [json.dumps(value) for value in values]
        case {"anyOf": list(members)} | {"oneOf": list(members)}:
            return [type_of(member) for member in members]
        case {"$ref": str(ref)}:
            return [ref.rpartition("/")[2]]
        case {"type": "array", "items": dict(items)}:
            return [f"({type_of(items)})[]" if len(_members(items)) > 1 else f"{type_of(items)}[]"]
        case {"type": "object", "additionalProperties": value}:
            return [f"Record<string, {'unknown' if value is True else type_of(value)}>"]
        case {"type": str(name)}:
            return [_SCALARS[name]]
        case _:
            return ["unknown"]
