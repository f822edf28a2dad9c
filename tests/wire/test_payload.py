"""A foreign object is read without surprise: what is missing or of another type is empty."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.wire.payload import MAX_DEPTH, Fields, clamped, too_deep

EVERYTHING = {"t": "x", "e": "", "n": 7, "b": True, "f": 1.5, "l": ["a", 1, {"k": "v"}], "o": {"k": "v"}, "z": None}


@pytest.mark.parametrize("value", [None, "x", 1, 1.5, True, [], [("a", 1)]])
def test_what_is_no_object_has_no_fields(value: object) -> None:
    assert Fields(value).all == {}


def test_an_object_is_kept_as_it_is() -> None:
    assert Fields(EVERYTHING).all is EVERYTHING


@pytest.mark.parametrize(
    ("names", "text"),
    [(["t"], "x"), (["e"], ""), (["e", "t"], "x"), (["missing", "n", "t"], "x"), (["n"], ""), (["z"], ""), ([], "")],
)
def test_text_is_the_first_that_says_something(names: list[str], text: str) -> None:
    assert Fields(EVERYTHING).text(*names) == text


@pytest.mark.parametrize(
    ("names", "text"),
    [(["t"], "x"), (["e"], ""), (["e", "t"], ""), (["missing", "n", "t"], "x"), (["n"], None), (["z"], None)],
)
def test_maybe_text_is_the_first_that_is_text(names: list[str], text: str | None) -> None:
    assert Fields(EVERYTHING).maybe_text(*names) == text


@pytest.mark.parametrize(
    ("value", "integer"),
    [
        (7, 7),
        (-7, -7),
        (0, 0),
        ("7", 7),
        ("-7", -7),
        ("007", 7),
        ("9" * 18, 2**53 - 1),
        ("9" * 19, None),
        ("9" * 5000, None),
        ("", None),
        ("-", None),
        ("+7", None),
        (" 7", None),
        ("7\n", None),
        ("1_000", None),
        ("٧", None),
        ("7.0", None),
        (7.0, None),
        (True, None),
        (False, None),
        (None, None),
        ([7], None),
        ({}, None),
    ],
)
def test_an_integer_is_a_number_or_its_digits(value: object, integer: int | None) -> None:
    found = Fields({"x": value}).integer("x")
    assert found == integer
    assert not isinstance(found, bool)


@given(st.integers(-(2**53) + 1, 2**53 - 1))
def test_an_int64_may_be_a_string(number: int) -> None:
    assert Fields({"x": str(number)}).integer("x") == number == Fields({"x": number}).integer("x")


@pytest.mark.parametrize(("value", "flag"), [(True, True), (False, False), (1, None), ("true", None), (None, None)])
def test_a_flag_is_only_true_or_false(value: object, flag: bool | None) -> None:
    assert Fields({"x": value}).flag("x") is flag


def test_lists_are_read_by_the_type_of_their_items() -> None:
    fields = Fields(EVERYTHING)
    assert fields.items("l") == ["a", 1, {"k": "v"}]
    assert fields.items("t") == []
    assert fields.texts("l") == ["a"]
    assert [item.text("k") for item in fields.objects("l")] == ["v"]
    assert fields.objects("missing") == []


def test_an_object_that_is_missing_is_empty_all_the_way_down() -> None:
    assert Fields(EVERYTHING).object("o").text("k") == "v"
    assert Fields(EVERYTHING).object("t").object("k").object("l").all == {}


def _nested(depth: int, kind: str) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if kind == "list" else {"a": value}
    return value


@pytest.mark.parametrize("kind", ["list", "dict"])
def test_only_what_is_deeper_than_the_limit_is_too_deep(kind: str) -> None:
    assert not too_deep(_nested(0, kind))
    assert not too_deep(_nested(MAX_DEPTH, kind))
    assert too_deep(_nested(MAX_DEPTH + 1, kind))
    assert too_deep([1, {}, _nested(MAX_DEPTH, kind)])


def test_whatever_is_not_too_deep_can_be_encoded_again() -> None:
    assert json.loads(msgspec.json.encode(_nested(MAX_DEPTH, "dict"))) == _nested(MAX_DEPTH, "dict")


@pytest.mark.parametrize("number", [2**53, 2**64, 10**400, 1e308, float("inf")])
def test_numbers_are_clamped_to_what_can_be_stored(number: float) -> None:
    assert clamped(number) == 2**53 - 1
    assert clamped(-number) == -(2**53) + 1


def test_ordinary_numbers_are_kept() -> None:
    assert [clamped(number) for number in (0, -1, 7, 1.9, 2**53 - 1)] == [0, -1, 7, 1, 2**53 - 1]
    assert Fields({"a": 2**70, "b": "9" * 18, "c": -(2**70), "d": "9" * 30}).integer("a") == 2**53 - 1
    assert Fields({"b": "9" * 18}).integer("b") == 2**53 - 1
    assert Fields({"d": "9" * 30}).integer("d") is None
