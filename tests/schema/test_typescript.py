"""The TypeScript is well formed, complete and the same every time."""

import re

import pytest

from cursor_gateway.schema import typescript
from cursor_gateway.schema.catalogue import (
    Alternatives,
    Anything,
    Choice,
    Choices,
    ListOf,
    MapOf,
    OneOf,
    Record,
    Scalar,
    definitions,
)
from cursor_gateway.schema.typescript import _type
from tests.schema.typescript_reader import Array, Dictionary, Either, Shape, Text, Word, names_in, read


def test_it_is_the_same_every_time() -> None:
    assert typescript() == typescript()
    assert typescript().endswith("}\n")


def test_every_declaration_is_well_formed_and_every_name_is_declared() -> None:
    declarations = read(typescript())
    assert list(declarations) == [definition.name for definition in definitions()]
    for type in declarations.values():
        assert names_in(type) <= declarations.keys()


def test_a_declaration_has_the_fields_of_its_definition() -> None:
    declarations = read(typescript())
    for definition in definitions():
        declared = declarations[definition.name]
        match definition:
            case Record(fields=fields):
                assert isinstance(declared, Shape)
                found = {name: property.optional for name, property in declared.properties.items()}
                assert found == {field.name: field.optional for field in fields}
            case Choices(values=values):
                assert declared == Either(tuple(Text(value) for value in values))
            case Alternatives(members=members):
                assert declared == Either(tuple(Word(member.name) for member in members))


def test_comments_end_where_they_should() -> None:
    for comment in re.findall(r"/\*\*.*", typescript()):
        assert comment.count("*/") == 1
        assert comment.endswith((". */", "… */"))


def test_what_is_ours_says_so() -> None:
    ours = sum(field.ours for record in definitions() if isinstance(record, Record) for field in record.fields)
    assert len(re.findall(r"^  /\*\* Extension: ", typescript(), re.MULTILINE)) == ours > 20


@pytest.mark.parametrize(
    ("shape", "written", "read_back"),
    [
        (Scalar("integer"), "number", Word("number")),
        (Anything(), "unknown", Word("unknown")),
        (ListOf(Choice(("a", "b"))), '("a" | "b")[]', Array(Either((Text("a"), Text("b"))))),
        (
            ListOf(OneOf((Scalar("string"), Scalar("null")))),
            "(string | null)[]",
            Array(Either((Word("string"), Word("null")))),
        ),
        (MapOf(ListOf(Anything())), "Record<string, unknown[]>", Dictionary(Array(Word("unknown")))),
    ],
)
def test_types_bind_as_they_are_meant(shape: ListOf, written: str, read_back: Array) -> None:
    assert _type(shape) == written
    assert read(f"type X = {written};") == {"X": read_back}


@pytest.mark.parametrize(
    "broken",
    [
        "export interface A { a: string; ",
        "export interface A { a: string; } }",
        "export interface A { a string; }",
        "export interface A { a: ; }",
        "export interface A { a: string; a: number; }",
        "export type A = ;",
        'export type A = "a" | ;',
        'export type A = "a"',
        "export type A = (string[];",
        "export type A = string; export type A = number;",
        "export type A = §;",
    ],
)
def test_the_reader_of_these_tests_refuses_what_is_not_well_formed(broken: str) -> None:
    with pytest.raises(AssertionError):
        read(broken)
