"""What was found in; the table with its bars in a terminal, and whether a row is red, out."""

from collections.abc import Mapping

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.found import Found
from benchmarks.goals import GOALS, GROUPS, Goal, Verdict

_IN_A_LOG = 150
_WIDTH = 20  # of a bar, in characters
_GOAL = 12  # where in it the goal stands
_STYLES = {
    Verdict.MET: "green",
    Verdict.OVER: "yellow",
    Verdict.EXPLAINED: "yellow",
    Verdict.RED: "bold red",
    Verdict.NO_GOAL: "dim",
}
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def report(found: Mapping[str, Found], console: Console | None = None) -> int:
    """An exit status: 1 when a row is red."""
    console = console or Console()
    if not console.is_terminal:
        console.width = _IN_A_LOG
    console.print(table(found))
    return 1 if any(verdict_of(name, one) is Verdict.RED for name, one in found.items()) else 0


def verdict_of(name: str, found: Found) -> Verdict:
    return GOALS[name].verdict(found.value)


def table(found: Mapping[str, Found]) -> Table:
    made = Table(box=box.SIMPLE_HEAD, title="Ratios from one run", title_justify="left")
    made.add_column("what")
    for heading in ("found", "goal"):
        made.add_column(heading, justify="right", no_wrap=True)
    made.add_column("against the goal (│)", no_wrap=True)
    made.add_column("", no_wrap=True)
    made.add_column("made of")
    for group in GROUPS:
        rows = {name: goal for name, goal in group.rows.items() if name in found}
        if rows:
            made.add_section()
            made.add_row(Text(group.title.replace("`", ""), "bold"))
        for name, goal in rows.items():
            one = found[name]
            verdict = goal.verdict(one.value)
            style = _STYLES[verdict]
            made.add_row(
                f"  {goal.what.replace('`', '')}",
                value_text(goal, one.value),
                goal_text(goal),
                _bar(goal, one, style),
                Text(verdict.value, style),
                reason(goal, one),
            )
    return made


def reason(goal: Goal, found: Found) -> str:
    """What a figure was made of, and what is said of one that is over its goal."""
    match goal.verdict(found.value):
        case Verdict.EXPLAINED:
            return "; ".join(text for text in (found.details, goal.explained) if text)
        case Verdict.OVER:
            return "; ".join(text for text in (found.details, f"within the noise allowed (≤ {goal.limit:g})") if text)
        case Verdict.MET | Verdict.RED | Verdict.NO_GOAL:
            return found.details


def value_text(goal: Goal, value: float) -> str:
    match goal.unit:
        case "":
            digits = 0
        case "×":
            digits = 1 if value >= 10 else 2
        case "kB":
            digits = 2
        case _:
            digits = 1
    return f"{value:.{digits}f} {goal.unit}".strip()


def goal_text(goal: Goal) -> str:
    if goal.goal is None:
        return ""
    return f"{'≥' if goal.at_least else '≤'} {goal.goal:g} {goal.unit}".strip()


def _bar(goal: Goal, found: Found, style: str) -> Text:
    share = goal.share(found.value)
    if share is None:
        return Text()
    eighths = min(round(share * _GOAL * 8), _WIDTH * 8)
    drawn = "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
    cells = drawn.ljust(_WIDTH)
    bar = Text(cells, style)
    if len(drawn) <= _GOAL:
        bar = Text(f"{cells[:_GOAL]}", style) + Text("│", "bold") + Text(cells[_GOAL + 1 :])
    return bar
