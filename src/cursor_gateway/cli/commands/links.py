"""`cursor-gateway links`: list, create and revoke read-only links to conversations, at a gateway."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from cursor_gateway.cli.assembly.local_client import id_of, sure_id
from cursor_gateway.cli.assembly.remote import open_gateway, url_option
from cursor_gateway.cli.configuration import config, configuration
from cursor_gateway.cli.output import Trouble
from cursor_gateway.render.visible import visible_line

if TYPE_CHECKING:
    from cursor_gateway.client.asynchronous import AsyncClient

_Result = TypeVar("_Result")

_conversation = click.argument("conversation", metavar="CONVERSATION")


@click.group(
    invoke_without_command=True,
    epilog="""\b
    Examples:
      cursor-gateway links
      cursor-gateway links create last
      cursor-gateway links revoke conv_1a2b3c4d

    \b
    In a pipe, one link per line: conversation, since when, title.""",
)
@config
@url_option
@click.pass_context
def links(context: click.Context, config: str | None, url: str | None) -> int:
    """List the conversations that have a read-only link."""
    context.obj = config, url
    if context.invoked_subcommand is not None:
        return 0

    async def listed(client: "AsyncClient") -> list[tuple[str, str, str]]:
        return [(entry.id, entry.linked or "", entry.title) async for entry in client.links()]

    found = _with(context, config, url, listed)
    for id, since, title in found:
        if sys.stdout.isatty():
            click.echo(f"{click.style(sure_id(id), bold=True)}  {visible_line(title)}, since {since}")
        else:
            click.echo("\t".join(map(visible_line, (id, since, title))))
    if not found and sys.stdout.isatty():
        click.echo("No conversation has a read-only link.")
    return 0


@links.command()
@_conversation
@config
@url_option
@click.pass_context
def create(context: click.Context, conversation: str, config: str | None, url: str | None) -> int:
    """Create a link with which anybody can read CONVERSATION: an id, its beginning, or `last`.

    It is printed once, and replaces an earlier link of the conversation. Needs the setting `public_links`.
    """

    async def made(client: "AsyncClient") -> str:
        return await client.create_link(await id_of(client, conversation))

    click.echo(_with(context, config, url, made))
    return 0


@links.command()
@_conversation
@config
@url_option
@click.pass_context
def revoke(context: click.Context, conversation: str, config: str | None, url: str | None) -> int:
    """Revoke the link to CONVERSATION: an id, its beginning, or `last`."""

    async def revoked(client: "AsyncClient") -> None:
        await client.revoke_link(await id_of(client, conversation))

    _with(context, config, url, revoked)
    return 0


def _with(
    context: click.Context,
    config: str | None,
    url: str | None,
    call: "Callable[[AsyncClient], Awaitable[_Result]]",
) -> _Result:
    """The options may also stand before the name of the subcommand. Raises `Trouble`."""
    path, address = context.find_object(tuple) or (None, None)
    config, url = config or path, url or address

    async def called() -> _Result:
        async with open_gateway(configuration(config).settings, url) as remote:
            if remote is None:
                raise Trouble("no gateway is running, and links lead to one; start it with `cursor-gateway serve`.")
            return await call(remote.client)

    return asyncio.run(called())
