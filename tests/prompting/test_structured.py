"""Answers that must be JSON: what counts as one, what fits, and that a schema never reaches for the network."""

import json
import socket
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.errors import InvalidRequest
from cursor_gateway.prompting.structured import (
    Fit,
    Format,
    JsonObject,
    JsonSchema,
    Misfit,
    Uncheckable,
    check,
    check_schema,
    extract_json,
    instructions,
    read_format,
    repair_prompt,
    violation,
)
from tests.strategies import assert_linear, examples

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
    "additionalProperties": False,
}
FORMATS: list[Format] = [JsonObject(), JsonSchema(PERSON, "person", "Who it is.", strict=True), JsonSchema({})]

# --- finding ----------------------------------------------------------------------------------------

FOUND: dict[str, tuple[str, str | None]] = {
    "the whole": (' {"a": 1}\n', '{"a": 1}'),
    "an array": ("[1, 2]", "[1, 2]"),
    "a string": ('"x"', '"x"'),
    "a number": ("42", "42"),
    "prose": ("It is done.", None),
    "nothing": ("", None),
    "a fence": ('```json\n{"a": 1}\n```', '{"a": 1}'),
    "a fence without a name, in prose": ('Here:\n\n```\n{"a": 1}\n```\nDone.', '{"a": 1}'),
    "a fence with a longer name": ('```json title="x"\n[1]\n```', "[1]"),
    "a fence with CRLF": ('```json\r\n{\r\n"a": 1}\r\n```\r\n', '{\n"a": 1}'),
    "a fence that never ends": ('```json\n{"a": 1}', '{"a": 1}'),
    "a fence in a list": ('- so:\n  ```json\n  {"a": 1}\n  ```', '{"a": 1}'),
    "a raw line separator inside": ('```\n"\u2028"\n```', '"\u2028"'),
    "the last fence that says json": ("```json\n[1]\n```\n```py\n[2]\n```\n```JSON\n[3]\n```\n```\n[4]\n```", "[3]"),
    "fences without a name are searched like prose": ("```\n[1]\n```\n```\n[22]\n```", "[22]"),
    "an only fence that is no JSON": ('{"a": [1]} and\n```py\nx = 1\n```', '{"a": [1]}'),
    "the outermost": ('So {"a": {"b": []}} it is.', '{"a": {"b": []}}'),
    "the longest, not a footnote": ('See [1]: {"a": "}"} and [2].', '{"a": "}"}'),
    "after braces that are none": ('f() { return {}; } gives {"a": 1}', '{"a": 1}'),
    "a long way after them": ("if (a) { b[0] = [1, }; " * 2000 + '{"a": 1}', '{"a": 1}'),
    "cut off": ('{"a": [1, 2', None),
    "cut off, but with a whole one inside": ('{"a": [1, 2], "b', "[1, 2]"),
    "NaN is no JSON": ("[NaN]", None),
    "infinity is no JSON": ('{"a": -Infinity}', None),
    "a control character is no JSON": ('{"a": "\n"}', None),
    "absurdly deep": ("[" * 100_000 + "]" * 100_000, None),
}


@pytest.mark.parametrize(("text", "found"), FOUND.values(), ids=FOUND)
def test_json_is_found_in_an_answer(text: str, found: str | None) -> None:
    assert extract_json(text) == found


@pytest.mark.parametrize(
    ("last", "found"),
    [
        ('{"a": 1}\n', '{"a": 1}'),
        ('So: {"a": 1}.', '{"a": 1}'),
        ("[1]", "[1]"),
        ("Done, see [1].", '{"quoted": [1, 2, 3]}'),
        ("Done.", '{"quoted": [1, 2, 3]}'),
    ],
)
def test_what_follows_the_last_action_is_the_answer(last: str, found: str) -> None:
    assert extract_json('```json\n{"quoted": [1, 2, 3]}\n```\n' + last, last) == found


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
)


@examples(200)
@given(json_values, st.sampled_from([None, 2]), st.booleans())
def test_any_json_is_found_alone_and_fenced(value: Any, indent: int | None, ascii: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii)
    for answer in (text, f"\n{text}\n", f"Here it is:\n\n````json\n{text}\n````\n"):
        found = extract_json(answer)
        assert found is not None
        assert json.loads(found) == value


@given(st.text('{}[]",:1 \n`a\\', max_size=40))
def test_what_is_found_is_json(text: str) -> None:
    found = extract_json(text)
    if found is not None:
        json.loads(found)


@pytest.mark.parametrize("unit", ["{", "[", '{"a":', "[1,", '["', "```\n", "x", '[[["a', "[[1],"])
def test_a_long_answer_is_not_searched_for_ever(unit: str) -> None:
    assert_linear(lambda size: extract_json(unit * (size // 20)))


# --- checking ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "format", "expected"),
    [
        ('Sure! {"a": 1}', JsonObject(), Fit('{"a": 1}')),
        ("[1]", JsonObject(), Misfit("It is JSON, but no object.")),
        ("No.", JsonObject(), Misfit("There is no JSON in it.")),
        ('{"name": "Ada"}', JsonSchema(PERSON), Fit('{"name": "Ada"}')),
        ("[1]", JsonSchema({}), Fit("[1]")),
        ("{}", JsonSchema(PERSON), Misfit("It does not fit the schema: 'name' is a required property.")),
        (
            '{"name": "Ada", "age": -1}',
            JsonSchema(PERSON),
            Misfit("It does not fit the schema: age: -1 is less than the minimum of 0."),
        ),
        ("1", JsonSchema({"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}}), Fit("1")),
    ],
)
def test_an_answer_fits_or_says_why_not(text: str, format: Format, expected: Fit | Misfit) -> None:
    assert check(text, format) == expected


def test_a_reason_is_no_longer_than_anybody_reads() -> None:
    misfit = check(json.dumps({"name": ["x" * 10_000]}), JsonSchema(PERSON))
    assert isinstance(misfit, Misfit)
    assert misfit.reason.startswith("It does not fit the schema: name: ['xxx")
    assert len(misfit.reason) < 1000


@pytest.mark.parametrize(
    "schema", [{"$ref": "#"}, {"$ref": "https://example.invalid/schema"}, {"$id": "http://[", "$ref": "y"}]
)
def test_a_schema_that_cannot_be_applied_fits_nothing(schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", None)  # whoever opens one fails otherwise
    misfit = check("{}", JsonSchema(schema))
    assert isinstance(misfit, Misfit)
    assert "could not be checked" in misfit.reason
    with pytest.raises(Uncheckable):
        violation({}, schema)


def test_what_a_long_enumeration_costs_is_counted() -> None:
    numbers = {"items": {"enum": list(range(20_000))}}
    assert violation([7], numbers) == ""
    with pytest.raises(Uncheckable, match="too many steps"):
        violation([7] * 1000, numbers)


def test_a_schema_that_would_take_for_ever_is_given_up() -> None:
    """Each of its forty parts refers to the next one twice."""
    parts: dict[str, Any] = {
        f"part{number}": {"allOf": [{"$ref": f"#/$defs/part{number + 1}"}] * 2} for number in range(40)
    }
    parts["part40"] = {"type": "object"}
    with pytest.raises(Uncheckable, match="too many steps"):
        violation({}, {"$ref": "#/$defs/part0", "$defs": parts})


@pytest.mark.parametrize(
    "schema", [{"type": "nonsense"}, {"properties": 7}, {"minimum": "x"}, {"enum": 1}, {"allOf": [5]}], ids=str
)
def test_a_schema_that_is_none_is_no_crash(schema: dict[str, Any]) -> None:
    """It is anybody's: of a tool's arguments nobody has checked it before."""
    for value in ({}, {"a": 1}, [1], 1, "x"):
        with suppress(Uncheckable):
            violation(value, schema)


def test_what_is_wrong_with_a_value_is_named() -> None:
    assert violation({"name": "Ada", "age": 36}, PERSON) == ""
    assert "age" in violation({"name": "Ada", "age": -1}, PERSON)
    assert violation({"anything": [1]}, {}) == ""


# --- schemas ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schema",
    [
        {},
        PERSON,
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"},
        {"$schema": "https://example.invalid/unknown"},
        {"$ref": "#/definitions/a", "definitions": {"a": {"type": "string"}}},
        {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#b"}], "$defs": {"a": {}, "b": {"$anchor": "b"}}},
        {"$ref": "https://example.invalid/a", "$defs": {"a": {"$id": "https://example.invalid/a"}}},
        {"$defs": {"a": {"$id": "https://example.invalid/a", "$ref": "#/$defs/b", "$defs": {"b": {}}}}},
        {"properties": {"$ref": {"type": "string"}}},
        {"const": {"$ref": "https://example.invalid/"}, "enum": [{"$ref": "#/no"}]},
    ],
)
def test_a_schema_is_taken(schema: dict[str, Any]) -> None:
    check_schema(schema)


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "person"}, "type: 'person' is not valid"),
        ({"required": "name"}, "required: 'name' is not of type 'array'"),
        ({"pattern": "("}, "'(' is not a 'regex'"),
        ({"$ref": "#/$defs/nobody"}, "refers to '#/$defs/nobody'"),
        ({"$dynamicRef": "#nobody"}, "refers to '#nobody'"),
        ({"items": [{}]}, "items"),
        ({"properties": {"a": {"$ref": "https://example.invalid/a"}}}, "add the definition to its $defs"),
        ({"$id": "http://[", "$ref": "y"}, "cannot be used"),
        (nested(5000), "recursion"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_schema_that_is_none_is_the_callers_mistake(
    schema: dict[str, Any], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "socket", None)
    with pytest.raises(InvalidRequest) as caught:
        check_schema(schema)
    assert caught.value.param == "response_format.json_schema.schema"
    assert expected in str(caught.value)
    assert str(caught.value).startswith("response_format.json_schema.schema ")
    with pytest.raises(InvalidRequest, match=r"^text\.format\.schema "):
        check_schema(schema, "text.format.schema")


def test_a_format_is_read_with_its_schema_unless_that_is_too_large() -> None:
    assert read_format(None, "a", None, None, strict=False) == JsonSchema({})
    assert read_format(PERSON, "a", "person", "Who it is.", strict=True) == FORMATS[1]
    with pytest.raises(InvalidRequest, match=r"^a\.b: The schema is larger") as caught:
        read_format({"const": "x" * 200_000}, "a.b", strict=True)
    assert caught.value.param == "a.b"


# --- asking -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_asked_for_says_json_and_nothing_else(format: Format) -> None:
    text = instructions(format)
    assert "JSON" in text
    assert "no code fence" in text
    repair = repair_prompt(Misfit("There is no JSON in it."), format)
    assert "There is no JSON in it." in repair
    assert repair.endswith(text)


def test_a_schema_is_quoted_with_its_name_and_description() -> None:
    text = instructions(JsonSchema(PERSON, "person", "Who it is."))
    assert json.loads(text.split("\n\n")[-1]) == PERSON
    assert "(“person”)" in text
    assert "Who it is." in text
    assert "“" not in instructions(JsonSchema(PERSON))


# --- regular expressions ----------------------------------------------------------------------------


def test_a_pattern_that_takes_for_ever_is_asked_for_and_not_checked() -> None:
    hostile = {"type": "string", "pattern": "^(a+)+$"}
    schema = {
        "type": "object",
        "properties": {"pattern": hostile, "list": {"type": "array", "items": [hostile]}},
        "patternProperties": {"^(b+)+$": {"type": "integer"}},
        "additionalProperties": False,
        "enum": [{"pattern": "a" * 40 + "!"}],
    }
    answer = json.dumps({"pattern": "a" * 40 + "!"})
    assert check(answer, JsonSchema({**schema, "$defs": {"pattern": hostile}})) == Fit(answer)
    assert "pattern" in instructions(JsonSchema(schema))
    assert isinstance(check('{"pattern": 1}', JsonSchema({"properties": {"pattern": {"type": "string"}}})), Misfit)
