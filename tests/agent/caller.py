"""Tools in; an MCP server on the loopback that offers them and writes down what it is told, out.

Of the standard library alone, so that a test may decide what goes over the wire and when.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Message = dict[str, Any]
Behaviour = Callable[["Reply", Message], None]

SESSION = "session-1"
_PAGE = 2
_WAIT = 20  # for a red build only


class Caller(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, tools: dict[str, Behaviour]) -> None:
        super().__init__(("127.0.0.1", 0), Reply)
        self.tools = tools
        self.received: list[Message] = []
        self.headers: list[dict[str, str]] = []  # of each message
        self.ended: list[str] = []  # sessions
        self.more = threading.Condition()
        self.stopped = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/mcp?for=1"

    def note(self, message: Message, headers: dict[str, str]) -> None:
        with self.more:
            self.received.append(message)
            self.headers.append(headers)
            self.more.notify_all()

    def of(self, method: str) -> list[Message]:
        return [message.get("params", {}) for message in list(self.received) if message.get("method") == method]

    def wait_for(self, method: str, count: int = 1) -> list[Message]:
        with self.more:
            assert self.more.wait_for(lambda: len(self.of(method)) >= count, _WAIT), f"no {method}: {self.received}"
        return self.of(method)


class Reply(BaseHTTPRequestHandler):
    """One request; behaviours answer by `result`, `error`, or `event` by event."""

    server: Caller
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.note(message, {name.lower(): value for name, value in self.headers.items()})
        self.message = message
        match message:
            case {"method": "initialize", "params": {"protocolVersion": version}}:
                about = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "caller"}}
                self.result(about, {"mcp-session-id": SESSION})
            case {"method": "tools/list", "params": params}:
                self.result(self._page(int(params.get("cursor", 0))))
            case {"method": "tools/call", "params": {"name": name, "arguments": arguments}}:
                with suppress(OSError):  # the client may have gone
                    self.server.tools[name](self, arguments)
            case _:
                self.send_response(202)
                self.send_header("content-length", "0")
                self.end_headers()

    def do_GET(self) -> None:
        self.send_response(405)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_DELETE(self) -> None:
        self.server.ended.append(self.headers["mcp-session-id"])
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _page(self, start: int) -> Message:
        names = [*self.server.tools]
        tools = [{"name": name, "description": f"does {name}", "inputSchema": {"type": "object"}} for name in names]
        more = {"nextCursor": str(start + _PAGE)} if start + _PAGE < len(names) else {}
        return {"tools": tools[start : start + _PAGE], **more}

    def result(self, result: Message, headers: dict[str, str] | None = None) -> None:
        self._json({"result": result}, headers or {})

    def error(self, code: int, message: str) -> None:
        self._json({"error": {"code": code, "message": message}}, {})

    def _json(self, answer: Message, headers: dict[str, str]) -> None:
        data = json.dumps({"jsonrpc": "2.0", "id": self.message["id"], **answer}).encode()
        self.send_response(200)
        for name, value in {"content-type": "application/json", "content-length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def event(self, message: Message) -> None:
        self.chunk(b"event: message\ndata: " + json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n\n")

    def progress(self, nth: int) -> None:
        token = self.message["params"].get("_meta", {}).get("progressToken")
        self.event({"method": "notifications/progress", "params": {"progressToken": token, "progress": nth}})


def text(said: str, **more: object) -> Message:
    return {"content": [{"type": "text", "text": said}], **more}


def add(reply: Reply, arguments: Message) -> None:
    reply.result(text(str(arguments["a"] + arguments["b"])))


def echo(reply: Reply, arguments: Message) -> None:
    """As a stream with all that one may hold, cut where it is awkward."""
    reply.stream()
    reply.chunk(b": a comment\n\nid: 7\ndata:\n\n")
    reply.event({"method": "notifications/message", "params": {"level": "info", "data": "x"}})
    answer = json.dumps({"jsonrpc": "2.0", "id": reply.message["id"], "result": text(arguments["text"])}, indent=1)
    for line in answer.splitlines():
        reply.chunk(b"da")
        reply.chunk(f"ta: {line}\r\n".encode())
    reply.chunk(b"\r\n")
    reply.chunk(b"")


def never(reply: Reply, arguments: Message) -> None:
    """A stream on which nothing but a comment comes."""
    reply.stream()
    reply.chunk(b": waiting\n\n")
    reply.server.stopped.wait(_WAIT)


def working(reply: Reply, arguments: Message) -> None:
    """Tells of progress every so often, and ends."""
    reply.stream()
    for nth in range(arguments["times"]):
        time.sleep(arguments["every"])
        reply.progress(nth)
    reply.event({"id": reply.message["id"], "result": text("worked")})
    reply.chunk(b"")


def fails(reply: Reply, arguments: Message) -> None:
    reply.result(text("it did not work", isError=True))


def broken(reply: Reply, arguments: Message) -> None:
    reply.error(-32602, "no such thing")


def picture(reply: Reply, arguments: Message) -> None:
    reply.result({"content": [{"type": "image", "data": "aGk=", "mimeType": "image/png"}]})


def meeting(count: int) -> Behaviour:
    """All who come wait for the last; who came first ends last."""
    barrier = threading.Barrier(count)

    def meet(reply: Reply, arguments: Message) -> None:
        try:
            barrier.wait(arguments.get("seconds", _WAIT))
        except threading.BrokenBarrierError:
            reply.result(text("alone"))
            return
        time.sleep(arguments.get("then", 0))
        reply.result(text(f"met {arguments['who']}"))

    return meet


@contextmanager
def caller(**tools: Behaviour) -> Iterator[Caller]:
    server = Caller(tools)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.stopped.set()
        server.shutdown()
        thread.join()
        server.server_close()
