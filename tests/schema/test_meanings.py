"""Nothing in the definitions lacks a sentence, and what is optional is an extension."""

from typing import Any

from cursor_gateway.model.documents import ChatResponse, ToolTrace
from cursor_gateway.schema import is_extension, json_schema

DEFINITIONS: dict[str, dict[str, Any]] = json_schema()["$defs"]
FIELDS = {name: definition["properties"] for name, definition in DEFINITIONS.items() if "properties" in definition}


def test_everything_has_a_sentence() -> None:
    for name, definition in DEFINITIONS.items():
        assert definition["description"], name
    for name, fields in FIELDS.items():
        for field, schema in fields.items():
            is_tag = field == "type" and "const" in schema
            assert ("description" in schema) == (not is_tag), f"{name}.{field}"


def test_what_may_be_left_out_is_ours_or_one_of_these() -> None:
    specified = {"diff", "workingDirectory", "finalContent"}
    for name, fields in FIELDS.items():
        if name == "KnownMetadata":
            continue  # all of it is ours
        for field, schema in fields.items():
            is_optional = field not in DEFINITIONS[name]["required"]
            assert is_optional == (is_extension(schema) or field in specified), f"{name}.{field}"


def test_ours_come_last() -> None:
    for name, fields in FIELDS.items():
        marks = [is_extension(field) for field in fields.values()]
        assert marks == sorted(marks), name


def test_a_tools_metadata_has_what_all_tools_have() -> None:
    having = {name for name, fields in FIELDS.items() if {"state", "reason", "raw"} <= fields.keys()}
    assert having == {type.__name__ for type in ToolTrace.__subclasses__()}


def test_each_documents_metadata_names_the_document() -> None:
    assert DEFINITIONS["TextMetadata"]["description"] == "The metadata of a `text` document."
    assert DEFINITIONS["ErrorMetadata"]["description"] == "The metadata of an `error` document."


def test_the_response_stands_first() -> None:
    assert next(iter(DEFINITIONS)) == ChatResponse.__name__
