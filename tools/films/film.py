"""Frames with their times in; one SVG that shows them one after the other out.

The frames lie below each other on a strip, which jumps up by one frame at a time. Nothing is loaded from elsewhere, and
whoever prefers no motion sees the last frame.
"""

from collections.abc import Sequence
from html import escape
from itertools import groupby

from msgspec import Struct

from tools.films.screen import Row, Style

_CELL, _LINE, _PADDING, _TITLE = 8.0, 18, 16, 34
_BACKGROUND, _TEXT = "#1d2128", "#d5dde6"
_FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


class Frame(Struct, frozen=True):
    seconds: float  # for which it is shown
    content: str  # SVG, with its top at 0


class Rows(Struct, frozen=True):
    seconds: float
    rows: Sequence[Row]


def strip(frames: Sequence[Frame], *, width: float, height: float, head: str = "", defs: str = "") -> str:
    """`head` is drawn above the moving part, which has the given size."""
    total = sum(frame.seconds for frame in frames)
    moment, stops = 0.0, []
    for number, frame in enumerate(frames):
        stops.append(f"{moment / total:.3%}{{transform:translateY({-number * height:g}px)}}")
        moment += frame.seconds
    last = f"translateY({-(len(frames) - 1) * height:g}px)"
    moving = "".join(
        f'<g transform="translate(0 {number * height:g})">{frame.content}</g>' for number, frame in enumerate(frames)
    )
    return (
        f"<style>@keyframes film{{{''.join(stops)}}}"
        f".film{{animation:film {total:.2f}s step-end infinite}}"
        f"@media(prefers-reduced-motion:reduce){{.film{{animation:none;transform:{last}}}}}</style>"
        f"<defs>{defs}</defs>{head}"
        f'<svg width="{width:g}" height="{height:g}"><g class="film">{moving}</g></svg>'
    )


def terminal_film(frames: Sequence[Rows], columns: int, lines: int, title: str) -> str:
    """Rows that are the same are drawn once."""
    width, height = columns * _CELL + 2 * _PADDING, lines * _LINE + _PADDING
    ids: dict[Row, str] = {}
    drawn = []
    for frame in frames:
        uses = []
        for at, row in enumerate(frame.rows):
            if row:
                id = ids.setdefault(row, f"r{len(ids)}")
                uses.append(f'<use href="#{id}" y="{at * _LINE}"/>')
        drawn.append(Frame(frame.seconds, "".join(uses)))
    defs = "".join(f'<text id="{id}" y="14">{_row(row)}</text>' for row, id in ids.items())
    dots = "".join(
        f'<circle cx="{20 + 18 * number}" cy="17" r="5.5" fill="{colour}"/>'
        for number, colour in enumerate(("#f47067", "#e3b341", "#8ddb8c"))
    )
    whole = height + _TITLE
    style = (
        f"<style>text{{font:13.3px {_FONT};fill:{_TEXT};white-space:pre}}.b{{font-weight:700}}.d{{opacity:.62}}</style>"
    )
    name = f'<text x="{width / 2:g}" y="21" text-anchor="middle" class="d">{escape(title)}</text>'
    inside = strip(drawn, width=width, height=height, defs=defs)
    size = f'viewBox="0 0 {width:g} {whole:g}" width="{width:g}" height="{whole:g}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(title)}">{style}'
        f'<rect width="100%" height="100%" rx="8" fill="{_BACKGROUND}"/>'
        f'{dots}{name}<g transform="translate({_PADDING} {_TITLE})">{inside}</g></svg>\n'
    )


def _row(row: Row) -> str:
    parts, column = [], 0
    for style, cells in groupby(row, key=lambda cell: cell[1]):
        text = "".join(character for character, _ in cells)
        parts.append(_run(text, style, column))
        column += len(text)
    return "".join(parts)


def _run(text: str, style: Style, column: int) -> str:
    """Whatever font the reader has, each character stands in its cell."""
    classes = " ".join(name for name, is_so in (("b", style.bold), ("d", style.dim)) if is_so)
    named = f' class="{classes}"' if classes else ""
    fill = f' fill="{style.colour}" style="fill:{style.colour}"' if style.colour else ""
    size = f' textLength="{len(text) * _CELL:g}" lengthAdjust="spacingAndGlyphs"' if len(text) > 1 else ""
    return f'<tspan x="{column * _CELL:g}"{size}{named}{fill}>{escape(text)}</tspan>'
