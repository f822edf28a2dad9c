"""Replies that their clients have not read yet: equal pieces are one copy, and each owner has a limit.

A client that reads nothing keeps what was encoded for it in memory. So large pieces of replies are held here while they
are sent: replies with the same bytes share them, and an owner with too many of them gets an error instead of more.
Whole answers are built one after the other for each owner, so that others are served in between, and those who ask for
the same one meanwhile get the same.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar

from msgspec import Struct

from cursor_gateway.errors import TooManyRequests
from cursor_gateway.runs.keyed_locks import KeyedLocks

T = TypeVar("T")

_SMALL = 16 * 1024  # bytes: pieces that are not counted; a connection buffers as much in any case
_MOST_BYTES = 64 * 1024 * 1024
_MOST_STREAMS = 10_000


class _Piece(Struct):
    data: bytes
    replies: int = 0


class UnreadReplies:
    def __init__(self, most_bytes: int = _MOST_BYTES, most_streams: int = _MOST_STREAMS) -> None:
        """For each owner."""
        self._turns = KeyedLocks()
        self._building: dict[tuple[str, Hashable], asyncio.Task[Any]] = {}
        self._most_bytes, self._most_streams = most_bytes, most_streams
        self._pieces: dict[tuple[str, bytes], _Piece] = {}
        self._bytes: Counter[str] = Counter()
        self._streams: Counter[str] = Counter()

    async def build(self, owner: str, what: Hashable, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """In turn. Whoever asks for the same meanwhile gets the same result."""
        key = owner, what
        task = self._building.get(key)
        if task is None:
            task = self._building[key] = asyncio.create_task(self._build(owner, work))
            task.add_done_callback(lambda _: self._building.pop(key))
        result: T = await asyncio.shield(task)
        return result

    async def _build(self, owner: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        async with self._turns.holding(owner):
            return await work()

    def turn(self, owner: str) -> AbstractAsyncContextManager[None]:
        return self._turns.holding(owner)

    def check(self, owner: str) -> None:
        """Raises what `stream` would raise: before a run starts for it, or each retry would start another one."""
        if self._streams[owner] >= self._most_streams:
            raise TooManyRequests(
                f"This API key has {self._streams[owner]:,} open streams, which is the limit; close some, then retry."
            )
        if self._bytes[owner] > self._most_bytes:
            raise self._too_much(owner)

    @contextmanager
    def stream(self, owner: str) -> Iterator[None]:
        """While a stream is open. Raises `TooManyRequests`."""
        self.check(owner)
        self._streams[owner] += 1
        try:
            yield
        finally:
            _subtract(self._streams, owner, 1)

    @contextmanager
    def holding(self, owner: str, data: bytes) -> Iterator[bytes]:
        """While a piece of a reply is sent; gives the copy to send. Raises `TooManyRequests`."""
        if len(data) <= _SMALL:
            yield data
            return
        key = owner, data
        piece = self._pieces.get(key)
        if piece is None:
            if self._bytes[owner] and self._bytes[owner] + len(data) > self._most_bytes:
                raise self._too_much(owner)
            piece = self._pieces[key] = _Piece(data)
            self._bytes[owner] += len(data)
        del data, key
        piece.replies += 1
        try:
            yield piece.data
        finally:
            piece.replies -= 1
            if not piece.replies:
                del self._pieces[owner, piece.data]
                _subtract(self._bytes, owner, len(piece.data))

    def _too_much(self, owner: str) -> TooManyRequests:
        unread = self._bytes[owner] / 1e6
        return TooManyRequests(
            f"{unread:.0f} MB of replies to this API key have not been read by its clients; read or close them, then "
            "retry."
        )


def _subtract(counts: Counter[str], owner: str, number: int) -> None:
    counts[owner] -= number
    if not counts[owner]:
        del counts[owner]
