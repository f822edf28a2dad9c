"""Messages as lines, to and from a running agent."""

from collections import deque
from collections.abc import Callable

from cursor_gateway.sources.acp.messages import Message, line_of, message_of
from cursor_gateway.sources.process import AgentProcess
from cursor_gateway.sources.stdin import StdinWriter
from cursor_gateway.wire.lines import LineSplitter


class LineTransport:
    """To and from an agent with an open standard input. Lines may be long; those that are not messages are skipped."""

    def __init__(self, process: AgentProcess, stdin: StdinWriter, longest: int) -> None:
        self._process, self._stdin, self._longest = process, stdin, longest
        self._lines = LineSplitter()
        self._unended = 0  # bytes of an incomplete line
        self._ready: deque[Message] = deque()
        self.is_too_long = False  # a line exceeded the limit
        self.on_end: Callable[[], None] = lambda: None

    def send(self, message: Message) -> None:
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

    def close(self) -> None:
        self._stdin.close()
