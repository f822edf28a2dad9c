"""Start an agent whose standard input stays open, and write to it."""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from cursor_gateway.sources.process import AgentProcess, cannot_start


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
        self._is_ending = False
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

    def end(self, data: bytes) -> None:
        """Writes the last data. The process reads the end of its input after it."""
        self._is_ending = True
        if data:
            self.write(data)
        else:
            self.close()

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
        if self._is_ending:
            self.close()
