"""A gateway in; requests to it, whole, growing or byte by byte, and what came back, out."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import httpx2
from msgspec import Struct

from tests.gateways import RunningGateway

Json: TypeAlias = dict[str, Any]

TIMEOUT = 60.0  # seconds, for a reply
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def client(gateway: RunningGateway, connections: int = 100) -> httpx2.Client:
    limits = httpx2.Limits(max_connections=connections, max_keepalive_connections=connections)
    return httpx2.Client(base_url=gateway.url, timeout=TIMEOUT, limits=limits)


def standin(scenario: str, body: str | None = None) -> str:
    return f"standin: {scenario}" if body is None else f"standin: {scenario}\n---\n{body}\n--- end"


def light(count: int = 5, pause_ms: int = 0, size: int = 10) -> str:
    return f"light: count={count} pause_ms={pause_ms} bytes={size}"


def chat(http: httpx2.Client, message: str, **fields: object) -> Json:
    """An answer that must be whole."""
    reply = http.post("/v1/chat", json={"message": message, **fields})
    assert reply.status_code == 200, reply.text
    answer: Json = reply.json()
    assert answer["status"] == "completed", answer
    return answer


def text_of(answer: Json) -> str:
    return "".join(document["content"] for document in answer["documents"] if document["type"] == "text")


class Refused(Struct, frozen=True):
    status: int
    code: str
    message: str


def refusal(reply: httpx2.Response) -> Refused:
    """An error with a sentence that says what to do."""
    error = reply.json()["error"]
    assert len(error["message"].split()) >= 5, error
    return Refused(reply.status_code, error["code"], error["message"])


class Growing:
    """A streaming reply as it comes."""

    def __init__(self, reply: httpx2.Response) -> None:
        self.reply, self.body = reply, b""
        self._pieces = reply.iter_raw()

    @property
    def id(self) -> str:
        return str(self.reply.headers["x-chat-id"])

    def until(self, expected: bytes) -> None:
        while expected not in self.body:
            piece = next(self._pieces, b"")
            assert piece, f"the reply ended without {expected!r}: {self.body[-500:]!r}"
            self.body += piece

    def rest(self) -> bytes:
        self.body += b"".join(self._pieces)
        return self.body


@contextmanager
def growing(http: httpx2.Client, message: str, **fields: object) -> Iterator[Growing]:
    with http.stream("POST", "/v1/chat", json={"message": message, "stream": True, **fields}) as reply:
        yield Growing(reply)


def is_whole(stream: bytes) -> bool:
    """A stream of documents that says itself that it is complete."""
    _, found, last = stream.rpartition(b"event: done\n")
    return bool(found) and b'"status":"completed"' in last


# --- below HTTP's clients -----------------------------------------------------------------------------


def connected(gateway: RunningGateway, seconds: float = TIMEOUT) -> socket.socket:
    address = urlsplit(gateway.url)
    assert address.hostname is not None
    return socket.create_connection((address.hostname, address.port or 80), seconds)


def request(method: str, path: str, *headers: str, body: Json | None = None) -> bytes:
    result = b"" if body is None else json.dumps(body).encode()
    more = [f"Content-Length: {len(result)}", "Content-Type: application/json"] if body is not None else []
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *more, *headers, "", ""]
    return "\r\n".join(lines).encode() + result


def reply_of(sock: socket.socket, most: int = 1 << 20) -> bytes:
    """All that comes until the other end closes, or says nothing for the socket's time."""
    received = b""
    try:
        while len(received) < most and (piece := sock.recv(65536)):
            received += piece
    except (TimeoutError, ConnectionError):
        pass
    return received
