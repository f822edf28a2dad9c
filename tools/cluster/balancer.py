"""A small load balancer: HTTP requests in, each sent to the next front in turn; its answer streamed back.

It has no sessions: every request goes to the next front, on a connection of its own. Only a refused connection is tried
at another front, because then no front has seen the request; anything else that goes wrong is the client's to decide.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeAlias

Address: TypeAlias = tuple[str, int]

_MOST_HEAD = 64 * 1024  # bytes of a request's head
_CHUNK = 64 * 1024
_HEAD_SECONDS = 30.0
_CONNECT_SECONDS = 5.0
_CONNECTION = re.compile(rb"\r\n(?:proxy-)?connection:[^\r]*", re.IGNORECASE)
_NO_FRONT = b'{"error":{"code":"no_front","message":"No front accepts connections; retry in a moment."}}'
_UNAVAILABLE = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(_NO_FRONT), _NO_FRONT)
)


class Balancer:
    """`fronts` may change at any time; `chosen` is called with each choice."""

    def __init__(self, fronts: Sequence[Address], chosen: Callable[[Address], None] = lambda front: None) -> None:
        self.fronts = list(fronts)
        self.chosen = chosen
        self._turn = 0
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> Address:
        self._server = await asyncio.start_server(self._serve, host, port, limit=_MOST_HEAD)
        address: Address = self._server.sockets[0].getsockname()[:2]
        return address

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            for client in self._clients:
                client.cancel()
            await asyncio.gather(*self._clients, return_exceptions=True)
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            with suppress(OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
                await self._forward(reader, writer)
        except asyncio.CancelledError:  # by `close`; nobody else waits for this task
            pass
        finally:
            self._clients.discard(task)
            await _close(writer)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_HEAD_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
        front = await self._connect()
        if front is None:
            writer.write(_UNAVAILABLE)
            await writer.drain()
            return
        answers, requests = front
        try:
            # The front closes the connection after its answer, which ends that of the client as well.
            requests.write(_CONNECTION.sub(b"", head[:-4]) + b"\r\nConnection: close\r\n\r\n")
            upwards = asyncio.create_task(_copy(reader, requests))
            downwards = asyncio.create_task(_copy(answers, writer))
            try:  # whoever ends first ends the other: a client that has gone, a front that has answered or died
                await asyncio.wait((upwards, downwards), return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (upwards, downwards):
                    task.cancel()
                await asyncio.gather(upwards, downwards, return_exceptions=True)
        finally:
            await _close(requests)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for _ in range(len(self.fronts)):
            self._turn += 1
            front = self.fronts[self._turn % len(self.fronts)]
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    opened = await asyncio.open_connection(*front)
            except (ConnectionRefusedError, TimeoutError):
                continue
            self.chosen(front)
            return opened
        return None


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Until its end, or an error of either side."""
    with suppress(OSError):
        while data := await source.read(_CHUNK):
            sink.write(data)
            await sink.drain()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(1):
            await writer.wait_closed()
