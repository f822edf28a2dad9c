"""The installed wheel of Cursor's SDK in; the schemas of the messages that its runtime exchanges with Cursor out.

The runtime's bundle has each message as one string, `Name|1 text 9|2 mode #0|3 steps #1*|4 files 9,#2|5 exit #3 event`:
number, name and protobuf type of each field, where `#n` is the n-th class or enum listed after the string, `*` means
repeated, `?` optional, `9,#2` a map, and a last word names a oneof. Nothing of it is kept in this repository.
"""

import re
from collections.abc import Mapping
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct

_MESSAGE = re.compile(r'equals\(([\w$]+),[^()]*\)\}static \$\(\)\{return\["([^"]*)"((?:,[\w$]+)*)\]\}')
_ENUM = re.compile(r'(?<![\w$])([\w$]+)=[\w$]+\([\w$]+,[\w$]+,"[\w.]+",\[((?:\[\d+,"\w+"\],?)+)\]')
_ENUM_VALUE = re.compile(r'\[(\d+),"(\w+)"\]')
_IMPORT = re.compile(r'import\{([^}]*)\}from"@bufbuild/protobuf"')
_FIELD = re.compile(r"(\d+) (\w+) (\d+|#\d+)(?:,(\d+|#\d+))?([*?]?)(?: (\w+))?")

# Types of protobuf itself, in the same notation.
_WELL_KNOWN = {
    "Struct": ("Struct|1 fields 9,#0", ["Value"]),
    "ListValue": ("ListValue|1 values #0*", ["Value"]),
    "Value": (
        "Value|1 null_value 5|2 number_value 1|3 string_value 9|4 bool_value 8|5 struct_value #0|6 list_value #1",
        ["Struct", "ListValue"],
    ),
    "Timestamp": ("Timestamp|1 seconds 3|2 nanos 5", []),
    "Any": ("Any|1 type_url 9|2 value 12", []),
}


def bundle() -> Path | None:
    """The runtime's code in the installed wheel; None if there is none."""
    found = find_spec("cursor_sdk")
    if found is None or found.origin is None:
        return None
    vendored = Path(found.origin).parent / "_vendor/bridge/node_modules/@cursor/sdk/dist/bundled/index.js"
    return vendored if vendored.is_file() else None


class Field(Struct, frozen=True):
    number: int
    name: str
    type: "int | str"  # a scalar type of protobuf, or the key of a message or an enum
    is_repeated: bool = False
    value_type: "int | str | None" = None  # of a map, whose keys have `type`


class Message(Struct, frozen=True):
    name: str
    fields: Mapping[str, Field]
    numbers: Mapping[int, Field]


class Schemas:
    def __init__(self, source: str) -> None:
        self._texts = {found[1]: (found[2], found[3].split(",")[1:]) for found in _MESSAGE.finditer(source)}
        self.enums = {
            found[1]: {int(number): name for number, name in _ENUM_VALUE.findall(found[2])}
            for found in _ENUM.finditer(source)
        }
        for names in _IMPORT.findall(source):
            for name, _, alias in (one.strip().partition(" as ") for one in names.split(",")):
                if name in _WELL_KNOWN:
                    self._texts[alias or name] = _WELL_KNOWN[name]
        self._texts |= _WELL_KNOWN
        self._parsed: dict[str, Message] = {}

    def __getitem__(self, key: str) -> Message:
        if key not in self._parsed:
            self._parsed[key] = self._parse(key)
        return self._parsed[key]

    def named(self, name: str) -> Message:
        """Raises `KeyError` unless there is one message of this name."""
        keys = self._names.get(name, [])
        if len(keys) != 1:
            raise KeyError(f"{len(keys)} messages are named {name}")
        return self[keys[0]]

    @cached_property
    def _names(self) -> dict[str, list[str]]:
        names: dict[str, list[str]] = {}
        for key, (text, _) in self._texts.items():
            names.setdefault(text.partition("|")[0], []).append(key)
        return names

    def _parse(self, key: str) -> Message:
        text, references = self._texts[key]
        name, *rest = text.split("|")
        fields = [_field(one, references) for one in rest if one]
        return Message(name, {field.name: field for field in fields}, {field.number: field for field in fields})


def _field(text: str, references: list[str]) -> Field:
    found = _FIELD.fullmatch(text)
    assert found is not None, f"a field in another notation: {text}"
    number, name, type, value, mark, _ = found.groups()
    kind = _type(type, references)
    return Field(int(number), name, kind, mark == "*", None if value is None else _type(value, references))


def _type(text: str, references: list[str]) -> int | str:
    return references[int(text[1:])] if text.startswith("#") else int(text)
