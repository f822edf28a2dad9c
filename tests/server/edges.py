"""Bytes as no client library would send them, to a real gateway over a socket; and what comes back, taken apart."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from msgspec import Struct

from tests.gateways import RunningGateway
from tests.server.conftest import TIMEOUT, Json

JSON = "Content-Type: application/json"
CLOSE = "Connection: close"


class Reply(Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> Json:
        """In our envelope, whoever refused it."""
        assert self.headers["content-type"] == "application/json"
        assert self.headers["x-request-id"]
        error: Json = json.loads(self.body)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return error


class Line:
    """A connection, and what has come over it."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self._came = sock, b""

    def send(self, data: bytes) -> None:
        with suppress(ConnectionError):  # it may have read enough
            self.sock.sendall(data)

    def more(self) -> bool:
        piece = self.sock.recv(65536)
        self._came += piece
        return bool(piece)

    def until(self, expected: bytes) -> bytes:
        while expected not in self._came:
            assert self.more(), f"it ended without {expected!r}: {self._came!r}"
        taken, _, self._came = self._came.partition(expected)
        return taken + expected

    def reply(self, *, has_body: bool = True) -> Reply:
        status, *lines = self.until(b"\r\n\r\n").decode().rstrip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        assert len(headers) == len(lines), lines
        body = b""
        if has_body and headers.get("transfer-encoding") == "chunked":
            while size := int(self.until(b"\r\n"), 16):
                body += self._exactly(size)
                assert self._exactly(2) == b"\r\n"
            assert self._exactly(2) == b"\r\n"
        elif has_body and "content-length" in headers:
            body = self._exactly(int(headers["content-length"]))
        elif has_body and headers.get("connection") == "close":
            body = self.rest()
        version, _, rest = status.partition(" ")
        assert version == "HTTP/1.1"
        return Reply(int(rest[:3]), headers, body)

    def _exactly(self, size: int) -> bytes:
        while len(self._came) < size:
            assert self.more(), f"it ended after {self._came!r}"
        taken, self._came = self._came[:size], self._came[size:]
        return taken

    def rest(self) -> bytes:
        """Until it is closed, in order: a connection that is broken off raises."""
        while self.more():
            pass
        taken, self._came = self._came, b""
        return taken


@contextmanager
def line(gateway: RunningGateway) -> Iterator[Line]:
    address = urlsplit(gateway.url)
    assert address.hostname is not None
    with socket.create_connection((address.hostname, address.port or 0), timeout=TIMEOUT) as sock:
        yield Line(sock)


def request(method: str, target: str, *headers: str, body: bytes | None = None, version: str = "1.1") -> bytes:
    length = [] if body is None else [JSON, f"Content-Length: {len(body)}"]
    lines = [f"{method} {target} HTTP/{version}", "Host: localhost", *length, *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + (body or b"")


def exchanged(gateway: RunningGateway, data: bytes, *, has_body: bool = True) -> Reply:
    with line(gateway) as connection:
        connection.send(data)
        return connection.reply(has_body=has_body)


def chat_body(message: str, **fields: object) -> bytes:
    return json.dumps({"message": message, **fields}).encode()
