"""An interactive conversation: what a person types in; turns of the agent, commands and their output, out.

While the prompt is shown, the terminal belongs to the line editor, which reads Ctrl-C as a key. While something runs,
the terminal works line by line, and Ctrl-C is a signal that stops only that.
"""

import asyncio
import os
import re
import signal
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import UNSET, UnsetType

from cursor_gateway.cli.assembly.local_client import id_of, sure_id
from cursor_gateway.cli.assembly.own_gateway import gateway_in
from cursor_gateway.cli.assembly.remote import Remote
from cursor_gateway.cli.configuration import data_dir
from cursor_gateway.cli.output import aside
from cursor_gateway.cli.terminal.images import image, images_in
from cursor_gateway.cli.terminal.line_editor import LineEditor, PromptHistory, Suggestion
from cursor_gateway.cli.terminal.presenting import ChatCommand, EndSignals, GatewayRuns, present
from cursor_gateway.cli.terminal.programs import run_shown
from cursor_gateway.cli.terminal.slash_commands import COMMANDS, find_command, suggestions
from cursor_gateway.client.failures import CallFailed
from cursor_gateway.errors import GatewayError
from cursor_gateway.model.documents import MODES, Usage
from cursor_gateway.settings import Settings

if TYPE_CHECKING:
    from cursor_gateway.client.calls import ModelEntry
    from cursor_gateway.client.connection import ChatOptions

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
