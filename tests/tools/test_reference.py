"""The reference pages name everything there is, their links lead somewhere, and a stale page is named."""

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from cursor_gateway.cli.main import cli
from tools.reference import __main__ as reference

PAGES = [name for name in reference.PAGES if name.endswith(".md")]


@cache
def text_of(name: str) -> str:
    """As it is in the repository; `make check` compares it with what is generated."""
    return (reference.DOCS / "reference" / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", text_of(name)):
        page, _, anchor = target.partition("#")
        if page.startswith("../"):
            assert (reference.DOCS / "reference" / page).exists()
            continue
        assert (page or name) in reference.PAGES
        if anchor:
            headings = re.findall(r"^#+ (.+)$", text_of(page or name), re.MULTILINE)
            assert anchor in {heading.lower() for heading in headings}, target


GUIDE = Path(__file__).parents[2] / "docs" / "documents.md"
_BLOCK = re.compile(r"^(`{3,})(sh|console)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
_CHANGING = re.compile(r"chat_[0-9a-f-]{36}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@pytest.mark.skipif(shutil.which("bash") is None, reason="the guide's commands are for a shell")
def test_the_guides_commands_print_what_it_says(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def printed(command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True
        )
        assert not done.stderr
        return _CHANGING.sub("…", done.stdout).rstrip("\n")

    seen = 0
    for _, kind, text in _BLOCK.findall(GUIDE.read_text(encoding="utf-8")):
        if kind == "sh":
            assert printed(text) == ""
            continue
        for command, said in re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
            assert printed(command) == _CHANGING.sub("…", said).rstrip("\n"), command
            seen += 1
    assert seen == 6
    assert {file.name for file in tmp_path.iterdir()} >= {"documents.schema.json", "documents.ts", "components.json"}


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_the_manual_page_is_valid_and_names_every_command(tmp_path: Path) -> None:
    page = tmp_path / "cursor-gateway.1"
    page.write_text(text_of("cursor-gateway.1"))
    command = ["groff", "-man", "-Tutf8", "-ww", "-P-cbou", str(page)]
    shown = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60, check=True)
    assert shown.stderr == ""
    text = shown.stdout.replace("\u2010", "-").replace("\u2212", "-")  # how groff shows hyphens and minus signs
    for name in cli.commands:
        assert f"cursor-gateway {name}" in text
    assert re.search(r"^ +--workspace DIR$", text, re.MULTILINE)
