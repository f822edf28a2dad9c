"""`cursor-gateway drain`: tell a process of a cluster to accept no new work."""

import asyncio

import click

from cursor_gateway.cli.configuration import config, configuration
from cursor_gateway.cli.output import Trouble
from cursor_gateway.cli.runners import open_cluster
from cursor_gateway.settings import Settings


@click.command(
    epilog="""\b
    Examples:
      cursor-gateway runners
      cursor-gateway drain worker1-4242-77120-9f3a1c02

    \b
    Its runs continue; `cursor-gateway runners --watch` shows when they have ended. Then stop it.
    Exit status: 0 success; 2 there is no such process.""",
)
@config
@click.argument("id")
def drain(config: str | None, id: str) -> int:
    """Tell a process in a cluster to accept no new work. From then on its /readyz returns 503."""
    if not asyncio.run(_drain(configuration(config).settings, id)):
        raise Trouble(f"no process {id[:100]!r} is connected to the database; see `cursor-gateway runners`.")
    return 0


async def _drain(settings: Settings, id: str) -> bool:
    async with open_cluster(settings) as cluster:
        return await cluster.set_draining(id)
