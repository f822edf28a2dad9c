"""JSON bodies: a value of the expected type, or an error that says what is wrong and where."""

import json
from contextlib import suppress
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct

from cursor_gateway.errors import InvalidRequest
from cursor_gateway.wire.json_body import read_json


class Inner(Struct, forbid_unknown_fields=True, rename="camel"):
    line_number: int = 0


class Thing(Struct):
    size: int


class Body(Struct, forbid_unknown_fields=True, rename="camel"):
    message: str
    conversation_id: str | None = None
    inner: Inner | None = None
    items: list[Inner] = []
    notes: dict[str, int] = {}
    thing: Thing | None = None
    maybe: Annotated[int | Inner | None, Meta(description="A number, or more.")] = None
    kind: Literal["a", "b"] = "a"


HINTS = {"message": "Say something.", "items[].lineNumber": "Count from 1."}


def refused(body: bytes, type: Any = Body) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        read_json(body, type, HINTS)
    return caught.value


def test_a_body_becomes_a_value() -> None:
    assert read_json(
        b' {"message":"\\u00e9 \xf0\x9f\x98\x80","conversationId":"c","inner":{"lineNumber":3}} ', Body
    ) == (Body("é \U0001f600", "c", Inner(3)))


@pytest.mark.parametrize("body", [b"", b" \r\n\t"])
def test_an_empty_body_is_distinguished(body: bytes) -> None:
    assert str(refused(body)) == "The body is empty; send a JSON object."


@pytest.mark.parametrize(
    "body", [b"{", b"message=hello", b'{"message":"\xff"}', b'{"message":NaN}', b'{"message":"a"}{', b"\xff\xfe{\0"]
)
def test_what_is_no_json_is_refused(body: bytes) -> None:
    error = refused(body)
    assert str(error).startswith("The body is not JSON: ")
    assert error.param is None


@pytest.mark.parametrize(
    ("body", "param", "expected"),
    [
        (b"[]", None, "The body must be a JSON object. Expected `object`, got `array`."),
        (b"{}", "message", "message is missing."),
        (b'{"message":"","thing":{}}', "thing.size", "thing.size is missing."),
        (b'{"message":1}', "message", "message: Expected `str`, got `int`. Say something."),
        (b'{"message":"","inner":{"lineNumber":"x"}}', "inner.lineNumber", "inner.lineNumber: Expected `int`"),
        (
            b'{"message":"","items":[{},{"lineNumber":null}]}',
            "items[1].lineNumber",
            "items[1].lineNumber: Expected `int`, got `null`. Count from 1.",
        ),
        (b'{"message":"","notes":{"a":"b"}}', "notes[...]", "notes[...]: Expected `int`, got `str`."),
    ],
)
def test_the_error_names_the_field(body: bytes, param: str | None, expected: str) -> None:
    error = refused(body)
    assert error.param == param
    assert str(error).startswith(expected)


def test_a_reason_is_not_repeated_to_its_end() -> None:
    assert len(str(refused(json.dumps({"message": "", "kind": "x" * 100_000}).encode()))) < 400


@pytest.mark.parametrize(
    ("field", "hint"),
    [
        ("mesage", "did you mean `message`?"),
        ("conversation_id", "did you mean `conversationId`?"),
        ("zzz", "known fields: message, conversationId, inner, items, notes, thing, maybe, kind."),
    ],
)
def test_an_unknown_field_is_met_with_the_nearest_name(field: str, hint: str) -> None:
    error = refused(json.dumps({"message": "", field: 1}).encode())
    assert str(error) == f"Unknown field `{field}`; {hint}"
    assert error.param == field


def test_an_unknown_field_further_down_is_named_with_its_place() -> None:
    error = refused(b'{"message":"","inner":{"linenumber":1}}')
    assert str(error) == "Unknown field `inner.linenumber`; did you mean `lineNumber`?"
    assert error.param == "inner.linenumber"
    error = refused(b'{"message":"","maybe":{"linenumber":1}}')
    assert str(error) == "Unknown field `maybe.linenumber`; did you mean `lineNumber`?"
    error = refused(b'{"message":"","items":[{"x":1}]}')  # what a list holds is not looked up
    assert (str(error), error.param) == ("Unknown field `items[0].x`; leave it out.", "items[0].x")


def test_a_field_with_an_endless_name_is_not_repeated_to_its_end() -> None:
    error = refused(json.dumps({"message": "", "x" * 1_000_000: 1}).encode())
    assert len(str(error)) < 300
    assert error.param == "x" * 100


def test_a_place_that_is_a_key_is_named_too() -> None:
    error = refused(b'{"a":1}', dict[int, int])
    assert "Expected `int`, got `str`" in str(error)


# --- halves of characters -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("escaped", "text"),
    [
        (r"\ud83d\ude00", "\U0001f600"),
        (r"a\ud83db", "a\ufffdb"),
        (r"\uDE00", "\ufffd"),
        (r"\ude00\ud83d", "\ufffd\ufffd"),
        (r"\\ud83d", r"\ud83d"),
    ],
)
def test_half_a_character_becomes_a_replacement(escaped: str, text: str) -> None:
    assert read_json(f'{{"message":"{escaped}"}}'.encode(), Body).message == text


def test_what_was_mended_is_checked_like_everything_else() -> None:
    assert refused(rb'{"message":1,"conversationId":"\ud83d"}').param == "message"


@pytest.mark.parametrize(
    "body",
    [
        rb'{"message":"\ud83d"',
        rb'{"message":"\\ud83d","notes":{"a":NaN}}',  # mended, it would be as it was, for ever
        rb'{"message":"\ud83d","notes":{"a":NaN}}',
    ],
)
def test_halves_are_no_excuse_for_what_is_no_json(body: bytes) -> None:
    assert str(refused(body)).startswith("The body is not JSON: ")


def test_a_byte_order_mark_is_no_reason_to_refuse() -> None:
    assert read_json(b'\xef\xbb\xbf{"message":"a"}', Body) == Body("a")


# --- hostile bodies -------------------------------------------------------------------------------------


@pytest.mark.parametrize("half", [b"", rb'"\ud83d",'])
def test_nesting_has_an_end(half: bytes) -> None:
    error = refused(b'{"message":' + b"[" + half + b"[" * 200_000 + b"]" * 200_000 + b"]}", dict[str, Any])
    assert error.status == 400


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_body_gives_a_value_or_an_error_for_the_caller(body: bytes) -> None:
    with suppress(InvalidRequest):
        read_json(body, Body)


@given(JSON)
def test_any_json_is_read_as_it_is_meant(value: Any) -> None:
    assert read_json(json.dumps(value).encode(), object) == value


def test_a_body_has_so_many_values_and_no_more() -> None:
    """To decode millions of them would hold up everybody."""
    for many in (
        b"{}," * 60_000 + b"{}" + b",[]" * 40_000,
        b'{"a":"b"},' * 100_000 + b"{}",
        b'"","{",' * 500_001 + b"{}",
    ):
        assert "more than 100,000 objects and lists" in str(refused(b'{"x":[' + many + b"]}"))


def test_only_objects_count_and_not_what_looks_like_them_in_a_string() -> None:
    code = '{"[\\\n' * 200_000
    assert read_json(json.dumps({"x": code, "y": [{}] * 1000}).encode(), object) == {"x": code, "y": [{}] * 1000}


def test_a_body_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        read_json(b"[" * 50_000 + b"]" * 50_000, list)
