"""`cursor-gateway acp`: serve the requests of an editor on standard input and output."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import click

from cursor_gateway.cli.assembly.remote import current_folder, url_option
from cursor_gateway.cli.commands.mcp import Gateways, stop_signal
from cursor_gateway.cli.configuration import config, configuration, data_dir
from cursor_gateway.cli.output import aside
from cursor_gateway.settings import Settings

if TYPE_CHECKING:
    from cursor_gateway.acp_server.server import Connected

_SESSIONS = "acp-sessions.jsonl"  # in the data directory


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
    folder = current_folder()
    from cursor_gateway.cli.assembly.serving import run_loop

    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # an editor that has gone must not keep the agents from being stopped
    run_loop(_serve(settings, folder, url))
    return 0


async def _serve(settings: Settings, folder: str, url: str | None) -> None:
    """Until standard input ends, or a signal comes."""
    from cursor_gateway.acp_server.server import AcpServer
    from cursor_gateway.acp_server.session_ids import SessionIds
    from cursor_gateway.acp_server.stdio import StdioTransport, standard_streams

    signalled, gateways = stop_signal(), FolderGateways(settings, url)
    server = AcpServer(
        StdioTransport(*standard_streams()),
        gateways.connect,
        SessionIds(data_dir(settings) / _SESSIONS),
        folder=folder,
        default_mode=settings.mode,
        log=aside,
        failures=(click.ClickException,),
    )
    serving = asyncio.ensure_future(server.serve())
    try:
        ends: list[asyncio.Future[Any]] = [serving, signalled]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await server.close()
        await gateways.close()
    if signalled.done():
        os._exit(128 + signalled.result())


class FolderGateways:
    """The gateway for each folder that the editor works in."""

    def __init__(self, settings: Settings, url: str | None) -> None:
        self._settings, self._url = settings, url
        self._by_folder: dict[str, Gateways] = {}

    @asynccontextmanager
    async def connect(self, folder: str) -> "AsyncIterator[Connected]":
        """Raises `Trouble`, `GatewayError`."""
        real = os.path.realpath(folder)
        gateways = self._by_folder.setdefault(real, Gateways(self._settings, real, self._url))
        async with gateways.connect() as connected:
            yield connected

    async def close(self) -> None:
        await asyncio.gather(*(gateways.close() for gateways in self._by_folder.values()))
