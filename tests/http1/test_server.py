"""Clients that do not take what they are sent, or send what nobody takes: connections with short timeouts."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from cursor_gateway.errors import GatewayError
from cursor_gateway.http1.server import EXCHANGE, Exchange, HttpServer, Timeouts

ASK = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def _refusal(error: GatewayError) -> ASGIApp:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": error.status, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    return refuse


class _Served:
    """An application on a socket of its own."""

    def __init__(self, app: ASGIApp, **timeouts: float) -> None:
        self.faults: list[Exception] = []
        self.server = HttpServer(
            app,
            refusal=_refusal,
            fault=lambda error, path: self.faults.append(error),
            timeouts=Timeouts(**{"head": 60, **timeouts}),
            max_connections=10,
        )

    async def __aenter__(self) -> "_Served":
        bound = socket.create_server(("127.0.0.1", 0))
        self._address = bound.getsockname()
        await self.server.listen(bound)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.abort()
        await self.server.drained()

    async def client(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self._address, limit=1024)

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(120):
            while not is_so():
                await asyncio.sleep(0.005)


async def _endless(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(1000):
        await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def test_who_takes_nothing_of_a_reply_loses_it() -> None:
    async with _Served(_endless, reply=0.2) as served:
        _, writer = await served.client()
        writer.write(ASK)
        await served.until(lambda: bool(served.server.tasks))
        await served.until(lambda: not served.server.tasks and not served.server.connections)
        writer.close()


@pytest.mark.parametrize("headers", [[], [(b"content-length", b"10000001")]])
async def test_a_large_body_is_written_in_steps(headers: list[tuple[bytes, bytes]]) -> None:
    """While its client does not read, little of it is in the connection's buffer; in the end, all of it has come."""
    body = bytes(range(256)) * 40_000 + b"x"
    body = body[-10_000_001:]

    async def large(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async with _Served(large) as served:
        reader, writer = await served.client()
        writer.write(ASK)
        await served.until(lambda: any(one.blocked is not None for one in served.server.connections))
        await asyncio.sleep(0.05)
        (connection,) = served.server.connections
        assert connection.transport.get_write_buffer_size() < 512 * 1024
        head = await reader.readuntil(b"\r\n\r\n")
        assert (b"chunked" in head) == (not headers)
        found = bytearray()
        if headers:
            found += await reader.readexactly(len(body))
        else:
            while size := int(await reader.readuntil(b"\r\n"), 16):
                found += (await reader.readexactly(size + 2))[:-2]
        assert found == body
        writer.close()


async def test_who_takes_nothing_and_asks_for_more_loses_it_too() -> None:
    """The limit of the head that comes next is not that of the reply before it."""
    async with _Served(_endless, reply=0.2) as served:
        _, writer = await served.client()
        writer.write(ASK)
        await served.until(lambda: any(one.blocked is not None for one in served.server.connections))
        writer.write(ASK)
        await served.until(lambda: not served.server.tasks and not served.server.connections)
        writer.close()


async def test_a_body_that_has_arrived_can_be_taken_at_once() -> None:
    taken: list[bytes | None] = []

    async def takes(scope: Scope, receive: Receive, send: Send) -> None:
        exchange: Exchange = scope[EXCHANGE]
        taken.append(exchange.take_body())
        if taken[-1] is None:
            first = await receive()
            taken.append(exchange.take_body())  # some of it was received
            assert first["body"] + (await receive())["body"] == b"abcd"
        assert exchange.take_body() is None  # it was taken
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"
    async with _Served(takes) as served:
        reader, writer = await served.client()
        writer.write(head + b"abcd")
        await reader.readuntil(b"\r\n\r\nok")
        assert taken == [b"abcd"]
        writer.write(head + b"ab")
        await served.until(lambda: len(taken) == 3)
        writer.write(b"cd")
        await reader.readuntil(b"\r\n\r\nok")
        assert taken[1:] == [None, None]
        writer.close()
    assert not served.faults


async def test_pieces_can_be_sent_at_once_until_the_client_does_not_read() -> None:
    piece, count = b"x" * 65536, 0

    async def sends(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal count
        exchange: Exchange = scope[EXCHANGE]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        while exchange.send_now(piece):
            count += 1
        await send({"type": "http.response.body", "body": b"last"})

    async with _Served(sends) as served:
        reader, writer = await served.client()
        writer.write(ASK)
        await reader.readuntil(b"\r\n\r\n")
        body = bytearray()
        while size := int(await reader.readuntil(b"\r\n"), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        assert count > 0
        assert body == b"first" + piece * count + b"last"
        writer.close()
    assert not served.faults


async def test_an_application_is_told_once_when_its_client_leaves() -> None:
    left: list[str] = []
    may_end = asyncio.Event()

    async def waits(scope: Scope, receive: Receive, send: Send) -> None:
        exchange: Exchange = scope[EXCHANGE]
        exchange.when_gone(lambda: left.append("not this"))
        exchange.when_gone(None)
        exchange.when_gone(lambda: left.append("while it waits"))
        await may_end.wait()
        assert exchange.take_body() is None
        exchange.when_gone(lambda: left.append("after that"))
        left.append("over")

    async with _Served(waits) as served:
        _, writer = await served.client()
        writer.write(ASK)
        await served.until(lambda: bool(served.server.tasks))
        writer.close()
        await served.until(lambda: bool(left))
        may_end.set()
        await served.until(lambda: left[-1] == "over")
    assert left == ["while it waits", "after that", "over"]
    assert not served.faults


async def test_line_ends_between_requests_are_none() -> None:
    async def hello(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"hi"})

    async with _Served(hello, head=0.2) as served:
        reader, writer = await served.client()
        writer.write(ASK)
        await reader.readuntil(b"\r\n\r\nhi")
        writer.write(b"\r\n")
        assert await reader.read() == b""  # it is closed as idle, without a word about a request that never was
        writer.close()
        reader, writer = await served.client()
        writer.write(ASK)
        await reader.readuntil(b"\r\n\r\nhi")
        writer.write(b"\r\n")
        await asyncio.sleep(0.01)
        for connection in list(served.server.connections):
            connection.close_soon()
        assert await reader.read() == b""
        writer.close()


async def test_a_head_that_has_begun_has_little_time_when_the_gateway_is_about_to_stop() -> None:
    async with _Served(_endless, rest=0.2) as served:
        reader, writer = await served.client()
        writer.write(b"GET / HT")
        await served.until(lambda: any(one._parser.head_has_begun for one in served.server.connections))
        for connection in list(served.server.connections):
            connection.close_soon()
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
        writer.close()


async def test_who_takes_a_reply_slowly_has_all_of_it() -> None:
    async with _Served(_endless, reply=0.5) as served:
        reader, writer = await served.client()
        writer.write(ASK)
        size = 0
        while size < 1000 * 65536:
            size += len(await reader.read(1024 * 1024))
            await asyncio.sleep(0.001)
        assert served.server.connections
        writer.close()


@pytest.mark.parametrize("more", [b"", b"Connection: close\r\n"])
async def test_who_has_taken_all_may_wait_for_more(more: bytes) -> None:
    has_waited = asyncio.Event()

    async def pauses(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * 20_000_000, "more_body": True})
        await send({"type": "http.response.body", "body": b"y", "more_body": True})  # when that is taken
        await has_waited.wait()
        await send({"type": "http.response.body", "body": b"the end"})

    async with _Served(pauses, reply=0.2) as served:
        reader, writer = await served.client()
        writer.write(ASK[:-2] + more + b"\r\n")
        size = 0
        while size < 20_000_000:
            size += len(await reader.read(1024 * 1024))
        await asyncio.sleep(0.5)
        has_waited.set()
        assert b"the end" in await reader.readuntil(b"0\r\n\r\n")
        writer.close()


async def test_a_reply_that_nobody_takes_does_not_keep_its_connection_for_ever() -> None:
    async def much(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"x")]})
        await send({"type": "http.response.body", "body": b"x" * 20_000_000})

    async with _Served(much, reply=0.2) as served:
        _, writer = await served.client()
        writer.write(ASK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        await served.until(lambda: bool(served.server.connections))
        await served.until(lambda: not served.server.connections)
        writer.close()


async def test_who_goes_on_sending_after_a_refusal_is_heard_only_for_a_while() -> None:
    async def refuses(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 413, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"no"})

    async with _Served(refuses, rest=0.2) as served:
        reader, writer = await served.client()
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n\r\n" + b"x" * 5_000_000)
        assert (await reader.readuntil(b"\r\n\r\nno")).startswith(b"HTTP/1.1 413 ")
        assert await reader.read() == b""
        await served.until(lambda: not served.server.connections)
        writer.close()


async def test_requests_that_wait_for_their_turn_stay_with_their_sender() -> None:
    """Only a few of those that follow a request are read before it is answered."""
    asked, may_end = asyncio.Event(), asyncio.Event()

    async def waits(scope: Scope, receive: Receive, send: Send) -> None:
        asked.set()
        await may_end.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    async with _Served(waits) as served:
        reader, writer = await served.client()
        writer.write(ASK * 600_000)
        await asked.wait()
        for _ in range(200):
            await asyncio.sleep(0)
        assert writer.transport.get_write_buffer_size() > 5_000_000
        may_end.set()
        for _ in range(20):  # and then they have it
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            assert await reader.readexactly(2) == b"ok"
        writer.transport.abort()


async def test_a_body_that_nobody_reads_stays_with_its_sender() -> None:
    """What has arrived and was not taken is bounded."""
    asked, may_end = asyncio.Event(), asyncio.Event()

    async def waits(scope: Scope, receive: Receive, send: Send) -> None:
        asked.set()
        await may_end.wait()
        size = 0
        while True:
            message = await receive()
            size += len(message.get("body", b""))
            if not message.get("more_body"):
                break
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": str(size).encode()})

    async with _Served(waits) as served:
        reader, writer = await served.client()
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 50000000\r\n\r\n" + b"x" * 50_000_000)
        await asked.wait()
        for _ in range(200):
            await asyncio.sleep(0)
        assert writer.transport.get_write_buffer_size() > 10_000_000
        may_end.set()
        assert b"50000000" in await reader.readuntil(b"0\r\n\r\n")
        writer.close()


@pytest.mark.parametrize("name", [b"x-a", b"x-a\r\nx-b: 1", b"x-a\n"])
@pytest.mark.parametrize("value", [b"good", b"bad\r\nx-c: 2", b"bad\n", b"bad\rx"])
async def test_no_header_of_a_reply_makes_another(name: bytes, value: bytes) -> None:
    async def answers(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(name, value)]})
        await send({"type": "http.response.body", "body": b"all"})

    async with _Served(answers) as served:
        reader, writer = await served.client()
        writer.write(ASK)
        if (name, value) == (b"x-a", b"good"):
            assert b"x-a: good\r\n" in await reader.readuntil(b"0\r\n\r\n")
        else:
            with suppress(ConnectionError):
                assert await reader.read() == b""
        writer.close()
