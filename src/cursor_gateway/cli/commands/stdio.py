"""`cursor-gateway mcp` and `acp`: serve the requests of an MCP host, or of an editor, on standard input and output."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cursor_gateway.cli.assembly.remote import current_folder, url_option
from cursor_gateway.cli.configuration import config, configuration, data_dir
from cursor_gateway.cli.output import Trouble, aside
from cursor_gateway.settings import Settings

if TYPE_CHECKING:
    from cursor_gateway.acp_server.server import AcpServer, Connected
    from cursor_gateway.client.asynchronous import AsyncClient
    from cursor_gateway.mcp_server.calls import ConnectedGateway
    from cursor_gateway.mcp_server.stdio import StdioMcpServer

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SESSIONS = "acp-sessions.jsonl"  # in the data directory


@click.command(
    epilog="""\b
    Example, for Claude Code:
      claude mcp add cursor -- cursor-gateway mcp

    \b
    docs/mcp.md has the configuration of other hosts."""
)
@config
@url_option
@click.option("--workspace", metavar="DIR", help="The folder to work in. Default: the current folder.")
def mcp(config: str | None, url: str | None, workspace: str | None) -> int:
    """Offer Cursor's agent as an MCP server, with the tools ask, run, status, answer and cancel.

    An MCP host starts this command and talks to it on standard input and output. Your running gateway is used if it
    is allowed to work in the folder. Otherwise, one is started with the first call, and stops with this command.
    """
    settings = configuration(config).settings
    folder = current_folder() if workspace is None else str(Path(workspace).expanduser().absolute())
    if not os.path.isdir(folder):
        raise Trouble(f"the folder {workspace!r} does not exist; name one that does.")
    return _run(_serve_host(settings, folder, url))


@click.command(
    epilog="""\b
    Example, for Zed (settings.json):
      "agent_servers": {"Cursor": {"type": "custom", "command": "cursor-gateway", "args": ["acp"], "env": {}}}

    \b
    docs/acp.md has the configuration of other editors."""
)
@config
@url_option
def acp(config: str | None, url: str | None) -> int:
    """Offer Cursor's agent to editors that support the Agent Client Protocol, such as Zed and JetBrains IDEs.

    An editor starts this command and talks to it on standard input and output. Your running gateway is used if it
    is allowed to work in the editor's folder. Otherwise, one is started for that folder, and stops with this command.
    """
    settings = configuration(config).settings
    return _run(_serve_editor(settings, current_folder(), url))


def _run(serving: Coroutine[None, None, None]) -> int:
    from cursor_gateway.cli.assembly.serving import run_loop

    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # who has gone must not keep the agents from being stopped
    run_loop(serving)
    return 0


async def _serve_host(settings: Settings, folder: str, url: str | None) -> None:
    from cursor_gateway.mcp_server.methods import McpMethods
    from cursor_gateway.mcp_server.stdio import StdioMcpServer
    from cursor_gateway.mcp_server.tasks import ttl_of
    from cursor_gateway.stdio import StdioLines, standard_streams

    gateways = Gateways(settings, url)

    @asynccontextmanager
    async def connect() -> AsyncIterator["ConnectedGateway"]:
        from cursor_gateway.mcp_server.calls import ConnectedGateway

        async with gateways.connect(folder) as (client, named):
            yield ConnectedGateway(client, named)

    methods = McpMethods(connect, (click.ClickException,), ttl_of(settings.history_days))
    await _until_stopped(StdioMcpServer(StdioLines(*standard_streams()), methods), gateways)


async def _serve_editor(settings: Settings, folder: str, url: str | None) -> None:
    from cursor_gateway.acp_server.server import AcpServer, StdioTransport
    from cursor_gateway.acp_server.session_ids import SessionIds
    from cursor_gateway.stdio import StdioLines, standard_streams

    gateways = Gateways(settings, url)
    server = AcpServer(
        StdioTransport(StdioLines(*standard_streams())),
        gateways.connect,
        SessionIds(data_dir(settings) / _SESSIONS),
        folder=folder,
        default_mode=settings.mode,
        log=aside,
        failures=(click.ClickException,),
    )
    await _until_stopped(server, gateways)


async def _until_stopped(server: "StdioMcpServer | AcpServer", gateways: "Gateways") -> None:
    """Until standard input ends. A signal ends the process, when the agents have been stopped."""
    signalled, serving = stop_signal(), asyncio.ensure_future(server.serve())
    try:
        ends: list[asyncio.Future[Any]] = [serving, signalled]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await server.close()
        await gateways.close()
    if signalled.done():  # a thread reads standard input, and waiting for it could take forever
        os._exit(128 + signalled.result())
    await serving


def stop_signal() -> "asyncio.Future[int]":
    """The first of the signals that stop programs."""
    loop = asyncio.get_running_loop()
    received: asyncio.Future[int] = loop.create_future()

    def receive(number: int) -> None:
        if not received.done():
            received.set_result(number)

    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under `nohup`
            loop.add_signal_handler(number, receive, number)
    return received


class Gateways:
    """The gateway for each call: the user's own if it runs, or else one within this process, from then on."""

    def __init__(self, settings: Settings, url: str | None) -> None:
        self._settings, self._url = settings, url
        self._own: dict[str, AsyncClient] = {}  # of the gateways within this process, by their folders
        self._starting: dict[str, asyncio.Lock] = {}
        self._opened: list[AsyncExitStack] = []

    @asynccontextmanager
    async def connect(self, folder: str) -> "AsyncIterator[Connected]":
        """And the folder to name in requests; None: the gateway's own default. Raises `Trouble`, `GatewayError`."""
        from cursor_gateway.cli.assembly.own_gateway import running_gateway

        if (real := os.path.realpath(folder)) not in self._own:
            async with running_gateway(self._settings, self._url, real) as remote:
                if remote is not None:
                    yield remote.client, real if remote.works_in(real) else None
                    return
        yield await self._started(real), None

    async def _started(self, folder: str) -> "AsyncClient":
        from cursor_gateway.cli.assembly.own_gateway import own_gateway

        async with self._starting.setdefault(folder, asyncio.Lock()):
            if folder not in self._own:
                opened = AsyncExitStack()
                own = await opened.enter_async_context(own_gateway(self._settings, folder))
                self._opened.append(opened)
                self._own[folder] = own.client
                own.announce_until("this command", folder)
            return self._own[folder]

    async def close(self) -> None:
        await asyncio.gather(*(opened.aclose() for opened in self._opened))
