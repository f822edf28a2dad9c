"""Render a command's output as HTML, with the text colours and styles that it sets by escape sequences.

Only classes come out of it, never an agent's values: the eight colours of a terminal have a legible form each in the
stylesheet, and any other colour becomes the one of them that is most like it. Backgrounds are left out, and so is
everything else that a sequence may do.
"""

import re
from collections.abc import Iterator, Sequence
from colorsys import rgb_to_hls

from msgspec import Struct

from cursor_gateway.render.html.pieces import exact
from cursor_gateway.render.visible import SEQUENCES

_STYLE = re.compile(r"\x1b\[([0-9;:]*)m")
_TURNS_ON = {1: "bold", 2: "dim", 3: "italic", 4: "underline"}
_TURNS_OFF = {22: {"bold", "dim"}, 23: {"italic"}, 24: {"underline"}}
_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_BY_HUE = ("red", "yellow", "green", "cyan", "blue", "magenta")  # sixty degrees each
_GREY = 0.2  # saturation: what has less is no colour
_STEPS = (0, 95, 135, 175, 215, 255)  # of the 6×6×6 colours from 16 on


class _Look(Struct, frozen=True):
    colour: str = ""
    styles: frozenset[str] = frozenset()

    @property
    def classes(self) -> str:
        return " ".join(f"ansi_{name}" for name in sorted({self.colour, *self.styles} - {""}))


def coloured_output(output: str) -> str:
    """Of a line that was overwritten, as progress bars do, only the last state."""
    look = _Look()
    lines = []
    for line in output.split("\n"):
        shown: list[str] = []
        for place, part in enumerate(_STYLE.split(line.rstrip("\r"))):
            if place % 2:
                look = _changed(look, part)
                continue
            _, returned, text = part.rpartition("\r")
            if returned:
                shown.clear()
            shown.append(_span(SEQUENCES.sub("", text), look))
        lines.append("".join(shown))
    return "\n".join(lines)


def _span(text: str, look: _Look) -> str:
    classes = look.classes if text.strip() else ""
    return f'<span class="{classes}">{exact(text)}</span>' if classes else exact(text)


def _changed(look: _Look, parameters: str) -> _Look:
    colour, styles = look.colour, set(look.styles)
    numbers = iter([int(number[-4:] or 0) for number in re.split("[;:]", parameters)])
    for number in numbers:
        if number == 0:
            colour, styles = "", set()
        elif number in _TURNS_ON:
            styles.add(_TURNS_ON[number])
        elif number in _TURNS_OFF:
            styles -= _TURNS_OFF[number]
        elif 30 <= number <= 37 or 90 <= number <= 97:
            colour = _COLOURS[number % 10]
        elif number == 39:
            colour = ""
        elif number in (38, 48):
            found = _extended(numbers)
            colour = found if number == 38 else colour
    return _Look(colour, frozenset(styles))


def _extended(numbers: Iterator[int]) -> str:
    """After 38 or 48: one of 256 colours, or red, green and blue."""
    match next(numbers, 0):
        case 5:
            return _of_256(next(numbers, 0))
        case 2:
            return _nearest([next(numbers, 0) for _ in range(3)])
        case _:
            return ""


def _of_256(number: int) -> str:
    if number < 16:
        return _COLOURS[number % 8]
    if number >= 232:
        return ""
    place = number - 16
    return _nearest([_STEPS[place // 36 % 6], _STEPS[place // 6 % 6], _STEPS[place % 6]])


def _nearest(rgb: Sequence[int]) -> str:
    """Greys have no name: they are the text's own colour."""
    red, green, blue = (min(value, 255) / 255 for value in rgb)
    hue, _, saturation = rgb_to_hls(red, green, blue)
    return _BY_HUE[round(hue * 6) % 6] if saturation >= _GREY else ""
