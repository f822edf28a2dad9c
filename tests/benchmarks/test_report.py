"""The table names every row that was measured, and its status is that of the worst."""

import io
import re

import pytest
from msgspec.structs import replace
from rich.console import Console

from benchmarks import report as module
from benchmarks.found import Found
from benchmarks.goals import GOALS, GROUPS, Goal, Group
from benchmarks.report import goal_text, report, value_text
from tests.benchmarks.figures import figures


def _printed(found: dict[str, Found]) -> tuple[int, str]:
    file = io.StringIO()
    status = report(found, Console(file=file))
    return status, file.getvalue()


def test_every_row_is_shown_and_good_ones_are_green() -> None:
    status, text = _printed(figures())
    assert status == 0
    for goal in GOALS.values():
        assert goal.what.replace("`", "")[:30] in text
    assert not re.search(r"\bred\b", text)


def test_a_red_row_fails() -> None:
    status, text = _printed(figures(peak=70.5))
    assert status == 1
    assert re.search(r"\bred\b", text)


def test_a_row_that_is_over_its_goal_within_noise_does_not_fail_and_says_so() -> None:
    status, text = _printed(figures(start_help=5.5))
    assert status == 0
    assert "within the noise allowed" in text


def test_what_was_not_measured_is_left_out() -> None:
    status, text = _printed({"peak": Found(50.0)})
    assert status == 0
    assert "50.0 MB" in text
    assert "idle" not in text
    assert GROUPS[0].title[:20] not in text


def test_an_explanation_is_shown_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    goal = replace(GOALS["start help"], explained="the disk is slow", limit=10.0)
    monkeypatch.setattr(module, "GROUPS", (Group("start", {"start help": goal}),))
    assert "the disk is slow" in _printed({"start help": Found(6.0)})[1]
    assert "the disk is slow" not in _printed({"start help": Found(4.0)})[1]


@pytest.mark.parametrize(
    ("goal", "value", "shown", "aim"),
    [
        (Goal(what="", goal=2.5), 1.234, "1.23 ×", "≤ 2.5 ×"),
        (Goal(what="", goal=11), 12.34, "12.3 ×", "≤ 11 ×"),
        (Goal(what="", goal=0.7, at_least=True), 0.5, "0.50 ×", "≥ 0.7 ×"),
        (Goal(what="", unit="kB", goal=15), 9.876, "9.88 kB", "≤ 15 kB"),
        (Goal(what="", unit="", goal=4), 4, "4", "≤ 4"),
        (Goal(what="", unit="ms"), 1.25, "1.2 ms", ""),
    ],
)
def test_figures_have_as_many_digits_as_mean_something(goal: Goal, value: float, shown: str, aim: str) -> None:
    assert (value_text(goal, value), goal_text(goal)) == (shown, aim)


@pytest.mark.parametrize(("value", "drawn"), [(35.0, 6), (70.0, 12), (1e6, 20)])
def test_bars_reach_the_goal_at_the_goal(value: float, drawn: int) -> None:
    assert _printed({"peak": Found(value)})[1].count("█") == drawn
