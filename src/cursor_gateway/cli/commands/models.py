"""`cursor-gateway models`: list the models of a gateway, or of the agent on this machine."""

import asyncio
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from cursor_gateway.cli.assembly.remote import GatewayChoice, direct_option, open_gateway, place_options
from cursor_gateway.cli.output import FailedRun, aside, write_json
from cursor_gateway.errors import AgentError, HostExhausted
from cursor_gateway.render.visible import visible_line
from cursor_gateway.settings import Settings
from cursor_gateway.sources.base import Model

if TYPE_CHECKING:
    from rich.table import Table


@click.command(
    epilog="""\b
    Examples:
      cursor-gateway models
      cursor-gateway models | grep -i opus       one per line: id, tab, name
      cursor-gateway models --json

    \b
    Exit status: 0 success; 1 the agent does not list its models; 2 the gateway cannot be reached.""",
)
@place_options(direct_option)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def models(place: GatewayChoice, as_json: bool) -> int:
    """List the models that the gateway or the agent can use."""
    found = asyncio.run(list_models(place.settings, place.url, direct=place.direct))
    if as_json:
        listed = [{"id": model.id, "label": model.label, "default": model.is_default} for model in found]
        write_json(msgspec.json.encode(listed))
    elif sys.stdout.isatty():
        from cursor_gateway.cli.output import terminal

        terminal().print(table_of(found))
    else:
        for model in found:
            click.echo(f"{visible_line(model.id)}\t{visible_line(model.label)}")
    return 0


async def list_models(settings: Settings, url: str | None, *, direct: bool = False) -> list[Model]:
    async with open_gateway(settings, url, direct=direct) as remote:
        if remote is not None:
            remote.announce()
            entries = await remote.client.models()
            return [Model(entry.id, entry.name or entry.id, entry.default) for entry in entries]

    from cursor_gateway.cli.assembly.composition import compose

    gateway = await compose(settings, warn=aside)
    try:
        gateway.announce(", without a gateway")
        default = gateway.service.defaults.model  # the gateway's default, which may differ from the agent's
        found = await gateway.service.source.models()
        return [Model(model.id, model.label, model.id == default) for model in found]
    except (AgentError, HostExhausted) as error:
        raise FailedRun(str(error)) from None
    finally:
        await gateway.close()


def table_of(models: Sequence[Model]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("model", overflow="fold")
    table.add_column("name", overflow="fold")
    for model in models:
        mark = Text("  default", "green") if model.is_default else Text()
        name = Text.assemble(visible_line(model.label), mark)
        table.add_row(Text(visible_line(model.id), "cyan"), name)
    return table
