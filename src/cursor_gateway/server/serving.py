"""A bound socket and an application in; a server that drains its runs when it is told to stop, out."""

import asyncio
import socket
from collections import deque
from collections.abc import Callable

import structlog
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from cursor_gateway.runs.service import Service
from cursor_gateway.settings import Settings

_log = structlog.get_logger("cursor_gateway.server")
_LONGEST_HEAD = 64 * 1024  # bytes, and what one read brings; the parser itself keeps any number of them


def bound_socket(host: str, port: int) -> socket.socket:
    """Raises `OSError`."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


class _Connection(HttpToolsProtocol):
    """Uvicorn's, but every request of a connection hears that it is lost, and heads have an end.

    Uvicorn tells the last request alone: a client that sends two at once and goes would leave the first one's agent.
    """

    _unanswered: deque[RequestResponseCycle]
    _head_size = 0
    _in_head = True

    # uvicorn narrows asyncio's own signature in the same way
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._unanswered = deque()
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        for cycle in self._unanswered:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_size += len(data)
        super().data_received(data)
        if self._in_head and self._head_size > _LONGEST_HEAD and not self.transport.is_closing():
            self.send_400_response("The request's headers are too long.")

    def on_headers_complete(self) -> None:
        self._in_head, self._head_size = False, 0
        super().on_headers_complete()
        while self._unanswered and self._unanswered[0].response_complete:
            self._unanswered.popleft()
        self._unanswered.append(self.cycle)

    def on_message_complete(self) -> None:
        self._in_head = True
        super().on_message_complete()


class _Server(uvicorn.Server):
    """Uvicorn waits for open replies; so the runs behind them are given their time, then ended, meanwhile."""

    def __init__(
        self, config: uvicorn.Config, service: Service, drain_seconds: float, ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._service, self._drain_seconds, self._ready = service, drain_seconds, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()
        _log.info("listening", addresses=[bound.getsockname()[:2] for bound in sockets or []])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        _log.info("stopping", runs=self._service.runs.running)
        draining = asyncio.ensure_future(self._service.runs.close(0 if self.force_exit else self._drain_seconds))
        await super().shutdown(sockets)
        if self.force_exit:  # the second Ctrl-C
            draining.cancel()
        await asyncio.wait([draining])


async def serve_app(
    app: ASGIApp, bound: socket.socket, service: Service, settings: Settings, ready: Callable[[], None]
) -> None:
    config = uvicorn.Config(
        app,
        http=_Connection,
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=int(settings.drain_seconds + settings.grace_seconds + 10),
    )
    try:
        await _Server(config, service, settings.drain_seconds, ready).serve([bound])
    finally:
        await service.close(0)
