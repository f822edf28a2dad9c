"""A proxy that counts requests to a gateway, and may break one reply: it cuts it off, or puts an error in its place."""

import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from threading import Thread
from typing import Literal, TypeAlias

Fault: TypeAlias = Literal["cut", "lost", "500"]

_KEPT_BYTES = 900  # of a reply that is cut: its head, and some events
_ERROR = b'{"type":"error","error":{"type":"api_error","message":"broken","param":null,"code":null}}'


class FaultyProxy:
    """One request a connection. The first `POST` to `path` meets the fault, if there is to be one, after the gateway
    has begun to reply; with `after`, the first reply that contains these words, after them."""

    def __init__(self, port: int, path: str, fault: Fault | None = None, after: bytes = b"") -> None:
        self.port, self._path, self._fault, self._after = port, path.encode(), fault, after
        self.has_broken = False  # a reply, after these words
        self.broke: Callable[[], None] = lambda: None  # called when a reply was broken
        self.came: Callable[[FaultyProxy], None] = lambda proxy: None  # called with each request to the path
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.requests = 0  # to the path
        self.bodies: list[tuple[float, bytes]] = []  # of these requests, and when they came
        Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def close(self) -> None:
        self._socket.close()

    def _accept(self) -> None:
        with suppress(OSError):  # it is closed
            while True:
                client, _ = self._socket.accept()
                Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), closing(client), socket.create_connection(("127.0.0.1", self.port)) as gateway:
            request = _request(client)
            is_hit = request.startswith(b"POST " + self._path) and b"count_tokens" not in request.split(b"\r\n")[0]
            if is_hit:
                self.requests += 1
                self.bodies.append((time.monotonic(), request.partition(b"\r\n\r\n")[2]))
                self.came(self)
            gateway.sendall(request)
            reply = iter(lambda: gateway.recv(65536), b"")
            if not is_hit or self.has_broken or self._fault is None or (self.requests > 1 and not self._after):
                for piece in reply:
                    client.sendall(piece)
                return
            match self._fault:
                case "cut" if self._after:
                    if _send_until(client, reply, self._after):
                        self.has_broken = True
                        self.broke()
                case "cut":
                    _send_some(client, reply)
                    self.broke()
                case "lost":  # before its first byte
                    next(reply)
                case "500":
                    next(reply)
                    head = f"HTTP/1.1 500 Error\r\ncontent-type: application/json\r\ncontent-length: {len(_ERROR)}\r\n"
                    client.sendall(f"{head}connection: close\r\n\r\n".encode() + _ERROR)


def _send_until(client: socket.socket, reply: Iterator[bytes], words: bytes) -> bool:
    """Whether they came."""
    sent = b""
    for piece in reply:
        client.sendall(piece)
        sent += piece
        if words in sent:
            return True
    return False


def _send_some(client: socket.socket, reply: Iterator[bytes]) -> None:
    sent = 0
    for piece in reply:
        client.sendall(piece[: _KEPT_BYTES - sent])
        sent += len(piece)
        if sent >= _KEPT_BYTES:
            return


def _request(client: socket.socket) -> bytes:
    """All of it, and that its connection ends with the reply."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _received(client)
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(found[1]) if (found := re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)) else 0
    while len(body) < length:
        body += _received(client)
    head = re.sub(rb"(?i)\r\nconnection:[^\r]*", b"", head)
    return head + b"\r\nconnection: close\r\n\r\n" + body


def _received(client: socket.socket) -> bytes:
    if not (piece := client.recv(65536)):
        raise ConnectionResetError
    return piece


@contextmanager
def faulty_proxy(url: str, path: str, fault: Fault | None = None, *, after: bytes = b"") -> Iterator[FaultyProxy]:
    with closing(FaultyProxy(int(url.rpartition(":")[2]), path, fault, after)) as proxy:
        yield proxy
