"""The page's files: the frame of a diagram has only its own scripts and no network, and needs the extra `diagrams`."""

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterator

import pytest

from cursor_gateway.server import operations as page_files


@pytest.fixture(autouse=True)
def read_again() -> Iterator[None]:
    page_files._files.cache_clear()
    yield
    page_files._files.cache_clear()


def test_the_frame_of_a_diagram_runs_its_own_scripts_and_reaches_nothing() -> None:
    frame = page_files._files()["diagram.html"]
    rules = dict(rule.strip().split(" ", 1) for rule in frame.headers["content-security-policy"].split(";"))
    assert (rules["default-src"], rules["sandbox"], rules["img-src"]) == ("'none'", "allow-scripts", "data:")
    assert "connect-src" not in rules
    scripts = re.findall(rb"<script>(.*?)</script>", frame.data, re.DOTALL)
    hashes = [b64encode(hashlib.sha256(script).digest()).decode() for script in scripts]
    assert len(hashes) == 2
    assert rules["script-src"] == " ".join(f"'sha256-{hash}'" for hash in hashes)


def test_without_the_extra_there_is_no_such_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_files, "find_spec", lambda name: None)
    assert "diagram.html" not in page_files._files()
    assert "index.html" in page_files._files()
