"""The table names every row that was measured, and its status is that of the worst."""

import io
import re

import pytest
from msgspec.structs import replace
from rich.console import Console

from benchmarks import report as module
from benchmarks.found import Found
from benchmarks.goals import GOALS, Group
from benchmarks.report import report
from tests.benchmarks.figures import figures


def _printed(found: dict[str, Found]) -> tuple[int, str]:
    file = io.StringIO()
    status = report(found, Console(file=file))
    return status, file.getvalue()


def test_a_red_row_fails() -> None:
    status, text = _printed(figures(peak=70.5))
    assert status == 1
    assert re.search(r"\bred\b", text)


def test_a_row_that_is_over_its_goal_within_noise_does_not_fail_and_says_so() -> None:
    status, text = _printed(figures(start_help=5.5))
    assert status == 0
    assert "within the noise allowed" in text


def test_an_explanation_is_shown_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    goal = replace(GOALS["start help"], explained="the disk is slow", limit=10.0)
    monkeypatch.setattr(module, "GROUPS", (Group("start", {"start help": goal}),))
    assert "the disk is slow" in _printed({"start help": Found(6.0)})[1]
    assert "the disk is slow" not in _printed({"start help": Found(4.0)})[1]
