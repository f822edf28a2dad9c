"""TypeScript declarations in (interfaces and type aliases, nothing else), types that can be compared out.

Anything that is not well formed is refused, so reading a text is also a test of it.
"""

import re
from typing import TypeAlias

from msgspec import Struct


class Word(Struct, frozen=True):
    """A basic type, or the name of a declaration."""

    name: str


class Text(Struct, frozen=True):
    """A string literal."""

    value: str


class Array(Struct, frozen=True):
    item: "Type"


class Dictionary(Struct, frozen=True):
    value: "Type"


class Property(Struct, frozen=True):
    type: "Type"
    optional: bool


class Shape(Struct, frozen=True):
    properties: dict[str, Property]


class Either(Struct, frozen=True):
    members: tuple["Type", ...]


Type: TypeAlias = Word | Text | Array | Dictionary | Shape | Either
Declarations: TypeAlias = dict[str, Type]

BASIC = {"string", "number", "boolean", "null", "unknown"}
_TOKEN = re.compile(r'\s+|//[^\n]*|/\*.*?\*/|("[^"\n]*"|[A-Za-z_]\w*|\[\]|[{}()<>|;:,?=])', re.DOTALL)


def read(source: str) -> Declarations:
    return _Reader(source).declarations()


class _Reader:
    def __init__(self, source: str) -> None:
        self._tokens: list[str] = []
        end = 0
        for token in _TOKEN.finditer(source):
            assert token.start() == end, f"not TypeScript: {source[end : end + 40]!r}"
            self._tokens += [token[1]] if token[1] else []
            end = token.end()
        assert end == len(source), f"not TypeScript: {source[end : end + 40]!r}"

    def _next(self, *expected: str) -> str:
        assert self._tokens, f"the text ends before {expected}"
        token = self._tokens.pop(0)
        assert not expected or token in expected, f"{token!r} where {expected} must stand"
        return token

    def _passed(self, token: str) -> bool:
        found = self._tokens[:1] == [token]
        if found:
            self._next()
        return found

    def declarations(self) -> Declarations:
        found: Declarations = {}
        while self._tokens:
            self._passed("export")
            is_interface = self._next("interface", "type") == "interface"
            name = self._next()
            assert name.isidentifier(), f"{name!r} is no name"
            assert name not in found, f"{name} is declared twice"
            if is_interface:
                self._next("{")
                found[name] = self._shape()
            else:
                self._next("=")
                self._passed("|")
                found[name] = self._union()
                self._next(";")
        return found

    def _shape(self) -> Shape:
        properties: dict[str, Property] = {}
        while not self._passed("}"):
            name = self._next()
            assert name.isidentifier(), f"{name!r} is no name"
            assert name not in properties, f"{name} stands twice"
            optional = self._passed("?")
            self._next(":")
            properties[name] = Property(self._union(), optional)
            if self._tokens[:1] != ["}"]:
                self._next(";")
        return Shape(properties)

    def _union(self) -> Type:
        members = [self._postfix()]
        while self._passed("|"):
            members.append(self._postfix())
        return members[0] if len(members) == 1 else Either(tuple(members))

    def _postfix(self) -> Type:
        found = self._primary()
        while self._passed("[]"):
            found = Array(found)
        return found

    def _primary(self) -> Type:
        match self._next():
            case "{":
                return self._shape()
            case "(":
                inner = self._union()
                self._next(")")
                return inner
            case "Record":
                self._next("<")
                self._next("string")
                self._next(",")
                value = self._union()
                self._next(">")
                return Dictionary(value)
            case token if token.startswith('"'):
                return Text(token[1:-1])
            case token:
                assert token.isidentifier(), f"{token!r} where a type must stand"
                return Word(token)


def names_in(type: Type) -> set[str]:
    """The declarations it refers to."""
    match type:
        case Word(name=name):
            return set() if name in BASIC else {name}
        case Text():
            return set()
        case Array(item=inner) | Dictionary(value=inner):
            return names_in(inner)
        case Shape(properties=properties):
            return {name for property in properties.values() for name in names_in(property.type)}
        case Either(members=members):
            return {name for member in members for name in names_in(member)}


def expanded(type: Type, declarations: Declarations) -> Type:
    """The same with every name replaced by what it stands for, and unions flat."""
    match type:
        case Word(name=name):
            return type if name in BASIC else expanded(declarations[name], declarations)
        case Text():
            return type
        case Array(item=item):
            return Array(expanded(item, declarations))
        case Dictionary(value=value):
            return Dictionary(expanded(value, declarations))
        case Shape(properties=properties):
            return Shape(
                {
                    name: Property(expanded(property.type, declarations), property.optional)
                    for name, property in properties.items()
                }
            )
        case Either(members=members):
            flat: list[Type] = []
            for member in members:
                plain = expanded(member, declarations)
                flat += plain.members if isinstance(plain, Either) else [plain]
            return Either(tuple(flat))


def difference(ours: Type, theirs: Type, at: str = "") -> str | None:
    """Where ours (expanded) is not theirs (expanded); None when it is, optional fields of our own aside."""
    match ours, theirs:
        case Array(item=mine), Array(item=other):
            return difference(mine, other, f"{at}[]")
        case Dictionary(value=mine), Dictionary(value=other):
            return difference(mine, other, f"{at}<>")
        case Either(members=mine), Either(members=other):
            return None if set(mine) == set(other) else f"{at}: {mine} is not {other}"
        case Shape(properties=mine), Shape(properties=other):
            return _shape_difference(mine, other, at)
        case _:
            return None if ours == theirs else f"{at}: {ours} is not {theirs}"


def _shape_difference(ours: dict[str, Property], theirs: dict[str, Property], at: str) -> str | None:
    for name, property in theirs.items():
        if name not in ours:
            return f"{at}.{name} is missing"
        if ours[name].optional != property.optional:
            return f"{at}.{name}: optional in one of them only"
        if found := difference(ours[name].type, property.type, f"{at}.{name}"):
            return found
    unwelcome = [name for name in ours if name not in theirs and not ours[name].optional]
    return f"{at}: {unwelcome} are ours and not optional" if unwelcome else None
