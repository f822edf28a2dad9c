"""Find the web pages that a text cites, among those that the agent found before it wrote the text."""

from collections.abc import Iterator, Mapping

from cursor_gateway.dialects.responses.shapes import UrlCitation

_MOST = 100
MOST_PAGES = 200  # that are looked for: each costs a search of the text
_LONGEST_LABEL = 500  # characters of the text of a link
_IN_URL = frozenset("/-_~%?#=&+@:")


def citations(text: str, pages: Mapping[str, str]) -> tuple[UrlCitation, ...]:
    """`pages` are titles by address. A Markdown link is one citation, with its text."""
    found = [
        UrlCitation(start_index=start, end_index=end, url=url, title=title)
        for url, title in list(pages.items())[-MOST_PAGES:]
        for start, end in _places(text, url)
    ]
    return tuple(sorted(found, key=lambda citation: citation.start_index)[:_MOST])


def _places(text: str, url: str) -> Iterator[tuple[int, int]]:
    place = text.find(url)
    while place >= 0:
        end = place + len(url)
        if not _continues(text, end):
            yield _link(text, place, end) or (place, end)
        place = text.find(url, end)


def _continues(text: str, end: int) -> bool:
    """It is the beginning of another address."""
    rest = text[end : end + 2]
    if rest.startswith("."):
        return rest[1:].isalnum()
    return rest[:1].isalnum() or rest[:1] in _IN_URL if rest else False


def _link(text: str, place: int, end: int) -> tuple[int, int] | None:
    """The Markdown link with this address."""
    if text[place - 2 : place] != "](" or text[end : end + 1] != ")":
        return None
    start = text.rfind("[", max(0, place - 2 - _LONGEST_LABEL), place - 2)
    return None if start < 0 else (start, end + 1)
