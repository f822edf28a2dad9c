"""Add entries to a user's YAML file, and take them out again. Every other byte stays, including comments.

Only the form that such files usually have is changed, line by line: a mapping or a list at the top, in block style, and
every quoted or bracketed value within its line. So a line without indentation begins an entry, and nothing before it
can reach into it. Anything else is refused, so no parser is needed; the tests compare the results with one.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from cursor_gateway.cli.clients.base import ListItems
from cursor_gateway.cli.clients.json_text import NotEditable

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


# --- reading --------------------------------------------------------------------------------------------


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
