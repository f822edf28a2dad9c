"""Shorten a line of JSON that would take long to decode.

An MCP server can return millions of empty lists in a few megabytes. As Python objects they take a hundred times the
memory, and looking at each of them takes seconds. A value with too many values inside is therefore replaced with a
string: its own JSON text. Nothing is lost, and programs that know what to expect can decode it.
"""

import re
from collections.abc import Mapping

import msgspec
from msgspec import Raw

LARGE = 256 * 1024  # bytes; a shorter line cannot hold enough values to matter
MAX_VALUES = 200_000  # commas, colons and opening brackets
MAX_LEVEL = 4  # the objects above are kept: they are the agent's own record around the result of a tool

_SHORT = 2000  # bytes of a line that is not a record: enough to explain what it is
_MOST_STRINGS = 1_000_000
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def bounded(line: bytes) -> bytes:
    """`line` itself, unless it has too many values."""
    try:
        match _bounded(line, 0):
            case Raw():
                return line
            case str():
                return line[:_SHORT]  # a list is no record of an agent
            case value:
                return msgspec.json.encode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return line[:_SHORT]


def has_many(data: bytes, marks: bytes, most: int) -> bool:
    """Whether there are more of these characters than that outside of strings; also if there are too many strings to
    find out."""
    if _count(data, marks) <= most:
        return False
    count = end = 0
    for number, string in enumerate(_STRING.finditer(data)):
        count, end = count + _count(data[end : string.start()], marks), string.end()
        if count > most or number > _MOST_STRINGS:
            return True
    return count + _count(data[end:], marks) > most


def _count(data: bytes, marks: bytes) -> int:
    return len(data) - len(data.translate(None, marks))  # one pass


def _bounded(data: bytes, level: int) -> Mapping[str, object] | Raw | str:
    if data.startswith(b'"') or not has_many(data, b",:[{", MAX_VALUES):
        return Raw(data)
    if level == MAX_LEVEL or not data.lstrip().startswith(b"{"):
        return data.decode()
    return {name: _bounded(bytes(value), level + 1) for name, value in _fields(data).items()}
