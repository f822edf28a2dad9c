"""Curves in; a line of blocks for the terminal, and a small picture (SVG) for a page, out."""

from collections.abc import Sequence
from html import escape

from msgspec import Struct

_BLOCKS = "▁▂▃▄▅▆▇█"
_COLUMNS, _WIDTH, _HEIGHT = 2, 340, 76  # of a panel, in pixels
_GAP, _HEAD, _LEFT = 24, 34, 10
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #444 }
.name { font-weight: 600; fill: #222 }
.end { text-anchor: end }
.line { fill: none; stroke: #2563eb; stroke-width: 1.4; stroke-linejoin: round }
.floor { stroke: #bbb; stroke-width: 1 }
.half { stroke: #bbb; stroke-width: 1; stroke-dasharray: 3 3 }
@media (prefers-color-scheme: dark) {
  text { fill: #aaa } .name { fill: #ddd } .line { stroke: #7aa2f7 } .floor, .half { stroke: #555 }
}
"""


class Curve(Struct, frozen=True):
    name: str
    unit: str
    points: Sequence[tuple[float, float]]  # minutes, values

    @property
    def values(self) -> list[float]:
        return [value for _, value in self.points]


def sparkline(values: Sequence[float], width: int) -> str:
    """The most of each part, between nothing and the most of all."""
    parts = [values[at * len(values) // width : (at + 1) * len(values) // width] for at in range(width)]
    highest = max(values, default=0) or 1
    return "".join(_BLOCKS[min(7, int(max(part) / highest * 7.999))] for part in parts if part)


def plot(curves: Sequence[Curve], title: str) -> str:
    """Each in a panel of its own, from nothing to a little over its most; the dashed line is half of the time."""
    rows = -(-len(curves) // _COLUMNS)
    width = _LEFT * 2 + _COLUMNS * _WIDTH + (_COLUMNS - 1) * _GAP
    height = rows * (_HEIGHT + _HEAD) + 16
    panels = [
        _panel(curve, _LEFT + number % _COLUMNS * (_WIDTH + _GAP), number // _COLUMNS * (_HEIGHT + _HEAD))
        for number, curve in enumerate(curves)
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(title)}">\n<style>{_STYLE}</style>\n' + "\n".join(panels) + "\n</svg>\n"
    )


def _panel(curve: Curve, left: int, top: int) -> str:
    values, floor = curve.values, top + _HEAD + _HEIGHT - 12
    scale = (_HEIGHT - 16) / (max(values) * 1.1 or 1)
    last = curve.points[-1][0] or 1
    line = " ".join(f"{left + at / last * _WIDTH:.1f},{floor - value * scale:.1f}" for at, value in curve.points)
    unit = f" {curve.unit}" if curve.unit else ""
    result = f"{_short(min(values))} to {_short(max(values))}{unit}; at the end {_short(values[-1])}"
    middle = left + _WIDTH / 2
    return "\n".join(
        [
            f'<text class="name" x="{left}" y="{top + 24}">{escape(curve.name)}</text>',
            f'<text class="end" x="{left + _WIDTH}" y="{top + 24}">{escape(result)}</text>',
            f'<line class="half" x1="{middle}" x2="{middle}" y1="{top + _HEAD}" y2="{floor}"/>',
            f'<line class="floor" x1="{left}" x2="{left + _WIDTH}" y1="{floor}" y2="{floor}"/>',
            f'<polyline class="line" points="{line}"/>',
            f'<text class="end" x="{left + _WIDTH}" y="{floor + 13}">{last:.0f} min</text>',
        ]
    )


def _short(value: float) -> str:
    return f"{value:.1f}" if value != int(value) else f"{int(value)}"
