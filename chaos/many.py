"""A gateway in; many connections to it at once, from one process, and what came back on each, out."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from chaos.talking import Json, request
from tests.gateways import RunningGateway

_PATIENCE = 120.0  # seconds, for all of a reply


class Wire:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.status, self.headers = 0, dict[str, str]()

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def head(self) -> int:
        """The status; 0 when the other end has closed instead."""
        try:
            async with asyncio.timeout(_PATIENCE):
                result = await self._reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return 0
        first, *lines = result.decode("latin-1").split("\r\n")
        self.status = int(first.split(" ", 2)[1])
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return self.status

    async def body(self) -> bytes:
        """All of it; what there is of it, where the connection breaks."""
        found = bytearray()
        try:
            async with asyncio.timeout(_PATIENCE):
                async for piece in self._pieces():
                    found += piece
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        return bytes(found)

    async def until(self, expected: bytes) -> bytes:
        """The body as far as it had come when `expected` had."""
        found = bytearray()
        async with asyncio.timeout(_PATIENCE):
            async for piece in self._pieces():
                found += piece
                if expected in found:
                    return bytes(found)
        raise AssertionError(f"the reply ended without {expected!r}: {found[-300:]!r}")

    async def _pieces(self) -> AsyncIterator[bytes]:
        if "content-length" in self.headers:
            yield await self._reader.readexactly(int(self.headers["content-length"]))
            return
        while size := int(await self._reader.readline() or b"0", 16):
            yield (await self._reader.readexactly(size + 2))[:-2]
        await self._reader.readline()

    async def ended(self) -> bytes:
        """What comes until the other end closes."""
        try:
            async with asyncio.timeout(_PATIENCE):
                return await self._reader.read()
        except ConnectionError:
            return b""

    def close(self) -> None:
        self._writer.close()

    def abort(self) -> None:
        self._writer.transport.abort()


async def wire(gateway: RunningGateway) -> Wire:
    address = urlsplit(gateway.url)
    async with asyncio.timeout(_PATIENCE):
        return Wire(*await asyncio.open_connection(address.hostname, address.port, limit=1 << 22))


@asynccontextmanager
async def asked(
    gateway: RunningGateway, method: str, path: str, *headers: str, body: Json | None = None
) -> AsyncIterator[Wire]:
    """One request, whose reply has begun."""
    one = await wire(gateway)
    try:
        one.send(request(method, path, *headers, body=body))
        await one.head()
        yield one
    finally:
        one.close()


async def whole(
    gateway: RunningGateway, method: str, path: str, *headers: str, body: Json | None = None
) -> tuple[int, bytes]:
    async with asked(gateway, method, path, *headers, body=body) as one:
        return one.status, await one.body() if one.status else b""
