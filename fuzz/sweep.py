"""Seeds in; for every field of theirs an input for each nasty value in its place, out.

Dice find such an input late: there are some thousand fields, and one value in thirty is the one that hurts.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

_Path: TypeAlias = tuple[str | int, ...]

VALUES: list[Any] = [
    *(None, True, 0, -1, -7, 2**31, 2**53, 2**63, 2**64, 2**70, -(2**63) - 1, 10**400, 0.5, -0.5, 1e300),
    *("", "0", "-7", "9" * 25, "1e400", "\ud83d", "\ude00", "\0", "\r\n", "\u2028", "<b>", "x" * 5000, "```py\n"),
    *([], {}, [[]], [{}], [None], {"a": 1}, ["x"]),
]


def swept(seeds: Iterable[bytes]) -> Iterator[bytes]:
    """Each of a seed's lines by itself, and the whole seed with the line changed; a field of the same kind once."""
    seen: set[tuple[object, ...]] = set()
    for seed in seeds:
        lines = seed.split(b"\n")
        for number, line in enumerate(lines):
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                continue
            for path in _paths(value):
                kind = (*_kind(value), *(0 if isinstance(step, int) else step for step in path))
                if kind in seen:
                    continue
                seen.add(kind)
                for nasty in VALUES:
                    changed = json.dumps(_with(value, path, nasty), separators=(",", ":")).encode()
                    yield changed
                    if len(lines) > 1:
                        yield b"\n".join([*lines[:number], changed, *lines[number + 1 :]])


def _kind(value: Any) -> tuple[str, ...]:
    match value:
        case dict():
            return str(value.get("type")), str(value.get("subtype"))
        case [first, *_]:
            return (str(first),)
        case _:
            return ()


def _paths(value: Any, path: _Path = ()) -> Iterator[_Path]:
    yield path
    match value:
        case dict():
            for name in value:
                yield from _paths(value[name], (*path, name))
        case list():
            for number in range(min(2, len(value))):
                yield from _paths(value[number], (*path, number))
        case _:
            pass


def _with(value: Any, path: _Path, nasty: Any) -> Any:
    if not path:
        return nasty
    first, *rest = path
    below = _with(value[first], tuple(rest), nasty)
    if isinstance(value, dict):
        return {**value, first: below}
    assert isinstance(first, int)
    return [*value[:first], below, *value[first + 1 :]]
