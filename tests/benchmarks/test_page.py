"""The page has the tables, the date and the machine's kind, and ends with what people wrote."""

from datetime import date
from pathlib import Path

from benchmarks import page
from benchmarks.goals import GOALS
from tests.benchmarks.figures import figures

TODAY = date(2026, 2, 3)


def test_the_page_tells_every_row_when_and_where() -> None:
    text = page.page(figures(peak=71.0), TODAY, "a machine")
    assert "Measured on 3 February 2026: a machine." in text
    assert "| peak, after runs of 50,000 lines | 71.0 MB | ≤ 70 MB | **red** | made up |" in text
    for goal in GOALS.values():
        assert f"| {goal.what} |" in text


def test_the_page_and_its_picture_are_written_together(tmp_path: Path) -> None:
    page.write(figures(), TODAY, "a machine", docs=tmp_path)
    text = (tmp_path / "performance.md").read_text()
    assert "](images/performance.svg)" in text
    assert (tmp_path / "images" / "performance.svg").read_text().startswith("<svg ")


def test_the_committed_page_ends_with_the_story() -> None:
    """Who edits the page in its place would lose it with the next run."""
    story = page.STORY.read_text(encoding="utf-8")
    assert (page.DOCS / "performance.md").read_text(encoding="utf-8").endswith(story)
