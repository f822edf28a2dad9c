"""`cursor-gateway permissions --watch`: the commands that wait at a gateway in; decisions, typed at a terminal, out."""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from cursor_gateway.cli.interview import permit
from cursor_gateway.cli.output import aside
from cursor_gateway.model.documents import PermissionRequest, ToolTrace
from cursor_gateway.render.visible import visible_line

if TYPE_CHECKING:
    from cursor_gateway.client.asynchronous import AsyncClient

_LOOK_SECONDS = 1.0
_NEWEST = 100  # conversations that are looked at


class Asked(Struct, frozen=True, kw_only=True):
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
            async for asked in _asked(client, seen):
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


async def _decide(client: "AsyncClient", asked: Asked) -> None:
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


async def _asked(client: "AsyncClient", seen: set[tuple[str, str]]) -> AsyncIterator[Asked]:
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
                yield Asked(
                    run_id=run.id,
                    document_id=document.id,
                    request=trace.permission,
                    is_waiting=trace.state == "waiting",
                    client=entry.client or "",
                    workspace=entry.workspace,
                    title=entry.title or "Untitled",
                )
