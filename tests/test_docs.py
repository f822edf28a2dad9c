"""What the pages for readers show, works as they show it."""

import doctest
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

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
    lines = [line for shell in examples(page, "sh") for line in shell.splitlines() if line.startswith("curl")]
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
