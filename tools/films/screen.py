"""What a program writes to a terminal in; the screen it makes out.

Only the sequences that `cursor-gateway chat` writes are known: colours, one line up, clear the line, hide the cursor.
Others raise `ValueError`: a wrong picture is worse than none.
"""

import re
from typing import TypeAlias

from msgspec import Struct

_SEQUENCE = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")
_NORMAL = ("#1d2128", "#f47067", "#8ddb8c", "#e3b341", "#6cb6ff", "#dcbdfb", "#76d9e6", "#cdd9e5")
_BRIGHT = ("#8b949e", "#ff938a", "#b4f1b4", "#f0cf6d", "#96d0ff", "#eedcff", "#b3f0ff", "#ffffff")
_COLOURS = {**dict(enumerate(_NORMAL, 30)), **dict(enumerate(_BRIGHT, 90))}


class Style(Struct, frozen=True):
    colour: str = ""
    bold: bool = False
    dim: bool = False
    reverse: bool = False


Cell: TypeAlias = tuple[str, Style]
Row: TypeAlias = tuple[Cell, ...]
PLAIN = Style()


class Screen:
    def __init__(self, columns: int, lines: int) -> None:
        self._columns, self._lines = columns, lines
        self._rows: list[list[Cell]] = [[]]
        self._row = self._column = 0
        self._style = PLAIN

    def feed(self, text: str) -> None:
        end = 0
        for found in _SEQUENCE.finditer(text):
            if found.start() != end:
                break
            end = found.end()
            private, numbers, letter, move, words = found.groups()
            if words:
                self._write(words)
            elif move:
                self._move(move)
            elif not private:  # the others only hide and show the cursor
                self._control(letter, [int(number or 0) for number in numbers.split(";")])
        if end != len(text):
            raise ValueError(f"unknown sequence: {text[end : end + 20]!r}")

    def rows(self) -> list[Row]:
        """The visible ones, without trailing spaces."""
        return [_trimmed(row) for row in self._rows[-self._lines :]]

    def _write(self, words: str) -> None:
        for character in words:
            if self._column >= self._columns:
                self._move("\n")
                self._column = 0
            row = self._rows[self._row]
            row.extend([(" ", PLAIN)] * (self._column - len(row)))
            row[self._column : self._column + 1] = [(character, self._style)]
            self._column += 1

    def _move(self, move: str) -> None:
        if move == "\r":
            self._column = 0
            return
        self._row += 1
        if self._row == len(self._rows):
            self._rows.append([])

    def _control(self, letter: str, numbers: list[int]) -> None:
        match letter:
            case "m":
                for number in numbers:
                    self._set_style(number)
            case "A":
                self._row = max(0, self._row - max(1, numbers[0]))
            case "K" if numbers[0] == 2:
                self._rows[self._row] = []
            case _:
                raise ValueError(f"unknown control: {numbers} {letter}")

    def _set_style(self, number: int) -> None:
        old = self._style
        match number:
            case 0:
                self._style = PLAIN
            case 1:
                self._style = Style(old.colour, True, old.dim, old.reverse)
            case 2:
                self._style = Style(old.colour, old.bold, True, old.reverse)
            case 7:
                self._style = Style(old.colour, old.bold, old.dim, True)
            case _:
                self._style = Style(_COLOURS[number], old.bold, old.dim, old.reverse)


def _trimmed(row: list[Cell]) -> Row:
    last = max((at for at, cell in enumerate(row) if cell != (" ", PLAIN)), default=-1)
    return tuple(row[: last + 1])
