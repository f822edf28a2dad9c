"""The bytes of a connection in; its requests, as events, out. No I/O: a test can drive it byte by byte.

The input is always in one of three states:

    head    waiting for a request, or inside its head; line ends before the request line are skipped
    body    the head was reported as `RequestHead`; `BodyPiece`s follow, then `RequestEnd` leads back to `head`
    closed  after `Rejected`, after the end of a request that is the connection's last, or after `close()`

So for every request there is one `RequestHead`, any number of pieces, and one `RequestEnd`, in this order, unless
`Rejected` or the end of the connection cuts it off. `Rejected` is the last event of a connection, because the start of
the next request can no longer be found. Data pushed afterwards is ignored.

httptools parses but has no limits, so the sizes of heads, headers and chunk framing are limited here: exactly for a
complete head, otherwise by the amount that each `push` adds. A request to switch protocols (`Upgrade`) is answered in
HTTP/1.1, as RFC 9110 (7.8) allows. httptools skips the body of such a request, so a second parser reads it; that one
is first fed a synthetic head with the body's length.
"""

from itertools import chain
from typing import TypeAlias

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser, parse_url
from msgspec import Struct

from cursor_gateway.errors import GatewayError, HeadTooLarge, InvalidRequest

MAX_HEAD = 64 * 1024  # bytes
MAX_HEADERS = 100

_VERSIONS = ("1.1", "1.0")
_LENGTH, _CODING = b"content-length", b"transfer-encoding"

Headers: TypeAlias = list[tuple[bytes, bytes]]  # names in lower case


class RequestHead(Struct, frozen=True):
    method: str
    path: bytes  # as it was sent, without the query
    query: bytes
    headers: Headers
    version: str  # "1.1" or "1.0"
    keep_alive: bool  # false: the last request of its connection


class BodyPiece(Struct, frozen=True, gc=False):
    data: bytes


class RequestEnd(Struct, frozen=True):
    pass


class Rejected(Struct, frozen=True):
    error: GatewayError
    method: str  # of the request, as far as known: a response to HEAD has no body


Event: TypeAlias = RequestHead | BodyPiece | RequestEnd | Rejected


class RequestParser:
    __slots__ = (
        "_bytes_without_progress",
        "_events",
        "_head_size",
        "_headers",
        "_in_framing",
        "_is_last",
        "_method",
        "_parser",
        "_url",
        "head_has_begun",
        "in_head",
        "is_closed",
    )

    def __init__(self) -> None:
        self._parser: HttpRequestParser | None = HttpRequestParser(self)
        self._events: list[Event] = []
        self.is_closed = False
        self.in_head = True
        self.head_has_begun = False  # its request line; line ends before it are skipped
        self._head_size = 0
        self._bytes_without_progress = 0  # since the head or the last body data: chunk sizes, trailers
        self._is_last = False
        self._in_framing = False  # feeding the synthetic head
        self._method, self._url = b"", b""
        self._headers: Headers = []

    @property
    def is_idle(self) -> bool:
        """No byte of the next request has arrived."""
        return self.in_head and not self._head_size

    def push(self, data: bytes) -> list[Event]:
        if self.is_closed:
            return []
        events: list[Event] = []
        self._events = events
        if self.in_head:
            self._head_size += len(data)
        self._bytes_without_progress += len(data)
        self._feed(data)
        if not self.is_closed:
            if self.in_head and self._head_size > MAX_HEAD:
                self._reject(_head_too_long())
            elif not self.in_head and self._bytes_without_progress > MAX_HEAD:
                self._reject(
                    HeadTooLarge(
                        f"More than {MAX_HEAD} bytes of chunk sizes or trailers; send larger chunks and no trailers."
                    )
                )
        self._events = []
        return events

    def close(self) -> None:
        """Ignores everything that follows."""
        self.is_closed = True
        self._parser = None  # breaks the reference cycle

    def _feed(self, data: bytes) -> None:
        while data and (parser := self._parser) is not None:
            try:
                parser.feed_data(data)
                return
            except HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
                if not self.is_closed:
                    self._ignore_upgrade()
            except HttpParserError as error:
                if not self.is_closed:  # otherwise it is about data after the last request
                    self._reject(InvalidRequest(f"This is not an HTTP/1.1 request: {error}. Send it as RFC 9112 says."))
                return

    def _reject(self, error: GatewayError) -> None:
        self._events.append(Rejected(error, "GET" if self.in_head else self._method.decode()))
        self.close()

    def _ignore_upgrade(self) -> None:
        codings = [value.lower() for name, value in self._headers if name == _CODING]
        lengths = [value for name, value in self._headers if name == _LENGTH]
        if codings not in ([], [b"chunked"]) or (codings and lengths):
            self._reject(InvalidRequest("The body's length is ambiguous; send only `Content-Length`."))
            return
        framing = b"transfer-encoding: chunked" if codings else b"content-length: %b" % (lengths or [b"0"])[0]
        self._parser = HttpRequestParser(self)
        self._in_framing = True
        self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n\r\n" % framing)
        self._in_framing = False

    # --- called by httptools ------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self.is_closed or self._in_framing:
            return
        self._url, self._headers, self.head_has_begun = b"", [], True
        self._head_size = self._head_size or 1  # it began in the same read that ended the previous request

    def on_url(self, url: bytes) -> None:
        if not self._in_framing:
            self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.in_head:  # otherwise it is a trailer, which must not bypass checks of the head
            self._headers.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        parser = self._parser
        if parser is None or self._in_framing:
            return
        self._method = parser.get_method()
        self.in_head, self.head_has_begun = False, False
        self._head_size = self._bytes_without_progress = 0
        version, headers = parser.get_http_version(), self._headers
        if len(headers) > MAX_HEADERS:
            self._reject(HeadTooLarge(f"The request has more than {MAX_HEADERS} headers; send fewer."))
        elif len(self._url) + sum(map(len, chain.from_iterable(headers))) > MAX_HEAD:
            self._reject(_head_too_long())
        elif self._method == b"CONNECT":
            self._reject(InvalidRequest("This is not a proxy; send only requests for the gateway itself."))
        elif version == "1.0" and any(name == _CODING for name, _ in headers):
            # Intermediaries may disagree about where it ends (RFC 9112, 6.1).
            self._reject(InvalidRequest("HTTP/1.0 has no `Transfer-Encoding`; send `Content-Length`."))
        elif version not in _VERSIONS or (target := _target(self._url, headers)) is None:
            self._reject(InvalidRequest("This is not a valid request; send one like `GET /health HTTP/1.1`."))
        else:
            path, query, headers = target
            keep_alive = parser.should_keep_alive()
            self._is_last = not keep_alive
            self._events.append(RequestHead(self._method.decode(), path, query, headers, version, keep_alive))

    def on_body(self, body: bytes) -> None:
        self._bytes_without_progress = 0
        if not self.is_closed:
            self._events.append(BodyPiece(body))

    def on_message_complete(self) -> None:
        if self._parser is None or self._parser.should_upgrade():
            return  # an upgrade's body is still to come
        self.in_head = True
        self._events.append(RequestEnd())
        if self._is_last:
            self.close()


def _target(url: bytes, headers: Headers) -> tuple[bytes, bytes, Headers] | None:
    """The path, the query, and the headers with the effective host. None for an invalid target."""
    path, _, query = url.partition(b"#")[0].partition(b"?")
    try:
        if not path.startswith(b"/") and path != b"*":
            target = parse_url(url)  # absolute form: its host overrides the header (RFC 9112, 3.2.2)
            path, query = target.path or b"/", target.query or b""
            host = b"[%b]" % target.host if b":" in target.host else target.host
            host = b"%b:%d" % (host, target.port) if target.port else host
            headers = [(b"host", host), *(header for header in headers if header[0] != b"host")]
    except (HttpParserError, TypeError):
        return None
    return (path, query, headers) if path.isascii() else None


def _head_too_long() -> HeadTooLarge:
    return HeadTooLarge(f"The request headers are larger than {MAX_HEAD} bytes; send fewer or shorter ones.")
