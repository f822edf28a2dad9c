"""A bot for a team chat like Slack: each thread is a conversation with Cursor's agent.

The chat service sends an event for each message, and sends it again if there is no reply within seconds. So the bot
replies at once, works in a thread, and posts the answer later; an event that comes twice is handled once. Here it talks
to a small fake of such a service.
"""

import json
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from fake_chat_service import Event, FakeChatService

from cursor_gateway import CallFailed, Client


class Bot:
    def __init__(self, client: Client, service_url: str) -> None:
        self.client, self.service_url = client, service_url
        self.conversations: dict[str, str] = {}  # by thread; a real bot keeps them in a database
        self.locks: dict[str, threading.Lock] = {}
        self.seen: set[str] = set()

    def handle(self, event: Event) -> None:
        thread = event["thread"]
        with self.locks.setdefault(thread, threading.Lock()):  # a conversation has one run at a time
            try:
                answer = self.client.chat(event["text"], conversation_id=self.conversations.get(thread), mode="ask")
                self.conversations[thread], text = answer.conversation_id, answer.text
            except CallFailed as error:
                text = f"Sorry: {error}"
        body = json.dumps({"thread": thread, "text": text}).encode()
        urllib.request.urlopen(urllib.request.Request(f"{self.service_url}/messages", body)).close()


def server(bot: Bot) -> ThreadingHTTPServer:
    class Events(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            event: Event = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if event["id"] not in bot.seen:
                bot.seen.add(event["id"])
                threading.Thread(target=bot.handle, args=[event]).start()
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", 0), Events)


if __name__ == "__main__":
    with Client() as client, FakeChatService() as service, server(Bot(client, service.url)) as events:
        threading.Thread(target=events.serve_forever).start()
        service.play(f"http://127.0.0.1:{events.server_port}/events")
        events.shutdown()
