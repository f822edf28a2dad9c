"""The part of a terminal that is drawn again and again, below what is printed: what it shows in, its frames out.

Before a frame, the cursor goes back to where the last one began. Until then the terminal may have been resized. Most
terminals, and tmux, then wrap the lines that have become too long, so the region takes more rows than were drawn, and
fewer again when it is widened. Only how long the lines are, and how wide the terminal is now, says how many. Rows that
the terminal has scrolled away meanwhile cannot be erased, so a region should leave room on the screen.
"""

import os
from contextlib import suppress
from threading import Event, RLock, Thread

from rich.console import Console, RenderableType
from rich.control import Control
from rich.segment import ControlType, Segment, Segments


class LiveRegion:
    def __init__(self, console: Console, content: RenderableType, frames_per_second: float) -> None:
        self._console, self._content, self._seconds = console, content, 1 / frames_per_second
        self._lines: list[list[Segment]] = []  # those on the screen; the cursor is behind the last one
        self._width = 0  # of the terminal when they were drawn
        self._wraps = not os.environ.keys() & {"XTERM_VERSION", "STY"}  # xterm and GNU screen cut lines instead
        self._lock, self._is_over = RLock(), Event()
        self._thread: Thread | None = None

    def start(self) -> None:
        self._console.show_cursor(False)
        self._thread = Thread(target=self._draw_until_over, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Removes it from the screen."""
        if self._thread is not None:
            self._is_over.set()
            self._thread.join()
            self._thread = None
            with self._console:
                self._erase()
                self._console.show_cursor()

    def print(self, renderable: RenderableType, *, soft_wrap: bool = False) -> None:
        """Prints above the region."""
        with self._lock, self._console:
            self._erase()
            self._console.print(renderable, soft_wrap=soft_wrap)
            if self._thread is not None:
                self.draw()

    def draw(self) -> None:
        with self._lock, self._console:
            width, height = self._console.size
            lines = [_trimmed(line) for line in self._console.render_lines(self._content, pad=False)[:height]]
            if (lines, width) == (self._lines, self._width):
                return
            self._erase()
            self._lines, self._width = lines, width
            broken = [[*line, Segment.line()] for line in lines[:-1]] + lines[-1:]
            self._console.print(Segments([segment for line in broken for segment in line]), end="")

    def _erase(self) -> None:
        rows = sum(map(self._rows, self._lines))
        if rows:
            up = [(ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)] * (min(rows, self._console.height) - 1)
            self._console.control(Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2), *up))
        self._lines = []

    def _rows(self, line: list[Segment]) -> int:
        """How many rows of the screen the line takes at the current width."""
        return max(1, -(-Segment.get_line_length(line) // self._console.width)) if self._wraps else 1

    def _draw_until_over(self) -> None:
        with suppress(OSError):  # the window was closed
            while not self._is_over.wait(self._seconds):
                self.draw()


def _trimmed(line: list[Segment]) -> list[Segment]:
    """Without white space at its end, which would be wrapped, too."""
    while line and not (line[-1].style and line[-1].style.bgcolor):
        *line, (text, style, control) = line
        if text := text.rstrip():
            return [*line, Segment(text, style, control)]
    return line
