"""The films show what a terminal would, load nothing, and stay small enough for a README."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tools.films.film import Rows, terminal_film
from tools.films.screen import PLAIN, Screen, Style
from tools.films.terminal import _whole

IMAGES = Path(__file__).parents[2] / "docs" / "images"


def text(screen: Screen) -> list[str]:
    return ["".join(character for character, _ in row) for row in screen.rows()]


@pytest.mark.parametrize("unknown", ["\x1b[3B", "\x1b]0;title\x07", "\x1b[0K"])
def test_what_is_unknown_is_an_error_not_a_wrong_picture(unknown: str) -> None:
    with pytest.raises(ValueError, match="unknown"):
        Screen(20, 1).feed(unknown)


def test_a_piece_of_output_never_ends_within_a_character_or_a_sequence() -> None:
    data = "ä \x1b[1mü\x1b[0m\n".encode()
    for cut in range(len(data)):
        pieces = _whole([(0.1, data[:cut]), (0.1, data[cut:])])
        assert "".join(piece for _, piece in pieces) == data.decode()
        screen = Screen(20, 2)
        for _, piece in pieces:
            screen.feed(piece)


def test_equal_rows_are_drawn_once_and_markup_is_text() -> None:
    row = (("<", PLAIN), ("&", Style("#fff", bold=True)))
    svg = terminal_film([Rows(1, [row]), Rows(1, [(), row])], columns=10, lines=2, title="a < b")
    root = ElementTree.fromstring(svg)
    assert len(re.findall(r'<text id="r\d+"', svg)) == 1
    assert len(re.findall(r"<use ", svg)) == 2
    assert "".join(root.itertext()).endswith("<&a < b") or "<&" in "".join(root.itertext())


@pytest.mark.parametrize("name", ["chat.svg", "page.svg"])
def test_the_films_are_small_whole_and_load_nothing(name: str) -> None:
    svg = (IMAGES / name).read_text(encoding="utf-8")
    assert len(svg.encode()) < 400_000
    ElementTree.fromstring(svg)
    assert not re.search(r"(?:href|src)=\"(?!#|data:)|url\(|@import", svg)
    assert "step-end infinite" in svg
