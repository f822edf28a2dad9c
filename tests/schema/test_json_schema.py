"""The JSON Schema is one, says what msgspec says of the same types, and refuses what is wrong."""

import json
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from cursor_gateway.dialects.documents.encoder import encode_response
from cursor_gateway.model.documents import ChatResponse
from cursor_gateway.schema import _schema, json_schema, openapi_components
from tests.schema.validation import SCHEMA, complaints, replaced, without
from tools.reference import examples

RESPONSE: dict[str, Any] = json.loads(encode_response(examples.response()))
DOCUMENTS: dict[str, dict[str, Any]] = {document["type"]: document for document in RESPONSE["documents"]}


def test_it_is_a_json_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)


def test_a_response_validates_against_the_whole() -> None:
    validator = Draft202012Validator(json_schema())
    assert validator.is_valid(RESPONSE)
    assert not validator.is_valid(without(RESPONSE, "documents"))


def test_every_reference_leads_somewhere_and_nothing_is_left_over() -> None:
    text = json.dumps(SCHEMA)
    names = set(SCHEMA["$defs"])
    used = {part.partition('"')[0] for part in text.split("#/$defs/")[1:] if part.partition('"')[0].isidentifier()}
    assert used <= names
    # StreamEventType names what StreamEvent's members have as their constants
    assert names - used == {"StreamEvent", "StreamEventType"} - used


def test_each_definition_has_its_name_as_title_and_a_description() -> None:
    for name, definition in SCHEMA["$defs"].items():
        assert definition["title"] == name
        assert definition["description"].endswith(".")


def _plain(schema: Any) -> Any:
    """Without words, and with one way to write what both writers write differently."""
    match schema:
        case {"const": value}:
            return {"enum": [value]}
        case {"enum": values}:
            return {"enum": sorted(values)}
        case {"anyOf": members} | {"oneOf": members}:
            return {"anyOf": _plain(members)}
        case dict():
            dropped = {"description", "default", "additionalProperties"}
            return {key: _plain(value) for key, value in schema.items() if key not in dropped}
        case list():
            return [_plain(item) for item in schema]
        case _:
            return schema


def test_msgspec_says_the_same_of_a_response() -> None:
    _, theirs = msgspec.json.schema_components([ChatResponse])
    ours = {**SCHEMA["$defs"], "Usage": SCHEMA["$defs"]["UsageInfo"]}
    for name, definition in theirs.items():
        expected = {key: _plain(value) for key, value in definition["properties"].items()}
        found = {key: _plain(value) for key, value in ours[name]["properties"].items()}
        if name == "ChatResponse":
            assert found.pop("documents")["items"] == {"$ref": "#/$defs/Document"}
            assert expected.pop("documents")["items"] == _plain({"anyOf": SCHEMA["$defs"]["Document"]["oneOf"]})
            assert found.pop("usage") == {"$ref": "#/$defs/UsageInfo"}
            expected.pop("usage")
        assert found == expected, name
        always_written = {key for key, value in definition["properties"].items() if "default" in value}
        assert set(ours[name]["required"]) == set(definition["required"]) | always_written, name


@pytest.mark.parametrize("type", DOCUMENTS)
def test_a_document_without_one_of_its_fields_is_refused(type: str) -> None:
    document, definitions = DOCUMENTS[type], SCHEMA["$defs"]
    assert not complaints(document, "Document")
    for field in document:
        assert complaints(without(document, field), "Document")
    metadata = "".join(word.title() for word in type.split("_")) + "Metadata"
    for field in definitions[metadata]["required"]:
        assert complaints(without(document, "metadata", field), "Document")
        assert complaints(replaced(document, "metadata", field, by=1.5), "Document")


def test_what_is_wrong_is_refused() -> None:
    text, edit, call = DOCUMENTS["text"], DOCUMENTS["file_edit"], DOCUMENTS["tool_call"]
    assert complaints(replaced(text, "type", by="poem"), "Document")
    assert complaints(replaced(text, "type", by="plan"), "Document")
    assert complaints(replaced(text, "sequence", by="1"), "Document")
    assert complaints(replaced(text, "content", by=None), "Document")
    assert complaints(replaced(call, "content", by="text"), "Document")
    assert complaints(replaced(call, "metadata", "arguments", by=[]), "Document")
    assert complaints(replaced(call, "metadata", "result", "status", by="maybe"), "Document")
    assert complaints(replaced(edit, "metadata", "operation", by="append"), "Document")
    assert complaints(replaced(edit, "metadata", "diff", by=None), "Document")
    assert complaints(replaced(edit, "metadata", "diff", "startLine", by="1"), "Document")
    assert complaints(replaced(RESPONSE, "mode", by="agent | plan"), "ChatResponse")
    assert complaints(replaced(RESPONSE, "usage", "promptTokens", by=1.5), "ChatResponse")
    assert complaints(replaced(RESPONSE, "unheardOf", by=1), "ChatResponse")


def test_a_wrong_streaming_event_is_refused() -> None:
    delta = {"type": "content_delta", "documentId": "doc_001", "data": {"documentId": "doc_001", "delta": "a"}}
    assert not complaints(delta, "StreamEvent")
    assert complaints(without(delta, "documentId"), "StreamEvent")
    assert complaints(without(delta, "data", "delta"), "StreamEvent")
    assert complaints(replaced(delta, "type", by="document_end"), "StreamEvent")
    assert complaints(replaced(delta, "type", by="reasoning"), "StreamEvent")


def test_openapi_components_are_the_same_definitions_under_another_address() -> None:
    components = openapi_components()
    schemas = components["schemas"]
    assert "$defs" not in json.dumps(components)
    moved = json.loads(json.dumps(SCHEMA["$defs"]).replace("#/$defs/", "#/components/schemas/"))
    for schema in schemas.values():
        schema.pop("discriminator", None)
    assert schemas == moved


def test_openapi_tells_documents_and_events_apart_by_type() -> None:
    schemas = openapi_components()["schemas"]
    for name in ("Document", "StreamEvent"):
        discriminator = schemas[name]["discriminator"]
        assert discriminator["propertyName"] == "type"
        for tag, ref in discriminator["mapping"].items():
            assert schemas[ref.rpartition("/")[2]]["properties"]["type"]["const"] == tag
        assert [{"$ref": ref} for ref in discriminator["mapping"].values()] == schemas[name]["oneOf"]
    assert [name for name, schema in schemas.items() if "discriminator" in schema] == ["Document", "StreamEvent"]


@pytest.mark.parametrize("hint", [set[str], tuple[int, str]])
def test_a_type_that_has_no_schema_is_refused(hint: Any) -> None:
    with pytest.raises(TypeError, match="no schema"):
        _schema(hint, "")
