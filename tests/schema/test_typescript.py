"""The TypeScript is well formed, complete and the same every time."""

import re
from typing import Any

import pytest

from cursor_gateway.schema import is_extension, json_schema, type_of, typescript
from tests.schema.typescript_reader import Array, Dictionary, Either, Shape, Text, Word, names_in, read

DEFINITIONS: dict[str, dict[str, Any]] = json_schema()["$defs"]


def test_it_is_the_same_every_time() -> None:
    assert typescript() == typescript()
    assert typescript().endswith("}\n")


def test_every_declaration_is_well_formed_and_every_name_is_declared() -> None:
    declarations = read(typescript())
    assert list(declarations) == list(DEFINITIONS)
    for type in declarations.values():
        assert names_in(type) <= declarations.keys()


def test_a_declaration_has_the_fields_of_its_definition() -> None:
    declarations = read(typescript())
    for name, definition in DEFINITIONS.items():
        declared = declarations[name]
        match definition:
            case {"properties": dict(fields), "required": list(required)}:
                assert isinstance(declared, Shape)
                found = {name: property.optional for name, property in declared.properties.items()}
                assert found == {field: field not in required for field in fields}
            case {"enum": list(values)}:
                assert declared == Either(tuple(Text(value) for value in values))
            case {"anyOf": list(members)} | {"oneOf": list(members)}:
                assert declared == Either(tuple(Word(member["$ref"].rpartition("/")[2]) for member in members))
            case _:
                pytest.fail(name)


def test_comments_end_where_they_should() -> None:
    for comment in re.findall(r"/\*\*.*", typescript()):
        assert comment.count("*/") == 1
        assert comment.endswith((". */", "… */"))


def test_what_is_ours_says_so() -> None:
    fields = [field for record in DEFINITIONS.values() for field in record.get("properties", {}).values()]
    ours = sum(map(is_extension, fields))
    assert len(re.findall(r"^  /\*\* Extension: ", typescript(), re.MULTILINE)) == ours > 20


@pytest.mark.parametrize(
    ("schema", "written", "read_back"),
    [
        ({"type": "integer"}, "number", Word("number")),
        ({}, "unknown", Word("unknown")),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, '("a" | "b")[]', Array(Either((Text("a"), Text("b"))))),
        (
            {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
            "(string | null)[]",
            Array(Either((Word("string"), Word("null")))),
        ),
        (
            {"type": "object", "additionalProperties": {"type": "array", "items": {}}},
            "Record<string, unknown[]>",
            Dictionary(Array(Word("unknown"))),
        ),
    ],
)
def test_types_bind_as_they_are_meant(schema: dict[str, Any], written: str, read_back: Array) -> None:
    assert type_of(schema) == written
    assert read(f"type X = {written};") == {"X": read_back}
