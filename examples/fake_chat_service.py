"""Not part of any product: a fake of a chat service, so that bot.py can be tried without one.

People write messages in threads, one of which the service sends twice, as real ones do; the bot's answers are printed.
"""

import json
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypedDict


class Event(TypedDict):
    id: str
    thread: str
    text: str


class FakeChatService:
    def __init__(self) -> None:
        self.replies: list[dict[str, str]] = []
        self.has_reply = threading.Condition()
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def __enter__(self) -> "FakeChatService":
        threading.Thread(target=self.http.serve_forever).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.http.shutdown()
        self.http.server_close()

    def play(self, bot_url: str) -> None:
        """Each argument is a message: `python bot.py "deploys: Why is it slow?" "deploys: And now?"`"""
        for number, message in enumerate(sys.argv[1:]):
            thread, _, text = message.partition(": ")
            event: Event = {"id": f"event-{number}", "thread": thread, "text": text}
            for _ in range(2 if number == 0 else 1):
                urllib.request.urlopen(urllib.request.Request(bot_url, json.dumps(event).encode())).close()
            with self.has_reply:
                if not self.has_reply.wait_for(lambda: len(self.replies) > number, timeout=300):  # noqa: B023
                    raise TimeoutError("the bot did not answer")
            print(f"#{thread} {text}\n  bot: {self.replies[-1]['text']}")

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        service = self

        class Messages(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                reply = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with service.has_reply:
                    service.replies.append(reply)
                    service.has_reply.notify_all()
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        return Messages
