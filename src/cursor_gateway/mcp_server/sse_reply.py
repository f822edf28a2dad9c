"""A reply as Server-Sent Events, while the work that it reports is done; the work ends when the client leaves."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from starlette.types import Receive, Scope, Send

from cursor_gateway.dialects.base import SSE
from cursor_gateway.server.streaming import Reading, stream_headers

_RECONNECT = b"retry: 100\n\n"  # at once, and to another process
_COMMENT = b":\n\n"

Work: TypeAlias = Callable[["SseReply"], Awaitable[bytes]]  # the last message; empty: there is none


class Moved(Exception):
    """This process stops, and the client can continue at another one."""


class SseReply:
    def __init__(self, reading: Reading, owner: str, work: Work) -> None:
        self._reading, self._owner, self._work = reading, owner, work
        self._sending = asyncio.Lock()
        self._send: Send | None = None
        self._task: asyncio.Future[bytes] | None = None
        self.delivered: Callable[[], Awaitable[None]] | None = None  # called when the last message was written

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._reading.unread.opened(self._owner)
        self._reading.metrics.stream_opened()
        try:
            await self._respond(receive, send)
        finally:
            self._reading.metrics.stream_closed()
            self._reading.unread.closed(self._owner)

    async def event(self, message: bytes, id: str = "", retry_ms: int = 0) -> None:
        """Without a message, it only tells the client where it is, and when to come back."""
        fields = (f"id: {id}\n" if id else "") + (f"retry: {retry_ms}\n" if retry_ms else "")
        await self._write(fields.encode() + b"data: " + message + b"\n\n")

    def cancel(self) -> None:
        """The stream ends without another message."""
        if self._task is not None:
            self._task.cancel()

    async def _respond(self, receive: Receive, send: Send) -> None:
        self._send = send
        await send({"type": "http.response.start", "status": 200, "headers": stream_headers(SSE, {})})
        await self._write(_COMMENT)  # the head is sent at once
        working = self._task = asyncio.ensure_future(self._work(self))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            while not working.done() and not leaving.done():
                await asyncio.wait(
                    (working, leaving), timeout=self._reading.keep_alive_seconds, return_when=asyncio.FIRST_COMPLETED
                )
                if not working.done() and not leaving.done():
                    await self._write(_COMMENT)
            if working.done():
                await self._end(working)
        finally:
            working.cancel()
            leaving.cancel()
            await asyncio.wait((working, leaving))

    async def _end(self, working: "asyncio.Future[bytes]") -> None:
        try:
            last = working.result()
        except asyncio.CancelledError:
            last = b""
        except Moved:
            await self._write(_RECONNECT)
            last = b""
        if last:
            await self.event(last)
        async with self._sending:
            assert self._send is not None
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        if self.delivered is not None:
            await self.delivered()

    async def _write(self, data: bytes) -> None:
        async with self._sending:
            assert self._send is not None
            with self._reading.unread.holding(self._owner, data) as data:
                await self._send({"type": "http.response.body", "body": data, "more_body": True})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
