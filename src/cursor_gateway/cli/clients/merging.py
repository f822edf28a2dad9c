"""Add values to a user's JSON file, and take them out again."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from cursor_gateway.cli.clients import json_text
from cursor_gateway.cli.clients.base import Path

EMPTY = "{}\n"


class Change(Struct, frozen=True):
    """What was done at one path, so that it can be undone."""

    path: Path
    known: int  # how many of its names were there
    before: str | None  # the value that was there, as it was written


def merged(text: str, values: Sequence[tuple[Path, Any]]) -> tuple[str, list[Change]]:
    """Raises `NotEditable`."""
    text, changes = text if text.strip() else EMPTY, []
    for path, value in values:
        changes.append(Change(path, json_text.depth(text, path), json_text.raw(text, path)))
        text = json_text.set_value(text, path, value)
    return text, changes


def undone(text: str, changes: Sequence[Change]) -> str:
    """Of a file that may have changed since. Raises `NotEditable`."""
    for change in reversed(changes):
        if change.before is not None:
            text = json_text.set_raw(text, change.path, change.before)
            continue
        text = json_text.remove_value(text, change.path)
        for length in range(len(change.path) - 1, change.known, -1):  # objects that were made for it
            if json_text.is_empty(text, change.path[:length]):
                text = json_text.remove_value(text, change.path[:length])
    return text


def nested(values: Sequence[tuple[Path, Any]]) -> dict[str, Any]:
    """As a file that holds nothing else."""
    whole: dict[str, Any] = {}
    for path, value in values:
        inner = whole
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
        inner[path[-1]] = value
    return whole
