"""Conversations packed into one item."""

import base64
import zlib

import pytest

from cursor_gateway.dialects.responses.conversation import pack, pack_summary, unpack

ITEMS = [{"role": "user", "content": "é" * 1000}, {"type": "function_call", "call_id": "c", "name": "f"}]


def test_what_is_packed_is_unpacked() -> None:
    assert unpack(pack(ITEMS)) == ITEMS
    assert len(pack(ITEMS)) < 300


def test_a_summary_is_a_message_of_the_users() -> None:
    (item,) = unpack(pack_summary("All is done."))
    assert item["role"] == "user"
    assert item["content"].endswith("All is done.")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gAAAA",
        "cg1.",
        "cg1.é",
        "cg1.A",
        "cg1." + base64.urlsafe_b64encode(b"plain").decode(),
        "cg1." + base64.urlsafe_b64encode(zlib.compress(b"{}")).decode(),
        "cg1." + base64.urlsafe_b64encode(zlib.compress(b"[1]")).decode(),
        "cg1." + base64.urlsafe_b64encode(zlib.compress(b"[" * 100_000)).decode(),
    ],
    ids=["empty", "foreign", "nothing", "letters", "short", "plain", "object", "numbers", "nested"],
)
def test_anything_else_is_nothing(text: str) -> None:
    assert unpack(text) == []


@pytest.mark.parametrize(
    ("piece", "times", "end"), [(b" ", 40_000_000, b"]"), (b"{},", 1_000_000, b"{}]")], ids=["huge", "many"]
)
def test_nor_is_what_is_much_larger_when_unpacked(piece: bytes, times: int, end: bytes) -> None:
    packed = zlib.compress(b"[" + piece * times + end, level=1)
    assert unpack("cg1." + base64.urlsafe_b64encode(packed).decode()) == []
