"""The specification's own words are the test: its examples validate, and its interfaces are in ours."""

from cursor_gateway.schema import is_extension, json_schema, typescript
from tests.schema.specification import event_examples, json_examples, needs_specification, typescript_source
from tests.schema.typescript_reader import (
    Declarations,
    Either,
    Property,
    Shape,
    Text,
    Word,
    difference,
    expanded,
    names_in,
    read,
)
from tests.schema.validation import complaints, replaced, without

pytestmark = needs_specification

PAYLOADS = {
    "document_start": "DocumentStartPayload",
    "content_delta": "ContentDeltaPayload",
    "tool_call_start": "ToolCallStartPayload",
    "tool_call_arguments": "ToolCallArgumentsPayload",
    "tool_result": "ToolResultPayload",
    "document_end": "DocumentEndPayload",
}


def test_its_response_templates_validate_once_one_of_the_alternatives_is_chosen() -> None:
    template, *_ = json_examples()
    assert complaints(template, "ChatResponse")
    for mode in template["mode"].split(" | "):
        for status in template["status"].split(" | "):
            chosen = replaced(replaced(template, "mode", by=mode), "status", by=status)
            assert not complaints(chosen, "ChatResponse")


def test_its_documents_and_its_full_response_validate() -> None:
    _, base, *documents, response = json_examples()
    assert base["type"] == "<documentType>"  # the common frame, not an example
    assert not complaints(response, "ChatResponse")
    for document in documents:
        if document["metadata"].get("diff", ...) is None:
            assert complaints(document, "Document")
            document = without(document, "metadata", "diff")
        assert not complaints(document, "Document")
    assert len({document["type"] for document in documents}) == 10
    assert len(response["documents"]) == 9


def test_a_null_diff_stands_in_one_example_only_and_its_other_parts_contradict_it() -> None:
    examples = [example for example in json_examples() if example.get("metadata", {}).get("diff", ...) is None]
    created = next(document for document in json_examples()[-1]["documents"] if document["type"] == "file_edit")
    assert [example["metadata"]["operation"] for example in examples] == ["create"]
    assert "diff" not in created["metadata"]
    diff = theirs()["FileEditMetadata"]
    assert isinstance(diff, Shape)
    assert isinstance(diff.properties["diff"].type, Shape)  # without null


def test_its_streaming_events_validate() -> None:
    events = event_examples()
    assert {name for name, _ in events} == set(PAYLOADS)
    for name, data in events:
        assert not complaints(data, PAYLOADS[name])
        line = {"type": name, "documentId": data.get("documentId") or data["id"], "data": data}
        assert not complaints(line, "StreamEvent")


def ours() -> Declarations:
    return read(typescript())


def theirs() -> Declarations:
    return read(typescript_source())


# What is not the same word for word; each has a test of its own.
REFINED = {"ChatResponse", "Document", "DocumentType", "StreamEvent", "TodoUpdateMetadata"}


def test_each_of_its_declarations_is_in_ours_field_for_field() -> None:
    mine, specified = ours(), theirs()
    assert len(specified) == 19
    for name in specified.keys() - REFINED:
        assert difference(expanded(mine[name], mine), expanded(specified[name], specified), name) is None


def test_the_response_differs_only_in_what_a_document_is() -> None:
    mine, specified = ours()["ChatResponse"], theirs()["ChatResponse"]
    assert names_in(specified) == {"Document", "UsageInfo", "ResponseMetadata"}
    assert difference(mine, specified) is None  # with these names unexpanded


def test_thinking_is_the_only_type_that_is_not_specified() -> None:
    mine, specified = ours()["DocumentType"], theirs()["DocumentType"]
    assert isinstance(mine, Either)
    assert isinstance(specified, Either)
    assert mine.members == (*specified.members, Text("thinking"))


def test_every_document_is_its_document() -> None:
    mine, specified = ours(), theirs()
    union, base, types = mine["Document"], specified["Document"], specified["DocumentType"]
    assert isinstance(union, Either)
    assert isinstance(base, Shape)
    assert isinstance(types, Either)
    said: list[object] = []
    for member in union.members:
        document = expanded(member, mine)
        assert isinstance(document, Shape)
        fields = document.properties
        assert fields.keys() == base.properties.keys()
        assert not any(field.optional for field in fields.values())
        assert fields["id"] == base.properties["id"]
        assert fields["sequence"] == base.properties["sequence"]
        assert fields["content"].type in (Word("string"), Word("null"), base.properties["content"].type)
        assert isinstance(fields["metadata"].type, Shape)  # their Record<string, unknown>
        said.append(fields["type"].type)
    assert said == [*types.members, Text("thinking")]


def test_every_streaming_event_is_its_streaming_event() -> None:
    mine, specified = ours(), theirs()
    union, base, types = mine["StreamEvent"], specified["StreamEvent"], specified["StreamEventType"]
    assert isinstance(union, Either)
    assert isinstance(base, Shape)
    assert isinstance(types, Either)
    said: list[object] = []
    for member in union.members:
        event = expanded(member, mine)
        assert isinstance(event, Shape)
        assert event.properties.keys() | {"documentId"} == base.properties.keys() | {"id"}
        assert [name for name, field in event.properties.items() if field.optional] == ["id"]  # ours
        said.append(event.properties["type"].type)
    assert said == list(types.members)


def test_a_changed_todo_has_one_of_the_states_where_it_says_string() -> None:
    mine, specified = ours(), theirs()
    change = mine["TodoChange"]
    assert isinstance(change, Shape)
    loose = {**mine, "TodoChange": Shape({**change.properties, "status": Property(Word("string"), False)})}
    wanted = expanded(specified["TodoUpdateMetadata"], specified)
    assert difference(expanded(mine["TodoUpdateMetadata"], mine), wanted)
    assert difference(expanded(loose["TodoUpdateMetadata"], loose), wanted) is None


def test_what_is_called_ours_is_what_it_does_not_have() -> None:
    specified = theirs()
    for name, record in json_schema()["$defs"].items():
        shape = specified.get(name)
        if "properties" in record and isinstance(shape, Shape):
            marked = {field for field, its in record["properties"].items() if is_extension(its)}
            assert marked == record["properties"].keys() - shape.properties.keys(), name
