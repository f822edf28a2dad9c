"""Decode lines of cursor-agent's stream-json as typed records.

The fast path is one typed decode. A line that it rejects is decoded again, leniently, with the standard library:
lone surrogates (a character that the agent split in two), numbers written as strings, nulls, and older shapes.
"""

import json
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from cursor_gateway.wire.payload import Fields, too_deep
from cursor_gateway.wire.surrogates import repair_json


class Part(Struct, gc=False):
    text: str = ""


class TextRecord(Struct, gc=False):
    """One part of text, as the CLI writes it; any other content is joined on the lenient path."""

    content: tuple[Part]

    @property
    def text(self) -> str:
        return self.content[0].text


class Assistant(Struct, tag_field="type", tag="assistant", gc=False):
    message: TextRecord
    model_call_id: str | None = None
    timestamp_ms: int | float | None = None


class Thinking(Struct, tag_field="type", tag="thinking", gc=False):
    subtype: str = "delta"
    text: str = ""
    content: str = ""  # the oldest builds put the text here
    timestamp_ms: int | float | None = None


class ToolCallRecord(Struct, tag_field="type", tag="tool_call"):
    subtype: str = ""
    call_id: str = ""
    tool_call: dict[str, Any] = {}
    model_call_id: str | None = None
    timestamp_ms: int | float | None = None
    name: str = ""  # this and the next two: the oldest builds
    arguments: Any = None
    id: str = ""


class QueryRecord(Struct, tag_field="type", tag="interaction_query"):
    subtype: str = ""
    query_type: str = ""
    query: dict[str, Any] = {}
    response: dict[str, Any] = {}
    timestamp_ms: int | float | None = None


class System(Struct, tag_field="type", tag="system"):
    subtype: str = ""
    session_id: str = ""
    model: str = ""


class User(Struct, tag_field="type", tag="user"):
    message: TextRecord


class AttemptRecord(Struct, tag_field="type"):
    subtype: str = ""
    attempt: int = 0
    timestamp_ms: int | float | None = None


class ConnectionRecord(AttemptRecord, tag="connection"):
    pass


class Retry(AttemptRecord, tag="retry"):
    pass


class UsageFigures(Struct, rename="camel"):
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


class ResultRecord(Struct, tag_field="type", tag="result"):
    subtype: str = "success"
    is_error: bool = False
    result: str | None = None
    error: Any = None
    message: str = ""
    duration_ms: int | None = None
    usage: UsageFigures | None = None


Record: TypeAlias = (
    Assistant | Thinking | ToolCallRecord | QueryRecord | System | User | ConnectionRecord | Retry | ResultRecord
)

_DECODER: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)
decode = _DECODER.decode


class Unreadable(Struct, frozen=True):
    """A line that is not a JSON object: text meant for stderr, or damage."""

    text: str


class Unknown(Struct, frozen=True):
    """A JSON object of an unknown type or shape."""

    type: str


class Torn(Struct, frozen=True):
    """A record whose text may start or end with a lone surrogate."""

    record: Assistant | Thinking


AnyRecord: TypeAlias = Record | Torn | Unreadable | Unknown

REFUSED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def read_again(line: bytes) -> AnyRecord | None:
    """A line that `decode` refused; None for a blank one."""
    if not line or line.isspace():
        return None
    value = read_object(line)
    if value is None:
        return Unreadable(line[:2000].decode("utf-8", "replace").strip())
    record = {key: field for key, field in value.items() if field is not None}
    name = record.get("type")
    if name not in ("assistant", "thinking"):  # their surrogates are joined with the neighbouring record's
        record = repair_json(record)
    if isinstance(usage := record.get("usage"), dict):
        record["usage"] = {key: field for key, field in usage.items() if field is not None}
    if "message" in record and name != "result":
        record["message"] = {"content": [{"text": _text(record["message"])}]}
    try:
        known: Record = msgspec.convert(record, Record, strict=False)
    except (msgspec.ValidationError, UnicodeEncodeError, RecursionError):  # e.g. a surrogate in place of a number
        if name != "result":
            return Unknown(name if isinstance(name, str) else "")
    else:
        return Torn(known) if isinstance(known, Assistant | Thinking) else known
    fields = Fields(record)  # a result is never dropped because of an invalid number
    return ResultRecord(
        subtype=fields.text("subtype") or "success",
        is_error=fields.flag("is_error") is True,
        result=fields.maybe_text("result"),
        error=fields.all.get("error"),
    )


def read_object(line: bytes) -> dict[str, Any] | None:
    """A line that the fast decoder refused: the standard library accepts lone surrogates and control characters, and
    bytes that are no UTF-8 become U+FFFD. None: it is no object, or one that is nested too deeply."""
    try:
        value = json.loads(line.decode("utf-8-sig", "replace"), strict=False)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and not too_deep(value) else None


def _text(message: object) -> str:
    """A message's text in any known shape: parts, one string, or the message itself a string."""
    content = message.get("content") if isinstance(message, dict) else message
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))


def read_arguments(arguments: object) -> dict[str, Any]:
    """A call's arguments as the oldest builds write them: an object, or JSON in a string."""
    if isinstance(arguments, str):
        try:
            value = json.loads(arguments)
        except (ValueError, RecursionError):
            value = arguments
        arguments = arguments if too_deep(value) else repair_json(value)
    if isinstance(arguments, dict):
        return arguments
    return {} if arguments is None else {"input": arguments}
