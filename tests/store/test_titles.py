"""The first line that says something, short enough for a list."""

import pytest
from hypothesis import given

from cursor_gateway.store.texts import title_of
from tests.strategies import scalar_text


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Mend the login", "Mend the login"),
        ("\n \n  Mend\tthe   login\nplease", "Mend the login"),
        ("", "Untitled"),
        (" \n\0\n", "Untitled"),
        ("a\x1b[31mb", "a [31mb"),
        ("word " * 20, f"{'word ' * 15}word…"),
        ("w" * 100, f"{'w' * 79}…"),
        ("w" * 80, "w" * 80),
    ],
)
def test_a_title_is_the_first_line_cut_between_words(text: str, title: str) -> None:
    assert title_of(text) == title


@given(scalar_text)
def test_a_title_is_one_printable_line_whatever_was_said(text: str) -> None:
    title = title_of(text)
    assert 1 <= len(title) <= 80
    assert title.isprintable()
