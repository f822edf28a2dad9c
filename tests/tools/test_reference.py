"""The reference pages name everything there is, their links lead somewhere, and a stale page is named."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import get_args

import pytest
from click.testing import CliRunner

from cursor_gateway.cli.main import cli
from cursor_gateway.errors import GatewayError
from cursor_gateway.model.document_events import StreamEventType
from cursor_gateway.model.documents import DocumentType
from cursor_gateway.schema import json_schema
from cursor_gateway.sources.cursor import tools
from tools.reference import __main__ as reference
from tools.reference.table_pages import error_classes

PAGES = [name for name in reference.PAGES if name.endswith(".md")]


@cache
def text_of(name: str) -> str:
    """As it is in the repository; `make check` compares it with what is generated."""
    return (reference.DOCS / "reference" / name).read_text(encoding="utf-8")


@cache
def _once(write: Callable[[], str]) -> Callable[[], str]:
    return cache(write)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the pages are written; each is made once for all tests."""
    for pages in (*reference.FOLDERS.values(), reference.OTHERS):
        for name, write in pages.items():
            monkeypatch.setitem(pages, name, _once(write))
    monkeypatch.setattr(reference, "DOCS", tmp_path)
    return tmp_path / "reference"


@pytest.mark.slow  # `make check` compares the pages
def test_what_was_just_written_is_up_to_date(folder: Path) -> None:
    assert CliRunner().invoke(reference.main).exit_code == 0
    assert {path.name for path in folder.iterdir()} == set(reference.PAGES)
    assert CliRunner().invoke(reference.main, ["--check"]).exit_code == 0


@pytest.mark.slow  # as above
def test_check_names_each_page_that_differs_and_writes_nothing(folder: Path) -> None:
    reference.write_pages(folder.parent)
    (folder / "errors.md").write_text("old")
    (folder / "tools.md").unlink()
    (folder / "left-over.md").write_text("of a page that is no more")
    result = CliRunner().invoke(reference.main, ["--check"])
    assert result.exit_code == 1
    assert re.findall(r"docs/reference/(\S+) is not", result.output) == ["errors.md", "left-over.md", "tools.md"]
    assert (folder / "errors.md").read_text() == "old"
    assert not (folder / "tools.md").exists()


@pytest.mark.slow  # `make check` compares the pages, in another terminal and with other hashes each time
def test_pages_do_not_depend_on_the_terminal_or_the_order_of_hashes(tmp_path: Path) -> None:
    """Each in a process of its own, so that other tests have changed nothing."""
    plain = {name: value for name, value in os.environ.items() if name in ("HOME", "PATH", "LANG", "LC_ALL")}
    odd = {**plain, "COLUMNS": "40", "PYTHONHASHSEED": "7", "FORCE_COLOR": "1"}

    def result(function: str, environment: dict[str, str]) -> str:
        script = (
            f"from pathlib import Path; from tools.reference.__main__ import *; print({function}(Path('{tmp_path}')))"
        )
        root = Path(__file__).parents[2]
        command = [sys.executable, "-c", script]
        return subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, check=True).stdout

    assert result("write_pages", plain) == "None\n"
    assert result("stale_pages", odd) == "[]\n"


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


@pytest.mark.parametrize("name", reference.PAGES)
def test_no_line_ends_in_white_space_and_each_page_ends_with_a_line_end(name: str) -> None:
    assert not re.search(r"[ \t]$", text_of(name), re.MULTILINE)
    assert text_of(name).endswith("\n")
    assert not text_of(name).endswith("\n\n")


def test_every_type_event_and_field_has_its_place() -> None:
    documents, events = text_of("documents.md"), text_of("events.md")
    for type in get_args(DocumentType):
        assert f"\n## {type}\n" in documents
        assert f'  "type": "{type}",' in documents  # its example
    for event in get_args(StreamEventType):
        assert f"\nevent: {event}\n" in events
        assert f'"type":"{event}"' in events
    for name, definition in json_schema()["$defs"].items():
        if "properties" in definition and not name.endswith(("Document", "Event")):
            section = (documents + events).partition(f"# {name}\n")[2]
            rows = section.partition("\n#")[0]
            assert re.findall(r"^\| `(\w+)`", rows, re.MULTILINE) == list(definition["properties"])


def test_every_error_is_listed_with_its_meaning() -> None:
    assert all(issubclass(error, GatewayError) for error in error_classes())
    for error in error_classes():
        row = re.search(rf"^\| `{error.code}` +\| {error.status} .*$", text_of("errors.md"), re.MULTILINE)
        assert row
        assert error.__doc__ is not None
        assert error.__doc__ in row[0]


def test_every_tool_is_listed() -> None:
    listed = re.findall(r"^\| `(\w+)`", text_of("tools.md"), re.MULTILINE)
    assert listed == [*sorted(tools._READERS), *sorted(tools._TABLE)]


def test_every_command_is_listed_with_its_help() -> None:
    listed = re.findall(r"^## (.+)$", text_of("cli.md"), re.MULTILINE)
    assert listed[0] == "cursor-gateway"
    assert [name for name in listed if name.count(" ") == 1] == [
        f"cursor-gateway {name}" for name in sorted(cli.commands)
    ]
    assert "cursor-gateway conversations search" in listed
    assert "Usage: cursor-gateway convert [OPTIONS] [FILE|-]" in text_of("cli.md")


def test_the_definitions_are_what_the_command_prints() -> None:
    for option, name in ([], "schema.json"), (["--typescript"], "documents.ts"):
        assert CliRunner().invoke(cli, ["schema", *option]).stdout == text_of(name)


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
