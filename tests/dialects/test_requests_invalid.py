"""The field that is wrong is named."""

import pytest
from msgspec import Struct

from cursor_gateway.dialects.requests import convert_field, invalid
from cursor_gateway.errors import InvalidRequest


class Point(Struct):
    x: int = 0


def test_the_message_begins_with_the_field() -> None:
    error = invalid("input[0].role", "Send user.")
    assert (str(error), error.param) == ("input[0].role: Send user.", "input[0].role")


def test_a_value_is_converted() -> None:
    assert convert_field({"x": 1}, Point, "tools[0]") == Point(1)


@pytest.mark.parametrize(
    ("value", "hint", "message", "param"),
    [
        ({"x": "1"}, "", "tools[0].x: Expected `int`, got `str`.", "tools[0].x"),
        ([], "Send a point.", "tools[0]: Expected `object`, got `array`. Send a point.", "tools[0]"),
    ],
)
def test_what_cannot_be_converted_is_named(value: object, hint: str, message: str, param: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        convert_field(value, Point, "tools[0]", hint)
    assert (str(raised.value), raised.value.param) == (message, param)
