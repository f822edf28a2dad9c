"""Compaction: pack the items of a conversation into the opaque text of a `compaction` item, and unpack them.

What OpenAI encrypts is here only packed: it is the client's own conversation, and the sender could as well send
its items.
"""

import base64
import zlib
from collections.abc import Sequence
from typing import Any

import msgspec

from cursor_gateway.wire.json_body import has_many_values

PREVIOUS_RESPONSE = "previous_response"  # the gateway's own item within a compaction
_MARK = "cg1."
_LARGEST = 32 * 1024 * 1024  # bytes, unpacked

SUMMARY_REQUEST = (
    "Write a summary of this conversation for somebody who continues it and knows nothing else of it: what the user "
    "wants, in the user's own words where they matter; what has been done, found out and decided, with names of files, "
    "functions and commands; what is left to do. Write only the summary, and use no tools."
)
_SUMMARY = "This is a summary of the conversation so far:\n\n"


def pack(items: Sequence[dict[str, Any]]) -> str:
    return _MARK + base64.urlsafe_b64encode(zlib.compress(msgspec.json.encode(items))).decode()


def unpack(text: str) -> list[dict[str, Any]]:
    """Empty for what was not packed here."""
    if not text.startswith(_MARK):
        return []
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(base64.urlsafe_b64decode(text.removeprefix(_MARK)), _LARGEST)
        if has_many_values(data):
            return []
        return msgspec.json.decode(data, type=list[dict[str, Any]])
    except (ValueError, zlib.error, msgspec.MsgspecError, RecursionError):
        return []


def pack_summary(text: str) -> str:
    return pack([{"type": "message", "role": "user", "content": _SUMMARY + text}])
