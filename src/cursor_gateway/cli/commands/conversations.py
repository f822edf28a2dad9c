"""`cursor-gateway conversations`: list, search, show, export and delete conversations, and review their changes; and
`links`: let others read them."""

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, get_args

import click
import msgspec
from msgspec import UNSET, Struct

from cursor_gateway.cli.assembly.local_client import AnyClient, find, id_of, newest, open_client, or_none, sure_id
from cursor_gateway.cli.assembly.remote import GatewayChoice, at_gateway, passed_on, place_options, url_option
from cursor_gateway.cli.configuration import config, configuration
from cursor_gateway.cli.output import (
    Trouble,
    aside,
    output_option,
    raw_option,
    valid_text,
    write_bytes,
    write_json,
    write_text,
)
from cursor_gateway.model.changes import CommitRequest, FileChange, KeepRequest, RevertRequest, TraceRecord
from cursor_gateway.model.history import ConversationDetail, ConversationEntry
from cursor_gateway.render.visible import visible, visible_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from cursor_gateway.client.asynchronous import AsyncClient
    from cursor_gateway.render.export import WholeConversation

_Form: TypeAlias = Literal["markdown", "json", "text"]
_Result = TypeVar("_Result")

_DEFAULT_LIMIT = 20
_SHORT_ID = 8  # digits of an id: enough to tell thousands of conversations apart
_GAP = 2  # between two columns
_WIDE = 120  # columns that have room for whole ids
_MODEL = 16  # columns, and twice as many where there is room
_ENDINGS: dict[str, _Form] = {".json": "json", ".txt": "text"}  # of files; all others are Markdown

_EXIT_STATUS = """\b
    ID is an id from the list, its first characters, or `last` for the newest.
    Exit status: 0 success; 1 nothing found or deleted; 2 the history cannot
    be read, or has no such conversation."""


where = place_options(click.option("--direct", is_flag=True, help="Do not use a gateway; read this machine's history."))
_limit = click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=_DEFAULT_LIMIT,
    show_default=True,
    metavar="N",
    help="The maximum number of results.",
)
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(
    invoke_without_command=True,
    epilog=f"""\b
    Examples:
      cursor-gateway conversations
      cursor-gateway conversations search flaky test
      cursor-gateway conversations show last
      cursor-gateway conversations export 1a2b3c4d -o talk.md
      cursor-gateway conversations | cut -f1,6

    \b
    In a pipe, one conversation per line: id, time, state, mode, model, title.
    {_EXIT_STATUS.removeprefix(chr(8)).strip()}""",
)
@where
@_limit
@_json
@click.pass_context
def conversations(context: click.Context, place: GatewayChoice, limit: int, as_json: bool) -> int:
    """List conversations, newest first, from a running gateway or from this machine's history."""
    if passed_on(context):
        return 0
    found, is_more = with_history(place, lambda client: newest(client, limit))
    if not found and not as_json:
        aside('No conversations yet; start one with `cursor-gateway chat "…"`.')
        return 0
    _print_list(found, [], as_json)
    if is_more and sys.stdout.isatty() and not as_json:
        aside(f"More results: cursor-gateway conversations --limit {limit * 5}")
    return 0


@conversations.command(short_help="Search conversations.")
@click.argument("words", nargs=-1, required=True, metavar="WORDS…")
@where
@_limit
@_json
def search(words: tuple[str, ...], place: GatewayChoice, limit: int, as_json: bool) -> int:
    """Find conversations that contain all WORDS; the last word may be a prefix.

    Searches prompts, answers, code, commands and file names.
    """
    from cursor_gateway.store.texts import query_words

    query = valid_text(" ".join(words))
    found, is_more = with_history(place, lambda client: newest(client, limit, query))
    if not found and not as_json:
        aside(f"No conversation contains {'all these words' if len(query.split()) > 1 else 'this word'}.")
        return 1
    _print_list(found, query_words(query), as_json)
    if is_more and sys.stdout.isatty() and not as_json:
        aside(f"More results: add a word, or use --limit {limit * 5}.")
    return 0 if found else 1


@conversations.command(short_help="Show a whole conversation.", epilog=_EXIT_STATUS)
@click.argument("id")
@where
@_json
def show(id: str, place: GatewayChoice, as_json: bool) -> int:
    """Show the prompts and answers of a conversation."""
    from cursor_gateway.cli.output import terminal

    conversation = with_history(place, lambda client: whole_conversation(client, valid_text(id)))
    if as_json:
        write_json(msgspec.json.encode(conversation))
    else:
        aside()
        show_conversation(conversation, terminal())
    return 0


@conversations.command(short_help="Write a conversation to a file.", epilog=_EXIT_STATUS)
@click.argument("id")
@click.option(
    "--to",
    "form",
    type=click.Choice(get_args(_Form)),
    help="A readable document with all actions (markdown), all data (json), or only prompts and answers (text). "
    "Default: chosen by FILE's extension, otherwise markdown.",
)
@output_option
@raw_option
@where
def export(id: str, form: _Form | None, output: str | None, raw: bool, place: GatewayChoice) -> int:
    """Export a conversation."""
    from cursor_gateway.render.export import written

    conversation = with_history(place, lambda client: whole_conversation(client, valid_text(id)))
    write_to(output, written(conversation, form or form_of(Path(output or ""))), raw=raw)
    return 0


def form_of(file: Path) -> _Form:
    return _ENDINGS.get(file.suffix.lower(), "markdown")


def write_to(output: str | None, text: str, *, raw: bool) -> None:
    """A file, or the standard output. Raises `Trouble`."""
    if output is None or output == "-":
        write_text(text, raw=raw)
        return
    try:
        Path(output).write_bytes(text.encode("utf-8", "replace"))
    except OSError as error:
        raise Trouble(f"{output!r} cannot be written: {error.strerror}; use another path.") from None
    aside(f"Written to {output}")


@conversations.command(
    short_help="Review the files that changed.",
    epilog=f"""\b
    Examples:
      cursor-gateway conversations changes last
      cursor-gateway conversations changes last --patch | git apply -R
      cursor-gateway conversations changes last --file src/app.py --hunk 2 --revert
      cursor-gateway conversations changes last --restore chat_7f3a2b1c

    {_EXIT_STATUS}""",
)
@click.argument("id")
@click.option("--turn", metavar="RUN", help="Only the changes of this run, by its id.")
@click.option("--file", "path", metavar="PATH", help="Only this file; its changes are numbered.")
@click.option("--hunk", "hunks", type=click.IntRange(min=1), multiple=True, metavar="N", help="Only this change of it.")
@click.option("--patch", "as_patch", is_flag=True, help="Print a patch for `git apply`.")
@click.option("--revert", "reverts", is_flag=True, help="Undo these changes, after a preview.")
@click.option("--keep", "keeps", is_flag=True, help="Mark these changes as reviewed.")
@click.option("--restore", "before", metavar="RUN", help="Restore all files as they were before this run.")
@click.option("--undo", metavar="UNDO", help="Undo an earlier --revert or --restore.")
@click.option("--commit", "commits", is_flag=True, help="Commit the changed files with git, after a question.")
@click.option("--message", "-m", metavar="TEXT", help="The message of the commit; otherwise one is proposed.")
@click.option("--yes", "-y", "is_sure", is_flag=True, help="Do not ask for confirmation.")
@where
@_json
def changes(id: str, place: GatewayChoice, **given: Any) -> int:
    """List the files that changed in a conversation, as edits, commands and people changed them; restore, keep or
    commit them.

    Tab-separated: what happened, lines added and removed, path, state.
    """
    wanted, name = WantedChanges(**given), valid_text(id)
    if sum([wanted.reverts, wanted.keeps, wanted.before is not None, wanted.undo is not None, wanted.commits]) > 1:
        raise Trouble("choose one of --revert, --keep, --restore, --undo and --commit.")
    if wanted.hunks and wanted.path is None:
        raise Trouble("--hunk is a change of one file; add --file.")
    if wanted.reverts and wanted.path is None and wanted.turn is None:
        raise Trouble("--revert needs --file or --turn, to say what to undo.")
    if wanted.reverts or wanted.before is not None or wanted.undo is not None:
        return with_history(place, lambda client: _restore(client, name, wanted))
    if wanted.keeps:
        return with_history(place, lambda client: _keep(client, name, wanted))
    if wanted.commits:
        return with_history(place, lambda client: _commit(client, name, wanted))
    return with_history(place, lambda client: _list_changes(client, name, wanted))


@conversations.command(short_help="Print which lines the agent wrote.", epilog=_EXIT_STATUS)
@click.argument("id")
@where
def trace(id: str, place: GatewayChoice) -> int:
    """Print which lines of the workspace's files the agent wrote in a conversation, as a record of Agent Trace (JSON).

    Lines that somebody has changed since are left out.
    """
    write_json(msgspec.json.encode(with_history(place, lambda client: _trace(client, valid_text(id)))))
    return 0


@conversations.command(short_help="Delete conversations.", epilog=_EXIT_STATUS)
@click.argument("ids", nargs=-1, required=True, metavar="ID…")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@where
def delete(ids: tuple[str, ...], yes: bool, place: GatewayChoice) -> int:
    """Delete conversations, including the agent's copies on this machine.

    Not deleted: files that the agent has changed in its
    workspace, recordings (`record_dir`), and data sent to Cursor. Active runs are stopped.
    """
    return with_history(place, lambda client: _delete(client, [*map(valid_text, ids)], yes))


# --- the history ------------------------------------------------------------------------------------


def with_history(place: GatewayChoice, use: Callable[[AnyClient], Coroutine[None, None, _Result]]) -> _Result:
    async def used() -> _Result:
        async with open_client(place) as (client, location):
            aside(location)
            return await use(client)

    return asyncio.run(used())


async def whole_conversation(client: AnyClient, name: str) -> "WholeConversation":
    from cursor_gateway.render.export import whole

    detail = await find(client, name)
    answers = [await or_none(client.response(run.id)) for run in detail.runs]
    return whole(detail, [answer for answer in answers if answer is not None])


async def _delete(client: AnyClient, names: Sequence[str], is_sure: bool) -> int:
    details = [await find(client, name) for name in names]
    chosen = list({detail.id: detail for detail in details}.values())
    if not is_sure and not _is_confirmed(chosen):
        aside("Nothing was deleted.")
        return 1
    count = sum([await or_none(_deleted(client, detail.id)) or 0 for detail in chosen])
    aside(f"Deleted {count} conversation{'' if count == 1 else 's'}.")
    return 0 if count else 1


async def _deleted(client: AnyClient, id: str) -> int:
    await client.delete_conversation(id)
    return 1


def _is_confirmed(chosen: Sequence[ConversationDetail]) -> bool:
    now = datetime.now().astimezone()
    for detail in chosen:
        click.echo(f"  {short_id(detail.id)}  {when(detail, now)}  {visible_line(detail.title)}", err=True)
    click.echo("Changed files, recordings and data sent to Cursor are not deleted.", err=True)
    return _confirmed("Delete it?" if len(chosen) == 1 else f"Delete these {len(chosen)}?")


# --- lists ------------------------------------------------------------------------------------------


def _print_list(found: Sequence[ConversationEntry], words: Sequence[str], as_json: bool) -> None:
    if as_json:
        write_json(msgspec.json.encode(found))
    elif sys.stdout.isatty():
        from cursor_gateway.cli.output import terminal

        console = terminal()
        console.print(table_of(found, words, console.width, datetime.now().astimezone()))
    else:
        for entry in found:
            click.echo("\t".join(visible_line(field) for field in _fields(entry)))


def _fields(entry: ConversationEntry) -> list[str]:
    state = "running" if entry.is_running else "ended"
    snippet = [] if entry.snippet is UNSET else [entry.snippet]
    return [entry.id, entry.updated, state, entry.mode, entry.model, entry.title, *snippet]


def table_of(found: Sequence[ConversationEntry], words: Sequence[str], width: int, now: datetime) -> "Table":
    """The title gets the space that the other columns leave. Search results are long, so they replace the models."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    is_wide = width >= _WIDE
    has_models = is_wide or not words
    ids = [entry.id if is_wide else short_id(entry.id) for entry in found]
    times = [when(entry, now) for entry in found]
    models = [_model(entry) for entry in found]
    widths = {"id": max(map(len, ids)), "when": max(4, *map(len, times))}
    if has_models:
        widths["model"] = min(max(5, *map(len, models)), _MODEL * 2 if is_wide else _MODEL)
    widths["title"] = max(width - sum(widths.values()) - _GAP * len(widths), _GAP * 10)
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    for name, columns in widths.items():
        table.add_column(name, width=columns, no_wrap=True, overflow="ellipsis")
    for id, time, model, entry in zip(ids, times, models, found, strict=True):
        lines = [_marked(visible_line(entry.title), words)]
        if entry.snippet is not UNSET:
            lines.append(_marked(visible_line(entry.snippet), words, "dim"))
            lines[-1].no_wrap = False
        cells = [Text(id, "cyan"), Text(time, "bold green" if entry.is_running else "")]
        cells += [Text(model, "dim")] if has_models else []
        table.add_row(*cells, Group(*lines))
    return table


def _model(entry: ConversationEntry) -> str:
    """With the mode, unless it is the default."""
    return visible_line(entry.model if entry.mode == "agent" else f"{entry.mode} · {entry.model}")


def _marked(text: str, words: Sequence[str], style: str = "") -> "Text":
    """With the words of the search highlighted: whole words, except that the last may be a prefix."""
    from rich.text import Text

    marked = Text(text, style)
    if words:
        *whole, last = (re.escape(word) for word in words)
        patterns = [*(rf"{word}(?!\w)" for word in whole), last]
        marked.highlight_regex(re.compile(rf"(?<!\w)(?:{'|'.join(patterns)})", re.IGNORECASE), "bold yellow not dim")
    return marked


def short_id(id: str) -> str:
    return id.removeprefix("conv_")[:_SHORT_ID]


def when(entry: ConversationEntry, now: datetime) -> str:
    return "running" if entry.is_running else ago(datetime.fromisoformat(entry.updated), now)


def ago(then: datetime, now: datetime) -> str:
    """For people; after a week, the day, in the time zone of `now`."""
    passed = now - then
    if passed < timedelta(minutes=1):  # also for a clock that is ahead of ours
        return "just now"
    if passed < timedelta(hours=1):
        return f"{passed // timedelta(minutes=1)} min ago"
    if passed < timedelta(days=1):
        return f"{passed // timedelta(hours=1)} h ago"
    if passed < timedelta(days=7):
        days = passed // timedelta(days=1)
        return f"{days} day{'' if days == 1 else 's'} ago"
    return then.astimezone(now.tzinfo).strftime("%Y-%m-%d")


# --- one conversation -------------------------------------------------------------------------------


def show_conversation(conversation: "WholeConversation", console: "Console", last: int = 0) -> None:
    """With `last`, only that many of its runs, the newest."""
    from cursor_gateway.render.terminal import print_conversation

    begun = ago(datetime.fromisoformat(conversation.created), datetime.now().astimezone())
    print_conversation(conversation, console, begun, last)


# --- what changed ------------------------------------------------------------------------------------


class WantedChanges(Struct, frozen=True, kw_only=True):
    """The options of `cursor-gateway conversations changes`."""

    turn: str | None
    path: str | None
    hunks: tuple[int, ...]
    as_patch: bool
    reverts: bool
    keeps: bool
    before: str | None
    undo: str | None
    commits: bool
    message: str | None
    is_sure: bool
    as_json: bool


async def _list_changes(client: AnyClient, name: str, wanted: WantedChanges) -> int:
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


async def _trace(client: AnyClient, name: str) -> TraceRecord:
    return await client.trace((await find(client, name)).id)


async def _restore(client: AnyClient, name: str, wanted: WantedChanges) -> int:
    """After a preview, and a question."""
    detail = await find(client, name)
    request = RevertRequest(path=wanted.path, chat_id=wanted.turn, before=wanted.before, undo=wanted.undo)
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
    if not _is_sure("Write these files?", wanted):
        aside("Nothing was changed.")
        return 1
    token = preview.token if preview.token is not UNSET else None
    done = await client.revert(detail.id, msgspec.structs.replace(request, token=token))
    aside(f"Restored. Undo it with: cursor-gateway conversations changes {detail.id} --undo {done.undo}")
    return 0


async def _keep(client: AnyClient, name: str, wanted: WantedChanges) -> int:
    detail = await find(client, name)
    numbers = [number - 1 for number in wanted.hunks] or None
    version = await _version(client, name, wanted) if numbers else None
    kept = await client.keep(detail.id, KeepRequest(wanted.path, numbers, version))
    aside(f"Kept: {', '.join(map(visible_line, kept.files))}")
    return 0


async def _commit(client: AnyClient, name: str, wanted: WantedChanges) -> int:
    """After a question, with a message that is proposed or given."""
    detail = await find(client, name)
    paths = [wanted.path] if wanted.path is not None else None
    proposal = await client.commit(detail.id, CommitRequest(paths=paths))
    text = wanted.message or proposal.message
    click.echo(f"On {visible_line(str(proposal.branch))}: {visible(text)}", err=True)
    for path in proposal.files:
        click.echo(f"  {visible_line(path)}", err=True)
    if not _is_sure("Commit these files, without hooks and unsigned?", wanted):
        aside("Nothing was committed.")
        return 1
    token = proposal.token if proposal.token is not UNSET else None
    done = await client.commit(detail.id, CommitRequest(message=text, paths=paths, token=token))
    click.echo(str(done.commit))
    return 0


async def _version(client: AnyClient, name: str, wanted: WantedChanges) -> str:
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


def _is_sure(question: str, wanted: WantedChanges) -> bool:
    return wanted.is_sure or _confirmed(question)


def _confirmed(question: str) -> bool:
    if sys.stdin is None or not sys.stdin.isatty():
        raise Trouble("this needs confirmation, but there is no terminal; add --yes.")
    return click.confirm(question, err=True)


# --- links -------------------------------------------------------------------------------------------


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
    if passed_on(context):
        return 0

    async def listed(client: "AsyncClient") -> list[ConversationEntry]:
        return [entry async for entry in client.links()]

    found = _linked(config, url, listed)
    for entry in found:
        if sys.stdout.isatty():
            id = click.style(sure_id(entry.id), bold=True)
            click.echo(f"{id}  {visible_line(entry.title)}, since {entry.linked or ''}")
        else:
            click.echo("\t".join(map(visible_line, (entry.id, entry.linked or "", entry.title))))
    if not found and sys.stdout.isatty():
        click.echo("No conversation has a read-only link.")
    return 0


@links.command()
@_conversation
@config
@url_option
def create(conversation: str, config: str | None, url: str | None) -> int:
    """Create a link with which anybody can read CONVERSATION: an id, its beginning, or `last`.

    It is printed once, and replaces an earlier link of the conversation. Needs the setting `public_links`.
    """

    async def made(client: "AsyncClient") -> str:
        return await client.create_link(await id_of(client, conversation))

    click.echo(_linked(config, url, made))
    return 0


@links.command()
@_conversation
@config
@url_option
def revoke(conversation: str, config: str | None, url: str | None) -> int:
    """Revoke the link to CONVERSATION: an id, its beginning, or `last`."""

    async def revoked(client: "AsyncClient") -> None:
        await client.revoke_link(await id_of(client, conversation))

    _linked(config, url, revoked)
    return 0


def _linked(config: str | None, url: str | None, use: "Callable[[AsyncClient], Awaitable[_Result]]") -> _Result:
    why = Trouble("no gateway is running, and links lead to one; start it with `cursor-gateway serve`.")
    return at_gateway(configuration(config).settings, url, use, why)
