"""The page has the tables, the date and the machine's kind, and ends with what people wrote."""

from benchmarks import page


def test_the_committed_page_ends_with_the_story() -> None:
    """Who edits the page in its place would lose it with the next run."""
    story = page.STORY.read_text(encoding="utf-8")
    assert (page.DOCS / "performance.md").read_text(encoding="utf-8").endswith(story)
