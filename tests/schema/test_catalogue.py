"""Nothing in the definitions lacks a sentence, no sentence is left over, and odd types are refused."""

from typing import Any

import pytest

from cursor_gateway.model.documents import ChatResponse, ToolTrace
from cursor_gateway.schema.catalogue import Choice, Field, Record, _shape, definitions
from cursor_gateway.schema.meanings import MEANINGS

RECORDS = [definition for definition in definitions() if isinstance(definition, Record)]


def is_tag(field: Field) -> bool:
    return isinstance(field.shape, Choice) and len(field.shape.values) == 1 and field.name == "type"


def test_everything_has_a_sentence() -> None:
    for definition in definitions():
        assert definition.meaning, definition.name
    lacking = [f"{record.name}.{field.name}" for record in RECORDS for field in record.fields if not field.meaning]
    assert lacking == [f"{record.name}.type" for record in RECORDS for field in record.fields if is_tag(field)]


def test_no_sentence_is_left_over() -> None:
    said = {definition.meaning for definition in definitions()}
    said |= {field.meaning for record in RECORDS for field in record.fields}
    assert [key for key, sentence in MEANINGS.items() if sentence not in said] == []


def test_what_may_be_left_out_is_ours_or_one_of_these() -> None:
    specified = {"diff", "workingDirectory", "finalContent"}
    for record in RECORDS:
        if record.name == "KnownMetadata":
            continue  # all of it is ours
        for field in record.fields:
            assert field.optional == (field.ours or field.name in specified), f"{record.name}.{field.name}"


def test_ours_come_last() -> None:
    for record in RECORDS:
        marks = [field.ours for field in record.fields]
        assert marks == sorted(marks), record.name


def test_a_tools_metadata_has_what_all_tools_have() -> None:
    shared = {"state", "reason", "raw"}
    having = {record.name for record in RECORDS if shared <= {field.name for field in record.fields}}
    assert having == {type.__name__ for type in ToolTrace.__subclasses__()}


def test_each_definition_stands_once_and_the_response_first() -> None:
    names = [definition.name for definition in definitions()]
    assert len(names) == len(set(names))
    assert names[0] == ChatResponse.__name__


@pytest.mark.parametrize("hint", [set[str], tuple[int, str]])
def test_a_type_that_has_no_shape_is_refused(hint: Any) -> None:
    with pytest.raises(TypeError, match="no shape"):
        _shape(hint)
