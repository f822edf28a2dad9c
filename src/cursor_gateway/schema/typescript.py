"""Write the definitions of the JSON Schema as TypeScript, with the names of the specification's own interfaces."""

import json

from cursor_gateway.schema.json_schema import Json, json_schema

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
