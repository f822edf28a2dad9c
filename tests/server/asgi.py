"""An ASGI application in; what it sends to a client that stays, leaves, or reads slowly, out. No sockets."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from starlette.types import ASGIApp, Message

from cursor_gateway.http1.server import EXCHANGE
from cursor_gateway.server.metrics import Metrics
from cursor_gateway.server.streaming import Reading
from tests.runs.scripted import true

SCOPE: dict[str, Any] = {"type": "http", "method": "POST", "path": "/", "headers": [], "state": {"request_id": "req_1"}}


class Client:
    """`leaves` when it is told to; while `reads` is not set, nothing more can be sent to it."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.leaves, self.reads = asyncio.Event(), asyncio.Event()
        self.reads.set()
        self.breaks: Exception | None = None
        self._has_body = True

    async def receive(self) -> Message:
        if self._has_body:  # whatever is left of the request is passed over
            self._has_body = False
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if self.breaks is not None:
            raise self.breaks
        self.sent.append(message)
        await self.reads.wait()

    def ask(self, app: ASGIApp) -> "asyncio.Task[None]":
        # an ASGI application is typed as any awaitable; all of ours are coroutines
        asked: Coroutine[Any, Any, None] = app(self.scope, self.receive, self.send)  # type: ignore[assignment]
        return asyncio.get_running_loop().create_task(asked)

    @property
    def scope(self) -> dict[str, Any]:
        return SCOPE

    async def answered(self, app: ASGIApp) -> "Client":
        await self.ask(app)
        return self

    async def has(self, count: int) -> None:
        """Waits for so many messages."""
        await true(lambda: len(self.sent) >= count)

    @property
    def status(self) -> int:
        status: int = self.sent[0]["status"]
        return status

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def pieces(self) -> list[bytes]:
        return [message["body"] for message in self.sent[1:]]

    @property
    def body(self) -> bytes:
        """The whole one: nothing comes after its end, and there is one."""
        more = [message.get("more_body", False) for message in self.sent[1:]]
        assert more == [True] * (len(more) - 1) + [False]
        return b"".join(self.pieces)


class Connected(Client):
    """A client of our own server, whose connection takes pieces at once while the client reads."""

    is_whole, size = True, 0  # its request

    def __init__(self) -> None:
        super().__init__()
        self.at_once = 0  # pieces

    @property
    def scope(self) -> dict[str, Any]:
        return {**SCOPE, EXCHANGE: self}

    def when_gone(self, leave: Callable[[], None] | None) -> None:
        pass

    def send_now(self, piece: bytes) -> bool:
        assert self.sent, "the head comes first"
        if not self.reads.is_set():
            return False
        self.at_once += 1
        self.sent.append({"type": "http.response.body", "body": piece, "more_body": True})
        return True


def reading(hold: float = 1e6, keep_alive: float = 1e6) -> Reading:
    return Reading(hold_seconds=hold, keep_alive_seconds=keep_alive, metrics=Metrics())


def open_streams(asked: Reading) -> float:
    (line,) = [line for line in asked.metrics.render().decode().splitlines() if line.startswith("cursor_gateway_open")]
    return float(line.split()[1])
