"""Report which field of a request is wrong, and why."""

from typing import TypeVar

import msgspec

from cursor_gateway.errors import InvalidRequest

T = TypeVar("T")


def invalid(param: str, reason: str) -> InvalidRequest:
    """`param` is the path of the field, with which the message begins."""
    return InvalidRequest(f"{param}: {reason}", param=param)


def convert_field(value: object, shape: type[T], param: str, hint: str = "") -> T:
    """A value whose type was not known when the body was read. Raises `InvalidRequest`."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$")
        raise invalid(f"{param}{path.removesuffix('`')}", f"{reason}. {hint}".rstrip()) from None
