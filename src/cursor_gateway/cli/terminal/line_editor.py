"""The prompt of an interactive conversation: editing, history, completion and the status line."""

import asyncio
import os
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct
from prompt_toolkit import PromptSession
from prompt_toolkit.application.current import get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, completion_is_selected, has_completions, is_done, to_filter
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import ConditionalContainer, HSplit, Window
from prompt_toolkit.styles import Style
from prompt_toolkit.utils import get_cwidth

from cursor_gateway.render.visible import visible_line

_MARK = "> "
_MENU_LINES = 12  # all commands
_LEAVE = "Press Ctrl-C again to leave."
_PLACEHOLDER = ["Ask the agent", "/ for commands", "@ for files", "! for the shell"]
STYLE = Style.from_dict(
    {
        "mark": "bold ansicyan",
        "placeholder": "ansibrightblack",
        "bottom-toolbar": "noreverse ansibrightblack",
        "completion-menu": "noreverse fg:default bg:default",  # black is prompt_toolkit's own
        "completion-menu.completion": "noreverse fg:default bg:default",
        "completion-menu.completion.current": "noreverse bold ansicyan bg:default",
        "completion-menu.meta.completion": "noreverse ansibrightblack bg:default",
        "completion-menu.meta.completion.current": "noreverse ansicyan bg:default",
        "scrollbar.background": "bg:default",
        "scrollbar.button": "bg:ansibrightblack",
    }
)


class Suggestion(Struct, frozen=True):
    """What may be typed in place of a word."""

    text: str
    meaning: str = ""


class Prompted(Protocol):
    """What the editor needs to know of the conversation."""

    async def suggest_argument(self, command: str, typed: str) -> list[Suggestion]:
        """For what follows the name of a command."""
        ...

    async def suggest_files(self, typed: str) -> list[Suggestion]: ...

    def status(self) -> list[str]:
        """The parts of the status line, the most important first."""
        ...

    def next_mode(self) -> None: ...

    def paste_image(self) -> str:
        """What stands for the image of the clipboard; empty: it has none."""
        ...


class LineEditor:
    def __init__(self, prompted: Prompted, commands: dict[str, str], history: History) -> None:
        self._prompted = prompted
        self._is_leaving = False  # Ctrl-C was pressed at an empty prompt
        self._session: PromptSession[str] = PromptSession(
            FormattedText([("class:mark", _MARK)]),
            style=STYLE,
            multiline=True,
            history=history,
            completer=_Completer(prompted, commands),
            complete_while_typing=Condition(lambda: bool(completed_word(get_app().current_buffer.document))),
            reserve_space_for_menu=_MENU_LINES,
            prompt_continuation=" " * len(_MARK),
            placeholder=_placeholder,
            bottom_toolbar=self._status,
            key_bindings=self._keys(),
            enable_suspend=True,
            enable_open_in_editor=True,
        )
        self._keep_status_below_prompt()
        self._session.default_buffer.on_text_changed += self._changed
        self._session.app.renderer.cpr_not_supported_callback = None  # such a terminal only has no status line

    def _keep_status_below_prompt(self) -> None:
        """Without this, the prompt's window takes the rest of the screen, and the status line is at its end."""
        layout = self._session.layout
        layout.current_window.dont_extend_height = to_filter(True)
        assert isinstance(layout.container, HSplit)
        layout.container.children.append(ConditionalContainer(Window(), ~is_done))

    async def read(self) -> str:
        """What was typed. Raises `EOFError` when the person wants to leave."""
        self._is_leaving = False
        return await self._session.prompt_async()

    def _changed(self, _buffer: Buffer) -> None:
        self._is_leaving = False

    def _status(self) -> str:
        margin = " " * len(_MARK)
        width = get_app().output.get_size().columns - len(margin)
        return margin + (_LEAVE[:width] if self._is_leaving else fitting(self._prompted.status(), width))

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter", filter=~completion_is_selected)
        def send(event: KeyPressEvent) -> None:
            event.current_buffer.validate_and_handle()

        @keys.add("enter", filter=completion_is_selected)
        def take_completion(event: KeyPressEvent) -> None:
            event.current_buffer.complete_state = None

        @keys.add("escape", "enter")
        @keys.add("c-j")
        def new_line(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-c")
        def clear_or_leave(event: KeyPressEvent) -> None:
            if event.current_buffer.text:
                event.current_buffer.reset()
            elif self._is_leaving:
                event.app.exit(exception=EOFError)
            else:
                self._is_leaving = True

        @keys.add("s-tab", filter=~has_completions)
        def mode(_event: KeyPressEvent) -> None:
            self._prompted.next_mode()

        @keys.add("c-v")
        async def paste(event: KeyPressEvent) -> None:
            if name := await asyncio.to_thread(self._prompted.paste_image):
                event.current_buffer.insert_text(name)

        return keys


def _placeholder() -> FormattedText:
    """Nothing once the prompt is over: it would stay on the screen."""
    width = get_app().output.get_size().columns - len(_MARK) - 1
    return FormattedText([("class:placeholder", "" if get_app().is_done else fitting(_PLACEHOLDER, width))])


def fitting(parts: list[str], width: int) -> str:
    """As many of the parts as fit in a line, the first ones preferred; the first is cut if it is too long itself."""
    line = ""
    for part in map(visible_line, parts):
        longer = f"{line} · {part}" if line else part
        if get_cwidth(longer) <= width:
            line = longer
        elif not line:
            return part[: max(width - 1, 0)] + "…"
    return line


def completed_word(document: Document) -> str:
    """What is being typed that can be completed: a command with its argument, or the name of a file after `@`."""
    before = document.text_before_cursor
    if before.startswith("/") and "\n" not in before:
        return before
    word = before[max(before.rfind(" "), before.rfind("\n")) + 1 :]
    return word if word.startswith("@") else ""


class _Completer(Completer):
    def __init__(self, prompted: Prompted, commands: dict[str, str]) -> None:
        self._prompted, self._commands = prompted, commands

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> list[Completion]:
        raise NotImplementedError("the gateway is asked without blocking")

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        typed = completed_word(document)
        name, has_name, argument = typed.partition(" ")
        if typed.startswith("@"):
            found, replaced = await self._prompted.suggest_files(typed[1:]), len(typed) - 1
        elif has_name:
            found, replaced = await self._prompted.suggest_argument(name[1:], argument), len(argument)
        elif typed:
            found = [Suggestion(f"/{one}", about) for one, about in self._commands.items() if one.startswith(name[1:])]
            replaced = len(typed)
        else:
            return
        for one in found:
            yield Completion(visible_line(one.text), -replaced, display_meta=visible_line(one.meaning))


# --- the prompts that were typed before, in a file that only its user can read -----------------------


_KEPT = 1000  # prompts
_MOST_BYTES = 2_000_000  # of the file, before it is shortened


class PromptHistory(History):
    """One JSON string a line; several sessions may append to it."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    def load_history_strings(self) -> Iterable[str]:
        """Newest first."""
        prompts = self._read()
        with suppress(OSError):
            if self._file.stat().st_size > _MOST_BYTES:
                self._shorten(prompts)
        return reversed(prompts)

    def store_string(self, string: str) -> None:
        """What cannot be written is only missing in the next session."""
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            written = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(written, "ab") as file:
                file.write(_line(string))

    def _read(self) -> list[str]:
        try:
            lines = self._file.read_bytes().splitlines()[-_KEPT:]
        except OSError:
            return []
        prompts = []
        for line in lines:
            with suppress(msgspec.DecodeError):  # a line that was cut off
                prompts.append(msgspec.json.decode(line, type=str))
        return prompts

    def _shorten(self, prompts: list[str]) -> None:
        """To half of the limit at most."""
        lines, size = list[bytes](), 0
        for prompt in reversed(prompts):
            size += len(line := _line(prompt))
            if size > _MOST_BYTES // 2:
                break
            lines.append(line)
        made = self._file.with_suffix(f".{os.getpid()}")
        made.touch(mode=0o600)
        made.write_bytes(b"".join(reversed(lines)))
        made.replace(self._file)


def _line(prompt: str) -> bytes:
    """A lone surrogate cannot be encoded."""
    return msgspec.json.encode(prompt.encode("utf-8", "replace").decode()) + b"\n"
