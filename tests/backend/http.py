"""HTTP/1.1 for the mock: a request in; an answer, a stream of Connect's frames, or a connection that breaks, out."""

import asyncio
import json
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

from msgspec import Struct

END = 2  # the flag of a stream's last frame


class Request(Struct, frozen=True):
    method: str
    path: str
    headers: Mapping[str, str]  # lower-case names
    body: bytes


class Exchange:
    """A request, and the means to answer it."""

    def __init__(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.request = request
        self.is_broken = False
        self._reader, self._writer = reader, writer

    def answer(self, status: int, body: bytes, type: str) -> None:
        head = f"HTTP/1.1 {status} -\r\ncontent-type: {type}\r\ncontent-length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)

    def answer_json(self, status: int, value: Any) -> None:
        self.answer(status, json.dumps(value).encode(), "application/json")

    def begin(self) -> None:
        self._writer.write(
            b"HTTP/1.1 200 -\r\ncontent-type: application/connect+proto\r\ntransfer-encoding: chunked\r\n\r\n"
        )

    async def send(self, data: bytes, flag: int = 0) -> None:
        chunk = bytes([flag]) + struct.pack(">I", len(data)) + data
        self._writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        await self._writer.drain()

    async def end(self, error: Mapping[str, Any] | None) -> None:
        await self.send(json.dumps({} if error is None else {"error": error}).encode(), END)
        self._writer.write(b"0\r\n\r\n")

    def break_off(self) -> None:
        """In the middle of the answer, without any notice."""
        self.is_broken = True
        self._writer.transport.abort()

    async def left(self) -> None:
        """Returns when the client has closed the connection. Only while a stream is answered: nothing else comes."""
        with suppress(OSError):
            await self._reader.read(1)


Handler: TypeAlias = Callable[[Exchange], Awaitable[None]]


async def serve_connection(handler: Handler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while (request := await _read(reader)) is not None:
            exchange = Exchange(request, reader, writer)
            await handler(exchange)
            if exchange.is_broken:
                return
            await writer.drain()
    except OSError:
        pass  # the client has gone
    finally:
        writer.close()


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    line, *rest = head.strip().split("\r\n")
    method, path, _ = line.split(" ")
    pairs = (field.partition(":") for field in rest)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while size := int(await reader.readline(), 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    else:
        body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(method, path, headers, body)


def first_frame(body: bytes) -> bytes:
    (size,) = struct.unpack(">I", body[1:5])
    return body[5 : 5 + size]
