"""Gateway options in requests of other companies' APIs: the `cursor` object, or `x-cursor-…` headers."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, TypeAlias, TypeVar, get_args

import msgspec
from msgspec import Meta, Struct

from cursor_gateway.dialects.deltas import TextStyle
from cursor_gateway.errors import InvalidRequest
from cursor_gateway.model.documents import MODES, Mode
from cursor_gateway.model.run_info import Fences, Include, Labels, WhenClientLeaves, WhenRunnerLost

# Why a field of a request is ignored.
NO_SETTING = "Cursor's agent has no such setting."
NO_EFFECT = "It has no effect on the answer."

NonEmpty: TypeAlias = Annotated[str, Meta(min_length=1)]


class CursorOptions(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Gateway options."""

    mode: Mode | None = None
    workspace: NonEmpty | None = None
    fences: Fences | None = None
    include: tuple[Include, ...] | None = None
    conversation_id: NonEmpty | None = None
    when_client_leaves: WhenClientLeaves | None = None
    when_runner_lost: WhenRunnerLost | None = None
    needs: Labels | None = None
    source: NonEmpty | None = None
    text: TextStyle | None = None


def one_of(names: Iterable[str]) -> str:
    """A hint for a field with an unknown value."""
    return f"Send one of {', '.join(names)}."


CURSOR_HINTS = {
    "cursor.mode": one_of(MODES),
    "cursor.fences": one_of(get_args(Fences)),
    "cursor.include[]": one_of(get_args(Include)),
    "cursor.whenClientLeaves": one_of(get_args(WhenClientLeaves)),
    "cursor.whenRunnerLost": one_of(get_args(WhenRunnerLost)),
    "cursor.text": one_of(get_args(TextStyle)),
}


T = TypeVar("T", bound=CursorOptions)
_PREFIX = "x-cursor-"


@cache
def header_names(options: type[CursorOptions]) -> dict[str, str]:
    """By the fields' names in JSON."""
    return {field.encode_name: f"{_PREFIX}{field.name.replace('_', '-')}" for field in msgspec.structs.fields(options)}


def with_headers(options: T, headers: Mapping[str, str]) -> T:
    """Adds the options in headers, for clients that cannot send a `cursor` object. The body wins."""
    found = {name: value for name, value in headers.items() if name.startswith(_PREFIX)}
    if not found:
        return options
    named = header_names(type(options))
    given: dict[str, object] = {name: found[header] for name, header in named.items() if header in found}
    for name in ("include", "needs"):
        if isinstance(listed := given.get(name), str):
            given[name] = [word.strip() for word in listed.split(",")]
    for name, value in given.items():
        try:
            msgspec.convert({name: value}, type(options))
        except msgspec.ValidationError as error:
            reason = str(error).partition(" - at ")[0]
            raise InvalidRequest(f"The header {named[name]} is invalid: {reason}.", param=named[name]) from None
    body = {name: value for name, value in msgspec.to_builtins(options).items() if value is not None}
    return msgspec.convert({**given, **body}, type(options))
