"""Lines on standard input and output, or on other files, for protocols that send one message in each.

Threads read and write: unlike an event loop, they can use any kind of file. They are daemons, because a read ends when
the other side does, which may be never.
"""

import asyncio
import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread

from cursor_gateway.wire.lines import LineSplitter

_READ = 65_536  # bytes at once
_LONGEST = 32 * 1024 * 1024  # bytes of a line
_KEPT = 1_000  # bytes of the beginning and of the end of a longer one
_WAITING = 1_000  # lines that may wait for a reader that does not read
_FLUSH_SECONDS = 5.0

TOO_LONG = "This message is longer than 32 MiB; send a shorter one."

_ID = rb'"id"\s*:\s*(-?[0-9]{1,18}|"[^"\\]{0,200}")'
_VERSION = rb'(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?'
_METHOD = rb'"method"\s*:\s*"[^"\\]*"\s*,'
_STARTS_WITH_ID = re.compile(
    rb"\s*\{\s*" + _VERSION + rb"(?:" + _METHOD + rb"\s*)?" + _ID + rb'\s*,\s*"(?:method|params)"'
)
_STARTS_WITH_METHOD = re.compile(rb"\s*\{\s*" + _VERSION + _METHOD)
_ENDS_WITH_ID = re.compile(_ID + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')


def is_cut(line: bytes) -> bool:
    """Whether these are the beginning and the end of a line that was too long."""
    return b"\n" in line


def unread_id(line: bytes) -> int | str | None:
    """The id of a JSON-RPC request that cannot be read, so that its sender learns of that: libraries write it first or
    last."""
    found = _STARTS_WITH_ID.match(line)
    if found is None and _STARTS_WITH_METHOD.match(line):
        found = _ENDS_WITH_ID.search(line, max(0, len(line) - _KEPT))
    try:
        id: int | str | None = None if found is None else json.loads(found[1])
    except ValueError:  # no UTF-8, or a raw control character
        return None
    return id


class StdioLines:
    def __init__(self, incoming: int, outgoing: int) -> None:
        """File descriptors."""
        self._incoming, self._outgoing = incoming, outgoing
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._out: SimpleQueue[bytes | None] = SimpleQueue()
        self._room = asyncio.Event()
        self._room.set()
        self._is_broken = False
        self._reader = Thread(target=self._read, name="stdin", daemon=True)
        self._writer = Thread(target=self._write, name="stdout", daemon=True)
        self._reader.start()
        self._writer.start()

    def send(self, line: bytes) -> None:
        self._out.put(line)
        if self._out.qsize() > _WAITING:
            self._room.clear()

    async def drained(self) -> None:
        """Waits while too much waits for the other side."""
        await self._room.wait()

    async def receive(self) -> bytes | None:
        """None: the other side is gone, or reads no more. See `is_cut`."""
        return await self._lines.get()

    def close(self) -> None:
        """What was sent is written first."""
        self._out.put(None)
        self._writer.join(_FLUSH_SECONDS)

    # --- in threads -----------------------------------------------------------------------------------

    def _read(self) -> None:
        splitter, unended, beginning, end = LineSplitter(), 0, b"", b""
        while piece := self._piece():
            if beginning:  # the line is too long, so the rest of it is not kept
                more, is_over, piece = piece.partition(b"\n")
                end = (end + more)[-_KEPT:]
                if not is_over:
                    continue
                self._take(beginning + b"\n" + end)
                beginning = b""
            lines = splitter.push(piece)
            unended = 0 if lines else unended + len(piece)
            for line in lines:
                self._take(line)
            if unended > _LONGEST:
                line, unended = b"".join(splitter.flush()), 0
                beginning, end = line[:_KEPT], line[-_KEPT:]
        for line in [beginning + b"\n" + end] if beginning else splitter.flush():
            self._take(line)
        self._end()

    def _piece(self) -> bytes:
        try:
            return os.read(self._incoming, _READ)
        except OSError:
            return b""

    def _write(self) -> None:
        while (line := self._out.get()) is not None:
            view = memoryview(line)
            while view and not self._is_broken:
                try:
                    view = view[os.write(self._outgoing, view) :]
                except OSError:  # nobody reads any more
                    self._is_broken = True
                    self._end()
            if self._out.qsize() <= _WAITING // 2:
                self._call(self._room.set)

    def _take(self, line: bytes) -> None:
        self._call(self._lines.put_nowait, line)

    def _end(self) -> None:
        self._call(self._lines.put_nowait, None)

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop is closed, and nobody waits
            self._loop.call_soon_threadsafe(function, *arguments)


def standard_streams() -> tuple[int, int]:
    """For the protocol alone: for other code and for children, standard input is empty, and output goes to standard
    error."""
    incoming, outgoing = os.dup(0), os.dup(1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.dup2(2, 1)
    os.close(empty)
    return incoming, outgoing
