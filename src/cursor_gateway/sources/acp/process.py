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
) -> "tuple[AgentProcess, StdinWriter]":
    """An agent whose standard input stays open. Raises `AgentMissing`, `HostExhausted`."""
    try:
        theirs, ours = os.pipe()
    except OSError as error:
        raise cannot_start(error, arguments) from error
    stdin = StdinWriter(ours)
    try:
        process = await AgentProcess.start(
            arguments, folder=folder, environment=environment, stdin=theirs, on_gone=on_gone
        )
    except BaseException:
        stdin.close()
        raise
    return process, stdin


class StdinWriter:
    """Writes to a process without ever waiting: data that it does not read is buffered until it ends.

    Not a transport of the event loop: uvloop closes the descriptor of a pipe twice, and by then it may be the number of
    a file that another thread has opened.
    """

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._loop = asyncio.get_running_loop()
        self._rest: deque[memoryview] = deque()
        os.set_blocking(pipe, False)

    def write(self, data: bytes) -> None:
        """Does nothing when the process is gone; the end of its output reports that."""
        if self._pipe < 0:
            return
        self._rest.append(memoryview(data))
        if len(self._rest) == 1:
            self._writable()
            if self._rest:
                self._loop.add_writer(self._pipe, self._writable)

    def close(self) -> None:
        if self._pipe >= 0:
            self._loop.remove_writer(self._pipe)
            os.close(self._pipe)
            self._pipe = -1
            self._rest.clear()

    def _writable(self) -> None:
        try:
            while self._rest:
                written = os.write(self._pipe, self._rest[0])
                self._rest[0] = self._rest[0][written:]
                if not self._rest[0]:
                    self._rest.popleft()
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        self._loop.remove_writer(self._pipe)


class LineTransport:
    """The `acp` package's `Transport` over such a process. Lines may be long; lines that are not messages are
    skipped."""

    def __init__(self, process: AgentProcess, stdin: StdinWriter, longest: int) -> None:
        self._process, self._stdin, self._longest = process, stdin, longest
        self._lines = LineSplitter()
        self._unended = 0  # bytes of an incomplete line
        self._ready: deque[Message] = deque()
        self.is_too_long = False  # a line exceeded the limit
        self.on_end: Callable[[], None] = lambda: None

    async def send(self, message: Message) -> None:
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
        self._stdin.close()
