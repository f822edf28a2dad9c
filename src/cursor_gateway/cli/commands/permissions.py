"""`cursor-gateway permissions`: list, revoke and decide what the agent may do, at a gateway or on this machine."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import click
import msgspec
from msgspec import Struct

from cursor_gateway.cli.assembly.local_client import AnyClient, open_client
from cursor_gateway.cli.assembly.remote import GatewayChoice, open_gateway, passed_on, place_options
from cursor_gateway.cli.output import Trouble, aside, write_json
from cursor_gateway.cli.terminal.presenting import permit
from cursor_gateway.model.answers import PermissionEntry, PermissionList
from cursor_gateway.model.documents import PermissionRequest, ToolTrace
from cursor_gateway.render.visible import visible_line

if TYPE_CHECKING:
    from cursor_gateway.client.asynchronous import AsyncClient

_Result = TypeVar("_Result")

_SHORT_ID = 13  # characters: enough to tell thousands apart


where = place_options(click.option("--direct", is_flag=True, help="Do not use a gateway; read this machine's files."))


@click.group(
    invoke_without_command=True,
    epilog="""\b
    Examples:
      cursor-gateway permissions
      cursor-gateway permissions --watch
      cursor-gateway permissions revoke perm_1a2b3c4d
      cursor-gateway permissions revoke --all

    \b
    In a pipe, one permission per line: id, where, rules, workspace, what was asked for.
    Exit status: 0 success; 1 nothing to revoke; 2 the gateway cannot be reached.""",
)
@where
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with past decisions.")
@click.option(
    "--watch",
    "watches",
    is_flag=True,
    help="Ask about each command that needs permission, whichever client started it.",
)
@click.pass_context
def permissions(context: click.Context, place: GatewayChoice, as_json: bool, watches: bool) -> int:
    """List what you have allowed the agent to do."""
    if passed_on(context):
        return 0
    if watches:
        return _watch(place)
    found = _with(place, lambda client: client.permissions())
    if as_json:
        write_json(msgspec.json.encode(found))
    else:
        print_permissions(found)
    return 0


@permissions.command(short_help="Revoke permissions.")
@click.argument("ids", nargs=-1, metavar="[ID…]")
@where
@click.option("--all", "is_all", is_flag=True, help="Revoke all of them.")
def revoke(ids: tuple[str, ...], place: GatewayChoice, is_all: bool) -> int:
    """Revoke permissions, from the agent's next run on. ID is an id from the list, or its first characters."""
    if bool(ids) == is_all:
        raise click.UsageError("Name some permissions, or use --all.")
    count = _with(place, lambda client: _revoke(client, ids))
    aside(f"Revoked {count} permission{'' if count == 1 else 's'}.")
    return 0 if count else 1


async def _revoke(client: AnyClient, ids: tuple[str, ...]) -> int:
    entries = (await client.permissions()).permissions
    if ids:
        chosen = [_named(entries, id) for id in dict.fromkeys(ids)]
    else:
        chosen = [entry for entry in entries if _is_rule(entry)]
    for entry in chosen:
        await client.revoke_permission(entry.id)
    return len(chosen)


def _named(entries: list[PermissionEntry], id: str) -> PermissionEntry:
    found = [entry for entry in entries if entry.id.startswith(id)]
    if len(found) == 1:
        return found[0]
    many = "several permissions begin" if found else "no permission begins"
    raise Trouble(f"{many} with {id!r}; see `cursor-gateway permissions`.")


def _with(place: GatewayChoice, do: Callable[[AnyClient], Coroutine[None, None, _Result]]) -> _Result:
    async def run() -> _Result:
        async with open_client(place, needs_history=False) as (client, _):
            return await do(client)

    try:
        return asyncio.run(run())
    except OSError as error:
        raise Trouble(f"the permissions cannot be read: {error.strerror}; check the data directory.") from None


def _watch(place: GatewayChoice) -> int:
    from cursor_gateway.cli.terminal.presenting import can_be_asked

    async def run() -> None:
        async with open_gateway(place.settings, place.url, direct=place.direct) as remote:
            if remote is None:
                raise Trouble("no gateway is running; start one with `cursor-gateway serve`, or name it with --url.")
            remote.announce()
            await watch(remote.client)

    if not can_be_asked():
        raise Trouble("--watch asks questions, so it needs a terminal.")
    with suppress(KeyboardInterrupt):  # how it ends
        asyncio.run(run())
    click.echo()
    return 0


# --- showing --------------------------------------------------------------------------------------------


def _is_rule(entry: PermissionEntry) -> bool:
    return entry.decision in ("conversation", "workspace")


def print_permissions(found: PermissionList) -> None:
    rules = [entry for entry in found.permissions if _is_rule(entry)]
    if not sys.stdout.isatty():
        for entry in rules:
            columns = (entry.id, entry.decision, ", ".join(entry.rules), entry.workspace, entry.subject)
            click.echo("\t".join(map(visible_line, columns)))
        return
    if found.allows_everything:
        click.echo("The agent may do everything: `force` is set.")
    if found.settings:
        click.echo(f"Allowed for everybody (setting `allow`): {visible_line(', '.join(found.settings))}")
    if not found.can_allow:
        click.echo("Callers cannot allow commands: `permissions` is `deny`.")
    if not rules:
        click.echo("You have allowed nothing else.")
    for entry in rules:
        conversation = f"conversation {entry.conversation_id[:_SHORT_ID]}"
        place = entry.workspace if entry.decision == "workspace" else conversation
        click.echo(
            f"{click.style(entry.id[:_SHORT_ID], bold=True)}  {visible_line(', '.join(entry.rules))}  "
            f"in {visible_line(place)}, since {entry.created} ({visible_line(entry.subject)})"
        )


# --- `--watch`: the commands that wait at a gateway in; decisions, typed at a terminal, out ----------


_LOOK_SECONDS = 1.0
_NEWEST = 100  # conversations that are looked at


class AskedPermission(Struct, frozen=True, kw_only=True):
    """A command that needs a decision."""

    run_id: str
    document_id: str
    request: PermissionRequest
    is_waiting: bool  # otherwise the agent went on without it
    client: str  # the program that began the conversation; empty: a person
    workspace: str
    title: str  # of the conversation


async def watch(client: "AsyncClient") -> None:
    """Asks about everything that waits or was refused, until it is cancelled."""
    from cursor_gateway.client.failures import CallFailed, CannotReach

    aside("Watching for commands that need your permission. Press Ctrl-C to stop.")
    seen: set[tuple[str, str]] = set()
    is_reached = True
    while True:
        try:
            async for asked in _asked_now(client, seen):
                seen.add((asked.run_id, asked.document_id))
                await _decide(client, asked)
            is_reached = True
        except CannotReach as failed:
            if is_reached:
                aside(f"{failed.message} Still trying.")
            is_reached = False
        except CallFailed as failed:  # it was decided elsewhere meanwhile, or is gone
            aside(failed.message)
        await asyncio.sleep(_LOOK_SECONDS)


async def _decide(client: "AsyncClient", asked: AskedPermission) -> None:
    who = f"{asked.client}: " if asked.client else ""
    click.echo(f"\a\n{click.style(visible_line(f'{who}{asked.title}'), bold=True)}  in {visible_line(asked.workspace)}")
    decided = await permit(asked.document_id, asked.request, can_skip=True, is_past=not asked.is_waiting)
    if decided is None:
        return
    going_on = await client.answer(asked.run_id, permissions=[decided])
    if decided.decision == "deny":
        aside("Denied.")
    else:
        aside("Allowed; the run continues." if going_on == asked.run_id else "Allowed; the agent tries again.")


async def _asked_now(client: "AsyncClient", seen: set[tuple[str, str]]) -> AsyncIterator[AskedPermission]:
    """The newest run of each conversation that waits, the oldest first, without what was seen or decided before."""
    waiting = [entry async for entry in client.conversations(limit=_NEWEST) if entry.is_waiting]
    if not waiting:
        return
    decided = {(entry.chat_id, entry.document_id) for entry in (await client.permissions()).permissions}
    for entry in reversed(waiting):
        run = (await client.conversation(entry.id)).runs[-1]
        for document in (await client.response(run.id)).documents:
            trace, key = document.metadata, (run.id, document.id)
            if not isinstance(trace, ToolTrace) or not trace.permission or key in seen or key in decided:
                continue
            if trace.state == "waiting" or trace.needs_decision:
                yield AskedPermission(
                    run_id=run.id,
                    document_id=document.id,
                    request=trace.permission,
                    is_waiting=trace.state == "waiting",
                    client=entry.client or "",
                    workspace=entry.workspace,
                    title=entry.title or "Untitled",
                )
