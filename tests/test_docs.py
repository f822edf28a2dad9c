"""What the pages for readers show, works as they show it."""

import doctest
import json
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from collections import Counter
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import click
import pytest
from hatchling.builders.wheel import WheelBuilder

from cursor_gateway.cli.commands.share import proxy_advice
from cursor_gateway.cli.main import cli
from cursor_gateway.settings import load
from tests.cli.processes import TIMEOUT
from tests.gateways import running_gateway

ROOT = Path(__file__).parent.parent
USUAL = "http://127.0.0.1:8787"


def test_the_library_page_is_true() -> None:
    found = doctest.testfile(str(ROOT / "docs" / "library.md"), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert found.attempted > 10
    assert found.failed == 0


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a gateway in demo mode, as a newcomer has it."""
    with running_gateway(tmp_path_factory.mktemp("home"), has_agent=False, settings={"replay_speed": "0"}) as gateway:
        yield gateway.url


def examples(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("page", ["README.md", "docs/server.md", "docs/tools.md"])
def test_the_python_examples_run(page: str, url: str) -> None:
    snippets = [snippet for snippet in examples(page, "python") if USUAL in snippet]
    assert snippets
    for snippet in snippets:
        code = snippet.replace(USUAL, url)
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT, check=False)
        assert (ran.returncode, bool(ran.stdout.strip())) == (0, True), ran.stderr


@pytest.mark.parametrize("page", ["README.md", "docs/server.md"])
def test_the_curl_examples_run(page: str, url: str) -> None:
    """Those that call a gateway: nothing is fetched from elsewhere."""
    lines = [
        line for shell in examples(page, "sh") for line in shell.splitlines() if line.startswith(f"curl -s {USUAL}")
    ]
    assert lines
    for line in lines:
        ran = subprocess.run(line.replace(USUAL, url), shell=True, capture_output=True, timeout=TIMEOUT, check=True)
        assert json.loads(ran.stdout)["status"] == "completed"


_FENCE = re.compile(r"^(`{3,})[^`\n]*\n.*?^\1$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)|<(?:img|source)[^>]* (?:src|srcset)=\"([^\"]+)\"")
_PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


def links(page: Path) -> list[str]:
    text = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", page.read_text(encoding="utf-8")))
    return [link or picture for link, picture in _LINK.findall(text) if "://" not in link + picture]


def anchors(page: Path) -> set[str]:
    """Of each heading, as GitHub and the website make them: several of the same name are numbered."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        found.add(slug if not seen[slug] else f"{slug}-{seen[slug]}")
        seen[slug] += 1
    return found


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in links(page):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.is_file(), link  # a folder has no page on the website
        if anchor:
            assert anchor in anchors(target), link


def test_links_are_found() -> None:
    assert "docs/server.md#security-and-limits" in links(ROOT / "README.md")
    assert "security-and-limits" in anchors(ROOT / "docs" / "server.md")


@pytest.mark.parametrize("page", ["server", "messages", "setup", "cost", "webhooks"])
def test_every_setting_that_is_shown_can_be_read(page: str) -> None:
    blocks = examples(f"docs/{page}.md", "toml")
    assert blocks
    for block in blocks:
        load({name: value for name, value in tomllib.loads(block).items() if name != "api_keys"}, {}, {})  # no hashes


def test_the_page_about_other_devices_has_what_the_command_shows() -> None:
    page = (ROOT / "docs" / "remote.md").read_text()
    (proxy,) = re.findall(r"^```text\n(gateway\.example\.com \{.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert textwrap.indent(proxy, "  ") in proxy_advice(8788)
    assert "CURSOR_GATEWAY_PAGE_URL=https://gateway.example.com cursor-gateway serve --share\n" in proxy_advice(8788)


def commands(page: Path) -> list[list[str]]:
    """Of our own program, in the blocks for a shell: without what is piped into or out of it."""
    blocks = re.findall(r"^```(?:sh|console)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line.removeprefix("$ ").strip() for block in blocks for line in block.splitlines()]
    parts = [part for line in lines for part in re.split(r" \| (?=cursor-gateway)", line)]
    found = [re.match(r"(?:[A-Z_]+=\S+ )*cursor-gateway(?: (.*))?$", part) for part in parts]
    return [_words(one[1] or "") for one in found if one is not None]


def _words(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|><;&")
    lexer.whitespace_split = True
    return list(takewhile(lambda word: not set(word) <= set("|><;&"), lexer))


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_has_options_that_exist(page: Path) -> None:
    for words in commands(page):
        command: click.Command = cli
        context = click.Context(cli, info_name="cursor-gateway", **cli.context_settings)
        while isinstance(command, click.Group) and words[:1] and words[0] in command.commands:
            name, *words = words
            child = command.commands[name]
            whole = child.make_context(name, [], context, resilient_parsing=True).command  # it is imported when used
            context, command = click.Context(whole, info_name=name, parent=context), whole
        command.parse_args(context, words)


def test_commands_are_found() -> None:
    assert ["serve", "--workspace", "~/project"] in commands(ROOT / "README.md")
    assert _words("convert x --to text > out.txt # a comment") == ["convert", "x", "--to", "text"]


def source_files() -> set[Path]:
    found = (ROOT / "src" / "cursor_gateway").rglob("*")
    return {path.relative_to(ROOT / "src") for path in found if path.is_file() and "__pycache__" not in path.parts}


def test_the_package_has_every_file() -> None:
    packed = {Path(file.distribution_path) for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    assert packed >= source_files()
