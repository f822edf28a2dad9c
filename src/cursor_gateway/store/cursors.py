"""Encode a place in a list as the opaque cursor of the next page, and decode it."""

import base64
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from cursor_gateway.errors import InvalidRequest

MOST = 2**62  # an engine's integers have 64 bits

_Number = Annotated[int, Meta(ge=0, le=MOST)]


class ByTime(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A place in the list: the last conversation of a page."""

    updated_ms: _Number
    id: str


class ByRun(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A place in search results."""

    top: _Number  # the newest run of the first page, so that later runs do not shift the other pages
    last: _Number  # the last run of this page


START = ByRun(MOST, MOST)

_Place = TypeVar("_Place")


def encode_cursor(place: ByTime | ByRun) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def decode_cursor(cursor: str, kind: type[_Place]) -> _Place:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)), type=kind)
    except ValueError as error:
        raise InvalidRequest(
            "This is not a cursor; use `next` of the previous page, or leave `before` out.",
            param="before",
        ) from error
