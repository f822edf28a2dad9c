"""What fits in the status line, and what is being completed."""

import pytest
from prompt_toolkit.document import Document

from cursor_gateway.cli.terminal.line_editor import completed_word, fitting


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (80, "~/work · auto · agent · 1,234 tokens"),
        (22, "~/work · auto · agent"),
        (20, "~/work · auto"),
        (6, "~/work"),
        (4, "~/w…"),
        (0, "…"),
    ],
)
def test_the_status_line_fits(width: int, line: str) -> None:
    assert fitting(["~/work", "auto", "agent", "1,234 tokens"], width) == line


def test_the_status_line_counts_columns_and_draws_nothing() -> None:
    assert fitting(["漢字", "x"], 8) == "漢字 · x"
    assert fitting(["漢字", "x"], 7) == "漢字"
    assert "\x1b" not in fitting(["\x1b[31m"], 80)
    assert fitting([], 80) == ""


@pytest.mark.parametrize(
    ("before", "word"),
    [
        ("/mo", "/mo"),
        ("/mode pl", "/mode pl"),
        ("see @pri", "@pri"),
        ("see\n@pri", "@pri"),
        ("@pri ce", ""),
        ("plain", ""),
        ("a@b.example", ""),
        ("see /mo", ""),
        ("/usr/bin\nis a path", ""),
        ("", ""),
    ],
)
def test_what_is_completed(before: str, word: str) -> None:
    assert completed_word(Document(before)) == word
