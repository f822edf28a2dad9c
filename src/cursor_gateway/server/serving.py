"""A bound socket and an application in; a server that drains its runs when it is told to stop, out."""

import asyncio
import socket
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from cursor_gateway.runs.service import Service
from cursor_gateway.settings import Settings


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

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        draining = asyncio.ensure_future(self._service.runs.close(0 if self.force_exit else self._drain_seconds))
        await super().shutdown(sockets)
        await draining


async def serve_app(
    app: ASGIApp, bound: socket.socket, service: Service, settings: Settings, ready: Callable[[], None]
) -> None:
    config = uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=int(settings.drain_seconds + settings.grace_seconds + 10),
    )
    try:
        await _Server(config, service, settings.drain_seconds, ready).serve([bound])
    finally:
        await service.close(0)
