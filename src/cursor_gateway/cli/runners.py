"""`cursor-gateway runners` and `drain`: list the processes of a cluster, and tell one to accept no new work."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import click
import msgspec

from cursor_gateway.cli.configuration import config, configuration
from cursor_gateway.cli.output import Trouble, write_json
from cursor_gateway.errors import SettingsError
from cursor_gateway.render.visible import visible_line
from cursor_gateway.settings import Settings
from cursor_gateway.store.cluster import ClusterStore, Member

if TYPE_CHECKING:
    from rich.table import Table

_LOOK_SECONDS = 1.0


@click.command(
    epilog="""\b
    Examples:
      cursor-gateway runners
      cursor-gateway runners --watch

    \b
    The age of a heartbeat is measured while this command runs, so it needs --watch. A process whose heartbeat
    is older than `lease_seconds` is considered dead: its runs end with the error `runner_lost`.""",
)
@config
@click.option("--watch", is_flag=True, help="Update the table every second, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def runners(config: str | None, watch: bool, as_json: bool) -> int:
    """List the processes in a cluster: what they do, where, and how busy they are."""
    settings = configuration(config).settings
    with suppress(KeyboardInterrupt):
        asyncio.run(_watch(settings) if watch else _once(settings, as_json=as_json))
    return 0


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
        return await cluster.set_member(id, is_draining=True)


async def _once(settings: Settings, *, as_json: bool) -> None:
    async with open_cluster(settings) as cluster:
        members = await cluster.members()
    if as_json:
        write_json(msgspec.json.encode(members))
        return
    from rich.console import Console

    Console().print(_table(members, None) if members else "No process is connected to the database.")


async def _watch(settings: Settings) -> None:
    from rich.live import Live

    seen: dict[str, tuple[int, float]] = {}
    async with open_cluster(settings) as cluster:
        with Live(auto_refresh=False) as live:
            while True:
                members, now = await cluster.members(), time.monotonic()
                seen = {
                    one.id: seen[one.id] if seen.get(one.id, (-1, 0.0))[0] == one.beat else (one.beat, now)
                    for one in members
                }
                live.update(_table(members, {id: now - since for id, (_, since) in seen.items()}), refresh=True)
                await asyncio.sleep(_LOOK_SECONDS)


@asynccontextmanager
async def open_cluster(settings: Settings) -> AsyncIterator[ClusterStore]:
    """To look at it, or tell it something; not as a member. Raises `SettingsError`."""
    from cursor_gateway.cli.clustering import cluster_of
    from cursor_gateway.cli.configuration import data_dir
    from cursor_gateway.cli.stores import database_url, store_of

    if not database_url(settings):
        raise SettingsError("there is no cluster: the setting `store` names no database.", param="store")
    store = store_of(settings, data_dir(settings))
    try:
        yield cluster_of(store)
    finally:
        await store.close()


def _table(members: Sequence[Member], ages: dict[str, float] | None) -> "Table":
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    columns = ["id", "role", "host", "volumes", "labels", "runs", "state", "version"]
    for name in [*columns, "beat"] if ages is not None else columns:
        table.add_column(name, overflow="fold")
    for one in members:
        table.add_row(
            visible_line(one.id),
            one.role,
            visible_line(one.host),
            visible_line(" ".join(one.volumes)) or "–",
            visible_line(" ".join(one.labels)) or "–",
            f"{one.busy}/{one.capacity}" if one.is_runner else "–",
            "draining" if one.is_draining else "ready",
            visible_line(one.version),
            *((f"{ages[one.id]:.0f} s ago",) if ages is not None else ()),
        )
    return table
