"""Messages through files and pipes."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from cursor_gateway import stdio
from cursor_gateway.acp_server.server import StdioTransport
from cursor_gateway.stdio import StdioLines
from tests.server.conftest import eventually


def with_transport(incoming: int, outgoing: int, use: Callable[[StdioTransport], Awaitable[None]]) -> None:
    async def used() -> None:
        transport = StdioTransport(StdioLines(incoming, outgoing))
        await use(transport)
        transport.close()

    asyncio.run(used())


def test_files_can_be_read_and_written(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b'{"method":"a"}\nnothing\n\n{"method":"b"}')  # the last line lacks its end

    async def use(transport: StdioTransport) -> None:
        assert await transport.receive() == {"method": "a"}
        assert await transport.receive() == {"method": "b"}
        assert await transport.receive() is None
        transport.send({"method": "c", "params": "\ud83d"})

    with (tmp_path / "in").open("rb") as incoming, (tmp_path / "out").open("wb") as outgoing:
        with_transport(incoming.fileno(), outgoing.fileno(), use)
    refused, sent = map(json.loads, (tmp_path / "out").read_bytes().splitlines())
    assert (refused["id"], refused["error"]["code"]) == (None, -32700)
    assert sent == {"method": "c", "params": "\ufffd"}


def test_an_endless_line_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "_LONGEST", 1000)
    reader, writer = os.pipe()
    os.write(writer, b"x" * 2000)  # and nothing ends it

    async def use(transport: StdioTransport) -> None:
        assert await transport.receive() is None

    with_transport(reader, os.open(os.devnull, os.O_WRONLY), use)


def test_an_editor_that_does_not_read_is_waited_for() -> None:
    reader, writer = os.pipe()
    nothing, _keeps_it_open = os.pipe()

    async def use(transport: StdioTransport) -> None:
        for _ in range(2000):
            transport.send({"method": "a", "params": "x" * 1000})
        drained = asyncio.ensure_future(transport.drained())
        await asyncio.sleep(0)
        assert not drained.done()
        reading = asyncio.get_running_loop().run_in_executor(None, read_all, 2000)
        await asyncio.wait_for(drained, 300)
        await reading

    def read_all(lines: int) -> None:
        while lines:
            lines -= os.read(reader, 65_536).count(b"\n")

    with_transport(nothing, writer, use)


def test_what_is_sent_to_nobody_ends_the_connection() -> None:
    reader, writer = os.pipe()
    nothing, _keeps_it_open = os.pipe()
    os.close(reader)

    async def use(transport: StdioTransport) -> None:
        transport.send({"method": "a"})
        assert await transport.receive() is None
        transport.send({"method": "b"})

    with_transport(nothing, writer, use)


def test_a_message_after_the_end_is_not_an_error() -> None:
    reader, writer = os.pipe()
    transports: list[StdioTransport] = []

    async def use(transport: StdioTransport) -> None:
        transports.append(transport)

    with_transport(reader, os.open(os.devnull, os.O_WRONLY), use)
    os.write(writer, b'{"method":"a"}\n')  # the loop is closed by now
    os.close(writer)
    assert eventually(lambda: not transports[0]._lines._reader.is_alive())
