"""Write the definitions as TypeScript, with the names of the specification's own interfaces."""

import json

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

_HEAD = """\
// The documents of cursor-gateway. Written by `cursor-gateway schema --typescript` from the types
// that the gateway itself uses; what a comment calls "ours" is not in the specification.
"""

_SCALARS = {"string": "string", "integer": "number", "boolean": "boolean", "null": "null"}


def typescript() -> str:
    return "\n".join([_HEAD, *(f"{_declaration(definition)}\n" for definition in definitions())])


def _declaration(definition: Definition) -> str:
    about = f"/** {definition.meaning} */\nexport"
    match definition:
        case Record(name=name, fields=fields):
            return "\n".join([f"{about} interface {name} {{", *map(_field, fields), "}"])
        case Choices(name=name, values=values):
            return f"{about} type {name} ={_listed([json.dumps(value) for value in values])};"
        case Alternatives(name=name, members=members):
            return f"{about} type {name} ={_listed([member.name for member in members])};"


def _listed(members: list[str]) -> str:
    return "".join(f"\n  | {member}" for member in members)


def _field(field: Field) -> str:
    about = f"  /** {field.meaning} */\n" if field.meaning else ""
    mark = "?" if field.optional else ""
    return f"{about}  {field.name}{mark}: {_type(field.shape)};"


def _type(shape: Shape) -> str:
    match shape:
        case Scalar(name=name):
            return _SCALARS[name]
        case Anything():
            return "unknown"
        case Choice(values=values):
            return " | ".join(map(json.dumps, values))
        case ListOf(item=Choice() | OneOf() as item):
            return f"({_type(item)})[]"
        case ListOf(item=item):
            return f"{_type(item)}[]"
        case MapOf(value=value):
            return f"Record<string, {_type(value)}>"
        case OneOf(members=members):
            return " | ".join(map(_type, members))
        case Named(name=name):
            return name
