"""Offer the tools of each run at an unguessable loopback URL."""

import asyncio
import logging
import secrets
import socket
from typing import TYPE_CHECKING

from cursor_gateway.errors import GatewayError, GatewayFault, host_exhausted
from cursor_gateway.sources.base import ToolRunner

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from cursor_gateway.http1.server import HttpServer
    from cursor_gateway.sources.tool_server import McpServer

_log = logging.getLogger(__name__)

_HOST = "127.0.0.1"
_PATH = "/mcp/"
_HEAD_SECONDS = 60.0  # for a request's head, and between requests
_MAX_CONNECTIONS = 10_000


class ToolEndpoint:
    """Listens from its first use on, and only on loopback, because the agent runs on this machine."""

    def __init__(self, progress_seconds: float = 10.0) -> None:
        self._progress_seconds = progress_seconds
        self._servers: dict[str, McpServer] = {}
        self._opening = asyncio.Lock()
        self._http: HttpServer | None = None
        self._host = ""

    async def open(self) -> None:
        """Raises `GatewayFault`, `HostExhausted`."""
        async with self._opening:
            if self._http is None:
                await asyncio.to_thread(_load)
                await self._listen()

    async def _listen(self) -> None:
        from cursor_gateway.http1.server import HttpServer, Timeouts

        try:
            bound = socket.create_server((_HOST, 0))
        except OSError as error:
            raise host_exhausted(error) or GatewayFault(
                f"The gateway cannot listen for the agent's tool calls: {error.strerror}; run `cursor-gateway doctor`."
            ) from error
        self._host = f"{_HOST}:{bound.getsockname()[1]}"
        http = HttpServer(
            self._handle,
            refusal=_refusal,
            fault=lambda error, path: _log.error("error in the tool endpoint", exc_info=error),
            timeouts=Timeouts(head=_HEAD_SECONDS),
            max_connections=_MAX_CONNECTIONS,
        )
        await http.listen(bound)
        self._http = http

    def offer(self, runner: ToolRunner) -> str:
        """The URL for these tools, valid until it is withdrawn. Call `open` first."""
        from cursor_gateway.sources.tool_server import McpServer

        token = secrets.token_urlsafe(32)
        self._servers[token] = McpServer(runner, self._host, self._progress_seconds)
        return f"http://{self._host}{_PATH}{token}"

    def withdraw(self, url: str) -> None:
        server = self._servers.pop(url.rpartition("/")[2], None)
        if server is not None:
            server.close()

    async def close(self) -> None:
        servers, self._servers = list(self._servers.values()), {}
        for server in servers:
            await server.wait_closed()
        if self._http is not None:
            self._http.abort()
            self._http = None

    async def _handle(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        path: str = scope.get("path", "")
        server = self._servers.get(path.removeprefix(_PATH)) if path.startswith(_PATH) else None
        if server is None:
            from starlette.responses import Response

            await Response("Not found.", 404)(scope, receive, send)
            return
        await server.handle(scope, receive, send)


def _refusal(error: GatewayError) -> "ASGIApp":
    from starlette.responses import PlainTextResponse

    return PlainTextResponse(str(error), error.status)


def _load() -> None:
    """Takes most of a second, so it runs in a thread."""
    import cursor_gateway.http1.server
    import cursor_gateway.sources.tool_server  # noqa: F401
