"""An MCP server's address in; its tools and what they give, out.

Streamable HTTP as the TypeScript SDK speaks it: a POST for each message, answered by JSON or by a stream of events.
A request that takes too long is cancelled and given up; progress may prolong it. Each request has a connection of
its own, so calls may be made from several threads.
"""

import json
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from itertools import count

from tests.agent.config import below, read_json
from tests.agent.emitter import Record

TYPE_CHECKING = False  # as in `typing`, whose import takes long
if TYPE_CHECKING:
    from http.client import HTTPConnection, HTTPResponse
    from socket import socket

PROTOCOL = "2025-06-18"
TIMED_OUT = "MCP error -32001: Request timed out"
_CLOSING_SECONDS = 2


class McpFailure(Exception):
    """The server's error, or what went wrong on the way; the words are the SDK's."""


def _errors() -> tuple[type[Exception], ...]:
    from http.client import HTTPException

    return OSError, HTTPException


class Address:
    def __init__(self, name: str, url: str, headers: Mapping[str, str]) -> None:
        self.name = name
        self.headers = headers
        from urllib.parse import urlsplit  # here, like HTTP: most runs have no server

        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port
        self.target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    def connect(self, seconds: float | None) -> "HTTPConnection":
        from http.client import HTTPConnection

        return HTTPConnection(self._host, self._port, timeout=seconds)


def configured(workspace: str, configuration: str) -> list[Address]:
    """The servers that have a `url`; a workspace's goes before one of the same name that the user has everywhere."""
    found: dict[str, Address] = {}
    for directory in (configuration, os.path.join(workspace, ".cursor")):
        found |= {address.name: address for address in _in_folder(directory)}
    return [*found.values()]


def of_plugin(folder: str) -> list[Address]:
    """The servers of a plugin, which are called by its name as well."""
    plugin = below(read_json(os.path.join(folder, ".cursor-plugin", "plugin.json")), "name")
    return _in_folder(folder, f"plugin-{plugin}-") if isinstance(plugin, str) else []


def _in_folder(directory: str, prefix: str = "") -> list[Address]:
    found: list[Address] = []
    servers = below(read_json(os.path.join(directory, "mcp.json")), "mcpServers")
    for name, server in servers.items() if isinstance(servers, dict) else ():
        match server:
            case {"url": str(url)}:
                headers = server.get("headers") or {}
                found.append(Address(f"{prefix}{name}", url, {key: str(value) for key, value in headers.items()}))
            case _:
                pass  # a program to start, which nobody needs here
    return found


class Clock:
    """The time that is left for one request."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.restart()

    def restart(self) -> None:
        self._deadline = time.monotonic() + self._seconds

    def left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


class McpClient:
    def __init__(
        self, address: Address, *, seconds: float, asks_for_progress: bool, waits_longer: bool, listens: bool
    ) -> None:
        self.name = address.name
        self._address = address
        self._seconds = seconds
        self._asks_for_progress = asks_for_progress
        self._waits_longer = waits_longer  # when there is progress
        self._listens = listens
        self._ids = count()
        self._told: dict[str, str] = {}  # headers that the beginning of the session decides

    def open(self) -> None:
        about = {"name": "cursor-agent-standin", "version": "1.0.0"}
        hello: Record = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": about}
        agreed = self._request("initialize", hello).get("protocolVersion")
        self._told["mcp-protocol-version"] = agreed if isinstance(agreed, str) else PROTOCOL
        self._notify("notifications/initialized")
        if self._listens:
            threading.Thread(target=self._listen, daemon=True).start()

    def tools(self) -> list[Record]:
        found: list[Record] = []
        page: Record = {}
        while True:
            listed = self._request("tools/list", page)
            tools = listed.get("tools")
            found += tools if isinstance(tools, list) else []
            if not (cursor := listed.get("nextCursor")):
                return found
            page = {"cursor": cursor}

    def call(self, tool: str, arguments: Record) -> Record:
        return self._request("tools/call", {"name": tool, "arguments": arguments})

    def close(self) -> None:
        """Ends the session, if the server keeps one."""
        if "mcp-session-id" in self._told:
            with suppress(*_errors()), closing(self._address.connect(_CLOSING_SECONDS)) as connection:
                connection.request("DELETE", self._address.target, headers=self._headers())
                connection.getresponse().read()

    def _request(self, method: str, params: Record) -> Record:
        id = next(self._ids)
        if method == "tools/call" and self._asks_for_progress:
            params = {**params, "_meta": {"progressToken": id}}
        clock = Clock(self._seconds)
        try:
            with closing(self._address.connect(self._seconds)) as connection:
                message: Record = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
                try:
                    return self._answer(id, self._messages(connection, message, clock), clock)
                except TimeoutError:
                    if method != "initialize":  # which may not be cancelled, says the protocol
                        self._notify("notifications/cancelled", {"requestId": id, "reason": f"McpError: {TIMED_OUT}"})
                    raise
        except TimeoutError:
            raise McpFailure(TIMED_OUT) from None
        except _errors() as error:
            raise McpFailure(f"MCP error -32000: Connection closed: {error}") from error

    def _answer(self, id: int, messages: Iterable[Record], clock: Clock) -> Record:
        for message in messages:
            match message:
                case {"id": answered, "result": dict(result)} if answered == id:
                    return result
                case {"id": answered, "error": {"code": code, "message": said}} if answered == id:
                    raise McpFailure(f"MCP error {code}: {said}")
                case {"method": "notifications/progress", "params": {"progressToken": token}} if token == id:
                    if self._waits_longer:
                        clock.restart()
                case {"id": asked, "method": "ping"}:
                    self._send({"jsonrpc": "2.0", "id": asked, "result": {}})
                case _:
                    pass
        raise McpFailure("MCP error -32000: Connection closed")

    def _messages(self, connection: "HTTPConnection", message: Record, clock: Clock) -> Iterator[Record]:
        connection.request("POST", self._address.target, json.dumps(message).encode(), self._headers())
        wire = connection.sock  # which the connection forgets if the server wants to close it
        wire.settimeout(clock.left())
        response = connection.getresponse()
        if session := response.headers.get("mcp-session-id"):
            self._told["mcp-session-id"] = session
        if response.status != 200:
            said = response.read(500).decode(errors="replace")
            raise McpFailure(f"Streamable HTTP error: Error POSTing to endpoint (HTTP {response.status}): {said}")
        if response.headers.get_content_type() == "text/event-stream":
            yield from map(json.loads, events(_lines(response, wire, clock)))
        else:
            wire.settimeout(clock.left())
            yield json.loads(response.read())

    def _notify(self, method: str, params: Record | None = None) -> None:
        self._send({"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})})

    def _send(self, message: Record) -> None:
        """What nobody answers; that it cannot be delivered shows in the request that follows."""
        with suppress(*_errors()), closing(self._address.connect(_CLOSING_SECONDS)) as connection:
            connection.request("POST", self._address.target, json.dumps(message).encode(), self._headers())
            connection.getresponse().read()

    def _listen(self) -> None:
        """As long as the server likes; most have nothing to say."""
        with suppress(*_errors()), closing(self._address.connect(None)) as connection:
            connection.request("GET", self._address.target, headers={**self._headers(), "accept": "text/event-stream"})
            response = connection.getresponse()
            while response.readline():
                pass

    def _headers(self) -> dict[str, str]:
        kinds = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        return {**kinds, **self._address.headers, **self._told}


def _lines(response: "HTTPResponse", wire: "socket", clock: Clock) -> Iterator[bytes]:
    while True:
        wire.settimeout(clock.left())
        line = response.readline()
        if not line:
            return
        yield line


def events(lines: Iterable[bytes]) -> Iterator[str]:
    """The data of each message of an event stream."""
    data: list[str] = []
    kind = ""
    for line in lines:
        name, _, value = line.decode().rstrip("\r\n").partition(":")
        match name:
            case "data":
                data.append(value.removeprefix(" "))
            case "event":
                kind = value.strip()
            case "" if not value and not line.startswith(b":"):
                if any(data) and kind in ("", "message"):
                    yield "\n".join(data)
                data, kind = [], ""
            case _:
                pass
