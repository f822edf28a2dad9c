"""`cursor-gateway chat`: send a prompt to the agent and show its answer, live, as JSON or as text."""

import asyncio
import os
import select
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from cursor_gateway.cli.assembly.local_client import AnyClient, find, first, id_of, or_none, sure_id
from cursor_gateway.cli.assembly.remote import GatewayChoice, Remote, direct_option, open_gateway, reported, url_option
from cursor_gateway.cli.configuration import config
from cursor_gateway.cli.output import FailedRun, Trouble, aside, complete_folder, valid_text
from cursor_gateway.cli.terminal.presenting import ChatCommand, EndSignals, GatewayRuns, present
from cursor_gateway.model.documents import MODES
from cursor_gateway.model.history import ConversationEntry
from cursor_gateway.model.requests import Fences, Include
from cursor_gateway.settings import Settings

if TYPE_CHECKING:
    from cursor_gateway.client.connection import ChatOptions

_WAIT_SECONDS = 2.0  # for piped input, before a hint is shown


@click.command(
    epilog="""\b
    Examples:
      cursor-gateway chat "Why does the build fail?"
      git diff | cursor-gateway chat "Review this change."
      cursor-gateway chat --continue "And what would you do about it?"
      cursor-gateway chat --mode ask --text "What is this project?" < /dev/null
      cursor-gateway chat --url https://gateway.example --json "hello" | jq .usage

    \b
    Ctrl-C stops the agent. Exit status: 0 the run completed; 1 it ended with an
    error; 2 it could not start; 130 it was interrupted.""",
)
@click.argument("words", nargs=-1, metavar="[PROMPT…|-]")
@config
@click.option("--model", metavar="NAME", help="The model; see `cursor-gateway models`.")
@click.option("--mode", type=click.Choice(MODES), help="The agent's mode. Default: the setting `mode`.")
@click.option(
    "--workspace",
    metavar="DIR",
    shell_complete=complete_folder,
    help="The folder to work in. Default: the current folder, or the gateway's default folder if that is not allowed.",
)
@click.option("--conversation", metavar="ID", help="Continue this conversation (see `cursor-gateway conversations`).")
@click.option(
    "--continue",
    "continues",
    is_flag=True,
    help="Continue the newest conversation; with --direct, the newest one in this folder.",
)
@click.option("--fences", type=click.Choice(get_args(Fences)), help="Whether code blocks become separate documents.")
@click.option(
    "--include",
    type=click.Choice(get_args(Include)),
    multiple=True,
    help="Also show the model's thinking; with --json, also the raw payload of each tool call (raw), or "
    "how much of the model's context is filled (context).",
)
@url_option
@direct_option
@click.option("--json", "form", flag_value="json", help="Print the whole response as JSON.")
@click.option("--text", "form", flag_value="text", help="Print only the agent's text.")
def chat(words: tuple[str, ...], config: str | None, url: str | None, direct: bool, **given: Any) -> int:
    """Send a prompt to the agent, through a running gateway or directly.

    Piped input is appended to the prompt.
    """
    command = ChatCommand(place=GatewayChoice(config, url, direct), **given)
    if command.conversation and command.continues:
        raise click.UsageError("--continue and --conversation cannot be combined.")
    settings, signals = command.place.settings, EndSignals()
    if command.is_interactive and not words:
        from cursor_gateway.cli.terminal.session import converse

        return _run(converse(command, settings, signals), signals)
    return _run(_chat(command, _prompt(words), settings), signals)


# --- the prompt -----------------------------------------------------------------------------------------


def _prompt(words: tuple[str, ...]) -> str:
    typed = "" if words == ("-",) else valid_text(" ".join(words)).strip()
    piped = _piped(bool(typed))
    if prompt := "\n\n".join(part for part in (typed, piped) if part):
        return prompt
    raise click.UsageError('No prompt given; run `cursor-gateway chat "…"`, or pipe the prompt in.')


def _piped(has_words: bool) -> str:
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    source = sys.stdin.buffer
    try:
        if not select.select([source], [], [], _WAIT_SECONDS)[0]:
            more = ", too; add `< /dev/null` if there is none" if has_words else ""
            aside(f"Reading standard input{more}.")
        return source.read().decode("utf-8", "replace").strip("\n")
    except OSError as error:
        raise Trouble(f"standard input cannot be read: {error.strerror}; pipe some text in.") from None


# --- asking ---------------------------------------------------------------------------------------------


def _run(talk: Coroutine[None, None, int], signals: EndSignals) -> int:
    """However this command ends, the agent ends first."""
    # A closed pipe or socket must be an error here, so that the cleanup runs.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        return asyncio.run(_ended_by_signals(talk, signals))
    except KeyboardInterrupt:
        aside("Stopped.")
        return 130
    except BrokenPipeError:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGPIPE)  # from now on, like any other program in a pipe
        raise


async def _ended_by_signals(talk: Coroutine[None, None, int], signals: EndSignals) -> int:
    """`asyncio.run` handles Ctrl-C. Without this, a closed window or `kill` would leave the agent running."""
    signals.listen()
    try:
        return await talk
    except asyncio.CancelledError:
        if not signals.received:
            raise
        return 128 + signals.received[0]


async def _chat(command: ChatCommand, message: str, settings: Settings) -> int:
    place, folder = command.place, str(command.folder) if command.workspace else None
    async with open_gateway(settings, place.url, direct=place.direct, folder=folder) as remote:
        if remote is not None:
            return await _ask_gateway(command, message, remote)
    return await _ask_here(command, message, settings)


async def _ask_gateway(command: ChatCommand, message: str, remote: Remote) -> int:
    id, folder = None, (remote.health and remote.health.workspace) or ""
    if (name := command.continued) is not None:
        id = await id_of(remote.client, name)
        if (known := await or_none(remote.client.conversation(id))) is not None:
            folder = known.workspace
    named = command.workspace
    if named is not None and remote.is_local:
        named = str(command.folder)  # relative to this folder, not to the gateway's
    # A conversation has its own folder, and another machine does not have this one.
    here = _current_folder() if named is None and id is None and remote.is_own else None
    if command.form != "json" or sys.stderr.isatty():  # scripts that read JSON get no notes, only errors
        remote.announce(named or here or folder)
    options: ChatOptions = {**command.options, "conversation_id": id, "workspace": named or here}
    return await _ask(command, remote, message, options, is_folder_named=named is not None)


async def _ask_here(command: ChatCommand, message: str, settings: Settings) -> int:
    """Starts a gateway for this run, in this folder."""
    from cursor_gateway.cli.assembly.own_gateway import own_gateway

    here = command.existing_folder
    async with own_gateway(settings, str(here), aside) as own:
        with reported(own.url):
            known = await _conversation(command, own.client, here)
            own.gateway.announce(f", without a gateway, in {known.workspace if known else here}")
            options: ChatOptions = {
                **command.options,
                "conversation_id": known.id if known is not None else None,
                "workspace": str(here) if command.workspace is not None else None,
            }
            return await _ask(command, own, message, options, is_stored=settings.history)


async def _ask(
    command: ChatCommand,
    remote: Remote,
    message: str,
    options: "ChatOptions",
    *,
    is_folder_named: bool = True,
    is_stored: bool = True,
) -> int:
    """The exit status. Says how to continue the conversation."""
    runs, form = GatewayRuns(remote), command.form or "view"
    events = runs.start(message, options, is_folder_named=is_folder_named)
    done = await present(events, form, runs.answer, runs.follow, is_interactive=command.is_interactive)
    if form == "view":
        if is_stored and done.envelope.metadata.stored is not False:
            aside()
            id = sure_id(done.envelope.conversation_id)
            aside(f'Continue with: cursor-gateway chat{command.place.flags} --conversation {id} "…"')
        return 0 if done.failure is None else 1  # which was shown
    if done.failure is not None:
        raise FailedRun(f"the run failed: {done.failure.message}")
    return 0


async def _conversation(command: ChatCommand, client: AnyClient, here: Path) -> ConversationEntry | None:
    """The one to continue, in its own folder. Raises `Trouble`."""
    name = command.conversation
    if name is None and not command.continues:
        return None
    if name is None:
        found = await first(client, lambda entry: entry.workspace == str(here.resolve()))
        if found is None:
            raise Trouble(f"there is no conversation in {here} to continue; omit --continue to start one.")
    else:
        found = await find(client, name)
    if found.is_running:
        raise Trouble(f"{found.id} has an active run in another process; wait until it has ended.")
    if not Path(found.workspace).is_dir():
        raise Trouble(f"the folder of this conversation no longer exists: {found.workspace}; start a new conversation.")
    return found


def _current_folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it is gone
        return None
