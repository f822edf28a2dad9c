"""Serve applications on bound sockets, and drain their runs when they are stopped."""

import asyncio
import ctypes
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from cursor_gateway.http1.server import HttpServer, Timeouts
from cursor_gateway.runs.run_service import RunService
from cursor_gateway.server.guard import Guard, logged_path
from cursor_gateway.server.logs import StructuredLog
from cursor_gateway.settings import Settings

_log = StructuredLog()

_LAST_SECONDS = 10.0  # for replies, when the runs behind them have ended
_FILES = 64  # that are open whatever happens
_FILES_OF_A_RUN = 8
_MOST_FILES = 65536  # where the system sets no limit
_FEWEST_CONNECTIONS = 16
_MMAP_THRESHOLD, _LARGE_BLOCK = -3, 256 * 1024  # of mallopt(3)
_FEW_CONNECTIONS = 64  # which are reported


def most_connections(max_runs: int) -> int:
    """As many as leave enough files for the runs. Raises the soft limit of open files to the hard limit."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return _MOST_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(OSError, ValueError):  # macOS has another limit below its hard one
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    files = most if soft == resource.RLIM_INFINITY else soft
    needed = _FILES + _FILES_OF_A_RUN * max_runs
    if needed + _FEW_CONNECTIONS > files:
        _log.warning(
            "the limit of open files is too low for `max_runs`",
            files=files,
            needed=f"{needed} for {max_runs} runs, and one for each client",
            connections=max(_FEWEST_CONNECTIONS, files - needed),
            remedy=f"raise it (`ulimit -n`, or `LimitNOFILE` in a systemd unit), or lower `max_runs` to "
            f"{max(1, (files - _FILES - _FEW_CONNECTIONS) // _FILES_OF_A_RUN)}",
        )
    return max(_FEWEST_CONNECTIONS, files - needed)


def _return_large_blocks() -> None:
    """glibc keeps freed blocks for later, of all sizes up to the largest that was ever freed (32 MB at most). With a
    fixed limit, large ones always go back to the system."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _LARGE_BLOCK)


async def serve_apps(
    apps: Mapping[Guard, Sequence[socket.socket]],
    service: RunService,
    settings: Settings,
    ready: Callable[[], None],
    *,
    handles_signals: bool = True,
) -> None:
    """Each on its own sockets, until SIGTERM or SIGINT. A second one, or SIGQUIT, stops at once. Without
    `handles_signals`, until it is cancelled."""
    _return_large_blocks()
    loop = asyncio.get_running_loop()
    stopped, hurried = asyncio.Event(), asyncio.Event()

    def interrupted() -> None:
        (hurried if stopped.is_set() else stopped).set()

    def hurry() -> None:
        stopped.set()
        hurried.set()

    if handles_signals:
        loop.add_signal_handler(signal.SIGTERM, interrupted)
        loop.add_signal_handler(signal.SIGINT, interrupted)
        loop.add_signal_handler(signal.SIGQUIT, hurry)
    most = most_connections(settings.max_runs) // len(apps)
    servers = [_server(app, settings, most) for app in apps]
    for server, sockets in zip(servers, apps.values(), strict=True):
        for sock in sockets:
            await server.listen(sock)
    try:
        ready()
        ports = [one for sockets in apps.values() for one in sockets if one.family != socket.AF_UNIX]
        _log.info("listening", addresses=[one.getsockname()[:2] for one in ports])
        await stopped.wait()
        _log.info("stopping", runs=service.state().running)
        await service.retire()
        with suppress(TimeoutError):
            async with asyncio.timeout(settings.drain_notice_seconds):
                await hurried.wait()
        for server in servers:
            server.close()
        await _drained(service, servers, settings, hurried)
    finally:
        for server in servers:
            server.abort()
        await service.close()


def _server(app: Guard, settings: Settings, max_connections: int) -> HttpServer:
    return HttpServer(
        app,
        refusal=app.refusal,
        fault=lambda error, path: _log.error("fault", error, path=logged_path(path)),
        timeouts=Timeouts(head=settings.head_seconds),
        max_connections=max_connections,
    )


async def _drained(
    service: RunService, servers: Sequence[HttpServer], settings: Settings, hurried: asyncio.Event
) -> None:
    """Waits for the replies. Runs get `drain_seconds` to finish, and are then stopped."""
    seconds = settings.drain_seconds + settings.grace_seconds + _LAST_SECONDS

    async def ended() -> bool:
        await asyncio.gather(service.drain(settings.drain_seconds), *(server.drained() for server in servers))
        return True

    waits = [asyncio.ensure_future(ended()), asyncio.ensure_future(hurried.wait())]
    _, pending = await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.wait(waits)
