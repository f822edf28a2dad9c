"""The page has the tables, the date and the machine's kind, and ends with what people wrote."""

import platform
from datetime import date
from pathlib import Path

import pytest

from benchmarks import page
from benchmarks.found import Found
from benchmarks.goals import GOALS
from benchmarks.machine import busy, kind
from tests.benchmarks.figures import figures

TODAY = date(2026, 2, 3)


def test_the_page_tells_every_row_when_and_where() -> None:
    text = page.page(figures(peak=71.0), TODAY, "a machine")
    assert "Measured on 3 February 2026: a machine." in text
    assert "| peak, after runs of 50,000 lines | 71.0 MB | ≤ 70 MB | **red** | made up |" in text
    for goal in GOALS.values():
        assert f"| {goal.what} |" in text


def test_a_bar_in_a_reason_does_not_end_its_cell() -> None:
    found = {"peak": Found(1.0, "agent | cat")}
    assert "| agent \\| cat |" in page.page(found, TODAY, "a machine")


def test_the_page_and_its_picture_are_written_together(tmp_path: Path) -> None:
    page.write(figures(), TODAY, "a machine", docs=tmp_path)
    text = (tmp_path / "performance.md").read_text()
    assert "](images/performance.svg)" in text
    assert (tmp_path / "images" / "performance.svg").read_text().startswith("<svg ")


def test_the_committed_page_ends_with_the_story() -> None:
    """Who edits the page in its place would lose it with the next run."""
    story = page.STORY.read_text(encoding="utf-8")
    assert (page.DOCS / "performance.md").read_text(encoding="utf-8").endswith(story)


def test_a_busy_machine_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (99.0, 0.0, 0.0))
    assert "load average 99.0" in busy()
    assert f"a machine. {busy()}" in page.page(figures(), TODAY, "a machine", busy())
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 99.0, 99.0))
    assert busy() == ""


def test_the_machine_is_described_without_its_name() -> None:
    result = kind()
    assert platform.python_version() in result
    assert "GiB" in result
    if len(platform.node()) > 3:
        assert platform.node() not in result
