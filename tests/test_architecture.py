"""ARCHITECTURE.md is true: its tree has every folder, the files that it names exist, its layers are those checked."""

import configparser
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "cursor_gateway"
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}")[2].partition("\n## ")[0]


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


def test_its_layers_are_those_of_the_contract() -> None:
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    layers = contracts["importlinter:contract:layers"]["layers"].split("\n")
    written = re.search(r"Imports point down: (.*?)\.\n", PAGE, re.DOTALL)
    assert written is not None
    listed = [re.findall(r"\w+", layer) for layer in written[1].split(">")]
    assert listed == [re.findall(r"\w+", layer) for layer in layers if layer not in ("", "__main__")]
