"""`cursor-gateway settings`: show each setting with its value, its meaning and its origin."""

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

import click
import msgspec

from cursor_gateway.cli.configuration import config, configuration
from cursor_gateway.cli.output import write_json
from cursor_gateway.settings import Loaded, Setting, every_setting

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command(
    epilog="""\b
    Flags override environment variables, which override the file, which overrides defaults.
    Examples:
      cursor-gateway settings
      CURSOR_GATEWAY_PORT=9000 cursor-gateway settings --json
      cursor-gateway settings --config ./gateway.toml

    \b
    Secrets are shown as `…`. Exit status: 2 if a setting is unknown or invalid.""",
)
@config
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def settings(config: str | None, as_json: bool) -> int:
    """Show every setting with its value, description and origin."""
    loaded = configuration(config)
    if as_json:
        json = msgspec.json.encode({setting.name: _entry(setting, loaded) for setting in every_setting()})
        write_json(json, indented=True)
    else:
        _print_table(loaded)
    return 0


def _entry(setting: Setting, loaded: Loaded) -> dict[str, object]:
    return {
        "value": _value(setting, loaded),
        "from": loaded.origins[setting.name],
        "default": setting.default,
        "environment": setting.variable,
        "takes": setting.takes,
        "meaning": setting.meaning,
    }


def _value(setting: Setting, loaded: Loaded) -> object:
    return setting.masked(getattr(loaded.settings, setting.name))


def _print_table(loaded: Loaded) -> None:
    from cursor_gateway.cli.output import terminal

    console = terminal()
    with console.capture() as captured:
        for part in _table(loaded):
            console.print(part)
    # rich fills every cell with blanks
    click.echo("\n".join(line.rstrip() for line in captured.get().rstrip().splitlines()))


def _table(loaded: Loaded) -> "Iterator[RenderableType]":
    """The description is below the value, because 80 columns have no room for both."""
    from rich.table import Table
    from rich.text import Text

    width = max(len(setting.name) for setting in every_setting())
    for group, members in groupby(every_setting(), key=lambda setting: setting.group):
        yield Text(group, "bold underline")
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(width=width, no_wrap=True)
        table.add_column(overflow="fold")
        for setting in members:
            table.add_row(Text(setting.name, "bold"), _described(setting, loaded))
        yield table
        yield Text()


def _described(setting: Setting, loaded: Loaded) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    from cursor_gateway.render.visible import visible_line

    origin = loaded.origins[setting.name]
    is_default = origin == "default"
    value = Text(visible_line(_words(_value(setting, loaded))), "cyan" if is_default else "bold green")
    place = Text(f"({visible_line(origin)})", "dim" if is_default else "green")
    return Group(Text.assemble(value, "  ", place), Text(setting.meaning))


def _words(value: object) -> str:
    """As in an environment variable; empty values are shown as `empty`, as in the descriptions."""
    match value:
        case bool():
            return str(value).lower()
        case float() if value.is_integer():
            return str(int(value))
        case list():
            return ", ".join(value) or "empty"
        case dict():
            parts = {name: part if isinstance(part, str) else _json(part) for name, part in value.items()}
            return ", ".join(f"{name}={part}" for name, part in parts.items()) or "empty"
        case _:
            return str(value) or "empty"


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
