"""What the commands write: results to standard output, messages for people to standard error.

Both may contain an agent's text, and with it control sequences. These are made visible on a terminal; a pipe gets
them unchanged, and JSON with the same values.
"""

import io
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any

import click
import msgspec

from cursor_gateway.render.visible import visible, visible_json, visible_line

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem
    from rich.console import Console

# --- files and folders that the shell completes ------------------------------------------------------


def complete_file(_context: click.Context, _parameter: click.Parameter, typed: str) -> "list[CompletionItem]":
    return [_item(typed, "file")]


def complete_folder(_context: click.Context, _parameter: click.Parameter, typed: str) -> "list[CompletionItem]":
    return [_item(typed, "dir")]


def _item(typed: str, kind: str) -> "CompletionItem":
    from click.shell_completion import CompletionItem  # only a completion needs it

    return CompletionItem(typed, type=kind)


raw_option = click.option(
    "--raw", is_flag=True, help="Write the exact text even to a terminal; it may contain control sequences."
)
output_option = click.option(
    "-o",
    "--output",
    metavar="FILE",
    shell_complete=complete_file,
    help="The output file. Default: standard output.",
)


class Trouble(click.ClickException):
    """An error that ends a command before it has begun. Like all errors, it is shown in one line."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"cursor-gateway: {visible_line(self.message)}", err=True)


class FailedRun(Trouble):
    exit_code = 1


def aside(text: str = "", **style: bool) -> None:
    """Print a line for people to stderr; without text, an empty line, on a terminal only."""
    if sys.stderr is None or not (text or sys.stderr.isatty()):
        return
    text = visible_line(text)
    if sys.stderr.isatty() and os.environ.get("TERM") not in (None, "dumb"):
        text = textwrap.fill(text, shutil.get_terminal_size().columns, break_long_words=False, break_on_hyphens=False)
        if not os.environ.get("NO_COLOR"):
            text = click.style(text, **(style or {"dim": True}))
    click.echo(text, err=True)


def aside_demo(where: str = "") -> None:
    aside(f"DEMO: answers are built-in recordings{where}. No agent runs, no files change.", bold=True, reverse=True)


def valid_text(argument: str) -> str:
    """Arguments that are not UTF-8 contain lone surrogates, which cannot be encoded."""
    return argument.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def write_text(text: str, *, raw: bool = False) -> None:
    """Unbuffered. Lone surrogates, which cannot be encoded, become question marks."""
    shown = text if raw or not sys.stdout.isatty() else visible(text)
    _write(shown.encode("utf-8", "replace"))


def write_bytes(data: bytes) -> None:
    """As they are, except on a terminal, where they are shown as text."""
    _write(visible(data.decode("utf-8", "replace")).encode() if sys.stdout.isatty() else data)


def write_json(json: bytes, *, indented: bool | None = None) -> None:
    """On one line, or indented on a terminal."""
    if sys.stdout.isatty() if indented is None else indented:
        json = msgspec.json.format(json, indent=2)
    _write(visible_json(json) + b"\n")


def write_frames(frames: bytes) -> None:
    """Frames of a stream: JSON and its framing."""
    _write(visible_json(frames))


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


# --- terminals ---------------------------------------------------------------------------------------


def terminal() -> "Console":
    from cursor_gateway.render.terminal import make_console

    return make_console(sys.stdout, plain=wants_plain())


def wants_plain() -> bool:
    """Whether the standard output takes text alone. After this it takes any text."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an old locale lacks our marks, and the agent's letters
    return not sys.stdout.isatty() or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") in (None, "dumb")


@contextmanager
def unechoed() -> Iterator[None]:
    """Without this, the terminal echoes typed keys into the live view, and moves it."""
    import termios

    try:
        terminal = sys.stdout.fileno()
        before = termios.tcgetattr(terminal)
        is_ours = os.tcgetpgrp(terminal) == os.getpgrp()  # in the background, changing it would stop us
    except (OSError, termios.error):
        terminal, before, is_ours = -1, [], False
    if not is_ours:
        yield
        return
    quiet = [*before]
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        with suppress(termios.error):  # its window may have been closed
            termios.tcsetattr(terminal, termios.TCSANOW, before)


# --- the version of this program, with the commit that it was built from -----------------------------


_SHORT = 12  # characters of a commit, as people write it


def full_version() -> str:
    from importlib.metadata import version  # it is slow to load, and most commands do not need it

    commit = _commit()
    return f"{version('cursor-gateway')} ({commit})" if commit else version("cursor-gateway")


def _commit() -> str:
    """`hatch_build.py` writes the file. It is missing where the program runs from a checkout."""
    from importlib import resources

    try:
        commit, *state = resources.files("cursor_gateway").joinpath("commit.txt").read_text().split()
    except FileNotFoundError:
        return ""
    return " ".join((commit[:_SHORT], *state))
