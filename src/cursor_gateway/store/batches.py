"""Encode batches of events for storage, decode them, and when to store the next one.

A tool's result is in two consecutive events and may be a whole file, so it is stored only once. What is no longer
appended to may be compressed.
"""

import asyncio
import zlib
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TypeAlias

import msgspec
from msgspec import Struct

from cursor_gateway.model.document_events import DocumentEnded, DocumentEvent, ToolCallEnded
from cursor_gateway.model.documents import ToolCallDocument


class _ResultFollows(Struct, frozen=True, tag_field="event", tag="result_follows", gc=False):
    """Replaces a `ToolCallEnded` whose result is in the document that ends next."""

    id: str


_Stored: TypeAlias = DocumentEvent | _ResultFollows

_LEVEL = 2  # a third of the time of the default, and a tenth more bytes
_SHORT = 256  # bytes
_PACE_SECONDS = 0.03

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(list[_Stored])
_raw_decoder = msgspec.json.Decoder(list[msgspec.Raw])


def encode(events: Sequence[DocumentEvent]) -> bytes:
    if ToolCallEnded not in map(type, events):
        return _encoder.encode(events)
    stored: list[_Stored] = list(events)
    for place, (event, after) in enumerate(pairwise(events)):
        if isinstance(event, ToolCallEnded) and _result_in(after) is event.result:
            stored[place] = _ResultFollows(event.id)
    return _encoder.encode(stored)


def compress(data: bytes) -> bytes:
    """Encoded events in fewer bytes, unless they are few."""
    return zlib.compress(data, _LEVEL) if len(data) > _SHORT else data


def decompress(data: bytes) -> bytes:
    """The encoded events. Raises `ValueError`."""
    if data[:1] == b"[":
        return data
    try:
        return zlib.decompress(data)
    except zlib.error as error:
        raise ValueError(str(error)) from error


def decode(data: bytes, skip: int = 0) -> list[DocumentEvent]:
    """Without the first `skip` events, which may be large and need not be decoded."""
    data = decompress(data)
    if skip:
        data = b"[%b]" % b",".join(_raw_decoder.decode(data)[skip:])
    stored = _decoder.decode(data)
    return [
        _whole(event, stored[place + 1]) if isinstance(event, _ResultFollows) else event
        for place, event in enumerate(stored)
    ]


def check_repeated(
    first_number: int, events: Sequence[DocumentEvent], stored: Iterable[tuple[int, Sequence[DocumentEvent]]]
) -> None:
    """Raises `ValueError` unless events that are sent again are the stored ones, byte for byte.

    `stored` are batches, each with the number of its first event, that have all these numbers.
    """
    known = {number: event for first, batch in stored for number, event in enumerate(batch, first)}
    for number, event in enumerate(events, first_number):
        if _encoder.encode(known[number]) != _encoder.encode(event):
            raise ValueError(f"event {number} is stored already, and is not the one that was sent now")


def _result_in(event: _Stored) -> object:
    if isinstance(event, DocumentEnded) and isinstance(event.document, ToolCallDocument):
        return event.document.metadata.result
    return None


def _whole(event: _ResultFollows, after: _Stored) -> ToolCallEnded:
    assert isinstance(after, DocumentEnded)
    assert isinstance(after.document, ToolCallDocument)
    return ToolCallEnded(event.id, after.document.metadata.result)


class Pace:
    """When events may be stored again that nobody waits for: at once after a quiet time, then once in an interval, with
    those of all other runs. Of a stream of events, each statement, notification and wake-up costs more than the events
    that it brings, and nobody sees a delay of a thirtieth of a second.
    """

    def __init__(self) -> None:
        self._next = 0.0  # by the clock of the event loop
        self._due = asyncio.Event()

    def hurry(self) -> None:
        """The turn that somebody waits for, or the next one, is now."""
        self._due.set()

    async def turn(self) -> None:
        """Waits until the next turn, or until somebody is in a hurry. For one caller at a time."""
        loop = asyncio.get_running_loop()
        if self._next > loop.time():
            timer = loop.call_at(self._next, self._due.set)
            try:
                await self._due.wait()
            finally:
                timer.cancel()
        self._due.clear()
        self._next = round(loop.time() / _PACE_SECONDS + 1) * _PACE_SECONDS
