"""Every page has a place on the website, and the links of the project's own pages fit it. The site is built in CI."""

from pathlib import Path

from tools.docs_site.navigation import OUTSIDE, navigation, site_text

ROOT = Path(__file__).parents[2]


def pages_of(docs: Path) -> list[str]:
    pages: list[str] = []
    for section in navigation(docs):
        for members in section.values():
            pages += [members] if isinstance(members, str) else members
    return pages


def test_every_page_is_in_the_navigation_once() -> None:
    docs = ROOT / "docs"
    expected = [path.relative_to(docs).as_posix() for path in docs.rglob("*.md")]
    expected = [page for page in expected if not page.startswith("parts/")]
    assert sorted(pages_of(docs)) == sorted([*expected, *OUTSIDE.values()])


def test_links_are_those_of_the_site() -> None:
    text = "[a](docs/cli.md#start) [b](ARCHITECTURE.md) ![c](docs/images/c.png) [d](https://docs/x)"
    assert site_text(text) == "[a](cli.md#start) [b](architecture.md) ![c](images/c.png) [d](https://docs/x)"
