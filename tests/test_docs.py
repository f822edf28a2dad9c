"""What the pages for readers show, works as they show it."""

import doctest
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_library_page_is_true() -> None:
    found = doctest.testfile(str(ROOT / "docs" / "library.md"), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert found.attempted > 10
    assert found.failed == 0


def test_the_readmes_python_snippet_runs() -> None:
    (snippet,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    ran = subprocess.run([sys.executable, "-c", snippet], capture_output=True, text=True, timeout=300, check=True)
    assert len(ran.stdout.splitlines()) == 20


def test_every_link_between_the_pages_leads_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    links = [
        (page, link)
        for page in pages
        for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
        if "://" not in link
    ]
    assert links
    assert [(page.name, link) for page, link in links if not (page.parent / link).exists()] == []
