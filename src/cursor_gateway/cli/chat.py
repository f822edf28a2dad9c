"""`cursor-gateway chat`: send a prompt to the agent and show its answer, live, as JSON or as text."""

import asyncio
import os
import select
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click
import msgspec
from msgspec import Struct

from cursor_gateway.cli.configuration import config, data_dir
from cursor_gateway.cli.end_signals import EndSignals
from cursor_gateway.cli.forms import Form
from cursor_gateway.cli.histories import LAST, LocalHistory, RemoteHistory, find, first, id_of, owner_here, sure_id
from cursor_gateway.cli.interview import Answer, can_be_asked
from cursor_gateway.cli.output import RunFailed, Trouble, aside, valid_text
from cursor_gateway.cli.path_completion import complete_folder
from cursor_gateway.cli.presenting import Batches, Follow, present
from cursor_gateway.cli.remote import Place, Remote, direct_option, open_gateway, url_option
from cursor_gateway.dialects.documents.request import AnswerRequest, answers_of, permissions_of
from cursor_gateway.errors import RunCancelled
from cursor_gateway.model.documents import MODES, Mode
from cursor_gateway.model.history import ConversationEntry
from cursor_gateway.model.messages import UserMessage
from cursor_gateway.model.requests import INTERACTIVE
from cursor_gateway.model.run_info import Fences, Include
from cursor_gateway.settings import Settings

if TYPE_CHECKING:
    from cursor_gateway.client.connection import ChatOptions
    from cursor_gateway.runs.run import Run
    from cursor_gateway.runs.service import Service

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
    help="Also show the model's thinking; with --json, also the raw payload of each tool call (raw).",
)
@url_option
@direct_option
@click.option("--json", "form", flag_value="json", help="Print the whole response as JSON.")
@click.option("--text", "form", flag_value="text", help="Print only the agent's text.")
def chat(
    words: tuple[str, ...],
    config: str | None,
    model: str | None,
    mode: Mode | None,
    workspace: str | None,
    conversation: str | None,
    continues: bool,
    fences: Fences | None,
    include: tuple[Include, ...],
    url: str | None,
    direct: bool,
    form: Form | None,
) -> int:
    """Send a prompt to the agent, through a running gateway or directly.

    Piped input is appended to the prompt.
    """
    place = Place(config, url, direct)
    if conversation and continues:
        raise click.UsageError("--continue and --conversation cannot be combined.")
    settings, signals = place.settings, EndSignals()
    is_interactive = form is None and can_be_asked()
    options: ChatOptions = {
        "model": model,
        "mode": mode,
        "fences": fences or ("inline" if form == "text" else None),  # as text, code stays where it was written
        "include": include,
        "may_ask": is_interactive,
        "source": INTERACTIVE if is_interactive else None,
    }
    if is_interactive and not words:
        continued = LAST if continues else conversation
        return _run(_converse(place, model, mode, workspace, continued, fences, include, signals), signals)
    command = ChatCommand(_prompt(words), options, conversation, continues, workspace, form or "view", place)
    return _run(_chat(command, settings), signals)


class ChatCommand(Struct, frozen=True):
    message: str
    options: "ChatOptions"
    conversation: str | None
    continues: bool  # the newest conversation
    workspace: str | None
    form: Form
    place: Place


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


async def _converse(
    place: Place,
    model: str | None,
    mode: Mode | None,
    workspace: str | None,
    conversation: str | None,
    fences: Fences | None,
    include: tuple[Include, ...],
    signals: EndSignals,
) -> int:
    from cursor_gateway.cli.session import SessionOptions, converse

    folder = _folder(workspace or ".")
    if not folder.is_dir():
        raise Trouble(f"the folder {workspace!r} does not exist; name one that does.")
    options = SessionOptions(
        place=place,
        folder=str(folder),
        conversation=conversation,
        model=model,
        mode=mode,
        fences=fences,
        include=include,
    )
    return await converse(options, signals)


async def _chat(command: ChatCommand, settings: Settings) -> int:
    folder = str(_folder(command.workspace)) if command.workspace else None
    async with open_gateway(settings, command.place.url, direct=command.place.direct, folder=folder) as remote:
        if remote is not None:
            return await _ask_gateway(command, remote)
    return await _ask_agent(command, settings)


async def _ask_gateway(command: ChatCommand, remote: Remote) -> int:
    from cursor_gateway.cli.gateway_runs import GatewayRuns

    id, folder = None, remote.health.workspace if remote.health else ""
    if (name := LAST if command.continues else command.conversation) is not None:
        history = RemoteHistory(remote)
        id = await id_of(history, name)
        if (known := await history.conversation(id)) is not None:
            folder = known.workspace
    named = command.workspace
    if named is not None and remote.is_local:
        named = str(_folder(named))  # relative to this folder, not to the gateway's
    # A conversation has its own folder, and another machine does not have this one.
    here = _current_folder() if named is None and id is None and remote.is_own else None
    if command.form != "json" or sys.stderr.isatty():  # scripts that read JSON get no notes, only errors
        remote.announce(named or here or folder)
    options: ChatOptions = {**command.options, "conversation_id": id, "workspace": named or here}

    runs = GatewayRuns(remote)
    events = runs.start(command.message, options, is_folder_named=named is not None)
    return await _presented(command, events, runs.answer, runs.follow)


async def _ask_agent(command: ChatCommand, settings: Settings) -> int:
    from cursor_gateway.cli.composition import compose
    from cursor_gateway.runs.run import Run
    from cursor_gateway.runs.run_request import RunRequest

    options, owner = command.options, owner_here(settings)
    here = _folder(command.workspace or ".")
    if not here.is_dir():
        raise Trouble(f"the folder {command.workspace!r} does not exist; name one that does.")
    # The local user may work in any folder; the roots are for callers of the gateway.
    gateway = await compose(msgspec.structs.replace(settings, workspace=str(here), workspace_roots=[]), warn=aside)
    try:
        known = await _conversation(command, LocalHistory(gateway.store, data_dir(settings), owner), here)
        gateway.announce(f", without a gateway, in {known.workspace if known else here}")
        run_request = RunRequest(
            owner=owner,
            messages=[UserMessage(command.message)],
            model=options.get("model"),
            mode=options.get("mode"),
            workspace=None if command.workspace is None else str(here),
            conversation_id=None if known is None else known.id,
            fences=options.get("fences"),
            include=frozenset(options.get("include") or ()),
            may_be_asked=options.get("may_ask", False),
            source=options.get("source"),
        )
        service = gateway.service
        run = await service.start(run_request)
        assert isinstance(run, Run)  # a new one: no idempotency key was given

        def follow(run_id: str) -> Batches:
            run = service.runs.find(run_id, owner)
            assert run is not None  # it was started here
            return _agent_events(run)

        answer, is_stored = _answer_in(service, owner), settings.history
        return await _presented(command, _agent_events(run), answer, follow, is_stored=is_stored)
    finally:
        await gateway.close()


async def _conversation(command: ChatCommand, history: LocalHistory, here: Path) -> ConversationEntry | None:
    """The one to continue, in its own folder. Raises `Trouble`."""
    name = command.conversation
    if name is None and not command.continues:
        return None
    if name is None:
        found = await first(history, lambda entry: entry.workspace == str(here.resolve()))
        if found is None:
            raise Trouble(f"there is no conversation in {here} to continue; omit --continue to start one.")
    else:
        found = await find(history, name)
    if found.is_running:
        raise Trouble(f"{found.id} has an active run in another process; wait until it has ended.")
    if not Path(found.workspace).is_dir():
        raise Trouble(f"the folder of this conversation no longer exists: {found.workspace}; start a new conversation.")
    return found


async def _presented(
    command: ChatCommand, events: Batches, answer: Answer, follow: Follow, *, is_stored: bool = True
) -> int:
    """The exit status. Says how to continue the conversation."""
    done = await present(events, command.form, answer, follow, is_interactive=command.options.get("may_ask", False))
    if command.form == "view":
        if is_stored and done.envelope.metadata.stored is not False:
            place = command.place
            where = f" --url {place.url}" if place.url else " --direct" if place.direct else ""
            id = sure_id(done.envelope.conversation_id)
            aside()
            aside(f'Continue with: cursor-gateway chat{where} --conversation {id} "…"')
        return 0 if done.failure is None else 1  # which was shown
    if done.failure is not None:
        raise RunFailed(f"the run failed: {done.failure.message}")
    return 0


def _current_folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it is gone
        return None


def _folder(name: str) -> Path:
    try:
        return Path(os.path.expanduser(name)).absolute()
    except OSError:
        raise Trouble("the current folder no longer exists; change to another, or use --workspace.") from None


def _answer_in(service: "Service", owner: str) -> Answer:
    from cursor_gateway.runs.answering import Answering, Asker

    async def answer(run_id: str, reply: AnswerRequest) -> str:
        answering, asker = Answering(service), Asker(owner=owner)
        if reply.permissions is not None:
            continued = await answering.with_permissions(run_id, asker, permissions_of(reply.permissions))
        elif reply.answers is not None:
            continued = await answering.with_answers(run_id, asker, answers_of(reply.answers))
        else:
            continued = await answering.with_decision(run_id, asker, reply.plan or "reject", reply.text)
        return continued.run.id

    return answer


async def _agent_events(run: "Run") -> Batches:
    """Stops the run if it is closed before the end, and waits: the agent needs time to end its own processes."""
    with run.reader() as reader:
        try:
            async for events in reader:
                yield events
        finally:
            if not reader.at_end:
                run.stop(RunCancelled("The run was cancelled; start it again to get the whole answer."))
                await run.gone()
