"""An application (ASGI) and sockets in; its replies on every connection out.

A connection has any number of exchanges, a request and its reply each, which are answered one after the other: the
first is at work, the others wait. Every wait for the client has an end: for a request's head, for a reply to be taken,
for the rest of what was refused. The wait for a body ends where the application reads it.
"""

import asyncio
import socket
from collections.abc import Callable
from email.utils import formatdate
from time import time
from typing import Any
from urllib.parse import unquote

from msgspec import Struct
from starlette.types import ASGIApp, Message

from cursor_gateway.errors import GatewayError, RequestTooSlow, ShuttingDown, TooManyConnections
from cursor_gateway.http1.requests import BodyPiece, Rejected, RequestEnd, RequestHead, RequestParser
from cursor_gateway.http1.responses import ResponseEncoder

_BACKLOG = 2048
_MUCH = 64 * 1024  # bytes of a body that nobody has taken yet
_LONGEST_REST = 30.0  # seconds for what a client has yet to send when it is refused
_MOST_IGNORED = 32 * 1024 * 1024  # bytes that come for nothing; more than most who are refused have yet to send
_MOST_WAITING = 8  # requests that a client sends without waiting for replies
_BEYOND = 64  # connections over the limit that are still told so

_ASGI = {"version": "3.0", "spec_version": "2.3"}
_DISCONNECT: Message = {"type": "http.disconnect"}


class Timeouts(Struct, frozen=True, kw_only=True):
    """Seconds that a client may take."""

    head: float  # for a request's head, from its first byte; and before that, from the connection's start or last reply
    reply: float = 300.0  # to take anything at all of a reply that waits for it
    rest: float = 2.0  # to send what nobody reads: were the connection closed at once, it might lose the reply


class HttpServer:
    """What all connections have in common."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        refusal: Callable[[GatewayError], ASGIApp],
        fault: Callable[[Exception, str], None],
        timeouts: Timeouts,
        max_connections: int,
    ) -> None:
        """`refusal` replies to what does not reach `app`; `fault` is told what `app` raised, and for which path."""
        self.app, self.refusal, self.fault = app, refusal, fault
        self.timeouts, self.max_connections = timeouts, max_connections
        self.connections: set[Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.is_closing = False
        self._listening: list[asyncio.Server] = []
        self._second, self._date = 0, b""

    async def listen(self, bound: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        create = loop.create_unix_server if bound.family == socket.AF_UNIX else loop.create_server
        self._listening.append(await create(lambda: Connection(self), sock=bound, backlog=_BACKLOG))

    def close(self) -> None:
        """Replies that have begun go on; whatever is asked from now on is refused."""
        self.is_closing = True
        for listening in self._listening:
            listening.close()
        for connection in list(self.connections):
            connection.close_soon()

    async def drained(self) -> None:
        while self.connections or self.tasks:
            await asyncio.sleep(0.02)

    def abort(self) -> None:
        for listening in self._listening:
            listening.close()
        for task in self.tasks:
            task.cancel()
        for connection in list(self.connections):
            connection.abort()

    def date(self) -> bytes:
        if (second := int(time())) != self._second:
            self._second, self._date = second, formatdate(second, usegmt=True).encode()
        return self._date


class Connection(asyncio.Protocol):
    __slots__ = (
        "_close_by",
        "_deadline",
        "_exchanges",
        "_ignored",
        "_is_extra",
        "_is_paused",
        "_loop",
        "_parser",
        "_timer",
        "_unsent",
        "blocked",
        "server",
        "transport",
    )

    transport: asyncio.Transport

    def __init__(self, server: HttpServer) -> None:
        self.server = server
        self._loop = asyncio.get_running_loop()
        self._parser = RequestParser()  # closed when nothing more is wanted of the client
        self._exchanges: list[Exchange] = []  # not answered yet; the first is at work
        self._is_extra = False  # one more than there is room for
        self._ignored = 0  # bytes that came after the parser was closed
        self._close_by = 0.0  # when to stop waiting for the rest of a request that was refused
        self._is_paused = False
        self.blocked: asyncio.Future[None] | None = None  # while the client does not take what it is sent
        self._unsent = 0  # bytes that it had not taken when that was looked at last
        self._deadline: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    # --- called by the event loop -------------------------------------------------------------------

    # a stream's; uvloop's is of no such type
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        connections, most = self.server.connections, self.server.max_connections
        connections.add(self)
        self._is_extra = len(connections) > most
        if len(connections) > most + _BEYOND:
            self.abort()
        self._wait(self.server.timeouts.head)

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.connections.discard(self)
        self._parser.close()
        if self._timer is not None:
            self._timer.cancel()
        for exchange in self._exchanges:
            exchange.disconnect()
        self._exchanges.clear()
        self._unblock()

    def pause_writing(self) -> None:
        self.blocked = self._loop.create_future()
        self._unsent = self.transport.get_write_buffer_size()
        self._wait(self.server.timeouts.reply)

    def resume_writing(self) -> None:
        self._unblock()
        if self._exchanges:
            self._wait(None)
        elif not self._parser.is_closed:
            self._wait(self.server.timeouts.head)

    def data_received(self, data: bytes) -> None:
        parser = self._parser
        if parser.is_closed:
            self._ignore(len(data))
            return
        if parser.is_idle and not self._exchanges:
            self._expect(self.server.timeouts.head)
        for event in parser.push(data):
            match event:
                case BodyPiece():
                    self._exchanges[-1].push(event.data)
                case RequestHead():
                    if not self._exchanges:
                        self._expect(None)
                    if self._is_extra:
                        most = self.server.max_connections
                        refusal = TooManyConnections(f"All {most} places for connections are taken; try again later.")
                        self._refuse(refusal, event.method)
                        break
                    self._add(Exchange(self, self._scope(event), event.version, is_last=not event.keep_alive))
                case RequestEnd():
                    self._exchanges[-1].push_end()
                case Rejected():
                    self._refuse(event.error, event.method)
        self.read_as_needed()

    def _ignore(self, size: int) -> None:
        self._ignored += size
        if self._ignored > _MOST_IGNORED:
            self.abort()
        elif self._close_by and not self.transport.is_closing():
            self._wait(min(self.server.timeouts.rest, self._close_by - self._loop.time()))

    def _scope(self, head: RequestHead) -> dict[str, Any]:
        path = head.path.decode("ascii")
        return {
            "type": "http",
            "asgi": _ASGI,
            "http_version": head.version,
            "method": head.method,
            "scheme": "http",
            "path": unquote(path) if "%" in path else path,
            "raw_path": head.path,
            "query_string": head.query,
            "root_path": "",
            "headers": head.headers,
            "client": None,
            "server": _server(self.transport.get_extra_info("sockname")),
            "state": {},
        }

    # --- exchanges ----------------------------------------------------------------------------------

    def _add(self, exchange: "Exchange") -> None:
        self._exchanges.append(exchange)
        if len(self._exchanges) == 1:
            self._start(exchange)

    def _start(self, exchange: "Exchange") -> None:
        app = self.server.app
        if self.server.is_closing and exchange.refused is None:
            exchange.refused = ShuttingDown("The gateway is about to stop; try again when it is back.")
            exchange.is_last = True
        if exchange.refused is not None:
            app = self.server.refusal(exchange.refused)
        task = self._loop.create_task(exchange.run(app))
        self.server.tasks.add(task)
        task.add_done_callback(self.server.tasks.discard)

    def answered(self, exchange: "Exchange") -> None:
        self._exchanges.pop(0)
        if exchange.is_last:
            self._end(exchange.is_whole)
        elif self._exchanges:
            self._start(self._exchanges[0])
        elif self.server.is_closing and not self._parser.head_has_begun:
            self._close()
        else:
            self._expect(self.server.timeouts.head)
        self.read_as_needed()

    def _refuse(self, error: GatewayError, method: str) -> None:
        """When those before it are answered; what comes after it is ignored."""
        self._parser.close()
        if self._exchanges and not self._exchanges[-1].is_whole:  # it is about the rest of this one
            exchange = self._exchanges[-1]
            if exchange.has_begun:
                exchange.is_last = True
                return
            exchange.disconnect()
            self._exchanges.pop()
        refused = Exchange(self, {"type": "http", "method": method, "path": "", "headers": []}, "1.1", is_last=True)
        refused.refused = error
        if not self._exchanges:
            self._expect(None)
        self._add(refused)

    def close_soon(self) -> None:
        """At once, unless something is asked, or about to be; the rest of a head has to come soon."""
        if self._exchanges or self._parser.is_closed:
            return
        if self._parser.head_has_begun:
            self._expect(self.server.timeouts.rest)
        else:
            self._close()

    def _end(self, is_whole: bool) -> None:
        self._parser.close()
        for exchange in self._exchanges:
            exchange.disconnect()
        self._exchanges.clear()
        if is_whole:
            self._close()
        elif not self.transport.is_closing():
            self.transport.write_eof()
            self._close_by = self._loop.time() + _LONGEST_REST
            self._wait(self.server.timeouts.rest)

    def _close(self) -> None:
        self._parser.close()
        self.transport.close()
        self._unsent = self.transport.get_write_buffer_size()
        self._wait(self.server.timeouts.reply)

    def abort(self) -> None:
        self._parser.close()
        self.transport.abort()

    # --- backpressure and timeouts ------------------------------------------------------------------

    def read_as_needed(self) -> None:
        """A client that sends more than is taken has to wait."""
        is_much = len(self._exchanges) > _MOST_WAITING or (
            bool(self._exchanges) and self._exchanges[-1].size > _MUCH and not self._parser.is_closed
        )
        if is_much == self._is_paused or self.transport.is_closing():
            return
        self._is_paused = is_much
        if is_much:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def _unblock(self) -> None:
        if self.blocked is not None and not self.blocked.done():
            self.blocked.set_result(None)
        self.blocked = None

    def _expect(self, seconds: float | None) -> None:
        """Something of the client; not while it does not take what it is sent, which has a limit of its own."""
        if self.blocked is None:
            self._wait(seconds)

    def _wait(self, seconds: float | None) -> None:
        """One timer for all limits, which looks at the clock again when the limit has moved."""
        if seconds is None:
            self._deadline = None
            return
        self._deadline = deadline = self._loop.time() + seconds
        if self._timer is not None and self._timer.when() > deadline:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._check_deadline)

    def _check_deadline(self) -> None:
        self._timer = None
        if self._deadline is None:
            return
        if (left := self._deadline - self._loop.time()) > 0.001:
            self._wait(left)
        elif self.blocked is not None or self.transport.is_closing():
            size = self.transport.get_write_buffer_size()
            if size >= self._unsent:  # nothing was taken
                self.abort()
            self._unsent = size
            self._wait(self.server.timeouts.reply)
        elif self._parser.head_has_begun and not self._parser.is_closed:
            seconds = self.server.timeouts.head
            late = RequestTooSlow(f"The request's head did not arrive within {seconds:g} s; send it again.")
            self._refuse(late, "GET")
        else:
            self._close()


class Exchange:
    """One request and its reply, as ASGI has them."""

    __slots__ = (
        "_connection",
        "_end_was_received",
        "_must_invite",
        "_pieces",
        "_response",
        "_scope",
        "_waiting",
        "has_begun",
        "is_disconnected",
        "is_last",
        "is_over",
        "is_whole",
        "refused",
        "size",
    )

    def __init__(self, connection: Connection, scope: dict[str, Any], version: str, *, is_last: bool) -> None:
        self._connection, self._scope = connection, scope
        self._response = ResponseEncoder(scope["method"], version)
        self.is_last = is_last  # of its connection
        self.refused: GatewayError | None = None
        self.is_whole = self._end_was_received = False  # the request has arrived; and the application has it
        self.has_begun = self.is_over = False  # the reply
        self.is_disconnected = False  # the client has gone
        self.size = 0  # of what the application has not received
        self._pieces: list[bytes] = []
        # no `Event`: each has room for 64 who wait, and streams are many
        self._waiting: list[asyncio.Future[None]] = []
        self._must_invite = version != "1.0" and any(
            name == b"expect" and value.lower() == b"100-continue" for name, value in scope["headers"]
        )

    # --- the connection's side ----------------------------------------------------------------------

    def push(self, piece: bytes) -> None:
        self._must_invite = False
        self._pieces.append(piece)
        self.size += len(piece)
        self._wake()

    def push_end(self) -> None:
        self._must_invite, self.is_whole = False, True
        self._wake()

    def disconnect(self) -> None:
        self.is_disconnected = True
        self._wake()

    async def run(self, app: ASGIApp) -> None:
        try:
            await app(self._scope, self.receive, self.send)
        except Exception as error:  # noqa: BLE001 -- the application replies to its own; this is a reply that can be none
            self._connection.server.fault(error, self._scope["path"])
        finally:
            if not self.is_over and not self.is_disconnected:
                self._connection.abort()  # or the client would take what it has for the whole

    # --- the application's side ---------------------------------------------------------------------

    async def receive(self) -> Message:
        while not (self.is_disconnected or self.is_over):
            if self._pieces or self.is_whole > self._end_was_received:
                body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
                self._pieces, self.size, self._end_was_received = [], 0, self.is_whole
                self._connection.read_as_needed()
                return {"type": "http.request", "body": body, "more_body": not self.is_whole}
            if self._must_invite:
                self._must_invite = False
                self._connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            await self._something()
        return _DISCONNECT

    async def _something(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        finally:
            self._waiting.remove(future)

    def _wake(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    async def send(self, message: Message) -> None:
        connection = self._connection
        if connection.blocked is not None:
            await asyncio.shield(connection.blocked)
        if self.is_disconnected:
            return
        if message["type"] == "http.response.start":
            # Before the end of the request nobody knows where the next one would begin.
            closes = self.is_last or connection.server.is_closing or not self.is_whole
            headers = message.get("headers", ())
            self._response.start(message["status"], headers, connection.server.date(), closes=closes)
            self.is_last = self._response.closes
            return
        is_end = not message.get("more_body", False)
        data = self._response.body(message.get("body", b""), is_end)
        if not self.has_begun:
            self.has_begun, self._must_invite = True, False
        if data:
            connection.transport.write(data)
        if is_end:
            self.is_over = True
            self._wake()
            connection.answered(self)


def _server(name: tuple[Any, ...] | str) -> tuple[Any, ...]:
    """What ASGI calls `server`: a host and a port, or a Unix socket's path."""
    return (name, None) if isinstance(name, str) else name[:2]
