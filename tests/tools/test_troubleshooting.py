"""Each error has a section with its cause and what to do, and what the page quotes is what the program says."""

import ast
import re
from pathlib import Path

import pytest

from cursor_gateway.dialects.errors import for_retrying_clients
from cursor_gateway.errors import GatewayError
from cursor_gateway.settings import every_setting
from tools.reference.remedies import GROUPS
from tools.reference.table_pages import error_classes

ROOT = Path(__file__).parents[2]
REMEDIES = {code: remedy for group in GROUPS.values() for code, remedy in group.items()}
# Names in backticks that are fields of requests or files, not settings.
FIELDS = {"tool_choice", "response_format", "previous_response_id"}


@pytest.fixture(scope="module")
def page() -> str:
    """As it is in the repository; `make check` compares it with what is generated."""
    return (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("error", error_classes(), ids=lambda error: error.code)
def test_every_error_has_its_section(error: type[GatewayError], page: str) -> None:
    section = page.partition(f"\n### {error.code}\n")[2].partition("\n#")[0]
    elsewhere = for_retrying_clients(error("").failure()).status
    others = "" if elsewhere == error.status else f" ({elsewhere} outside the documents API)"
    assert section.startswith(f"\nHTTP {error.status}{others}, OpenAI type `")
    assert re.search(r"^\*\*Cause:\*\* \S", section, re.MULTILINE)
    assert re.search(r"^\*\*What to do:\*\* \S", section, re.MULTILINE)


def test_what_is_quoted_by_hand_is_in_the_source() -> None:
    literals = {
        node.value
        for path in (ROOT / "src").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    quoted = [message for remedy in REMEDIES.values() for message in remedy.also]
    assert quoted
    for piece in {piece.strip("`") for message in quoted for piece in message.split("…")}:
        assert any(piece in literal for literal in literals), piece


def test_every_setting_that_is_named_exists() -> None:
    settings = {setting.name for setting in every_setting()}
    texts = [text for remedy in REMEDIES.values() for text in (remedy.cause, remedy.fix)]
    named = {name for text in texts for name in re.findall(r"`([a-z]+(?:_[a-z]+)+)`", text)}
    assert named
    assert named - FIELDS <= settings
