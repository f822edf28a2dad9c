"""An input and dice in; a changed input out that is still nearly what its reader expects.

Bytes changed at random are seldom JSON any more, and then only the refusal is tried again and again.
"""

import json
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from fuzz.target import Shape
from tests.strategies import MARKDOWN

Change: TypeAlias = Callable[[bytes], bytes]  # libFuzzer's own

_NASTY_TEXTS = [
    *("", " ", "\n", "\r", "\r\n", "\t", "\0", "\x1b[31m", "\x1b]8;;x\x07", "\x7f", "\x85", "\u2028", "\u202e"),
    *("\ufeff", "\ud83d", "\ude00", "\U0001f600", "é", "e\u0301", "ﬁ", "İ", "ß", "\ufffd", "<b>", "&lt;", "'", '"'),
    *("`", "\\", "/", "..", "../..", "%00", "%2e", "*", "-", "--", "0", "-1", "1e400", "9" * 20, "9" * 5000, "NaN"),
    *("null", "#", "$ref", "#/$defs/a", "\n\nError: ", "data: ", "id: 1", ":", "data:image/png;base64,", "AAAA", "==="),
    "a" * 300,
]
_NASTY_VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**31, 2**53, 2**63, 2**64, -(2**63), 10**400, 0.5, -0.0, 1e308, "", "0", "1"),
    *([], {}, [[]], [{}], {"": ""}, [None], {"a": 1}),
]
_DEPTHS = (3, 99, 101, 150, 300)
_ABSURD_DEPTHS = (450, 900, 990, 2000)
_DEEP = "\ue000deep"  # stands for what the standard library cannot write


class Mutator:
    def __init__(self, shape: Shape, seeds: Iterable[bytes]) -> None:
        """Words and lines of the seeds are put into other inputs."""
        self._shape = shape
        self._names, self._texts, self._lines = _vocabulary(seeds)

    def mutated(self, data: bytes, roll: random.Random, change: Change) -> bytes:
        if roll.random() < 0.15:
            return change(data)
        match self._shape:
            case "bytes":
                return change(data) if roll.random() < 0.6 else self._text(data, roll)
            case "text":
                return self._text(data, roll)
            case "json":
                return self._json(data, roll) or change(data)
            case "lines":
                return self._line(data, roll, change)

    # --- text -----------------------------------------------------------------------------------------

    def _text(self, data: bytes, roll: random.Random) -> bytes:
        for _ in range(roll.choice((1, 1, 2, 4))):
            start = roll.randrange(len(data) + 1)
            end = min(len(data), start + roll.choice((0, 0, 1, 2, 8, 30)))
            put = roll.choice((self._word(roll).encode("utf-8", "surrogatepass"), b"", data[start:end] * 2))
            data = data[:start] + put + data[end:]
        return data

    def _word(self, roll: random.Random) -> str:
        return roll.choice(roll.choice((MARKDOWN, _NASTY_TEXTS, self._texts or _NASTY_TEXTS)))

    # --- JSON -----------------------------------------------------------------------------------------

    def _line(self, data: bytes, roll: random.Random, change: Change) -> bytes:
        lines = data.split(b"\n")
        at, other = roll.randrange(len(lines)), roll.randrange(len(lines))
        match roll.randrange(10):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, lines[other])
            case 2:
                lines[at], lines[other] = lines[other], lines[at]
            case 3 | 4:
                lines.insert(at, roll.choice(self._lines))
            case 5:
                lines[at] = change(lines[at])
            case _:
                lines[at] = self._json(lines[at], roll) or roll.choice(self._lines)
        return b"\n".join(lines)

    def _json(self, data: bytes, roll: random.Random) -> bytes | None:
        """None for what is no JSON."""
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            return None
        for _ in range(roll.choice((1, 1, 1, 2, 3))):
            holder = [value]
            try:
                self._change_one(holder, roll)
            except RecursionError:
                return None
            value = holder[0]
        try:
            result = json.dumps(value, ensure_ascii=roll.random() < 0.7, separators=(",", ":"))
        except (RecursionError, ValueError):
            return None
        depth, (start, end) = roll.choice(_ABSURD_DEPTHS), roll.choice((("[", "]"), ('{"a":', "}")))
        for written in (json.dumps(_DEEP), json.dumps(_DEEP, ensure_ascii=False)):
            result = result.replace(written, f"{start * depth}1{end * depth}")
        return result.encode("utf-8", "surrogatepass")

    def _change_one(self, holder: list[Any], roll: random.Random) -> None:
        places = list(_places(holder))
        where, key = roll.choice(places)
        value = where[key]
        match roll.randrange(9):
            case 0:
                where[key] = _copy(roll.choice(_NASTY_VALUES))
            case 1:
                other, its = roll.choice(places)
                where[key] = _copy(other[its])
            case 2 if where is not holder:
                del where[key]
            case 3:
                for _ in range(roll.choice(_DEPTHS)):
                    value = {"a": value} if roll.random() < 0.5 else [value]
                where[key] = value if roll.random() < 0.7 else _DEEP
            case 4 if isinstance(value, list) and value:
                value.insert(roll.randrange(len(value) + 1), _copy(roll.choice(value)))
            case 5 if isinstance(where, dict) and self._names:
                where[roll.choice(self._names)] = where.pop(key)
            case 6 if isinstance(value, dict) and self._names:
                value[roll.choice(self._names)] = _copy(roll.choice(_NASTY_VALUES))
            case 7 if self._texts:
                where[key] = roll.choice(self._texts)
            case _:
                text = value if isinstance(value, str) else json.dumps(value)
                start = roll.randrange(len(text) + 1)
                end = start + roll.choice((0, 0, 1, 4, 20))
                where[key] = text[:start] + roll.choice((self._word(roll), "")) + text[end:]


def _copy(value: Any) -> Any:
    """Nothing may stand in two places: a change in one would be a circle in the other."""
    return json.loads(json.dumps(value))


def _places(holder: list[Any]) -> Iterable[tuple[Any, Any]]:
    """Each value as its container and the key there, that of the whole first."""
    waiting: list[Any] = [holder]
    while waiting:
        container = waiting.pop()
        for key in list(container) if isinstance(container, dict) else range(len(container)):
            yield container, key
            if isinstance(container[key], dict | list):
                waiting.append(container[key])


def _vocabulary(seeds: Iterable[bytes]) -> tuple[Sequence[str], Sequence[str], Sequence[bytes]]:
    """Names of fields, short texts, and short lines."""
    names, texts, lines = dict[str, None](), dict[str, None](), dict[bytes, None]()
    for seed in seeds:
        for line in seed.split(b"\n"):
            if len(line) < 1500:
                lines[line] = None
            try:
                holder = [json.loads(line)]
            except (ValueError, RecursionError):
                continue
            for container, key in _places(holder):
                if isinstance(key, str):
                    names[key] = None
                if isinstance(container[key], str) and len(container[key]) < 60:
                    texts[container[key]] = None
    return list(names), list(texts), list(lines) or [b""]
