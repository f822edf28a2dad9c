"""Change a user's JSON or YAML file, and take the changes out again. Every other byte stays, including comments.

Of YAML, only the form that such files usually have is changed, line by line: a mapping or a list at the top, in block
style, and every quoted or bracketed value within its line. So a line without indentation begins an entry, and nothing
before it can reach into it. Anything else is refused, so no parser is needed; the tests compare the results with one.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from cursor_gateway.cli.clients.base import ListItems, Path

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


# --- JSON ---------------------------------------------------------------------------------------------


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


# --- YAML ---------------------------------------------------------------------------------------------


_NOTHING = re.compile(r"[ ]*(?:#.*)?")  # a blank line, or a comment
_KEY = re.compile(r"(?P<key>[A-Za-z_][\w.-]*):(?P<value>[ ].*)?")
_PLAIN_KEY = re.compile(r"[^\s\"'\[\]{}#&*!|>%@`?,-][^\"'#]*?:(?=[ ]|$)|<<:(?=[ ]|$)")
_QUOTED = re.compile(r"\"(?:[^\"\\]|\\.)*+\"|'(?:[^']|'')*+'")
_BLOCK = re.compile(r"[|>][-1-9]{0,2}(?:[ ]+#.*)?")
_REFERENCE = re.compile(r"[&*][\w-]+(?:[ ]+#.*)?")
_SPECIAL = frozenset("\"'[]{}&*!|>%@`?,")


class Edit(Struct, frozen=True):
    """Lines that took the place of others, or were added."""

    before: str
    after: str


class _Entry(Struct):
    key: str  # empty: an item of a list
    first: int  # the number of its line
    value: str  # in that line
    last: int  # the last line that belongs to it


def merged_yaml(text: str, entries: Mapping[str, str] | ListItems) -> tuple[str, list[Edit]]:
    """With these entries, after those that are there. Raises `NotEditable`."""
    if isinstance(entries, ListItems):
        return _with_items(text, entries.key, entries.items)
    return _with_keys(text, entries)


def _with_keys(text: str, values: Mapping[str, str]) -> tuple[str, list[Edit]]:
    edits: list[Edit] = []
    for key, value in values.items():
        line = f"{key}: {json.dumps(value, ensure_ascii=False)}"
        lines, entries = _read(text, "mapping")
        known = next((entry for entry in entries if entry.key == key), None)
        if known is None:
            edit = Edit("", line)
            lines.append(line)
        else:
            if known.last != known.first or not known.value or known.value[0] in "[{|>&*#":
                raise NotEditable(f"has a value for `{key}` that is not a short text")
            edit = Edit(lines[known.first], line)
            lines[known.first] = line
        if edit.before != edit.after:
            edits.append(edit)
        text = _joined(lines)
    return text, edits


def _with_items(text: str, key: str, items: Sequence[Any]) -> tuple[str, list[Edit]]:
    """In the list of this key; empty: the file is a list. An item that is there already is not added again."""
    lines, entries = _read(text, "mapping" if key else "list")
    if not key:
        indent, place, head = 0, len(lines), []
    elif (known := next((entry for entry in entries if entry.key == key), None)) is None:
        indent, place, head = 2, len(lines), [f"{key}:"]
    else:
        indent, place, head = _indent_of(lines, known), known.last + 1, []
    listed = [f"{' ' * indent}- {json.dumps(item, ensure_ascii=False)}" for item in items]
    missing = [line for line in listed if line not in lines]
    if not missing:
        return text, []
    added = [*head, *missing]
    return _joined([*lines[:place], *added, *lines[place:]]), [Edit("", "\n".join(added))]


def undo(text: str, edits: Sequence[Edit]) -> str:
    """Of a file that may have changed since. Raises `NotEditable`."""
    for edit in reversed(edits):
        around = f"\n{text}"
        if around.count(f"\n{edit.after}\n") != 1:
            raise NotEditable("was changed since")
        text = around.replace(f"\n{edit.after}\n", f"\n{edit.before}\n" if edit.before else "\n")[1:]
    return text


def _indent_of(lines: Sequence[str], entry: _Entry) -> int:
    inner = [line for line in lines[entry.first + 1 : entry.last + 1] if not _NOTHING.fullmatch(line)]
    if entry.value or not inner or not inner[0].lstrip().startswith("- "):
        raise NotEditable(f"has something other than a list as `{entry.key}`")
    return len(inner[0]) - len(inner[0].lstrip())


def _joined(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


# --- reading YAML -------------------------------------------------------------------------------------


def _read(text: str, kind: str) -> tuple[list[str], list[_Entry]]:
    """The lines, and what begins without indentation. Raises `NotEditable` for all that might mean something else."""
    if not text.isascii() and not all(c.isprintable() or c == "\n" for c in text):
        raise NotEditable("has characters that are not printable")
    lines = text.split("\n")
    if lines.pop():
        raise NotEditable("does not end with a newline")
    entries: list[_Entry] = []
    block: int | None = None  # the indentation of the line that began a text of several lines
    for number, line in enumerate(lines):
        if not line.isprintable():
            raise _unusual(number)
        if _NOTHING.fullmatch(line):
            if block is not None and line.strip():
                block = block if len(line) - len(line.lstrip()) > block else None
            continue
        indent = len(line) - len(line.lstrip(" "))
        if block is not None and indent > block:
            entries[-1].last = number
            continue
        block = None
        if indent or (line.startswith("- ") and entries and entries[-1].key and not entries[-1].value):
            if not entries:
                raise _unusual(number)
            entries[-1].last = number
        elif not (line == "---" and not entries):
            entries.append(_entry(line, number, kind))
        else:
            continue
        if _opens_block(line, number):
            block = indent
    keys = [entry.key for entry in entries if entry.key]
    if len(set(keys)) != len(keys):
        raise NotEditable("has the same key twice")
    return lines, entries


def _entry(line: str, number: int, kind: str) -> _Entry:
    found = _KEY.fullmatch(line)
    if kind == "list" and line.startswith("- "):
        return _Entry("", number, line[2:], number)
    if kind != "mapping" or found is None:
        raise _unusual(number)
    value = (found["value"] or "").strip()
    return _Entry(found["key"], number, "" if value.startswith("#") else value, number)


def _opens_block(line: str, number: int) -> bool:
    """Whether its value is a text in the lines that follow. Raises `NotEditable` if it may go on there otherwise."""
    rest = line.strip()
    while rest.startswith("- "):
        rest = rest[2:].strip()
    for is_value in (False, True):  # it may begin with a key
        if _BLOCK.fullmatch(rest):
            return True
        if not rest or rest.startswith("#") or _REFERENCE.fullmatch(rest):
            return False
        if rest[0] in "[{":
            _check_flow(rest, number)
            return False
        key = _PLAIN_KEY.match(rest)
        quoted = _QUOTED.match(rest)
        if quoted is not None:
            rest = rest[quoted.end() :].strip()
            if rest and not rest.startswith("#") and (is_value or not f"{rest} ".startswith(": ")):
                raise _unusual(number)
            rest = rest.removeprefix(":").strip()
        elif key is not None and not is_value:
            rest = rest[key.end() :].strip()
        elif rest[0] in _SPECIAL or rest in ("-",) or ": " in rest or rest.endswith(":"):
            raise _unusual(number)
        else:
            break  # plain text
    return False


def _check_flow(value: str, number: int) -> None:
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        is_simple = not any(c in value for c in "\"'#") and value[-1] == ("]" if value[0] == "[" else "}")
        if not is_simple or any(value.count(a) != value.count(b) for a, b in ("[]", "{}")):
            raise _unusual(number) from None


def _unusual(number: int) -> NotEditable:
    return NotEditable(f"has a form that is not changed automatically (line {number + 1})")
