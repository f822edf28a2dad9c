"""List, restore, keep and commit the changed files of a conversation, at a gateway or in this machine's history."""

import sys
from collections.abc import Sequence
from typing import NamedTuple

import click
import msgspec
from msgspec import UNSET

from cursor_gateway.cli.assembly.local_client import AnyClient, find
from cursor_gateway.cli.output import Trouble, aside, write_bytes, write_json
from cursor_gateway.model.changes import CommitRequest, FileChange, KeepRequest, RevertRequest
from cursor_gateway.render.visible import visible, visible_line


class Wanted(NamedTuple):
    """What the command line asks for."""

    turn: str | None = None
    path: str | None = None
    hunks: Sequence[int] = ()
    as_patch: bool = False
    as_json: bool = False
    is_sure: bool = False


async def list_changes(client: AnyClient, name: str, wanted: Wanted) -> int:
    detail = await find(client, name)
    if wanted.as_patch:
        patch = await client.patch(detail.id, wanted.turn, wanted.path)
        write_bytes(patch)
        return 0 if patch else 1
    found = await client.changes(detail.id, wanted.turn)
    if wanted.as_json:
        write_json(msgspec.json.encode(found))
        return 0
    for note in found.notes:
        aside(note)
    if not found.files:
        aside("No file has changed.")
        return 1
    for file in found.files:
        click.echo(_line(file))
        for number, hunk in enumerate(file.hunks if wanted.path == file.path else (), 1):
            click.echo(f"    {number}. line {hunk.new_start}: +{hunk.new_lines} −{hunk.old_lines}")
    return 0


async def restore(client: AnyClient, name: str, request: RevertRequest, wanted: Wanted) -> int:
    """After a preview, and a question."""
    detail = await find(client, name)
    if wanted.hunks:
        request = msgspec.structs.replace(request, hunks=[number - 1 for number in wanted.hunks])
        request = msgspec.structs.replace(request, version=await _version(client, name, wanted))
    preview = await client.revert(detail.id, msgspec.structs.replace(request, preview=True))
    for file in preview.files:
        why = f": {file.reason}" if file.reason is not UNSET else ""
        lost = " (changed since by somebody else; that is lost)" if file.is_changed_since is True else ""
        counts = f" +{file.added} −{file.removed}" if file.added is not UNSET else ""
        click.echo(f"  {file.action:9} {visible_line(file.path)}{counts}{lost}{visible_line(why)}", err=True)
    if wanted.as_patch and preview.patch is not UNSET:
        click.echo(visible(preview.patch), err=True)
    if not _is_confirmed("Write these files?", wanted):
        aside("Nothing was changed.")
        return 1
    token = preview.token if preview.token is not UNSET else None
    done = await client.revert(detail.id, msgspec.structs.replace(request, token=token))
    aside(f"Restored. Undo it with: cursor-gateway conversations changes {detail.id} --undo {done.undo}")
    return 0


async def keep(client: AnyClient, name: str, wanted: Wanted) -> int:
    detail = await find(client, name)
    numbers = [number - 1 for number in wanted.hunks] or None
    version = await _version(client, name, wanted) if numbers else None
    kept = await client.keep(detail.id, KeepRequest(wanted.path, numbers, version))
    aside(f"Kept: {', '.join(map(visible_line, kept.files))}")
    return 0


async def commit(client: AnyClient, name: str, message: str | None, wanted: Wanted) -> int:
    """After a question, with a message that is proposed or given."""
    detail = await find(client, name)
    paths = [wanted.path] if wanted.path is not None else None
    proposal = await client.commit(detail.id, CommitRequest(paths=paths))
    text = message or proposal.message
    click.echo(f"On {visible_line(str(proposal.branch))}: {visible(text)}", err=True)
    for path in proposal.files:
        click.echo(f"  {visible_line(path)}", err=True)
    if not _is_confirmed("Commit these files, without hooks and unsigned?", wanted):
        aside("Nothing was committed.")
        return 1
    token = proposal.token if proposal.token is not UNSET else None
    done = await client.commit(detail.id, CommitRequest(message=text, paths=paths, token=token))
    click.echo(str(done.commit))
    return 0


async def _version(client: AnyClient, name: str, wanted: Wanted) -> str:
    for file in (await client.changes((await find(client, name)).id, wanted.turn)).files:
        if file.path == wanted.path and file.version is not UNSET:
            return file.version
    raise Trouble(f"{wanted.path!r} has no such changes; see `cursor-gateway conversations changes`.")


def _line(file: FileChange) -> str:
    added = file.added if file.added is not UNSET else sum(_lines(diff.new_string) for diff in file.diffs)
    removed = file.removed if file.removed is not UNSET else sum(_lines(diff.old_string) for diff in file.diffs)
    state = ["kept"] if file.is_kept else []
    state += [] if file.is_edit else ["by a command"]
    state += [] if file.can_revert or file.is_kept else ["cannot be undone"]
    return "\t".join([file.operation, f"+{added}", f"−{removed}", visible_line(file.path), ", ".join(state)]).rstrip()


def _lines(text: str) -> int:
    return text.count("\n") + 1 if text else 0


def _is_confirmed(question: str, wanted: Wanted) -> bool:
    if wanted.is_sure:
        return True
    if sys.stdin is None or not sys.stdin.isatty():
        raise Trouble("this needs confirmation, but there is no terminal; add --yes.")
    return click.confirm(question, err=True)
