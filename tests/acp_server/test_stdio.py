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


LONG = b"x" * 200_000


@pytest.mark.parametrize(
    ("line", "id"),
    [
        (b'{"jsonrpc":"2.0","id":7,"method":"a","params":["%s"]}' % LONG, 7),
        (b'{"jsonrpc": "2.0", "method": "a", "id": "b", "params": ["%s"]}' % LONG, "b"),
        (b'{"method":"a","params":["%s"],"jsonrpc":"2.0","id":8}' % LONG, 8),
        (b'{"method":"a","params":["%s"],"id":9,"jsonrpc":"2.0"}' % LONG, 9),
        (b'{"method":"a","params":["%s",{"id":9}]}' % LONG, None),
        (b'{"jsonrpc":"2.0","id":7,"result":["%s"]}' % LONG, None),  # is no request
        (b'{"result":["%s"],"id":7}' % LONG, None),
        (b'{"method":"a","params":["%s"],"id":"\xff"}' % LONG, None),
        (LONG, None),
    ],
)
@pytest.mark.parametrize("more", [b"\n" + b'{"method":"b"}\n', b""])
def test_a_line_that_is_too_long_is_answered_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: bytes, id: object, more: bytes
) -> None:
    monkeypatch.setattr(stdio, "_LONGEST", 100_000)
    (tmp_path / "in").write_bytes(line + more)

    async def use(transport: StdioTransport) -> None:
        if more:
            assert await transport.receive() == {"method": "b"}
        assert await transport.receive() is None

    with (tmp_path / "in").open("rb") as incoming, (tmp_path / "out").open("wb") as outgoing:
        with_transport(incoming.fileno(), outgoing.fileno(), use)
    refused = json.loads((tmp_path / "out").read_bytes())
    assert (refused["id"], refused["error"]) == (id, {"code": -32700, "message": stdio.TOO_LONG})


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
