"""List the definitions of the msgspec types, from which every form of the reference is generated."""

from functools import reduce
from operator import or_
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin

import msgspec
from msgspec import UNSET, Struct, UnsetType

from cursor_gateway.model.documents import ChatResponse, Document, DocumentType, Envelope, Metadata, Usage
from cursor_gateway.model.stream_events import StreamEvent, StreamEventType
from cursor_gateway.schema.meanings import MEANINGS

# --- the shape of a value -----------------------------------------------------------------------


class Scalar(Struct, frozen=True):
    name: Literal["string", "integer", "boolean", "null"]


class Anything(Struct, frozen=True):
    pass


class Choice(Struct, frozen=True):
    values: tuple[str, ...]


class ListOf(Struct, frozen=True):
    item: "Shape"


class MapOf(Struct, frozen=True):
    value: "Shape"


class OneOf(Struct, frozen=True):
    members: tuple["Shape", ...]


class Named(Struct, frozen=True):
    """A definition of its own."""

    name: str


Shape: TypeAlias = Scalar | Anything | Choice | ListOf | MapOf | OneOf | Named


# --- definitions --------------------------------------------------------------------------------


class Field(Struct, frozen=True):
    name: str
    shape: Shape
    optional: bool
    meaning: str  # empty for a tag, which says itself what it is

    @property
    def ours(self) -> bool:
        return self.meaning.startswith("Extension:")


class Record(Struct, frozen=True):
    name: str
    meaning: str
    fields: tuple[Field, ...]  # the specification's first, then ours


class Choices(Struct, frozen=True):
    name: str
    meaning: str
    values: tuple[str, ...]


class Member(Struct, frozen=True):
    name: str
    tag: str | None


class Alternatives(Struct, frozen=True):
    """Records that differ by the tag in their field `tag_field`; None if no field distinguishes them."""

    name: str
    meaning: str
    members: tuple[Member, ...]
    tag_field: str | None


Definition: TypeAlias = Record | Choices | Alternatives

# Unions and literals have no name of their own at run time.
_NAMED: dict[str, Any] = {
    "Document": Document,
    "DocumentMetadata": Metadata,
    "DocumentType": DocumentType,
    "StreamEvent": StreamEvent,
    "StreamEventType": StreamEventType,
}
_RENAMED: dict[type[Struct], str] = {Usage: "UsageInfo", Envelope: "DonePayload"}
_ROOTS = (ChatResponse, DocumentType, Document, StreamEventType, StreamEvent)


def definitions() -> list[Definition]:
    """Everything that a response or a stream is made of, each before what it refers to."""
    found: dict[str, Definition] = {}
    waiting: list[Any] = list(_ROOTS)
    while waiting:
        hint = waiting.pop(0)
        name = _name(hint)
        if name is None:
            waiting = [*get_args(hint), *waiting]
        elif name not in found:
            found[name] = _define(name, hint)
            waiting = [*_parts(hint), *waiting]
    return list(found.values())


def _parts(hint: Any) -> list[Any]:
    if _is_record(hint):
        return [_present(field.type) for field in msgspec.structs.fields(hint)]
    return list(get_args(hint))


def _present(hint: Any) -> Any:
    """The type of a field that is there."""
    members = [member for member in get_args(hint) if member is not UnsetType]
    return reduce(or_, members) if len(members) < len(get_args(hint)) else hint


def _is_record(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Struct)


def _name(hint: Any) -> str | None:
    if _is_record(hint):
        return _RENAMED.get(hint) or str(hint.__name__)
    return next((name for name, named in _NAMED.items() if named == hint), None)


def _define(name: str, hint: Any) -> Definition:
    meaning = MEANINGS.get(name, "")
    if _is_record(hint):
        return _record(name, hint)
    if get_origin(hint) is Literal:
        return Choices(name, meaning, get_args(hint))
    configs = {member: member.__struct_config__ for member in get_args(hint)}
    members = [Member(_name(member) or "", config.tag) for member, config in configs.items()]
    (tag_field,) = {config.tag_field for config in configs.values()}
    return Alternatives(name, meaning, tuple(members), tag_field)


def _record(name: str, type: type[Struct]) -> Record:
    fields = [
        Field(
            name=field.encode_name,
            shape=_shape(_present(field.type)),
            optional=field.default is UNSET,  # any other default is written out
            meaning=MEANINGS.get(f"{name}.{field.encode_name}") or MEANINGS.get(f".{field.encode_name}", ""),
        )
        for field in msgspec.structs.fields(type)
    ]
    config = type.__struct_config__
    if config.tag_field is not None:
        fields.insert(0, Field(config.tag_field, Choice((str(config.tag),)), False, ""))
    own = type.__dict__.get("__doc__")  # without what it inherits
    meaning = " ".join((own or MEANINGS.get(name, "")).split())
    return Record(name, meaning, tuple(sorted(fields, key=lambda field: field.ours)))


def _shape(hint: Any) -> Shape:
    if (name := _name(hint)) is not None:
        return Named(name)
    parts = get_args(hint)
    match get_origin(hint):
        case None:
            return _PLAIN[hint]
        case origin if origin is Literal:
            return Choice(parts)
        case origin if origin is list:
            return ListOf(_shape(parts[0]))
        case origin if origin is dict:
            return MapOf(_shape(parts[1]))
        case origin if origin in (Union, UnionType):
            return OneOf(tuple(_shape(part) for part in parts))
        case _:
            raise TypeError(f"no shape for {hint!r}")


_PLAIN: dict[Any, Shape] = {
    Any: Anything(),
    NoneType: Scalar("null"),
    bool: Scalar("boolean"),
    int: Scalar("integer"),
    str: Scalar("string"),
}
