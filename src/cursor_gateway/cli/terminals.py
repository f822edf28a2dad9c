"""A console for standard output, and a terminal that does not echo typed keys into the live view."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


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
