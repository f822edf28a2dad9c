"""An ASGI application and listening sockets in; responses on every connection out.

A connection has a queue of exchanges, each a request and its response. Only the first runs; pipelined requests wait, so
responses are always in the order of the requests. An exchange leaves the queue when its response has ended, and
a connection whose last exchange was marked `is_last` reads no further request.

Every wait for the client has a timeout: for a request's head, for the client to read a response, and for the rest of a
request that was refused. Timeouts for bodies are up to the application. Reading from the socket pauses while too many
requests or too much of a body wait to be processed; sending pauses while the client does not read.

An exchange is in its request's scope (`EXCHANGE`): the application can take a body that has arrived, and be told when
the client leaves, without waiting for messages.
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
_MAX_UNREAD = 64 * 1024  # bytes of a body that the application has not read yet; reading pauses above
_LONGEST_REST = 30.0  # seconds to read and discard the rest of a refused request
_MOST_IGNORED = 32 * 1024 * 1024  # bytes discarded before the connection is aborted
_STEP = 256 * 1024  # bytes of a body that are written at once; the next ones wait until the client reads
_MOST_WAITING = 8  # pipelined requests
_MAX_EXTRA = 64  # connections over the limit that still get an error response

_ASGI = {"version": "3.0", "spec_version": "2.3"}
_DISCONNECT: Message = {"type": "http.disconnect"}
EXCHANGE = "cursor_gateway.exchange"  # in a scope


class Timeouts(Struct, frozen=True, kw_only=True):
    """Seconds."""

    head: float  # for a request's head, from its first byte; and the keep-alive timeout before that
    reply: float = 300.0  # for the client to read anything of a pending response
    rest: float = 2.0  # for the rest of a refused request: closing at once could lose the response


class HttpServer:
    """Listens on sockets and tracks the connections."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        refusal: Callable[[GatewayError], ASGIApp],
        fault: Callable[[Exception, str], None],
        timeouts: Timeouts,
        max_connections: int,
    ) -> None:
        """`refusal` builds the response to a request that is not passed to `app`; `fault` is called with what `app`
        raised, and the path."""
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
        """Stops listening. Running exchanges continue; new requests are refused."""
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
        self._parser = RequestParser()  # closed when no more requests are read
        self._exchanges: list[Exchange] = []  # unanswered; the first one runs
        self._is_extra = False  # over the limit of connections
        self._ignored = 0  # bytes received after the parser was closed
        self._close_by = 0.0  # deadline for the rest of a refused request
        self._is_paused = False
        self.blocked: asyncio.Future[None] | None = None  # while the client does not read
        self._unsent = 0  # bytes in the write buffer at the last check
        self._deadline: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    # --- called by the event loop -------------------------------------------------------------------

    # uvloop's transport is not an `asyncio.Transport` subclass
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        connections, most = self.server.connections, self.server.max_connections
        connections.add(self)
        self._is_extra = len(connections) > most
        if len(connections) > most + _MAX_EXTRA:
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
        if self.blocked is not None:
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
        begins = parser.is_idle and not self._exchanges
        for event in parser.push(data):
            match event:
                case BodyPiece():
                    self._exchanges[-1].push(event.data)
                case RequestHead():
                    if not self._exchanges:
                        self._expect(None)
                    if self._is_extra:
                        most = self.server.max_connections
                        refusal = TooManyConnections(f"All {most} connections are in use; retry later.")
                        self._refuse(refusal, event.method)
                        break
                    self._add(Exchange(self, self._scope(event), event.version, is_last=not event.keep_alive))
                case RequestEnd():
                    self._exchanges[-1].push_end()
                case Rejected():
                    self._refuse(event.error, event.method)
        if begins and not self._exchanges:  # the rest of the head is to come
            self._expect(self.server.timeouts.head)
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
            exchange.refused = ShuttingDown("The gateway is shutting down; try again later.")
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
        """Queues an error response after the exchanges before it, and ignores further input."""
        self._parser.close()
        if self._exchanges and not self._exchanges[-1].is_whole:  # the error is in the rest of this request
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
        """Closes at once, unless a request is running or has begun to arrive; the rest of its head must come soon."""
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
        """Pauses reading while too much waits to be processed."""
        is_too_much = len(self._exchanges) > _MOST_WAITING or (
            bool(self._exchanges) and self._exchanges[-1].size > _MAX_UNREAD and not self._parser.is_closed
        )
        if is_too_much == self._is_paused or self.transport.is_closing():
            return
        self._is_paused = is_too_much
        if is_too_much:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def _unblock(self) -> None:
        if self.blocked is not None and not self.blocked.done():
            self.blocked.set_result(None)
        self.blocked = None

    def _expect(self, seconds: float | None) -> None:
        """Sets the timeout for input, unless a write is blocked, which has its own timeout."""
        if self.blocked is None:
            self._wait(seconds)

    def _wait(self, seconds: float | None) -> None:
        """Sets the deadline. One timer serves all timeouts; when it fires early, it is set again."""
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
            if size >= self._unsent:  # the client read nothing
                self.abort()
            self._unsent = size
            self._wait(self.server.timeouts.reply)
        elif self._parser.head_has_begun and not self._parser.is_closed:
            seconds = self.server.timeouts.head
            late = RequestTooSlow(f"The request headers did not arrive within {seconds:g} s; send the request again.")
            self._refuse(late, "GET")
        else:
            self._close()


class Exchange:
    """One request and its response, in terms of ASGI."""

    __slots__ = (
        "_connection",
        "_end_was_received",
        "_expects_continue",
        "_has_received",
        "_leave",
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
        self.is_last = is_last  # on its connection
        self.refused: GatewayError | None = None
        self.is_whole = self._end_was_received = False  # the request has arrived; the application has received it
        self._has_received = False  # some of it
        self.has_begun = self.is_over = False  # the response
        self.is_disconnected = False  # the client is gone
        self.size = 0  # bytes that the application has not received
        self._pieces: list[bytes] = []
        # Not an `asyncio.Event`: each allocates space for 64 waiters, and there are many streams.
        self._waiting: list[asyncio.Future[None]] = []
        self._leave: Callable[[], None] | None = None
        self._expects_continue = False
        for name, value in scope["headers"]:
            if name == b"expect" and value.lower() == b"100-continue" and version != "1.0":
                self._expects_continue = True

    # --- the connection's side ----------------------------------------------------------------------

    def push(self, piece: bytes) -> None:
        self._expects_continue = False
        self._pieces.append(piece)
        self.size += len(piece)
        if self._waiting:
            self._wake()

    def push_end(self) -> None:
        self._expects_continue, self.is_whole = False, True
        if self._waiting:
            self._wake()

    def disconnect(self) -> None:
        self.is_disconnected = True
        self._wake()
        if (leave := self._leave) is not None:
            self._leave = None
            leave()

    async def run(self, app: ASGIApp) -> None:
        self._scope[EXCHANGE] = self
        try:
            await app(self._scope, self.receive, self.send)
        except Exception as error:  # noqa: BLE001 -- the application handles its own errors; no response is possible for this one
            self._connection.server.fault(error, self._scope["path"])
        finally:
            del self._scope[EXCHANGE]  # or the two hold each other until the next garbage collection
            if not self.is_over and not self.is_disconnected:
                self._connection.abort()  # or the client would take a partial response for a complete one

    # --- the application's side ---------------------------------------------------------------------

    def take_body(self) -> bytes | None:
        """All of it; None if it has not arrived, or some of it was received."""
        if self.is_disconnected or not self.is_whole or self._has_received:
            return None
        return self._take()

    def when_gone(self, leave: Callable[[], None] | None) -> None:
        """What to call when the client disconnects: at once, if it has."""
        if leave is not None and self.is_disconnected:
            leave()
        else:
            self._leave = leave

    def _take(self) -> bytes:
        """What has arrived of the body."""
        body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces, self.size, self._has_received, self._end_was_received = [], 0, True, self.is_whole
        self._connection.read_as_needed()
        return body

    async def receive(self) -> Message:
        while not (self.is_disconnected or self.is_over):
            if self._pieces or self.is_whole > self._end_was_received:
                return {"type": "http.request", "body": self._take(), "more_body": not self.is_whole}
            if self._expects_continue:
                self._expects_continue = False
                self._connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            await self._wait_for_change()
        return _DISCONNECT

    async def _wait_for_change(self) -> None:
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
        if (connection.blocked is not None or self.is_disconnected) and not await self._is_ready():
            return
        if message["type"] == "http.response.start":
            # Before the end of this request, the start of the next one is unknown.
            closes = self.is_last or connection.server.is_closing or not self.is_whole
            headers = message.get("headers", ())
            self._response.start(message["status"], headers, connection.server.date(), closes=closes)
            self.is_last = self._response.closes
            return
        is_end = not message.get("more_body", False)
        body = message.get("body", b"")
        for start in range(0, len(body) - _STEP, _STEP):
            self._write(body[start : start + _STEP], is_end=False)
            if not await self._is_ready():
                return
        self._write(body if len(body) <= _STEP else body[(len(body) - 1) // _STEP * _STEP :], is_end=is_end)
        if is_end:
            self.is_over = True
            if self._waiting:
                self._wake()
            connection.answered(self)

    def send_now(self, piece: bytes) -> bool:
        """More of the body, which has begun. False: it must be sent in the usual way, since the client reads slowly."""
        if self._connection.blocked is not None or self.is_disconnected:
            return False
        self._connection.transport.write(self._response.body(piece, is_end=False))
        return True

    async def _is_ready(self) -> bool:
        """When the client has read enough; False if it is gone."""
        if self._connection.blocked is not None:
            await asyncio.shield(self._connection.blocked)
        return not self.is_disconnected

    def _write(self, piece: bytes, *, is_end: bool) -> None:
        data = self._response.body(piece, is_end)
        if not self.has_begun:
            self.has_begun, self._expects_continue = True, False
        if data:
            self._connection.transport.write(data)


def _server(name: tuple[Any, ...] | str) -> tuple[Any, ...]:
    """What ASGI calls `server`: a host and a port, or a Unix socket's path."""
    return (name, None) if isinstance(name, str) else name[:2]
