"""Plain values in; protobuf's bytes out, and back.

A message is a dict by field names. An enum's value is its name, `Struct` and `Value` are JSON. Fields that are absent
are absent; unknown ones are skipped.
"""

import struct
from collections.abc import Iterator, Mapping
from typing import Any

from tests.backend.schemas import Field, Message, Schemas

_DOUBLE, _FLOAT, _STRING, _BYTES, _BOOL = 1, 2, 9, 12, 8
_FIXED = {1: "<d", 2: "<f", 6: "<Q", 7: "<I", 15: "<i", 16: "<q"}
_ZIGZAG = frozenset({17, 18})
_SIGNED = frozenset({3, 5})
_JSON = frozenset({"Struct", "Value", "ListValue"})


class Codec:
    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas

    def encode(self, name: str, value: Mapping[str, Any]) -> bytes:
        return self._encode(self._schemas.named(name), value)

    def decode(self, name: str, data: bytes) -> dict[str, Any]:
        return self._decode(self._schemas.named(name), data)

    # --- encoding -------------------------------------------------------------------------------------

    def _encode(self, message: Message, value: Mapping[str, Any]) -> bytes:
        out = bytearray()
        for name, item in value.items():
            if name not in message.fields:
                raise KeyError(f"{message.name} has no field {name}")
            field = message.fields[name]
            if field.value_type is not None:
                for key, below in item.items():
                    entry = self._one(1, field.type, key) + self._one(2, field.value_type, below)
                    out += _tag(field.number, 2) + _varint(len(entry)) + entry
            else:
                for one in item if field.is_repeated else [item]:
                    out += self._one(field.number, field.type, one)
        return bytes(out)

    def _one(self, number: int, type: int | str, value: Any) -> bytes:
        if isinstance(type, str):
            if (names := self._schemas.enums.get(type)) is not None:
                return _tag(number, 0) + _varint(next(key for key, name in names.items() if name == value))
            message = self._schemas[type]
            data = self._encode(message, to_message(message.name, value) if message.name in _JSON else value)
        elif type in _FIXED:
            return _tag(number, 1 if struct.calcsize(_FIXED[type]) == 8 else 5) + struct.pack(_FIXED[type], value)
        elif type == _STRING:
            data = value.encode()
        elif type == _BYTES:
            data = value
        else:
            return _tag(number, 0) + _varint(_unsigned(type, int(value)))
        return _tag(number, 2) + _varint(len(data)) + data

    # --- decoding -------------------------------------------------------------------------------------

    def _decode(self, message: Message, data: bytes) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for number, wire, raw in _parts(data):
            field = message.numbers.get(number)
            if field is None:
                continue
            if field.value_type is not None:
                entry = {at: (kind, item) for at, kind, item in _parts(raw)}
                key = self._read(field.type, *entry.get(1, (2, b"")))
                out.setdefault(field.name, {})[key] = self._read(field.value_type, *entry.get(2, (2, b"")))
            elif field.is_repeated:
                out.setdefault(field.name, []).extend(self._repeated(field, wire, raw))
            else:
                out[field.name] = self._read(field.type, wire, raw)
        return out

    def _repeated(self, field: Field, wire: int, raw: Any) -> Iterator[Any]:
        is_packed = wire == 2 and (field.type in self._schemas.enums or field.type not in (_STRING, _BYTES))
        if not is_packed or (isinstance(field.type, str) and field.type not in self._schemas.enums):
            yield self._read(field.type, wire, raw)
            return
        at = 0
        while at < len(raw):
            if isinstance(field.type, int) and field.type in _FIXED:
                size = struct.calcsize(_FIXED[field.type])
                yield self._read(field.type, 5, raw[at : at + size])
                at += size
            else:
                value, at = _read_varint(raw, at)
                yield self._read(field.type, 0, value)

    def _read(self, type: int | str, wire: int, raw: Any) -> Any:
        if isinstance(type, str):
            if (names := self._schemas.enums.get(type)) is not None:
                return names.get(raw, raw) if wire == 0 else names[0]
            message = self._schemas[type]
            value = self._decode(message, raw)
            return from_message(message.name, value) if message.name in _JSON else value
        if type in _FIXED:
            return struct.unpack(_FIXED[type], raw)[0]
        if type == _STRING:
            return raw.decode()
        if type == _BYTES:
            return raw
        if wire != 0:  # an absent number in a map's entry
            return 0
        return bool(raw) if type == _BOOL else _signed(type, raw)


def to_message(name: str, value: Any) -> dict[str, Any]:
    """JSON as protobuf's own messages for it."""
    match name, value:
        case "Struct", _:
            return {"fields": value}
        case "ListValue", _:
            return {"values": value}
        case _, None:
            return {"null_value": 0}
        case _, bool():
            return {"bool_value": value}
        case _, int() | float():
            return {"number_value": float(value)}
        case _, str():
            return {"string_value": value}
        case _, list():
            return {"list_value": value}
        case _:
            return {"struct_value": value}


def from_message(name: str, value: dict[str, Any]) -> Any:
    match name:
        case "Struct":
            return value.get("fields", {})
        case "ListValue":
            return value.get("values", [])
        case _:
            ((kind, below),) = value.items() or [("null_value", 0)]
            if kind == "null_value":
                return None
            return int(below) if isinstance(below, float) and below.is_integer() else below


def _parts(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Number, wire type and raw value of each field."""
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _read_varint(data, at)
            yield number, wire, value
            continue
        if wire == 2:
            size, at = _read_varint(data, at)
        else:
            size = {1: 8, 5: 4}[wire]
        yield number, wire, data[at : at + size]
        at += size


def _tag(number: int, wire: int) -> bytes:
    return _varint(number << 3 | wire)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _unsigned(type: int, value: int) -> int:
    if type in _ZIGZAG:
        return (value << 1) ^ (value >> 63)
    return value & (1 << 64) - 1


def _signed(type: int, value: int) -> int:
    if type in _ZIGZAG:
        return (value >> 1) ^ -(value & 1)
    return value - (1 << 64) if type in _SIGNED and value >> 63 else value
