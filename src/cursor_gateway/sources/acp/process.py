"""Start an agent in its own process group, with a JSON-RPC transport over its pipes."""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from cursor_gateway.sources.acp.messages import Message, line_of, message_of
from cursor_gateway.sources.process import AgentProcess, cannot_start
from cursor_gateway.wire.lines import LineSplitter


async def start_with_stdin(
    arguments: Sequence[str], *, folder: str, environment: Mapping[str, str], on_gone: Callable[[int], None]
) -> tuple[AgentProcess, asyncio.WriteTransport]:
    """An agent whose standard input stays open. Data that it does not read is buffered until it ends.

    Raises `AgentMissing`, `HostExhausted`.
    """
    try:
        theirs, ours = os.pipe()
    except OSError as error:
        raise cannot_start(error, arguments) from error
    try:
        loop = asyncio.get_running_loop()
        stdin, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(ours, "wb", 0))
    except BaseException:
        os.close(theirs)
        raise
    try:
        process = await AgentProcess.start(
            arguments, folder=folder, environment=environment, stdin=theirs, on_gone=on_gone
        )
    except BaseException:
        stdin.abort()
        raise
    return process, stdin


class LineTransport:
    """The `acp` package's `Transport` over such a process. Lines may be long; lines that are not messages are
    skipped."""

    def __init__(self, process: AgentProcess, stdin: asyncio.WriteTransport, longest: int) -> None:
        self._process, self._stdin, self._longest = process, stdin, longest
        self._lines = LineSplitter()
        self._unended = 0  # bytes of an incomplete line
        self._ready: deque[Message] = deque()
        self.is_too_long = False  # a line exceeded the limit
        self.on_end: Callable[[], None] = lambda: None

    async def send(self, message: Message) -> None:
        """Does nothing when the process is gone; the end of its output reports that."""
        if not self._stdin.is_closing():
            self._stdin.write(line_of(message))

    async def receive(self) -> Message | None:
        while not self._ready:
            piece = b"" if self.is_too_long else await self._process.read()
            if not piece:
                self.on_end()  # also if the process still runs: the callback ends it
                return None
            lines = self._lines.push(piece)
            self._unended = 0 if lines else self._unended + len(piece)
            self.is_too_long = self._unended > self._longest
            self._ready += filter(None, map(message_of, lines))
        return self._ready.popleft()

    async def close(self) -> None:
        if not self._stdin.is_closing():
            self._stdin.abort()
