"""What is left of a region that is drawn again and again, whatever happens to the terminal meanwhile."""

import re
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from cursor_gateway.render.terminal import LiveRegion, make_console

_PIECES = re.compile(r"\x1b\[(?P<args>[0-9;?]*)(?P<verb>[A-Za-z])|(?P<end>\n)|(?P<back>\r)|(?P<letter>[^\x1b\r\n])")
_HEIGHT = 40


class Terminal(StringIO):
    """Wraps lines again when it is resized, as tmux does, or cuts them, as xterm does."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.rows, self.goes_on = [""], [False]  # and whether the next row belongs to the same line
        self.row = self.column = 0

    def write(self, text: str) -> int:
        for piece in _PIECES.finditer(text):
            match piece.lastgroup, piece["verb"]:
                case "end", _:
                    self._next_row(goes_on=False)
                case "back", _:
                    self.column = 0
                case "letter", _:
                    if self.column == self.width:
                        self._next_row(goes_on=True)
                    row = self.rows[self.row].ljust(self.column)
                    self.rows[self.row] = row[: self.column] + piece["letter"] + row[self.column + 1 :]
                    self.column += 1
                case _, "A":
                    self.row -= int(piece["args"])
                    assert self.row >= 0
                case _, "K":
                    self.rows[self.row], self.goes_on[self.row] = "", False
                case _:
                    pass
        return len(text)

    def _next_row(self, *, goes_on: bool) -> None:
        self.goes_on[self.row] = goes_on
        self.row, self.column = self.row + 1, 0
        if self.row == len(self.rows):
            self.rows.append("")
            self.goes_on.append(False)

    def resize(self, width: int, *, wraps: bool = True) -> None:
        """The cursor stays behind the letter that it was behind; it is in the last line here."""
        if wraps:
            lines: list[str] = []
            begins = True
            for row, goes_on in zip(self.rows, self.goes_on, strict=True):
                lines = [*lines, row] if begins else [*lines[:-1], lines[-1] + row]
                begins = not goes_on
            parts = [[line[at : at + width] for at in range(0, len(line), width)] or [""] for line in lines]
            self.rows = [row for rows in parts for row in rows]
            self.goes_on = [number < len(rows) - 1 for rows in parts for number in range(len(rows))]
            self.row, self.column = len(self.rows) - 1, len(self.rows[-1])
        else:
            self.rows = [row[:width] for row in self.rows]
            self.column = min(self.column, width)
        self.width = width

    def shown(self) -> list[str]:
        return [row.rstrip() for row in "\n".join(self.rows).rstrip("\n").split("\n")]


def drawn(text: Text, width: int) -> tuple[Terminal, LiveRegion]:
    screen = Terminal(width)
    console = make_console(screen, plain=False, width=width)
    console.height = _HEIGHT
    console.print("above")
    return screen, LiveRegion(console, text, 12)


WORDS = st.lists(st.text("ab", min_size=1, max_size=12), max_size=20).map(" ".join)


@given(texts=st.lists(WORDS, max_size=4), widths=st.lists(st.integers(10, 40), min_size=1, max_size=5))
def test_a_window_that_is_resized_shows_the_last_frame_alone(texts: list[str], widths: list[int]) -> None:
    text = Text("\n".join(texts))
    screen, region = drawn(text, 30)
    region.draw()
    for width in widths:
        screen.resize(width)
        region._console.width = width
    region.draw()
    fresh, other = drawn(text, widths[-1])
    other.draw()
    assert screen.shown() == fresh.shown()


@pytest.mark.parametrize("variable", ["XTERM_VERSION", "STY"])
def test_a_terminal_that_cuts_lines_loses_no_line_above(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "set")
    screen, region = drawn(Text("word " * 10), 30)
    region.draw()
    screen.resize(10, wraps=False)
    region._console.width = 10
    region.draw()
    assert screen.shown() == ["above", *(["word word"] * 5)]


def test_white_space_at_the_end_of_a_line_is_not_written_except_in_colour() -> None:
    screen, region = drawn(Text.assemble("text", "    ", "\n", ("  ", "on red")), 30)
    region.draw()
    assert screen.rows == ["above", "text", "  "]


def test_what_is_printed_is_above_it_and_nothing_else_stays() -> None:
    text = Text("one\ntwo")
    screen, region = drawn(text, 30)
    region.start()
    region.draw()
    region.print("printed")
    assert screen.shown() == ["above", "printed", "one", "two"]
    region.stop()
    region.stop()
    region.print("more")
    assert screen.shown() == ["above", "printed", "more"]


def test_a_frame_that_changes_nothing_is_not_written() -> None:
    screen, region = drawn(Text("text"), 30)
    region.draw()
    screen.rows = ["erased"]
    region.draw()
    assert screen.rows == ["erased"]


def test_a_window_that_is_closed_ends_the_drawing() -> None:
    class Closed(StringIO):
        def write(self, text: str) -> int:
            if "text" in text:
                raise OSError("closed")
            return len(text)

    region = LiveRegion(make_console(Closed(), plain=False, width=30), Text("text"), 1000)
    region.start()
    assert region._thread is not None
    region._thread.join(60)
    assert not region._thread.is_alive()
    region.stop()
