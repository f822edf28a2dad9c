"""The balancer of `make cluster`: in turn, streaming, and never a request twice."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from tools.cluster.balancer import Address, Balancer

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

_SECONDS = 60


@asynccontextmanager
async def _server(handle: Handler) -> AsyncIterator[Address]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, EOFError):
            await handle(reader, writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[:2]


def _named(name: bytes) -> Handler:
    """Answers with its name and the request."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next((int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length: ")), 0)
        body = await reader.readexactly(length)
        result = b"%b\n%b%b" % (name, head, body)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(result), result))
        await writer.drain()

    return handle


async def _ask(address: Address, request: bytes = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") -> bytes:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(request)
    try:
        return await reader.read()
    except ConnectionResetError:  # it closed before it had read all of the request
        return b""
    finally:
        writer.close()


@contextmanager
def _refusing() -> Iterator[Address]:
    """It is bound and does not listen; a port that was given back might be the balancer's next."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()


def _run(test: Awaitable[None]) -> None:
    asyncio.run(asyncio.wait_for(test, _SECONDS))


def test_requests_go_to_each_front_in_turn_and_past_those_that_refuse() -> None:
    async def test() -> None:
        chosen: list[Address] = []
        async with _server(_named(b"one")) as one, _server(_named(b"two")) as two:
            balancer = Balancer([one, refusing, two], chosen.append)
            address = await balancer.start()
            answers = [await _ask(address) for _ in range(6)]
            assert sum(b"\r\n\r\none\n" in answer for answer in answers) == 3
            assert set(chosen) == {one, two}
            await balancer.close()

    with _refusing() as refusing:
        _run(test())


def test_it_streams_and_a_client_that_leaves_is_gone_for_the_front_as_well() -> None:
    left = asyncio.Event()

    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nfirst")
        await writer.drain()
        assert await reader.read() == b""
        left.set()

    async def test() -> None:
        async with _server(stream) as one:
            balancer = Balancer([one])
            reader, writer = await asyncio.open_connection(*await balancer.start())
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await reader.readuntil(b"first")
            writer.close()
            await left.wait()
            await balancer.close()

    _run(test())


def test_a_front_that_dies_is_not_asked_again_and_open_streams_end_with_the_balancer() -> None:
    asked = 0

    async def die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def test() -> None:
        async with _server(die) as one, _server(hang) as two:
            balancer = Balancer([one])
            address = await balancer.start()
            assert await _ask(address) == b""
            assert asked == 1
            balancer.fronts = [two]
            hanging = asyncio.create_task(_ask(address))
            await asyncio.sleep(0.05)
            await balancer.close()
            assert await hanging == b""

    _run(test())
