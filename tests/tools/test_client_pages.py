"""The pages of the clients: all there, with links that lead somewhere, and named in the README."""

import re
from pathlib import Path

import pytest

from cursor_gateway.cli.clients.table import CLIENTS, LAUNCHED
from tools.reference.client_pages import client_pages
from tools.transcripts import FOLDER

DOCS = Path(__file__).parents[2] / "docs"
TEXTS = {name: text() for name, text in client_pages().items()}


@pytest.mark.parametrize("name", TEXTS)
def test_links_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)", TEXTS[name]):
        assert (DOCS / "clients" / target).exists(), target


def test_each_client_has_a_page_that_the_index_names() -> None:
    assert set(TEXTS) == {"README.md", *(f"{name}.md" for name in CLIENTS)}
    assert all(f"]({name}.md)" in TEXTS["README.md"] for name in CLIENTS)


def test_transcripts_belong_to_clients() -> None:
    assert {path.stem for path in FOLDER.iterdir()} <= set(LAUNCHED)


def test_the_readme_names_the_clients() -> None:
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    assert all(re.search(rf"\b{name}\b", readme) for name in LAUNCHED)
