"""What was found in; a picture of it against the goals, as SVG that can be read on light and on dark pages, out."""

from collections.abc import Mapping
from html import escape

from benchmarks.found import Found
from benchmarks.goals import GROUPS, Goal, Verdict
from benchmarks.report import goal_text, value_text

_WIDTH, _MARGIN = 880, 16
_BARS = 372  # where labels end and bars begin
_SCALE = 280  # how wide the longest bar is
_VALUES = _BARS + _SCALE + 12
_GOALS = _WIDTH - _MARGIN
_ROW, _GAP = 21, 15
_MOST = 2.0  # times the goal: what is longer is cut

_STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #24292f }
.title { font-size: 16px; font-weight: 600 }
.group { font-weight: 600 }
.small { font-size: 12px; fill: #57606a }
.end { text-anchor: end }
.track { fill: #8c959f; opacity: 0.14 }
.goal { stroke: #24292f; stroke-width: 1.5 }
.ours { fill: #0969da } .theirs { fill: #8c959f }
.met { fill: #2da44e } .over, .explained { fill: #bf8700 } .red { fill: #cf222e }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .small { fill: #9da7b3 } .goal { stroke: #e6edf3 }
  .ours { fill: #4493f8 } .theirs { fill: #6e7681 }
  .met { fill: #3fb950 } .over, .explained { fill: #d29922 } .red { fill: #f85149 }
}
"""

_CONTENDERS = {
    "50k relay": ("byte relay on the same stack", "theirs"),
    "50k openai": ("cursor-gateway, OpenAI", "ours"),
    "50k documents": ("cursor-gateway, documents", "ours"),
    "50k plain": ("plain FastAPI + json + sse-starlette", "theirs"),
}


def picture(found: Mapping[str, Found]) -> str:
    drawing = _Drawing()
    _draw_contenders(drawing, found)
    drawing.skip(2 * _GAP)
    _draw_goals(drawing, found)
    return drawing.svg()


def _draw_contenders(drawing: "_Drawing", found: Mapping[str, Found]) -> None:
    drawing.title("An answer of 50,000 lines")
    drawing.note("1 is the lower bound: agent | cat plus a bare decode of the same lines")
    shown = {name: found[name] for name in _CONTENDERS if name in found}
    longest = max((one.value for one in shown.values()), default=1.0)
    for name, one in shown.items():
        label, style = _CONTENDERS[name]
        drawing.bar(label, one.value / longest, style, f"{one.value:.1f} ×", one.details.partition(" against ")[0])
    drawing.line(1 / longest, len(shown))


def _draw_goals(drawing: "_Drawing", found: Mapping[str, Found]) -> None:
    drawing.title("Every goal")
    drawing.note("shorter is better; the line is the goal; bars are cut off at twice the goal")
    for group in GROUPS:
        rows = {name: goal for name, goal in group.rows.items() if name in found and goal.goal is not None}
        if rows:
            drawing.group(group.title)
            for name, goal in rows.items():
                _draw_goal(drawing, goal, found[name].value)
            drawing.line(1 / _MOST, len(rows))


def _draw_goal(drawing: "_Drawing", goal: Goal, value: float) -> None:
    share, verdict = goal.share(value), goal.verdict(value)
    assert share is not None
    shown = value_text(goal, value)
    if verdict is not Verdict.MET:
        shown += f", {verdict.value}"  # not by colour alone
    drawing.bar(goal.what, share / _MOST, verdict.value, shown, goal_text(goal))


class _Drawing:
    """Rows from the top to the bottom."""

    def __init__(self) -> None:
        self._elements: list[str] = []
        self._place = _MARGIN

    def skip(self, height: int) -> None:
        self._place += height

    def title(self, text: str) -> None:
        self._text(_MARGIN, self._place + 15, text, "title")
        self._place += _ROW + 2

    def note(self, text: str) -> None:
        self._text(_MARGIN, self._place + 13, text, "small")
        self._place += _ROW + 4

    def group(self, text: str) -> None:
        self._place += _GAP
        self._text(_MARGIN, self._place + 13, text, "group")
        self._place += _ROW

    def bar(self, label: str, share: float, style: str, value: str, beside: str) -> None:
        """A share of the scale."""
        top, width = self._place, max(2.0, min(1.0, share) * _SCALE)
        self._text(_BARS - 10, top + 15, label, "end")
        self._elements.append(f'<rect class="track" x="{_BARS}" y="{top + 4}" width="{_SCALE}" height="13" rx="2"/>')
        self._elements.append(
            f'<rect class="{style}" x="{_BARS}" y="{top + 4}" width="{width:.1f}" height="13" rx="2"/>'
        )
        self._text(_VALUES, top + 15, value, "")
        self._text(_GOALS, top + 15, beside, "small end")
        self._place += _ROW

    def line(self, share: float, rows: int) -> None:
        """Through the last rows."""
        x, top = _BARS + share * _SCALE, self._place - rows * _ROW
        self._elements.append(f'<line class="goal" x1="{x:.1f}" x2="{x:.1f}" y1="{top + 1}" y2="{self._place - 1}"/>')

    def svg(self) -> str:
        height = self._place + _MARGIN
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
            f'height="{height}" role="img" aria-label="Ratios and their goals">\n<style>{_STYLE}</style>\n'
            + "\n".join(self._elements)
            + "\n</svg>\n"
        )

    def _text(self, x: int, y: int, text: str, style: str) -> None:
        shown, kind = escape(text.replace("`", ""), quote=False), f' class="{style}"' if style else ""
        self._elements.append(f'<text x="{x}" y="{y}"{kind}>{shown}</text>')
