"""An interactive conversation: what a person types in; turns of the agent, commands and their output, out.

While the prompt is shown, the terminal belongs to the line editor, which reads Ctrl-C as a key. While something runs,
the terminal works line by line, and Ctrl-C is a signal that stops only that.
"""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from base64 import b64encode
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypeAlias
from urllib.parse import unquote

import click
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from cursor_gateway.cli.assembly.local_client import id_of, sure_id
from cursor_gateway.cli.assembly.own_gateway import gateway_in
from cursor_gateway.cli.assembly.remote import Remote
from cursor_gateway.cli.configuration import data_dir
from cursor_gateway.cli.output import Trouble, aside, terminal
from cursor_gateway.cli.terminal.line_editor import LineEditor, PromptHistory, Suggestion
from cursor_gateway.cli.terminal.presenting import ChatCommand, EndSignals, GatewayRuns, present, read_line
from cursor_gateway.cli.terminal.programs import run_shown
from cursor_gateway.client.failures import CallFailed
from cursor_gateway.errors import GatewayError
from cursor_gateway.model.changes import RevertedFile, RevertRequest
from cursor_gateway.model.documents import MODES, Usage
from cursor_gateway.settings import Settings

if TYPE_CHECKING:
    from cursor_gateway.client.calls import ModelEntry
    from cursor_gateway.client.connection import ChatOptions


_SECONDS = 5.0
_MOST_BYTES = 20_000_000  # of an image
_MOST_COPIED = 70_000  # characters that terminals accept

# Programs that print the image in the clipboard, and when they can be used.
_IMAGE_COMMANDS = (
    ("WAYLAND_DISPLAY", ("wl-paste", "--no-newline", "--type", "image/png")),
    ("DISPLAY", ("xclip", "-selection", "clipboard", "-target", "image/png", "-out")),
    ("", ("pngpaste", "-")),
)


def copy(text: str, terminal: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """By a control sequence (OSC 52), which also works over SSH: the terminal has the clipboard, not this machine.
    False: it is too long. Whether the terminal takes it is not known."""
    data = b64encode(text.encode("utf-8", "replace")).decode()
    if len(data) > _MOST_COPIED:
        return False
    sequence = f"\x1b]52;c;{data}\x07"
    if environ.get("TMUX"):  # passed through, in case it does not itself set the clipboard
        sequence += f"\x1bPtmux;\x1b{sequence}\x1b\\"
    terminal.write(sequence)
    terminal.flush()
    return True


def image(environ: Mapping[str, str] = os.environ) -> bytes | None:
    """None: there is none in the clipboard, or no program that can read it. Waits for the program."""
    for variable, command in _IMAGE_COMMANDS:
        if (variable and not environ.get(variable)) or shutil.which(command[0], path=environ.get("PATH")) is None:
            continue
        try:
            ran = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False, env=environ)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if ran.returncode == 0 and ran.stdout.startswith(b"\x89PNG") and len(ran.stdout) <= _MOST_BYTES:
            return ran.stdout
    return None


# --- paths, as they are typed, completed, or dropped on a terminal window ----------------------------


_ENDINGS = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_QUOTED_PATH = r"'[^'\n]+'|\"[^\"\n]+\""
_WORDS = re.compile(rf"@?(?:{_QUOTED_PATH}|(?:\\.|[^\s\\])+)")
_PASTED = re.compile(r"\[image \d+\]")


def images_in(text: str, folder: Path, pasted: Mapping[str, bytes]) -> list[Path | bytes]:
    """The files that exist, and what was pasted; each once, in their order."""
    found: dict[str, Path | bytes] = {}
    for match in _PASTED.finditer(text):
        if match[0] in pasted:
            found[match[0]] = pasted[match[0]]
    for path in _paths(text):
        with suppress(OSError, RuntimeError):  # a name that is too long, or a home directory that does not exist
            whole = folder / path.expanduser()
            if whole.is_file():
                found.setdefault(str(whole), whole)
    return list(found.values())


def _paths(text: str) -> Iterator[Path]:
    for match in _WORDS.finditer(text):
        word = match[0].removeprefix("@")
        is_quoted = word[:1] in ("'", '"')
        word = word[1:-1] if is_quoted else re.sub(r"\\(.)", r"\1", word).rstrip(".,;:!?)")
        if word.startswith("file://"):
            word = unquote(word.removeprefix("file://").removeprefix("localhost"))
        if word.lower().endswith(_ENDINGS) and "\0" not in word:
            yield Path(word)


_PROMPTS = "prompts.jsonl"  # in the data directory
_HINT = "Type /help for commands and keys. Ctrl-C stops the agent, Ctrl-D leaves."
_FOLDER_LENGTH = 40  # columns of the status line
_WINDOW = re.compile(r"(?<![\w.])(\d+)([km])\b", re.IGNORECASE)  # as Cursor writes it: `context=1m`, or "Opus 4.8 1M"


async def converse(command: ChatCommand, settings: Settings, signals: EndSignals) -> int:
    """Until the person leaves."""
    place, folder = command.place, str(command.existing_folder)
    async with gateway_in(settings, place.url, folder, "this conversation", direct=place.direct) as remote:
        session = TerminalSession(remote, settings, command, folder, signals)
        if command.continued is not None:
            await session.resume(await id_of(remote.client, command.continued))
        return await session.run()


class TerminalSession:
    def __init__(
        self, remote: Remote, settings: Settings, command: ChatCommand, folder: str, signals: EndSignals
    ) -> None:
        self.remote, self.client = remote, remote.client
        # A gateway elsewhere has its own folders.
        self.workspace = folder if remote.works_in(folder) else ""
        self.model, self.mode = command.model, command.mode
        self.conversation_id = self.run_id = ""  # empty: nothing was sent yet
        self.models: list[ModelEntry] = []  # empty while they are not known
        self.notes: list[str] = []  # for the agent, with the next prompt
        self.undone: set[str] = set()  # runs whose changes were reverted
        self._settings, self._command, self._signals = settings, command, signals
        self._runs = GatewayRuns(remote)
        self._last_model, self._tokens, self._is_estimate = "", 0, False
        self._context: int | UnsetType = UNSET  # the tokens of the last model call, if the agent reports them
        self._pasted: dict[str, bytes] = {}

    # --- the conversation -----------------------------------------------------------------------------

    async def run(self) -> int:
        aside(_HINT)
        file = data_dir(self._settings) / (_PROMPTS if self._settings.history else os.devnull)
        editor = LineEditor(self, {name: command.summary for name, command in COMMANDS.items()}, PromptHistory(file))
        loading = asyncio.ensure_future(self._load_models())
        try:
            while True:
                self._signals.listen()  # a gateway of its own, or a shell command, may have taken them
                aside()
                text = (await editor.read()).strip()
                if text and not await self._interruptible(self._take(text)):
                    break
        except EOFError:
            pass
        finally:
            loading.cancel()
        if self.conversation_id:
            aside()
            flags = self._command.place.flags
            aside(f"Continue with: cursor-gateway chat{flags} --conversation {sure_id(self.conversation_id)}")
        return 0

    def start_anew(self) -> None:
        self.conversation_id = self.run_id = ""
        self._tokens, self._is_estimate, self._context = 0, False, UNSET
        self.notes.clear()

    async def resume(self, id: str) -> None:
        """Shows the end of it."""
        from cursor_gateway.cli.commands.conversations import show_conversation, whole_conversation
        from cursor_gateway.cli.output import terminal

        whole = await whole_conversation(self.client, id)
        self.start_anew()
        self.conversation_id, self.workspace = whole.id, whole.workspace
        for run in whole.runs:
            self._count(run.usage)
        if whole.runs:
            self.run_id, self._last_model = whole.runs[-1].id, whole.runs[-1].model
            if (last := whole.response(whole.runs[-1])) is not None:
                self._context = last.metadata.context_tokens
        console = terminal()
        console.print()
        show_conversation(whole, console, last=1)

    async def _take(self, text: str) -> bool:
        """False: the person wants to leave."""
        if text.startswith("/") and (command := find_command(text)) is not None:
            aside()
            return await command.run(self, text.partition(" ")[2].strip())
        if text.startswith("!"):
            await self._shell(text[1:].strip())
        else:
            await self._ask(text)
        return True

    async def _ask(self, text: str) -> None:
        images = images_in(text, Path(self.workspace or "."), self._pasted)
        if images:
            aside(f"With {len(images)} image{'' if len(images) == 1 else 's'}.")
        options: ChatOptions = {
            **self._command.options,
            "conversation_id": self.conversation_id or None,
            "model": self.model,
            "mode": self.mode,
            "workspace": None if self.conversation_id else self.workspace or None,
            "include": [*self._command.include, "context"],
            "images": images,
        }
        message = "\n\n".join([text, *self.notes])
        events = self._runs.start(message, options, is_folder_named=True)
        try:
            done = await present(events, "view", self._runs.answer, self._runs.follow, is_interactive=True)
        finally:
            if self._runs.conversation_id:  # the gateway has it, however it ended
                self.conversation_id, self.run_id = self._runs.conversation_id, self._runs.run_id
                self.notes.clear()
                self._pasted.clear()
        self._last_model = done.envelope.model
        self._count(done.envelope.usage)
        self._context = done.envelope.metadata.context_tokens

    def _count(self, usage: Usage | None) -> None:
        if usage is not None:
            self._tokens += usage.total_tokens
            self._is_estimate |= usage.estimated is True

    async def _shell(self, command: str) -> None:
        """With `!!`, the command has the terminal for itself, and the agent is not told."""
        folder = self.workspace if self.remote.is_own and os.path.isdir(self.workspace) else os.curdir
        if command.startswith("!"):
            from cursor_gateway.cli.terminal.programs import run_in_foreground

            shell = os.environ.get("SHELL") or "/bin/sh"
            await run_in_foreground([shell, "-c", command[1:].strip()], os.environ, folder)
        elif command:
            result = await run_shown(command, folder)
            self.notes.append(result.note)
            status = f"Exit status {result.status}. " if result.status else ""
            aside(f"{status}The agent gets this output with your next message; with `!!` it does not.")

    # --- signals --------------------------------------------------------------------------------------

    async def _interruptible(self, work: Coroutine[None, None, bool]) -> bool:
        """What it returns; True if Ctrl-C stopped it, or it failed, which is reported."""
        loop, task, is_stopped = asyncio.get_running_loop(), asyncio.ensure_future(work), False

        def stop() -> None:
            nonlocal is_stopped
            is_stopped = True
            task.cancel()

        loop.add_signal_handler(signal.SIGINT, stop)
        try:
            return await task
        except asyncio.CancelledError:
            if not is_stopped:
                raise
            aside("Stopped.")
        except click.ClickException as error:
            aside(error.message, bold=True)
        except (CallFailed, GatewayError, OSError, ValueError) as error:  # the last two: a file that cannot be used
            aside(str(error), bold=True)
        finally:
            loop.remove_signal_handler(signal.SIGINT)
        return True

    # --- what the editor asks ---------------------------------------------------------------------------

    def status(self) -> list[str]:
        folder = self.workspace or self.remote.url
        if folder.startswith(f"{(home := os.path.expanduser('~'))}/") or folder == home:
            folder = f"~{folder.removeprefix(home)}"
        if len(folder) > _FOLDER_LENGTH:
            folder = f"…{folder[1 - _FOLDER_LENGTH :]}"
        default = next((one.id for one in self.models if one.default), "")
        model = self.model or self._last_model or default or self._settings.model
        parts = [folder, model, self.mode or self._settings.mode]
        if self._context is not UNSET:
            names = [model, *(one.name for one in self.models if one.id == model)]
            parts.append(f"context {in_thousands(self._context)}{context_window(names)}")
        if self._tokens:
            parts.append(f"{'~' if self._is_estimate else ''}{self._tokens:,} tokens")
        if self.notes:
            parts.append(f"{len(self.notes)} note{'' if len(self.notes) == 1 else 's'} for the agent")
        return parts

    def next_mode(self) -> None:
        self.mode = MODES[(MODES.index(self.mode or self._settings.mode) + 1) % len(MODES)]

    def paste_image(self) -> str:
        data = image()
        if data is None:
            return ""
        name = f"[image {len(self._pasted) + 1}]"
        self._pasted[name] = data
        return name

    async def suggest_files(self, typed: str) -> list[Suggestion]:
        with suppress(CallFailed):  # then there is nothing to suggest
            return [Suggestion(path) for path in await self.client.files(typed, self.workspace or None)]
        return []

    async def suggest_argument(self, command: str, typed: str) -> list[Suggestion]:
        with suppress(CallFailed):
            return await suggestions(self, command, typed)
        return []

    async def _load_models(self) -> None:
        with suppress(CallFailed):
            self.models = await self.client.models()


def context_window(names: Iterable[str]) -> str:
    """` of 1M`, if one of a model's names says how large its context is. Nothing else does."""
    found = next((found for name in names if (found := _WINDOW.search(name))), None)
    return f" of {found[1]}{found[2].upper()}" if found else ""


def in_thousands(tokens: int) -> str:
    return f"{tokens:,}" if tokens < 10_000 else f"{tokens / 1000:,.0f}K"


# --- commands -----------------------------------------------------------------------------------------


_Run: TypeAlias = Callable[["TerminalSession", str], Awaitable[bool]]  # False: the person wants to leave

_RECENT = 10  # conversations
_KEYS = {
    "Enter": "send",
    "Alt-Enter, Ctrl-J": "new line",
    "Up, Ctrl-R": "earlier prompts; search them",
    "Tab": "complete a command, its argument, or a file after @",
    "Shift-Tab": "next mode",
    "Ctrl-V": "attach the image in the clipboard; the path of an image attaches it, too",
    "Ctrl-C": "stop the agent; clear the prompt; twice at an empty prompt: leave",
    "Ctrl-D": "leave",
    "! command": "run it in the shell, and give its output to the agent with your next message",
    "!! command": "run it in the shell only",
}


class SlashCommand(Struct, frozen=True):
    argument: str
    summary: str
    run: _Run


def find_command(text: str) -> SlashCommand | None:
    """None: it is a prompt that begins with a path. The beginning of a name is enough. Raises `Trouble`."""
    name = text.split()[0][1:]
    if name in COMMANDS:
        return COMMANDS[name]
    if "/" in name:
        return None
    fitting = [one for one in COMMANDS if one.startswith(name)]
    if len(fitting) == 1:
        return COMMANDS[fitting[0]]
    could_be = f" It could be {', '.join(f'/{one}' for one in fitting)}." if fitting else ""
    raise Trouble(f"There is no command /{name}.{could_be} /help lists them.")


async def suggestions(session: "TerminalSession", command: str, typed: str) -> list[Suggestion]:
    """For the argument of this command. Raises `CallFailed`."""
    match command:
        case "model":
            every = [Suggestion(one.id, one.name) for one in session.models]
        case "mode":
            every = [Suggestion(mode) for mode in MODES]
        case "resume":
            every = [Suggestion(one.id, one.title) async for one in session.client.conversations(limit=_RECENT)]
        case "changes" | "undo" if session.conversation_id:
            every = [Suggestion(one.path) for one in (await session.client.changes(session.conversation_id)).files]
        case _:
            every = []
    words = typed.lower().split()
    return [one for one in every if all(word in f"{one.text} {one.meaning}".lower() for word in words)]


# --- the next turn ----------------------------------------------------------------------------------


async def _model(session: "TerminalSession", name: str) -> bool:
    from cursor_gateway.cli.commands.models import table_of
    from cursor_gateway.sources.base import Model

    session.models = session.models or await session.client.models()
    if not name:
        found = [Model(one.id, one.name or one.id, one.default) for one in session.models]
        terminal().print(table_of(found))
        return True
    fitting = [
        one for one in await suggestions(session, "model", name) if one.text == name or name not in _ids(session)
    ]
    if len(fitting) != 1:
        several = (
            f"fits several models: {', '.join(one.text for one in fitting[:_RECENT])}" if fitting else "fits no model"
        )
        raise Trouble(f"{name!r} {several}; /model lists them.")
    session.model = fitting[0].text
    aside(f"The model is now {session.model}.")
    return True


def _ids(session: "TerminalSession") -> set[str]:
    return {one.id for one in session.models}


async def _mode(session: "TerminalSession", name: str) -> bool:
    if name:
        fitting = [mode for mode in MODES if mode.startswith(name)]
        if len(fitting) != 1:
            raise Trouble(f"There is no mode {name!r}; use one of {', '.join(MODES)}.")
        session.mode = fitting[0]
    aside(f"The mode is {session.status()[2]}. Modes: {', '.join(MODES)}.")
    return True


# --- conversations ----------------------------------------------------------------------------------


async def _new(session: "TerminalSession", _: str) -> bool:
    session.start_anew()
    aside("A new conversation.")
    return True


async def _resume(session: "TerminalSession", name: str) -> bool:
    from datetime import datetime

    from cursor_gateway.cli.commands.conversations import table_of

    if name:
        await session.resume(await id_of(session.client, name))
        return True
    found = [entry async for entry in session.client.conversations(limit=_RECENT)]
    if not found:
        aside("There are no conversations yet.")
        return True
    console = terminal()
    console.print(table_of(found, [], console.width, datetime.now().astimezone()))
    aside("Continue one with /resume and its id, or its first characters; Tab completes it.")
    return True


async def _copy(session: "TerminalSession", _: str) -> bool:
    text = (await session.client.response(_last_run(session))).text
    if not text:
        raise Trouble("The last answer has no text.")
    if not copy(text, sys.stdout):
        raise Trouble("The last answer is too long for the clipboard; use /export.")
    aside("Copied the last answer, if your terminal allows programs to set the clipboard (OSC 52).")
    return True


async def _export(session: "TerminalSession", name: str) -> bool:
    from cursor_gateway.cli.commands.conversations import form_of, whole_conversation
    from cursor_gateway.render.export import written

    _last_run(session)
    path = Path(name).expanduser() if name else Path(f"{Path(session.conversation_id).name}.md")  # never elsewhere
    if path.exists():
        raise Trouble(f"{path} exists already; name another file.")
    if path.suffix.lower() == ".html":
        from cursor_gateway.render.html.work import render_page

        text = render_page(await session.client.response(session.run_id), prompt="")
    else:
        whole = await whole_conversation(session.client, session.conversation_id)
        text = written(whole, form_of(path))
    path.write_text(text, encoding="utf-8")
    aside(f"Wrote {path}.")
    return True


def _last_run(session: "TerminalSession") -> str:
    if not session.run_id:
        raise Trouble("Nothing was said in this conversation yet.")
    return session.run_id


# --- files ------------------------------------------------------------------------------------------


async def _changes(session: "TerminalSession", name: str) -> bool:
    from cursor_gateway.render.cards import changed_file

    files = (await session.client.changes(session.conversation_id)).files if session.conversation_id else []
    chosen = [file for file in files if name in ("", file.path)]
    if name and not chosen:
        raise Trouble(f"{name} has not changed in this conversation; /changes lists what has.")
    if not files:
        aside("No files have changed in this conversation.")
    console = terminal()
    for file in chosen:
        console.print(changed_file(file, with_lines=bool(name) or len(files) == 1))
    if len(chosen) > 1:
        aside("/changes FILE shows the lines; /undo reverts the last turn, /undo FILE one file.")
    return True


async def _undo(session: "TerminalSession", name: str) -> bool:
    """Asks first, with a preview; what is then reverted is what it showed."""
    _last_run(session)
    chat_id = None if name else await _last_changing_run(session)
    if not name and chat_id is None:
        aside("There are no changes in this conversation that could be reverted.")
        return True
    wanted = RevertRequest(path=name or None, chat_id=chat_id, preview=True)
    preview = await session.client.revert(session.conversation_id, wanted)
    for file in preview.files:
        aside(_described(file))
    if all(file.action == "skipped" for file in preview.files) or not await _is_sure("Revert this? [y/N] "):
        return True
    wanted = replace(wanted, preview=False, token=None if preview.token is UNSET else preview.token)
    done = [
        file.path
        for file in (await session.client.revert(session.conversation_id, wanted)).files
        if file.action != "skipped"
    ]
    if chat_id is not None:
        session.undone.add(chat_id)
    aside(f"Reverted {', '.join(done)}.")
    session.notes.append(f"I have reverted your changes to {', '.join(done)}.")
    return True


def _described(file: RevertedFile) -> str:
    match file.action:
        case "skipped":
            return f"{file.path} stays as it is: {file.reason or 'it cannot be reverted'}."
        case "deleted":
            return f"{file.path} is deleted."
        case "restored":
            since = " Somebody has changed it after the agent; that is lost, too." if file.is_changed_since else ""
            return f"{file.path} gets its earlier content back (+{file.added or 0} -{file.removed or 0}).{since}"


async def _last_changing_run(session: "TerminalSession") -> str | None:
    """The newest run that changed files, without those that were undone."""
    for run in reversed((await session.client.conversation(session.conversation_id)).runs):
        if run.id not in session.undone and (await session.client.changes(session.conversation_id, run.id)).files:
            return run.id
    return None


async def _is_sure(question: str) -> bool:
    return (await read_line(question)).strip().lower() in ("y", "yes")


# --- the rest ---------------------------------------------------------------------------------------


async def _permissions(session: "TerminalSession", arguments: str) -> bool:
    from cursor_gateway.cli.commands.permissions import print_permissions

    verb, _, id = arguments.partition(" ")
    found = await session.client.permissions()
    if not verb:
        print_permissions(found)
        if found.permissions:
            aside("/permissions revoke ID revokes one.")
        return True
    fitting = [entry for entry in found.permissions if id and entry.id.startswith(id.strip())]
    if verb != "revoke" or len(fitting) != 1:
        raise Trouble("Type /permissions revoke and the beginning of one id from /permissions.")
    await session.client.revoke_permission(fitting[0].id)
    aside("Revoked; this applies from the next turn on.")
    return True


async def _help(_session: "TerminalSession", _: str) -> bool:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for name, command in COMMANDS.items():
        table.add_row(Text(f"/{name} {command.argument}", "cyan"), command.summary)
    table.add_row()
    for key, meaning in _KEYS.items():
        table.add_row(Text(key, "bold"), meaning)
    terminal().print(table)
    return True


async def _leave(_session: "TerminalSession", _: str) -> bool:
    return False


COMMANDS: dict[str, SlashCommand] = {
    "help": SlashCommand("", "List the commands and keys.", _help),
    "model": SlashCommand("[NAME]", "Choose the model, or list them.", _model),
    "mode": SlashCommand("[NAME]", "Choose the mode: agent, plan, ask or debug.", _mode),
    "new": SlashCommand("", "Start a new conversation.", _new),
    "resume": SlashCommand("[ID]", "Continue another conversation, or list them.", _resume),
    "changes": SlashCommand("[FILE]", "Show the files that the agent changed.", _changes),
    "undo": SlashCommand("[FILE]", "Revert the changes of the last turn, or of a file.", _undo),
    "permissions": SlashCommand("[revoke ID]", "List and revoke what the agent may do.", _permissions),
    "copy": SlashCommand("", "Copy the last answer to the clipboard.", _copy),
    "export": SlashCommand(
        "[FILE]", "Write the conversation to a file (.md, .json, .txt), or the last answer (.html).", _export
    ),
    "exit": SlashCommand("", "Leave.", _leave),
}
