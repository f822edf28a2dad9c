"""`cursor-gateway share`: log in another device at a shared gateway; list and forget devices."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

import click

from cursor_gateway.cli.configuration import config, configuration
from cursor_gateway.cli.output import Trouble, aside
from cursor_gateway.cli.remote import open_gateway, url_option
from cursor_gateway.render.visible import visible_line

if TYPE_CHECKING:
    from cursor_gateway.client.asynchronous import AsyncClient
    from cursor_gateway.model.history import DeviceEntry

_Result = TypeVar("_Result")


@click.command(
    epilog="""\b
    Examples:
      cursor-gateway share                       show a QR code for one more device
      cursor-gateway share --list
      cursor-gateway share --forget dev_1a2b3c4d
      cursor-gateway share --forget all

    \b
    The gateway must run with `cursor-gateway serve --share`.
    Exit status: 0 success; 1 there is no such device; 2 no shared gateway is running.""",
)
@config
@url_option
@click.option("--list", "lists", is_flag=True, help="List the devices that are logged in.")
@click.option("--forget", metavar="ID", help="Log out a device, or `all`.")
def share(config: str | None, url: str | None, lists: bool, forget: str | None) -> int:
    """Log in another device at your gateway."""
    settings = configuration(config).settings

    async def call(work: "Callable[[AsyncClient], Awaitable[_Result]]") -> _Result:
        from cursor_gateway.client.failures import CallFailed

        async with open_gateway(settings, url) as remote:
            if remote is None:
                raise Trouble("no gateway is running; start one with `cursor-gateway serve --share`.")
            try:
                return await work(remote.client)
            except CallFailed as error:
                if error.status != 404:
                    raise
                raise Trouble(
                    "this gateway is not shared; stop it, and start it with `cursor-gateway serve --share`."
                ) from None

    if lists:
        _print(asyncio.run(call(lambda client: client.devices())))
        return 0
    if forget is not None:
        count = asyncio.run(call(lambda client: _forget(client, forget)))
        aside(f"Logged out {count} device{'' if count == 1 else 's'}.")
        return 0 if count else 1
    from cursor_gateway.cli.sharing import show_login

    show_login(asyncio.run(call(lambda client: client.new_login())))
    return 0


async def _forget(client: "AsyncClient", id: str) -> int:
    wanted = [device.id for device in await client.devices() if id in ("all", device.id)]
    for found in wanted:
        await client.forget_device(found)
    return len(wanted)


def _print(devices: "list[DeviceEntry]") -> None:
    if not devices and sys.stdout.isatty():
        aside("No device is logged in.")
    for device in devices:
        since = datetime.fromtimestamp(device.created_at, UTC).strftime("%Y-%m-%d %H:%M")
        click.echo(f"{device.id}\t{since}\t{visible_line(device.name)}")
