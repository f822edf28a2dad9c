"""ARCHITECTURE.md and docs/kernel.md are true: the folders and files that they name exist, and so do the layers."""

import configparser
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "cursor_gateway"
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
PAGES = PAGE + (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_it_is_short() -> None:
    assert len(PAGE.splitlines()) <= 150


def section(title: str) -> str:
    return PAGES.partition(f"\n## {title}")[2].partition("\n## ")[0]


def test_the_tree_has_every_folder() -> None:
    tree = section("The tree")
    folders = {path.parent.name for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE}
    assert {folder for folder in folders if f"{folder}/" not in tree} == set()


@pytest.mark.parametrize(
    "title", ["Rules", "A streamed completion", "A caller's tool", "The tree", "Where do I change"]
)
def test_every_file_that_it_names_exists(title: str) -> None:
    """As a path from the package or from the root, or by its name alone."""
    names = {path.name for path in [*PACKAGE.rglob("*"), *(ROOT / "chaos").iterdir(), *(ROOT / "tests").rglob("*.py")]}
    for path in re.findall(r"[\w/-]+\.(?:py|md|css)\b", section(title)):
        found = (PACKAGE / path).exists() or (ROOT / path).exists() or ("/" not in path and path in names)
        assert found, path


def test_every_file_of_the_reading_list_exists() -> None:
    page = (ROOT / "docs" / "kernel.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/-]+\.py)`", page)
    assert [path for path in named if not (PACKAGE / path).exists() and not (ROOT / path).exists()] == []
    assert len(named) > 30


def test_its_layers_are_those_of_the_contract() -> None:
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    layers = contracts["importlinter:contract:layers"]["layers"].split("\n")
    written = re.search(r"Imports point down: (.*?)\.\n", PAGE, re.DOTALL)
    assert written is not None
    listed = [re.findall(r"\w+", layer) for layer in written[1].split(">")]
    assert listed == [re.findall(r"\w+", layer) for layer in layers if layer not in ("", "__main__")]
