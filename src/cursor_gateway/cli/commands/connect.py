"""`cursor-gateway connect`: print or write the configuration that makes a client use the gateway."""

import asyncio
import difflib
from collections.abc import Sequence
from pathlib import Path

import click

from cursor_gateway.cli.assembly.remote import local_gateway, local_url, url_option
from cursor_gateway.cli.clients.base import (
    NO_KEY,
    ClientProgram,
    GatewayAddress,
    JsonFile,
    Kept,
    KeptInFile,
    NewFile,
    OfferedModel,
    Steps,
    YamlFile,
    listed,
    to_json,
)
from cursor_gateway.cli.clients.edits import Edit, JsonChange, NotEditable, merged, merged_yaml, nested
from cursor_gateway.cli.clients.table import CLIENTS
from cursor_gateway.cli.commands.models import list_models
from cursor_gateway.cli.configuration import config, configuration, data_dir
from cursor_gateway.cli.kept_files import ClientConnection, ClientConnections, KeptFile, path_of
from cursor_gateway.cli.output import FailedRun, Trouble, aside, write_text
from cursor_gateway.settings import Settings

_HIDDEN = "(your API key)"


@click.command(
    epilog=f"""\b
    Clients:
{listed(CLIENTS)}

    \b
    Examples:
      cursor-gateway connect opencode
      cursor-gateway connect opencode --write
      cursor-gateway connect opencode --undo

    \b
    Only the configuration is written to standard output. Exit status: 0
    success; 2 the file cannot be changed.""",
)
@click.argument("name", metavar="NAME", type=click.Choice(list(CLIENTS)))
@config
@url_option
@click.option("--write", is_flag=True, help="Add the configuration to the client's file; a backup is kept.")
@click.option("--undo", is_flag=True, help="Undo what --write did.")
def connect(name: str, config: str | None, url: str | None, write: bool, undo: bool) -> int:
    """Print the configuration that makes a client use the gateway.

    `cursor-gateway launch` needs no configuration.
    """
    if write and undo:
        raise click.UsageError("--write and --undo cannot be combined.")
    settings, client = configuration(config).settings, CLIENTS[name]
    connections = ClientConnections(data_dir(settings))
    if undo:
        _undo(client, connections, settings.api_key)
        return 0
    endpoint = asyncio.run(_endpoint(settings, url))
    kept = client.keep(endpoint)
    if write:
        _write(client, kept, connections, "" if endpoint.key == NO_KEY else endpoint.key)
    else:
        _print(client, kept)
    return 0


async def _endpoint(settings: Settings, url: str | None) -> GatewayAddress:
    """Where the gateway is; if none runs, where it will be. A named one must run."""
    address = url or settings.url or _local_address(settings)
    try:
        models = await list_models(settings, url)
    except FailedRun as error:  # the configuration is the same without them
        aside(f"The models are not known, so only the default is listed: {error.message}")
        models = []
    default = next((model.id for model in models if model.is_default), settings.model)
    return GatewayAddress(
        url=address.rstrip("/"),
        key=settings.api_key or NO_KEY,
        models=[OfferedModel(model.id, model.label) for model in models] or [OfferedModel(default, default)],
        model=default,
    )


def _local_address(settings: Settings) -> str:
    local = local_gateway(settings)
    if local is None and settings.port == 0:
        raise Trouble(
            "no gateway is running, and it has a different port each time; start it with `cursor-gateway serve`, set "
            "`port`, or name its address with --url."
        )
    if local is None:
        aside(f"No gateway is running: start one with `cursor-gateway serve`. It will be at {local_url(settings)}.")
        return local_url(settings)
    if local.port != settings.port:
        aside(f"The gateway at {local.url} is not on the port of your settings. Set `port = {local.port}` to keep it.")
    return local.url


# --- printing -------------------------------------------------------------------------------------------


def _print(client: ClientProgram, kept: Kept) -> None:
    match kept:
        case Steps(lines=lines):
            aside(f"{client.title}:")
            write_text("".join(f"{line}\n" for line in lines))
        case JsonFile() | YamlFile() | NewFile():
            verb = "Write to" if isinstance(kept, NewFile) else "Add to"
            aside(f"{client.title}. {verb} {path_of(kept)}, or let --write do it:")
            write_text(_text(kept))
    aside(f"Then: {client.then}")


def _text(kept: KeptInFile) -> str:
    """As a file that holds nothing else."""
    return to_json(nested(kept.values)) if isinstance(kept, JsonFile) else kept.text


# --- writing --------------------------------------------------------------------------------------------


def _write(client: ClientProgram, kept: Kept, connections: ClientConnections, key: str) -> None:
    """`key` is what must be kept secret; empty: nothing."""
    if isinstance(kept, Steps):
        _print(client, kept)
        raise Trouble(f"{client.title} has no file that could be written; enter the values above.")
    file = KeptFile(path_of(kept))
    base = current = file.read()
    known = connections.read(client.name)
    try:
        if known is not None and current is not None and known.file == str(file.path):
            base = known.taken_back(current)
        after, changes, edits = _with(kept, base)
    except NotEditable as error:
        write_text(_text(kept))
        raise Trouble(f"{file.path} {error}; add the configuration above yourself.") from None
    if after == current:
        aside(f"{client.title} is connected already: {file.path} has this configuration.")
        return
    _show_difference(current, after, str(file.path), key)
    backup = file.back_up(base)
    connections.write(
        client.name,
        ClientConnection(file=str(file.path), before=base, written=after, changes=changes, edits=edits, backup=backup),
    )
    file.write(after, has_key=bool(key) and key in after)
    aside(f"Wrote {file.path}{f'; the backup is {backup}' if backup else ''}. Then: {client.then}")


def _with(kept: KeptInFile, base: str | None) -> tuple[str, Sequence[JsonChange], Sequence[Edit]]:
    """The text, and what was done to JSON or to YAML. Raises `NotEditable`."""
    match kept:
        case JsonFile(values=values):
            return *merged(base or "", values), ()
        case YamlFile(text=text) | NewFile(text=text) if base is None or not base.strip() or base == text:
            return text, (), ()
        case YamlFile(entries=entries):
            text, edits = merged_yaml(base or "", entries)
            return text, (), edits
        case NewFile():
            raise NotEditable("exists already, and is not merged")


def _undo(client: ClientProgram, connections: ClientConnections, key: str) -> None:
    known = connections.read(client.name)
    if known is None:
        raise Trouble(f"{client.title} was not connected with --write, so there is nothing to undo.")
    file = KeptFile(Path(known.file))
    current = file.read()
    try:
        after = None if current is None else known.taken_back(current)
    except NotEditable as error:
        raise Trouble(f"{file.path} {error}; take the configuration out yourself.") from None
    _show_difference(current, after, str(file.path), key)
    if after is None:
        file.remove()
    elif after != current:
        file.write(after)
    if known.backup:
        KeptFile(Path(known.backup)).remove()
    connections.remove(client.name)
    aside(f"{client.title} is no longer connected.")


def _show_difference(before: str | None, after: str | None, name: str, key: str = "") -> None:
    """Without the key: the output may be shown to others, or logged."""
    old, new = ("" if text is None else text for text in (before, after))
    if key:
        old, new = old.replace(key, _HIDDEN), new.replace(key, _HIDDEN)
    difference = difflib.unified_diff(old.splitlines(), new.splitlines(), name, name, lineterm="")
    write_text("".join(f"{line}\n" for line in difference))
