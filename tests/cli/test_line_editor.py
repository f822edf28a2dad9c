"""What fits in the status line, and what is being completed."""

import pytest
from prompt_toolkit.document import Document
from prompt_toolkit.styles import default_ui_style, merge_styles

from cursor_gateway.cli.terminal.line_editor import STYLE, completed_word, fitting


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


@pytest.mark.parametrize("part", ["completion", "completion.current", "meta.completion", "meta.completion.current"])
def test_the_menu_has_the_terminals_background_and_letters_that_are_not_black(part: str) -> None:
    styles = merge_styles([default_ui_style(), STYLE])
    attributes = styles.get_attrs_for_style_str(f"class:completion-menu class:completion-menu.{part}")
    assert attributes.bgcolor in ("", "default")
    assert attributes.color in ("", "default", "ansicyan", "ansibrightblack")
    assert not attributes.reverse
