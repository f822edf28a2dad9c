"""A network link between one member and the database, which can be cut, be slow, or lose notifications.

The member connects to the link in place of the database. PostgreSQL's messages have a type and a length, so the link
knows where each begins and can leave out the notifications alone (`A`, NotificationResponse).
"""

import asyncio
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

_CHUNK = 64 * 1024
_NOTIFICATION = b"A"
_HEAD = 5  # bytes before a message of the server: its type and its length

_HEARTBEAT = b"cursor-gateway heartbeat"  # the name of that connection
_READY = b"Z"  # the type of the message that ends every answer

When: TypeAlias = Literal["before", "after"]


class Loss(Struct, frozen=True):
    """A connection is lost before the server gets a request, or after it has answered one; `skip` are passed first."""

    skip: int
    when: When


class Link:
    def __init__(self, socket: Path) -> None:
        self.socket = socket  # of the database
        self.delay = 0.0  # seconds, for each piece in each direction
        self.loses_notifications = False
        self.lost = 0  # notifications
        self.beats = asyncio.Event()  # not set: beats do not arrive, and everything else does
        self.beats.set()
        self.losses: deque[Loss] = deque()
        self._open = asyncio.Event()
        self._open.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, host: str = "127.0.0.1") -> int:
        """Returns its port."""
        self._server = await asyncio.start_server(self._serve, host, 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def cut(self) -> None:
        """Nothing arrives any more, and nothing is refused: as if the packets were dropped."""
        self._open.clear()

    def mend(self) -> None:
        """What was sent meanwhile arrives late, as TCP sends it again."""
        self._open.set()

    def reset(self) -> None:
        """Ends all connections; nobody knows whether what was sent last was done."""
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self.reset()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(OSError, EOFError):
                await self._connect(reader, writer)
        except asyncio.CancelledError:  # by `reset`; nobody waits for this task but `close`
            writer.transport.abort()
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._open.wait()
        answers, questions = await asyncio.open_unix_connection(str(self.socket))
        answer = asyncio.Event()
        up = asyncio.create_task(self._up(reader, questions, answer))
        down = asyncio.create_task(self._down(answers, writer, answer))
        try:
            await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
            await self._open.wait()  # whoever is cut off does not see the other side close, either
        finally:
            for task in (up, down):
                task.cancel()
            await asyncio.gather(up, down, return_exceptions=True)
            questions.close()

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: asyncio.Event) -> None:
        """`answer` is set when the answer to what was sent last is to be lost."""
        is_heartbeat = False
        with suppress(OSError):
            while data := await reader.read(_CHUNK):
                is_heartbeat = is_heartbeat or _HEARTBEAT in data  # its name is in the first message
                if is_heartbeat:
                    await self.beats.wait()
                if self.losses and not self._skipped():
                    if self.losses[0].when == "before":
                        self.losses.popleft()
                        return
                    answer.set()
                await self._pass(writer, data)

    def _skipped(self) -> bool:
        """Whether the next loss is of a later request."""
        loss = self.losses[0]
        if loss.skip:
            self.losses[0] = Loss(loss.skip - 1, loss.when)
        return loss.skip > 0

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: asyncio.Event) -> None:
        rest = b""
        with suppress(OSError):
            while data := await reader.read(_CHUNK):
                kept, rest = self._without_lost(rest + data)
                if answer.is_set():
                    if _is_answered(kept):
                        self.losses.popleft()
                        return
                elif kept:
                    await self._pass(writer, kept)

    def _without_lost(self, data: bytes) -> tuple[bytes, bytes]:
        """The whole messages in it that arrive, and the beginning of the next."""
        kept, at = [], 0
        while len(data) - at >= _HEAD:
            end = at + 1 + int.from_bytes(data[at + 1 : at + _HEAD])
            if end > len(data):
                break
            if self.loses_notifications and data[at : at + 1] == _NOTIFICATION:
                self.lost += 1
            else:
                kept.append(data[at:end])
            at = end
        return b"".join(kept), data[at:]

    async def _pass(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        if self.delay:
            await asyncio.sleep(self.delay)
        await self._open.wait()
        writer.write(data)
        await writer.drain()


def _is_answered(messages: bytes) -> bool:
    """Whether the last message is that the server waits for the next request."""
    return messages[-6:-5] == _READY
