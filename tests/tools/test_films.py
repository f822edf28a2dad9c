"""The films show what a terminal would, load nothing, and stay small enough for a README."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tools.films.screen import Screen

IMAGES = Path(__file__).parents[2] / "docs" / "images"


def text(screen: Screen) -> list[str]:
    return ["".join(character for character, _ in row) for row in screen.rows()]


@pytest.mark.parametrize("name", ["chat.svg", "page.svg"])
def test_the_films_are_small_whole_and_load_nothing(name: str) -> None:
    svg = (IMAGES / name).read_text(encoding="utf-8")
    assert len(svg.encode()) < 400_000
    ElementTree.fromstring(svg)
    assert not re.search(r"(?:href|src)=\"(?!#|data:)|url\(|@import", svg)
    assert "step-end infinite" in svg
