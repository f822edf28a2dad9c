"""Where a text names the pages that the agent found."""

import pytest

from cursor_gateway.dialects.responses.encoder import citations

URL = "https://a.example"


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        (f"See {URL}.", [URL]),
        (f"See {URL}", [URL]),
        (f"See <{URL}>, and {URL}!", [URL, URL]),
        (f"See [the page]({URL}).", [f"[the page]({URL})"]),
        (f"See ({URL})", [URL]),
        (f"No link: ]({URL})", [URL]),
        (f"[too long: {'x' * 500}]({URL})", [URL]),
        (f"[not closed]({URL} ", [URL]),
        (f"Others: {URL}/more {URL}.org {URL}x {URL}?q", []),
        ("None.", []),
    ],
)
def test_an_address_is_cited_alone_or_with_its_link(text: str, cited: list[str]) -> None:
    found = citations(text, {URL: "A"})
    assert [text[one.start_index : one.end_index] for one in found] == cited
    assert {(one.url, one.title) for one in found} <= {(URL, "A")}


def test_citations_are_in_order_and_not_too_many() -> None:
    found = citations(f"https://b.example {URL} " * 60, {URL: "A", "https://b.example": "B"})
    assert len(found) == 100
    assert [one.title for one in found[:3]] == ["B", "A", "B"]
