"""Set or remove values in a user's JSON text. Every other byte stays, including comments and trailing commas."""

import json
import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from cursor_gateway.cli.clients.base import Path

_SKIPPED = re.compile(r"(?:[ \t\r\n]++|//[^\n]*+|/\*.*?\*/)*+", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*+"')
_SCALAR = re.compile(r"[-+.0-9A-Za-z]++")
_BLANK = " \t\r\n"


class NotEditable(ValueError):
    """Says why, as the rest of a sentence."""


class JsonMember(Struct):
    name: str
    start: int  # of its name
    value: "JsonNode"
    comma: int | None  # the place of the comma after it


class JsonNode(Struct):
    start: int
    end: int
    members: list[JsonMember] | None = None  # None: it is no object
    inner_end: int = 0  # of an object: after the last thing before its brace that is not blank

    def member(self, name: str) -> JsonMember | None:
        """The last one of that name, as parsers have it."""
        return next((member for member in reversed(self.members or []) if member.name == name), None)


# --- reading --------------------------------------------------------------------------------------------


def parse(text: str) -> JsonNode:
    """The whole text must be one object. Raises `NotEditable`."""
    try:
        node = _value(text, _skip(text, 0))
    except RecursionError:
        raise NotEditable("is nested too deeply") from None
    end = _skip(text, node.end)
    if end != len(text):
        raise _unexpected(text, end)
    if node.members is None:
        raise NotEditable("is not a JSON object")
    return node


def _skip(text: str, at: int) -> int:
    found = _SKIPPED.match(text, at)
    assert found is not None
    return found.end()


def _unexpected(text: str, at: int) -> NotEditable:
    line = text.count("\n", 0, at) + 1
    return NotEditable(f"is not valid JSON (line {line})")


def _value(text: str, at: int) -> JsonNode:
    match text[at : at + 1]:
        case "{" | "[":
            return _container(text, at)
        case '"':
            return JsonNode(at, _string_end(text, at))
        case _:
            found = _SCALAR.match(text, at)
            if found is None:
                raise _unexpected(text, at)
            _decoded(text, at, found.end())
            return JsonNode(at, found.end())


def _string_end(text: str, at: int) -> int:
    found = _STRING.match(text, at)
    if found is None:
        raise _unexpected(text, at)
    _decoded(text, at, found.end())
    return found.end()


def _decoded(text: str, start: int, end: int) -> object:
    try:
        return json.loads(text[start:end])
    except ValueError:
        raise _unexpected(text, start) from None


def _container(text: str, at: int) -> JsonNode:
    """An object, or an array, whose items are only checked."""
    is_object = text[at] == "{"
    end = "}" if is_object else "]"
    members: list[JsonMember] = []
    place = _skip(text, at + 1)
    while text[place : place + 1] != end:
        start, name = place, ""
        if is_object:
            place = _string_end(text, start)
            name = str(_decoded(text, start, place))
            place = _skip(text, place)
            if text[place : place + 1] != ":":
                raise _unexpected(text, place)
            place = _skip(text, place + 1)
        member = JsonMember(name, start, _value(text, place), None)
        members.append(member)
        place = _skip(text, member.value.end)
        if text[place : place + 1] == ",":
            member.comma = place
            place = _skip(text, place + 1)
        elif text[place : place + 1] != end:
            raise _unexpected(text, place)
    inner_end = at + len(text[at:place].rstrip(_BLANK))
    return JsonNode(at, place + 1, members if is_object else None, inner_end)


def find(text: str, path: Sequence[str]) -> JsonNode | None:
    node: JsonNode | None = parse(text)
    for name in path:
        member = node.member(name) if node is not None else None
        node = member.value if member is not None else None
    return node


def raw(text: str, path: Sequence[str]) -> str | None:
    """The value as it is written; None: there is none."""
    node = find(text, path)
    return None if node is None else text[node.start : node.end]


def depth(text: str, path: Sequence[str]) -> int:
    """How many names of the path exist already."""
    return next(count for count in range(len(path), -1, -1) if find(text, path[:count]) is not None)


def same_value(text: str, path: Sequence[str], value: object) -> bool:
    written = raw(text, path)
    if written is None:
        return False
    try:
        return json.dumps(json.loads(written), sort_keys=True) == json.dumps(value, sort_keys=True)
    except ValueError:  # comments in it
        return False


# --- writing --------------------------------------------------------------------------------------------


def set_value(text: str, path: Sequence[str], value: object) -> str:
    """Nothing changes if it has this value. Raises `NotEditable`, too, if something on the way is no object."""
    if same_value(text, path, value):
        return text
    known = depth(text, path)
    node = find(text, path[:known])
    assert node is not None
    if known == len(path):
        return set_raw(text, path, _written(text, value, _indent_of_line(text, node.start)))
    if node.members is None:
        raise NotEditable(f"has a value at `{'.'.join(path[:known])}` that is not an object")
    for name in reversed(path[known + 1 :]):
        value = {name: value}
    return _inserted(text, node, path[known], value)


def set_raw(text: str, path: Sequence[str], written: str) -> str:
    """A value, as it was written before; of a path that is gone, nothing."""
    node = find(text, path)
    return text if node is None else text[: node.start] + written + text[node.end :]


def remove_value(text: str, path: Sequence[str]) -> str:
    """With one comma, and the blanks before it. Comments stay."""
    parent = find(text, path[:-1])
    member = parent.member(path[-1]) if parent is not None else None
    if parent is None or member is None:
        return text
    members = parent.members or []
    start, end = len(text[: member.start].rstrip(_BLANK)), member.value.end
    if member.comma is not None:
        return text[:start] + text[end : member.comma] + text[member.comma + 1 :]
    place = members.index(member)
    before = members[place - 1].comma if place else None
    if before is None:
        return text[:start] + text[end:]
    return text[:before] + text[before + 1 : start] + text[end:]


def is_empty(text: str, path: Sequence[str]) -> bool:
    node = find(text, path)
    return node is not None and node.members == []


def _inserted(text: str, parent: JsonNode, name: str, value: object) -> str:
    members = parent.members or []
    outer = _indent_of_line(text, parent.start)
    indent = _indent_of_line(text, members[0].start) if members else outer + _unit(text)
    if members and "\n" not in text[parent.start : members[0].start]:
        indent = outer + _unit(text)
    line_end = "\r\n" if "\r\n" in text else "\n"
    written = f"{line_end}{indent}{json.dumps(name, ensure_ascii=False)}: {_written(text, value, indent)}"
    place = parent.inner_end
    if members and members[-1].comma is not None:
        written += ","
    if "\n" not in text[place : parent.end]:
        written += line_end + outer
    text = text[:place] + written + text[place:]
    if members and members[-1].comma is None:
        last = members[-1].value.end
        text = text[:last] + "," + text[last:]
    return text


def _written(text: str, value: object, indent: str) -> str:
    line_end = "\r\n" if "\r\n" in text else "\n"
    lines = json.dumps(value, indent=_unit(text), ensure_ascii=False).split("\n")
    return f"{line_end}{indent}".join(lines)


def _indent_of_line(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit(text: str) -> str:
    """One step of indentation, as the text has it."""
    found = re.search(r"\n([ \t]+)\S", text)
    return found[1] if found else "  "


# --- several values, and back ------------------------------------------------------------------------


EMPTY = "{}\n"


class JsonChange(Struct, frozen=True):
    """What was done at one path, so that it can be undone."""

    path: Path
    known: int  # how many of its names were there
    before: str | None  # the value that was there, as it was written


def merged(text: str, values: Sequence[tuple[Path, Any]]) -> tuple[str, list[JsonChange]]:
    """Raises `NotEditable`."""
    text, changes = text if text.strip() else EMPTY, []
    for path, value in values:
        changes.append(JsonChange(path, depth(text, path), raw(text, path)))
        text = set_value(text, path, value)
    return text, changes


def undone(text: str, changes: Sequence[JsonChange]) -> str:
    """Of a file that may have changed since. Raises `NotEditable`."""
    for change in reversed(changes):
        if change.before is not None:
            text = set_raw(text, change.path, change.before)
            continue
        text = remove_value(text, change.path)
        for length in range(len(change.path) - 1, change.known, -1):  # objects that were made for it
            if is_empty(text, change.path[:length]):
                text = remove_value(text, change.path[:length])
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
