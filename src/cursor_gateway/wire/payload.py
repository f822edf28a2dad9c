"""Typed lookups in an untrusted JSON object: a missing field, or one of another type, reads as empty."""

import re
from typing import Any

MAX_DEPTH = 100
_NESTED: tuple[type, ...] = (dict, list)
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_MOST = 2**53 - 1  # what every reader of JSON can represent; databases can as well


def clamped(number: float) -> int:
    """A number that somebody else wrote, as one that can be stored, added and shown."""
    return int(number) if -_MOST <= number <= _MOST else -_MOST if number < -_MOST else _MOST


class Fields:
    def __init__(self, value: object) -> None:
        self.all: dict[str, Any] = value if isinstance(value, dict) else {}

    def text(self, *names: str) -> str:
        """The first of these fields that is a non-empty string."""
        for name in names:
            if isinstance(value := self.all.get(name), str) and value:
                return value
        return ""

    def maybe_text(self, *names: str) -> str | None:
        """Like `text`, but accepts an empty string, and returns None if there is no string."""
        for name in names:
            if isinstance(value := self.all.get(name), str):
                return value
        return None

    def integer(self, name: str) -> int | None:
        """protobuf-JSON writes int64 as a string."""
        match self.all.get(name):
            case None | bool():
                return None
            case int(number):
                return clamped(number)
            case str(digits) if _INTEGER.fullmatch(digits):
                return clamped(int(digits))
            case _:
                return None

    def flag(self, name: str) -> bool | None:
        value = self.all.get(name)
        return value if isinstance(value, bool) else None

    def items(self, name: str) -> list[Any]:
        value = self.all.get(name)
        return value if isinstance(value, list) else []

    def texts(self, name: str) -> list[str]:
        return [item for item in self.items(name) if isinstance(item, str)]

    def objects(self, name: str) -> list["Fields"]:
        return [Fields(item) for item in self.items(name) if isinstance(item, dict)]

    def object(self, name: str) -> "Fields":
        return Fields(self.all.get(name))


def too_deep(value: object) -> bool:
    """Whether a payload is nested more deeply than any real tool call, too deep to be encoded again."""
    level: list[Any] = [value] if value.__class__ in _NESTED else []
    for _ in range(MAX_DEPTH):
        if not level:
            return False
        below: list[Any] = []
        for item in level:
            for child in item.values() if item.__class__ is dict else item:
                if child.__class__ in _NESTED:
                    below.append(child)
        level = below
    return bool(level)
