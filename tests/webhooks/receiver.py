"""A service that receives webhooks, in a thread of this process."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
from msgspec import Struct
from standardwebhooks.webhooks import Webhook

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class Received(Struct, frozen=True):
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    def verified(self, secret: str = SECRET) -> Any:
        """By the official library. Raises if the signature or the time is wrong."""
        return Webhook(secret).verify(self.body, self.headers)


class Receiver:
    """Replies with these statuses, and then always with the last of them; headers follow a status after a space."""

    def __init__(self, replies: Sequence[str] = ("204",)) -> None:
        self.received: list[Received] = []
        self.replies = list(replies)
        self.url = ""

    def next_reply(self) -> str:
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]

    def of_type(self, type: str) -> list[Received]:
        return [one for one in list(self.received) if one.json.get("type") == type]


@contextmanager
def receiving(*replies: str) -> Iterator[Receiver]:
    receiver = Receiver(replies or ("204",))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, *fields = receiver.next_reply().split(" ", 1)
            receiver.received.append(Received(self.path, headers, body))
            self.send_response(int(status))
            for field in fields:
                name, _, value = field.partition(":")
                self.send_header(name, value.strip())
            self.end_headers()

        def log_message(self, format: str, *values: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
