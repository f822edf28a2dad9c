"""Write the definitions as JSON Schema 2020-12, or as the schemas of an OpenAPI 3.1 document."""

from typing import Any

from cursor_gateway.schema.catalogue import (
    Alternatives,
    Anything,
    Choice,
    Choices,
    Definition,
    Field,
    ListOf,
    MapOf,
    Named,
    OneOf,
    Record,
    Scalar,
    Shape,
    definitions,
)

_DEFS = "#/$defs/"
_COMPONENTS = "#/components/schemas/"


def json_schema() -> dict[str, Any]:
    """A response validates against the whole, a line of NDJSON against `#/$defs/StreamEvent`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "cursor-gateway",
        "description": "A ChatResponse. A line of the NDJSON stream is a `#/$defs/StreamEvent`.",
        "$ref": f"{_DEFS}ChatResponse",
        "$defs": {definition.name: _schema(definition, _DEFS) for definition in definitions()},
    }


def openapi_components() -> dict[str, Any]:
    schemas: dict[str, Any] = {}
    for definition in definitions():
        schemas[definition.name] = _schema(definition, _COMPONENTS)
        if isinstance(definition, Alternatives) and definition.tag_field is not None:
            schemas[definition.name]["discriminator"] = {
                "propertyName": definition.tag_field,
                "mapping": {member.tag: f"{_COMPONENTS}{member.name}" for member in definition.members},
            }
    return {"schemas": schemas}


def _schema(definition: Definition, refs: str) -> dict[str, Any]:
    head = {"title": definition.name, "description": definition.meaning}
    match definition:
        case Record(fields=fields):
            return {
                **head,
                "type": "object",
                "properties": {field.name: _property(field, refs) for field in fields},
                "required": [field.name for field in fields if not field.optional],
            }
        case Choices(values=values):
            return {**head, **_of(Choice(values), refs)}
        case Alternatives(members=members, tag_field=tag_field):
            # Without a tag, a value may match several.
            keyword = "anyOf" if tag_field is None else "oneOf"
            return {**head, keyword: [{"$ref": f"{refs}{member.name}"} for member in members]}


def _property(field: Field, refs: str) -> dict[str, Any]:
    schema = _of(field.shape, refs)
    return {**schema, "description": field.meaning} if field.meaning else schema


def _of(shape: Shape, refs: str) -> dict[str, Any]:
    match shape:
        case Scalar(name=name):
            return {"type": name}
        case Anything():
            return {}
        case Choice(values=(only,)):
            return {"type": "string", "const": only}
        case Choice(values=values):
            return {"type": "string", "enum": list(values)}
        case ListOf(item=item):
            return {"type": "array", "items": _of(item, refs)}
        case MapOf(value=value):
            return {"type": "object", "additionalProperties": _of(value, refs) or True}
        case OneOf(members=members):
            return {"anyOf": [_of(member, refs) for member in members]}
        case Named(name=name):
            return {"$ref": f"{refs}{name}"}
