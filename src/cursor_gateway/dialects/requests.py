"""Read what the requests of several dialects share: gateway options, attempts, and errors that name a field."""

import base64
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import msgspec

from cursor_gateway.dialects.deltas import TextStyle
from cursor_gateway.errors import InvalidRequest
from cursor_gateway.model.requests import Attempt, RunOptions

# --- gateway options: the `cursor` object, or `x-cursor-…` headers ----------------------------------


# Why a field of a request is ignored.
NO_SETTING = "Cursor's agent has no such setting."
NO_EFFECT = "It has no effect on the answer."


class CursorOptions(RunOptions, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Gateway options."""

    text: Annotated[
        TextStyle | None,
        "`readable` makes the text easier to read: it adds a blank line where a tool call lies between two texts (chat "
        "completions), and a last line with a link if a command was not run and can be allowed. `exact` adds nothing. "
        "The default is the operator's setting.",
    ] = None


def one_of(names: Iterable[str]) -> str:
    """A hint for a field with an unknown value."""
    return f"Send one of {', '.join(names)}."


def option_hints(options: type[RunOptions]) -> dict[str, str]:
    """Of the options that have a fixed set of values."""
    hints: dict[str, str] = {}
    for field in msgspec.structs.fields(options):
        hints |= _hints(f"cursor.{field.encode_name}", field.type)
    return hints


def _hints(name: str, kind: Any) -> dict[str, str]:
    if get_origin(kind) is Literal:
        return {name: one_of(get_args(kind))}
    name = f"{name}[]" if get_origin(kind) is Set else name
    return dict(hint for part in get_args(kind) for hint in _hints(name, part).items())


def _is_list(kind: Any) -> bool:
    return get_origin(kind) in (Sequence, Set) or any(map(_is_list, get_args(kind)))


def _takes(wanted: type, kind: Any) -> bool:
    return kind is wanted or any(_takes(wanted, part) for part in get_args(kind))


T = TypeVar("T", bound=RunOptions)
_PREFIX = "x-cursor-"


@cache
def header_names(options: type[RunOptions]) -> dict[str, str]:
    """By the fields' names in JSON."""
    return {field.encode_name: f"{_PREFIX}{field.name.replace('_', '-')}" for field in msgspec.structs.fields(options)}


def with_headers(options: T, headers: Mapping[str, str]) -> T:
    """Adds the options in headers, for clients that cannot send a `cursor` object. The body wins."""
    found = {name: value for name, value in headers.items() if name.startswith(_PREFIX)}
    if not found:
        return options
    named = header_names(type(options))
    given: dict[str, object] = {name: found[header] for name, header in named.items() if header in found}
    for field in msgspec.structs.fields(options):
        match given.get(field.encode_name):
            case str(text) if _is_list(field.type):
                given[field.encode_name] = [word.strip() for word in text.split(",")]
            case str(text) if _takes(int, field.type) and re.fullmatch(r"-?[0-9]{1,9}", text):
                given[field.encode_name] = int(text)
            case ("true" | "false") as text if _takes(bool, field.type):
                given[field.encode_name] = text == "true"
            case _:
                pass
    for name, value in given.items():
        try:
            msgspec.convert({name: value}, type(options))
        except msgspec.ValidationError as error:
            reason = str(error).partition(" - at ")[0]
            raise InvalidRequest(f"The header {named[name]} is invalid: {reason}.", param=named[name]) from None
    body = {name: value for name, value in msgspec.to_builtins(options).items() if value is not None}
    return msgspec.convert({**given, **body}, type(options))


# --- which field is wrong, and why ------------------------------------------------------------------


V = TypeVar("V")


def invalid(param: str, reason: str) -> InvalidRequest:
    """`param` is the path of the field, with which the message begins."""
    return InvalidRequest(f"{param}: {reason}", param=param)


def is_image(address: str) -> bool:
    """Whether a data: URI says so."""
    return address[:11].lower() == "data:image/"


def decoded_text(data: str) -> str | None:
    """Base64 of UTF-8; None: it is something else."""
    try:
        return base64.b64decode("".join(data.split()), validate=True).decode()
    except ValueError:
        return None


def read_text_file(address: str, name: str, param: str) -> str:
    """What the agent reads of a file in a request: base64, or a data: URI. Raises `InvalidRequest`."""
    text = decoded_text(address.partition(",")[2] if address[:5].lower() == "data:" else address)
    if text is None:
        raise invalid(param, "Only text files and images can be read; send the base64 of UTF-8 text.")
    return f"File {name}:\n\n{text}" if name else text


def convert_field(value: object, shape: type[V], param: str, hint: str = "") -> V:
    """A value whose type was not known when the body was read. Raises `InvalidRequest`."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$")
        raise invalid(f"{param}{path.removesuffix('`')}", f"{reason}. {hint}".rstrip()) from None


# --- which attempt it is ----------------------------------------------------------------------------


_COUNT = "x-stainless-retry-count"


def numbered_attempt(headers: Mapping[str, str]) -> Attempt:
    match headers.get(_COUNT):
        case None:
            return "only"
        case "0":
            return "first"
        case _:
            return "retry"
