"""The picture is well-formed, shows every goal, and no two of its texts are in each other's way."""

from itertools import pairwise
from xml.etree import ElementTree

from benchmarks.goals import GOALS
from benchmarks.picture import picture
from tests.benchmarks.figures import figures

_SVG = "{http://www.w3.org/2000/svg}"
_LETTER = 6.6  # more than a letter of the label font takes on average, as rendered


def _root(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def _number(element: ElementTree.Element, name: str) -> float:
    return float(element.attrib[name])


def test_every_goal_has_a_label() -> None:
    texts = {text.text for text in _root(picture(figures())).iter(f"{_SVG}text")}
    for goal in GOALS.values():
        if goal.goal is not None:
            assert goal.what.replace("`", "") in texts


def test_texts_do_not_touch_each_other_or_the_edge() -> None:
    root = _root(picture(figures(**{name.replace(" ", "_"): 123.45 for name in GOALS})))
    width, height = _number(root, "width"), _number(root, "height")
    lines: dict[float, list[tuple[float, float]]] = {}
    for text in root.iter(f"{_SVG}text"):
        long, x = _LETTER * len(text.text or ""), _number(text, "x")
        start = x - long if "end" in text.attrib.get("class", "") else x
        assert start >= 0
        assert start + long <= width
        lines.setdefault(_number(text, "y"), []).append((start, start + long))
    assert max(lines) < height
    places = sorted(lines)
    assert all(below - above >= 18 for above, below in pairwise(places))
    for spans in lines.values():
        spans.sort()
        assert all(left[1] <= right[0] for left, right in pairwise(spans))


def test_bars_are_cut_where_the_scale_ends() -> None:
    bars = [_number(bar, "width") for bar in _root(picture(figures(peak=7000.0))).iter(f"{_SVG}rect")]
    tracks = [
        _number(bar, "width") for bar in _root(picture(figures())).iter(f"{_SVG}rect") if bar.attrib["class"] == "track"
    ]
    assert max(bars) == tracks[0]


def test_a_row_that_misses_its_goal_says_so_in_words() -> None:
    texts = [text.text for text in _root(picture(figures(peak=71.0, start_help=5.5))).iter(f"{_SVG}text")]
    assert "71.0 MB, red" in texts
    assert "5.50 ×, over" in texts
