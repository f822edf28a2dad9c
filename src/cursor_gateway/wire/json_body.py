"""Decode a JSON body as the expected type, or report the field that is wrong."""

import json
import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, NoReturn, TypeVar

import msgspec

from cursor_gateway.errors import InvalidRequest
from cursor_gateway.wire.large_json import has_many
from cursor_gateway.wire.surrogates import repair

T = TypeVar("T")

_QUOTED = re.compile(r"Object (missing required|contains unknown) field `(.*)`", re.DOTALL)
_INDEX = re.compile(r"\[[^\]]*\]")
_MOST_VALUES = 100_000  # objects and lists: messages, parts, tool calls, tools, and all that is in them
_LONGEST_NAME = 100  # characters of a field's name, which is compared and repeated
_LONGEST_REASON = 300


def read_json(body: bytes, type: type[T], hints: Mapping[str, str] | None = None) -> T:
    """Raises `InvalidRequest`, which says what is wrong and where.

    `hints` map fields to advice, written without indices: `messages[].role`.
    """
    if not body.strip():
        raise InvalidRequest("The body is empty; send a JSON object.")
    if has_many_values(body):
        raise InvalidRequest(
            f"The body has more than {_MOST_VALUES:,} objects and lists (messages, parts, tool calls, tools, …); send "
            "fewer."
        )
    try:
        try:
            return msgspec.json.decode(body, type=type)
        except msgspec.ValidationError:
            raise
        except (msgspec.DecodeError, UnicodeDecodeError):
            return msgspec.json.decode(_repaired(body), type=type)
    except msgspec.ValidationError as error:
        raise _wrong(str(error), type, hints or {}) from None
    except RecursionError:
        raise InvalidRequest("The body is nested too deeply; send a flatter one.") from None
    except ValueError as error:
        raise InvalidRequest(f"The body is not JSON: {error}.") from None


def has_many_values(body: bytes) -> bool:
    """Whether reading it would take long: each object costs microseconds, of which every step of a request takes some.

    What looks like an object in a string is none, so strings are left out where it matters.
    """
    return has_many(body, b"{[", _MOST_VALUES)


def _repaired(body: bytes) -> str:
    """Replaces lone surrogates by U+FFFD: JavaScript clients send them, and the strict decoder rejects them.

    Also drops a byte order mark, which some clients send.
    """
    value = json.loads(body.decode("utf-8-sig"), parse_constant=refuse_constant)
    text = json.dumps(value, ensure_ascii=False)
    return repair(text)


def refuse_constant(constant: str) -> NoReturn:
    """For `parse_constant` of the standard library's decoder, which accepts `NaN`."""
    raise ValueError(f"{constant} is not a JSON number")


def _wrong(message: str, type: Any, hints: Mapping[str, str]) -> InvalidRequest:
    """The decoder's message, with the field's name as clients write it."""
    reason, _, path = (
        message.rpartition(" - at `") if message.endswith("`") and " - at `" in message else (message, "", "")
    )
    param = path.removesuffix("`").removeprefix("key in ").removeprefix("$").removeprefix(".")
    if quoted := _QUOTED.fullmatch(reason):
        kind, name = quoted.groups()
        name = name[:_LONGEST_NAME]
        place = f"{param}.{name}" if param else name
        if kind == "contains unknown":
            return InvalidRequest(f"Unknown field `{place}`; {_suggestion(name, _at(type, param))}", param=place)
        return InvalidRequest(f"{place} is missing.", param=place)
    reason = reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]}…"
    if not param:
        return InvalidRequest(f"The body must be a JSON object. {reason}.")
    hint = hints.get(_INDEX.sub("[]", param), "")
    return InvalidRequest(f"{param}: {reason}. {hint}".strip(), param=param)


def _suggestion(name: str, names: list[str]) -> str:
    near = get_close_matches(name, names, 1, cutoff=0.4)
    return f"did you mean `{near[0]}`?" if near else f"known fields: {', '.join(names)}." if names else "leave it out."


def _at(type: Any, path: str) -> list[str]:
    """The field names of the object at a path; empty if it has no known fields."""
    info = msgspec.inspect.type_info(type)
    for step in path.split(".") if path else []:
        fields = {field.encode_name: field.type for field in _fields(info)}
        if step not in fields:
            return []
        info = fields[step]
    return [field.encode_name for field in _fields(info)]


def _fields(info: msgspec.inspect.Type) -> tuple[msgspec.inspect.Field, ...]:
    match info:
        case msgspec.inspect.StructType(fields=fields):
            return fields
        case msgspec.inspect.Metadata(type=type):
            return _fields(type)
        case msgspec.inspect.UnionType(types=types):
            return next((found for member in types if (found := _fields(member))), ())
        case _:
            return ()
