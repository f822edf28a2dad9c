"""What the commands say to people: asides and errors on stderr, one line each, safe to print."""

import os
import shutil
import sys
import textwrap
from typing import IO, Any

import click

from cursor_gateway.render.visible import visible_line


class Trouble(click.ClickException):
    """Told in one line, like everything that goes wrong in this command. This one: it could not begin."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"cursor-gateway: {visible_line(self.message)}", err=True)


class RunFailed(Trouble):
    exit_code = 1


def aside(text: str = "", **style: bool) -> None:
    """A line for people, never in the pipe that wants the answer; without text, an empty one for their eyes."""
    if sys.stderr is None or not (text or sys.stderr.isatty()):
        return
    text = visible_line(text)
    if sys.stderr.isatty() and os.environ.get("TERM") not in (None, "dumb"):
        text = textwrap.fill(text, shutil.get_terminal_size().columns, break_long_words=False, break_on_hyphens=False)
        if not os.environ.get("NO_COLOR"):
            text = click.style(text, **(style or {"dim": True}))
    click.echo(text, err=True)


def aside_demo(where: str = "") -> None:
    aside(f"DEMO: built-in recordings answer{where}. No agent runs, no file changes.", bold=True, reverse=True)
