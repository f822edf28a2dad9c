"""An MCP client written from the specification: raw messages over HTTP, for what no other client shows."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

import httpx2

from cursor_gateway.wire.sse import SseDecoder, SseEvent

Json: TypeAlias = dict[str, Any]

MODERN = "2026-07-28"
TASKS: Json = {"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}
_ACCEPT = {"accept": "application/json, text/event-stream"}


class Modern:
    """Each request says the version and what the client can do."""

    def __init__(self, http: httpx2.Client, capabilities: Json | None = None) -> None:
        self._http = http
        self._meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": capabilities or {},
        }

    def message(self, method: str, id: int = 1, **params: Any) -> tuple[Json, dict[str, str]]:
        """And its headers."""
        name = params.get("name") or params.get("taskId")
        headers = {**_ACCEPT, "mcp-protocol-version": MODERN, "mcp-method": method}
        body = {"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": self._meta}}
        return body, {**headers, **({"mcp-name": name} if name else {})}

    def send(self, method: str, id: int = 1, **params: Any) -> httpx2.Response:
        body, headers = self.message(method, id, **params)
        return self._http.post("/mcp", json=body, headers=headers)

    def result(self, method: str, **params: Any) -> Json:
        answer = last_message(self.send(method, **params))
        assert "result" in answer, answer
        result: Json = answer["result"]
        return result

    def error(self, method: str, **params: Any) -> Json:
        error: Json = last_message(self.send(method, **params))["error"]
        return error

    @contextmanager
    def stream(self, method: str, id: int = 1, **params: Any) -> Iterator[Iterator[Json]]:
        body, headers = self.message(method, id, **params)
        with self._http.stream("POST", "/mcp", json=body, headers=headers) as reply:
            yield (json.loads(event.data) for event in sse_events(reply))


class Legacy:
    """A session."""

    def __init__(
        self, http: httpx2.Client, version: str = "2025-11-25", capabilities: Json | None = None, session: str = ""
    ) -> None:
        """`session`: one that another client has begun."""
        self._http, self.version = http, version
        self.session = session
        if not session:
            hello: Json = {
                "protocolVersion": version,
                "capabilities": capabilities or {},
                "clientInfo": {"name": "test"},
            }
            reply = self.post("initialize", **hello)
            self.initialized: Json = reply.json()["result"]
            self.session = reply.headers["mcp-session-id"]

    @property
    def headers(self) -> dict[str, str]:
        said = {"mcp-session-id": self.session, "mcp-protocol-version": self.version} if self.session else {}
        return {**_ACCEPT, **said}

    def post(self, method: str, id: int | None = 1, **params: Any) -> httpx2.Response:
        body = {"jsonrpc": "2.0", "method": method, "params": params, **({} if id is None else {"id": id})}
        return self._http.post("/mcp", json=body, headers=self.headers)

    def reply(self, id: str, result: Json) -> None:
        """To a request of the server's."""
        sent = self._http.post("/mcp", json={"jsonrpc": "2.0", "id": id, "result": result}, headers=self.headers)
        assert sent.status_code == 202, sent.text

    @contextmanager
    def call(self, id: int, **params: Any) -> Iterator[Iterator[SseEvent]]:
        """A tool; leaving breaks its stream."""
        body = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
        with self._http.stream("POST", "/mcp", json=body, headers=self.headers) as reply:
            assert reply.status_code == 200, reply.read()
            yield sse_events(reply)

    @contextmanager
    def resume(self, last_event_id: str = "") -> Iterator[Iterator[SseEvent]]:
        headers = {**self.headers, **({"last-event-id": last_event_id} if last_event_id else {})}
        with self._http.stream("GET", "/mcp", headers=headers) as reply:
            assert reply.status_code == 200, reply.read()
            yield sse_events(reply)

    def end(self) -> httpx2.Response:
        return self._http.delete("/mcp", headers=self.headers)


def sse_events(reply: httpx2.Response) -> Iterator[SseEvent]:
    decoder = SseDecoder()
    with suppress(httpx2.StreamClosed):
        for piece in reply.iter_bytes():
            yield from decoder.push(piece)


def last_message(reply: httpx2.Response) -> Json:
    if reply.headers["content-type"].startswith("text/event-stream"):
        decoder = SseDecoder()
        data: str | bytes = decoder.push(reply.content)[-1].data
    else:
        data = reply.content
    message: Json = json.loads(data)
    return message
