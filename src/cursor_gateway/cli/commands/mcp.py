"""`cursor-gateway mcp`: serve MCP requests on standard input and output."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cursor_gateway.cli.assembly.remote import current_folder, url_option
from cursor_gateway.cli.configuration import config, configuration
from cursor_gateway.cli.output import Trouble
from cursor_gateway.settings import Settings

if TYPE_CHECKING:
    from cursor_gateway.client.asynchronous import AsyncClient
    from cursor_gateway.mcp_server.calls import ConnectedGateway

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


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
    from cursor_gateway.cli.assembly.serving import run_loop

    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a host that has gone must not keep the agents from being stopped
    run_loop(_serve(settings, folder, url))
    return 0


async def _serve(settings: Settings, folder: str, url: str | None) -> None:
    """Until standard input ends. A signal ends the process, when the agents have been stopped."""
    from cursor_gateway.mcp_server.methods import McpMethods
    from cursor_gateway.mcp_server.stdio import StdioMcpServer
    from cursor_gateway.mcp_server.tasks import ttl_of

    signalled, gateways = stop_signal(), Gateways(settings, folder, url)
    methods = McpMethods(gateways.for_call, (click.ClickException,), ttl_of(settings.history_days))
    server = StdioMcpServer(methods)
    serving = asyncio.create_task(server.serve())
    try:
        ends: list[asyncio.Future[Any]] = [serving, signalled]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await server.close()
        await gateways.close()
    if not serving.done():  # a thread reads standard input, and waiting for it could take forever
        os._exit(128 + signalled.result())
    try:
        await serving
    except* OSError:  # the host reads no more
        pass


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

    def __init__(self, settings: Settings, folder: str, url: str | None) -> None:
        self._settings, self._folder, self._url = settings, folder, url
        self._client: AsyncClient | None = None  # of the own gateway
        self._starting, self._opened = asyncio.Lock(), AsyncExitStack()

    @asynccontextmanager
    async def for_call(self) -> AsyncIterator["ConnectedGateway"]:
        """Raises `Trouble`, `GatewayError`."""
        from cursor_gateway.mcp_server.calls import ConnectedGateway

        async with self.connect() as (client, folder):
            yield ConnectedGateway(client, folder)

    @asynccontextmanager
    async def connect(self) -> "AsyncIterator[tuple[AsyncClient, str | None]]":
        """And the folder to name in requests; None: the gateway's own default. Raises `Trouble`, `GatewayError`."""
        from cursor_gateway.cli.assembly.own_gateway import running_gateway

        if self._client is None:
            async with running_gateway(self._settings, self._url, self._folder) as remote:
                if remote is not None:
                    yield remote.client, self._folder if remote.works_in(self._folder) else None
                    return
        yield await self._started(), None

    async def _started(self) -> "AsyncClient":
        from cursor_gateway.cli.assembly.own_gateway import own_gateway

        async with self._starting:
            if self._client is None:
                own = await self._opened.enter_async_context(own_gateway(self._settings, self._folder))
                self._client = own.client
                own.announce_until("this command", self._folder)
            return self._client

    async def close(self) -> None:
        await self._opened.aclose()
