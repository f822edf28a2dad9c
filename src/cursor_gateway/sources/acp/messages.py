"""Decode lines as JSON-RPC messages, and read the text of an error.

Other lines are skipped: the agent may print anything, and that must not end a connection.
"""

from typing import Any

import msgspec

from cursor_gateway.sources.cursor.records import REFUSED, read_object
from cursor_gateway.wire.large_json import LARGE, bounded
from cursor_gateway.wire.payload import MAX_DEPTH, Fields, too_deep
from cursor_gateway.wire.surrogates import repair_json

Message = dict[str, Any]

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def message_of(line: bytes) -> Message | None:
    message = _read(line)
    match message:
        case {"method": str(), **rest} if isinstance(rest.get("id"), int | str | None):
            return message
        case {"id": int() | str(), "error": dict()} | {"id": int() | str(), "result": _}:
            return message
        case _:
            return None


def line_of(message: Message) -> bytes:
    """Replaces lone surrogates, which a prompt may contain and UTF-8 cannot encode."""
    try:
        return msgspec.json.encode(message) + b"\n"
    except UnicodeEncodeError:
        return msgspec.json.encode(repair_json(message)) + b"\n"


def error_text(message: str, data: object) -> str:
    """`data` is `{message}`, `{details}` or a list of issues (2026.08.11); some libraries send a text alone."""
    if isinstance(data, str):
        data = {"message": data}
    issues = [Fields(issue) for issue in data] if isinstance(data, list) else [Fields(data)]
    texts = [issue.text("message", "details") for issue in issues]
    return ": ".join([message, *(text for text in texts if text)])


def _read(line: bytes) -> Message | None:
    if len(line) >= LARGE:
        line = bounded(line)
    try:
        message = _decode(line)
    except REFUSED:
        return _read_again(line)
    # Newer Pythons decode thousands of levels. Few lines have enough brackets to need a look.
    return None if line.count(b"[") + line.count(b"{") > MAX_DEPTH and too_deep(message) else message


def _read_again(line: bytes) -> Message | None:
    """A lone surrogate in a chunk is kept: the next message may complete it."""
    message = read_object(line)
    if message is None:
        return None
    update = Fields(message.get("params")).object("update").text("sessionUpdate")
    return message if update.endswith("_chunk") else dict(repair_json(message))
