"""The bytes of a connection in; its requests, one after the other, for the application, and the replies as bytes, out.

Every wait for the client has an end: for a request's head, for a reply to be taken, for the rest of what was refused.
The wait for a body ends where it is read (`bodies.py`).
"""

import asyncio
from collections.abc import Callable
from email.utils import formatdate
from functools import cache
from http import HTTPStatus
from time import time
from typing import Any
from urllib.parse import unquote

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser, parse_url
from msgspec import Struct
from starlette.types import ASGIApp, Message

from cursor_gateway.errors import (
    GatewayError,
    HeadTooLarge,
    InvalidRequest,
    RequestTooSlow,
    ShuttingDown,
    TooManyConnections,
)
from cursor_gateway.server.logs import Log

_log = Log()

_LONGEST_HEAD = 64 * 1024  # bytes, and what one read brings; the parser itself keeps any number of them
_MOST_HEADERS = 100
_MUCH = 64 * 1024  # bytes of a body that nobody has taken yet
_LONGEST_REST = 30.0  # seconds for what a client has yet to send when it is refused
_MOST_UNHEARD = 32 * 1024 * 1024  # bytes that come for nothing; more than most who are refused have yet to send
_MOST_WAITING = 8  # requests that a client sends without waiting for replies
_BEYOND = 64  # connections over the limit that are still told so

_ASGI = {"version": "3.0", "spec_version": "2.3"}
_VERSIONS = ("1.1", "1.0")
_BODILESS = (204, 304)
_DISCONNECT: Message = {"type": "http.disconnect"}
_OTHER_PROTOCOLS = (b"upgrade", b"http2-settings")


class Patience(Struct, frozen=True, kw_only=True):
    """Seconds that a client may take."""

    head: float  # for a request's head, from its first byte; and before that, from the connection's start or last reply
    reply: float = 300.0  # to take anything at all of a reply that waits for it
    rest: float = 2.0  # to send what nobody reads: were the connection closed at once, it might lose the reply


class Door:
    """What all connections have in common."""

    def __init__(self, app: ASGIApp, refusal: Callable[[GatewayError], ASGIApp], patience: Patience, most: int) -> None:
        self.app, self.refusal, self.patience, self.most = app, refusal, patience, most
        self.connections: set[Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.is_closing = False
        self._second, self._date = 0, b""

    def close(self) -> None:
        """Replies that have begun go on; whatever is asked from now on is refused."""
        self.is_closing = True
        for connection in list(self.connections):
            connection.leave_soon()

    async def emptied(self) -> None:
        while self.connections or self.tasks:
            await asyncio.sleep(0.02)

    def abandon(self) -> None:
        for task in self.tasks:
            task.cancel()
        for connection in list(self.connections):
            connection.abort()

    def date(self) -> bytes:
        if (second := int(time())) != self._second:
            self._second, self._date = second, b"date: " + formatdate(second, usegmt=True).encode()
        return self._date


class Connection(asyncio.Protocol):
    __slots__ = (
        "_barren",
        "_deadline",
        "_exchanges",
        "_has_begun",
        "_head_size",
        "_headers",
        "_in_head",
        "_is_deaf",
        "_is_extra",
        "_is_paused",
        "_left",
        "_loop",
        "_method",
        "_no_longer",
        "_parser",
        "_timer",
        "_unheard",
        "_url",
        "blocked",
        "door",
        "transport",
    )

    transport: asyncio.Transport

    def __init__(self, door: Door) -> None:
        self.door = door
        self._loop = asyncio.get_running_loop()
        self._parser: HttpRequestParser | None = HttpRequestParser(self)
        self._exchanges: list[Exchange] = []  # not answered yet; the first is at work
        self._in_head, self._head_size = True, 0
        self._has_begun = False  # the head: line ends before it are none
        self._barren = 0  # bytes since the head, or since the last of a body: sizes of chunks, trailers
        self._method, self._url = b"", b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._is_extra = False  # one more than there is room for
        self._is_deaf = False  # what comes now is no request, and nobody's body
        self._unheard = 0  # bytes
        self._no_longer = 0.0  # than until then is waited for the rest of a request that was refused
        self._is_paused = False
        self.blocked: asyncio.Future[None] | None = None  # while the client does not take what it is sent
        self._left = 0  # bytes that it had not taken when that was looked at last
        self._deadline: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    # --- what the loop tells ------------------------------------------------------------------------

    # a stream's; uvloop's is of no such type
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self.door.connections.add(self)
        self._is_extra = len(self.door.connections) > self.door.most
        if len(self.door.connections) > self.door.most + _BEYOND:
            self.abort()
        self._wait(self.door.patience.head)

    def connection_lost(self, exc: Exception | None) -> None:
        self.door.connections.discard(self)
        self._is_deaf, self._parser = True, None
        if self._timer is not None:
            self._timer.cancel()
        for exchange in self._exchanges:
            exchange.leave()
        self._exchanges.clear()
        self._unblock()

    def pause_writing(self) -> None:
        self.blocked = self._loop.create_future()
        self._left = self.transport.get_write_buffer_size()
        self._wait(self.door.patience.reply)

    def resume_writing(self) -> None:
        self._unblock()
        if self._exchanges:
            self._wait(None)
        elif not self._is_deaf:
            self._wait(self.door.patience.head)

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            self._unheard += len(data)
            if self._unheard > _MOST_UNHEARD:
                self.abort()
            elif self._no_longer and not self.transport.is_closing():
                self._wait(min(self.door.patience.rest, self._no_longer - self._loop.time()))
            return
        if self._in_head:
            if not self._head_size and not self._exchanges:
                self._expect(self.door.patience.head)
            self._head_size += len(data)
        self._barren += len(data)
        self._feed(data)
        if self._in_head and self._head_size > _LONGEST_HEAD and not self._is_deaf:
            self._refuse(
                HeadTooLarge(f"The request's head is over {_LONGEST_HEAD} bytes; send fewer, shorter headers.")
            )
        elif not self._in_head and self._barren > _LONGEST_HEAD and not self._is_deaf:
            self._refuse(HeadTooLarge(f"More than {_LONGEST_HEAD} bytes bring nothing of the body; send no trailers."))

    # --- what the parser tells ----------------------------------------------------------------------

    def _feed(self, data: bytes) -> None:
        assert self._parser is not None
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            self._ignore_upgrade(data[upgrade.args[0] :])
        except HttpParserError as error:
            if not self._is_deaf:  # else it is about what comes after the last request
                self._refuse(InvalidRequest(f"This is no request of HTTP/1.1: {error}. Send it as RFC 9112 says."))

    def on_message_begin(self) -> None:
        self._url, self._headers, self._has_begun = b"", [], True
        self._head_size = self._head_size or 1  # it has begun, in the read that brought the end of the one before

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # else it is a trailer: whoever checks the head has not seen it
            self._headers.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        parser = self._parser
        if self._is_deaf or parser is None:
            return
        self._method = parser.get_method()
        if parser.should_upgrade():
            return  # what to do about it is decided when the parser stops
        may_be_long = self._head_size > _LONGEST_HEAD
        self._in_head, self._has_begun, self._head_size, self._barren = False, False, 0, 0
        if not self._exchanges:
            self._expect(None)
        if len(self._headers) > _MOST_HEADERS:
            self._refuse(HeadTooLarge(f"The request has more than {_MOST_HEADERS} headers; send fewer."))
            return
        if (
            may_be_long
            and len(self._url) + sum(len(name) + len(value) for name, value in self._headers) > _LONGEST_HEAD
        ):
            self._refuse(_too_long())
            return
        if self._is_extra:
            self._refuse(TooManyConnections(f"All {self.door.most} places for connections are taken; try again later."))
            return
        version = parser.get_http_version()
        scope = self._scope(version) if version in _VERSIONS else None
        if scope is None:
            self._refuse(InvalidRequest("This is no request for the gateway; send one as in `GET /health HTTP/1.1`."))
            return
        if version == "1.0" and any(name == b"transfer-encoding" for name, _ in self._headers):
            # Others on the way may end it elsewhere (RFC 9112, 6.1).
            self._refuse(InvalidRequest("HTTP/1.0 knows no `Transfer-Encoding`; send it with `Content-Length`."))
            return
        exchange = Exchange(self, scope, version, is_last=not parser.should_keep_alive())
        self._exchanges.append(exchange)
        if len(self._exchanges) == 1:
            self._start(exchange)

    def on_body(self, body: bytes) -> None:
        self._barren = 0
        if not self._is_deaf:
            self._exchanges[-1].push(body)
            self.listen_as_needed()

    def on_message_complete(self) -> None:
        if self._is_deaf or (self._parser is not None and self._parser.should_upgrade()):
            return
        self._in_head = True
        exchange = self._exchanges[-1]
        exchange.push_end()
        self._is_deaf = exchange.is_last
        self.listen_as_needed()

    def _ignore_upgrade(self, rest: bytes) -> None:
        """The head once more without it, and what follows: whoever asks for another protocol must do with this one."""
        if self._is_deaf:
            return
        if self._method == b"CONNECT":
            self._refuse(InvalidRequest("This is no proxy; send requests that are for the gateway itself."))
            return
        assert self._parser is not None
        lines = [b"%b %b HTTP/%b" % (self._method, self._url, self._parser.get_http_version().encode())]
        lines += [b"%b: %b" % header for header in self._headers if header[0] not in _OTHER_PROTOCOLS]
        self._parser = HttpRequestParser(self)  # the other one takes the request for the connection's last
        self._feed(b"\r\n".join([*lines, b"", rest]))

    def _scope(self, version: str) -> dict[str, Any] | None:
        """None: its target is none of ours."""
        path, _, query = self._url.partition(b"#")[0].partition(b"?")
        headers = self._headers
        try:
            if not path.startswith(b"/") and path != b"*":
                target = parse_url(self._url)  # an absolute one, as if we were a proxy: its host is what is meant
                path, query = target.path or b"/", target.query or b""
                host = b"[%b]" % target.host if b":" in target.host else target.host
                host = b"%b:%d" % (host, target.port) if target.port else host
                headers = [(b"host", host), *(header for header in headers if header[0] != b"host")]
            text = path.decode("ascii")
        except (HttpParserError, TypeError, UnicodeDecodeError):
            return None
        return {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "method": self._method.decode(),
            "scheme": "http",
            "path": unquote(text) if "%" in text else text,
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": headers,
            "client": None,
            "server": _server(self.transport.get_extra_info("sockname")),
            "state": {},
        }

    # --- exchanges ----------------------------------------------------------------------------------

    def _start(self, exchange: "Exchange") -> None:
        app = self.door.app
        if self.door.is_closing and exchange.refused is None:
            exchange.refused = ShuttingDown("The gateway is about to stop; try again when it is back.")
            exchange.is_last = True
        if exchange.refused is not None:
            app = self.door.refusal(exchange.refused)
        task = self._loop.create_task(exchange.run(app))
        self.door.tasks.add(task)
        task.add_done_callback(self.door.tasks.discard)

    def answered(self, exchange: "Exchange") -> None:
        self._exchanges.pop(0)
        if exchange.is_last:
            self._end(exchange.is_whole)
        elif self._exchanges:
            self._start(self._exchanges[0])
        elif self.door.is_closing and not self._has_begun:
            self._close()
        else:
            self._expect(self.door.patience.head)
        self.listen_as_needed()

    def _refuse(self, error: GatewayError) -> None:
        """When those before it are answered; what comes after it is not listened to."""
        self._is_deaf = True
        if self._exchanges and not self._exchanges[-1].is_whole:  # it is about the rest of this one
            exchange = self._exchanges[-1]
            if exchange.has_begun:
                exchange.is_last = True
                return
            exchange.leave()
            self._exchanges.pop()
        method = "GET" if self._in_head else self._method.decode()
        refused = Exchange(self, {"type": "http", "method": method, "path": "", "headers": []}, "1.1", is_last=True)
        refused.refused = error
        self._exchanges.append(refused)
        if len(self._exchanges) == 1:
            self._expect(None)
            self._start(refused)

    def leave_soon(self) -> None:
        """At once, unless something is asked, or about to be; the rest of a head has to come soon."""
        if self._exchanges or self._is_deaf:
            return
        if self._has_begun:
            self._expect(self.door.patience.rest)
        else:
            self._close()

    def _end(self, is_whole: bool) -> None:
        self._is_deaf = True
        for exchange in self._exchanges:
            exchange.leave()
        self._exchanges.clear()
        if is_whole:
            self._close()
        elif not self.transport.is_closing():
            self.transport.write_eof()
            self._no_longer = self._loop.time() + _LONGEST_REST
            self._wait(self.door.patience.rest)

    def _close(self) -> None:
        self._is_deaf = True
        self.transport.close()
        self._left = self.transport.get_write_buffer_size()
        self._wait(self.door.patience.reply)

    def abort(self) -> None:
        self._is_deaf = True
        self.transport.abort()

    # --- pace ---------------------------------------------------------------------------------------

    def listen_as_needed(self) -> None:
        """A client that sends more than is taken has to wait."""
        is_much = len(self._exchanges) > _MOST_WAITING or (
            bool(self._exchanges) and self._exchanges[-1].size > _MUCH and not self._is_deaf
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
            self._timer = self._loop.call_at(deadline, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._deadline is None:
            return
        if (left := self._deadline - self._loop.time()) > 0.001:
            self._wait(left)
        elif self.blocked is not None or self.transport.is_closing():
            size = self.transport.get_write_buffer_size()
            if size >= self._left:  # nothing was taken
                self.abort()
            self._left = size
            self._wait(self.door.patience.reply)
        elif self._has_begun and not self._is_deaf:
            seconds = self.door.patience.head
            self._refuse(RequestTooSlow(f"The request's head did not arrive within {seconds:g} s; send it again."))
        else:
            self._close()


class Exchange:
    """One request and its reply, as ASGI has them."""

    __slots__ = (
        "_connection",
        "_head",
        "_is_chunked",
        "_is_silent",
        "_is_told",
        "_must_invite",
        "_pieces",
        "_scope",
        "_version",
        "_waiting",
        "has_begun",
        "is_gone",
        "is_last",
        "is_over",
        "is_whole",
        "refused",
        "size",
    )

    def __init__(self, connection: Connection, scope: dict[str, Any], version: str, *, is_last: bool) -> None:
        self._connection, self._scope, self._version = connection, scope, version
        self.is_last = is_last  # of its connection
        self.refused: GatewayError | None = None
        self.is_whole = self._is_told = False  # the request has arrived; and the application knows
        self.has_begun = self.is_over = False  # the reply
        self.is_gone = False  # the client
        self.size = 0  # of what the application has not taken
        self._pieces: list[bytes] = []
        self._waiting: list[
            asyncio.Future[None]
        ] = []  # no `Event`: each has room for 64 who wait, and streams are many
        self._must_invite = version != "1.0" and any(
            name == b"expect" and value.lower() == b"100-continue" for name, value in scope["headers"]
        )
        self._head = b""
        self._is_chunked = self._is_silent = False

    # --- the connection's side ----------------------------------------------------------------------

    def push(self, piece: bytes) -> None:
        self._must_invite = False
        self._pieces.append(piece)
        self.size += len(piece)
        self._wake()

    def push_end(self) -> None:
        self._must_invite, self.is_whole = False, True
        self._wake()

    def leave(self) -> None:
        self.is_gone = True
        self._wake()

    async def run(self, app: ASGIApp) -> None:
        try:
            await app(self._scope, self.receive, self.send)
        except Exception as error:  # noqa: BLE001 -- the application tells of its own; this is a reply that can be none
            _log.error("fault", error, path=self._scope["path"])
        finally:
            if not self.is_over and not self.is_gone:
                self._connection.abort()  # or the client would take what it has for the whole

    # --- the application's side ---------------------------------------------------------------------

    async def receive(self) -> Message:
        while not (self.is_gone or self.is_over):
            if self._pieces or self.is_whole > self._is_told:
                body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
                self._pieces, self.size, self._is_told = [], 0, self.is_whole
                self._connection.listen_as_needed()
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
        if self._connection.blocked is not None:
            await asyncio.shield(self._connection.blocked)
        if self.is_gone:
            return
        if message["type"] == "http.response.start":
            self._head = self._headed(message["status"], message.get("headers", ()))
            return
        body: bytes = message.get("body", b"")
        is_end = not message.get("more_body", False)
        if self._is_silent:
            body = b""
        elif self._is_chunked:
            body = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            if is_end:
                body += b"0\r\n\r\n"
        if not self.has_begun:
            self.has_begun, self._must_invite = True, False
            body, self._head = self._head + body, b""
        if body:
            self._connection.transport.write(body)
        if is_end:
            self.is_over = True
            self._wake()
            self._connection.answered(self)

    def _headed(self, status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
        lines = [_status_line(status), self._connection.door.date()]
        has_length = False
        for name, value in headers:
            has_length = has_length or name == b"content-length"
            lines.append(b"%b: %b" % (name, value))
        self._is_silent = self._scope["method"] == "HEAD" or status in _BODILESS
        if not self._is_silent and not has_length:
            if self._version == "1.0":  # knows no chunks: the reply ends with the connection
                self.is_last = True
            else:
                self._is_chunked = True
                lines.append(b"transfer-encoding: chunked")
        if (
            self.is_last or self._connection.door.is_closing or not self.is_whole
        ):  # or where the next request would begin, nobody knows
            self.is_last = True
            lines.append(b"connection: close")
        elif self._version == "1.0":
            lines.append(b"connection: keep-alive")
        lines += (b"", b"")
        head = b"\r\n".join(lines)
        if not head.count(b"\n") == head.count(b"\r") == len(lines) - 1:
            raise ValueError("A header of the reply has more than one line.")
        return head


def _server(name: tuple[Any, ...] | str) -> tuple[Any, ...]:
    """What ASGI calls `server`: a host and a port, or a Unix socket's path."""
    return (name, None) if isinstance(name, str) else name[:2]


def _too_long() -> HeadTooLarge:
    return HeadTooLarge(f"The request's head is over {_LONGEST_HEAD} bytes; send fewer, shorter headers.")


@cache
def _status_line(status: int) -> bytes:
    phrase = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Other"
    return f"HTTP/1.1 {status} {phrase}".encode()
