"""The specification's text in; its JSON examples, its streaming examples and its TypeScript out."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

_FILE = Path(__file__).parents[3] / "shared" / "seeds" / "000_ec2bac7d70fa9219.txt"
_COMMENT = re.compile(r"/\*.*?\*/")

needs_specification = pytest.mark.skipif(not _FILE.exists(), reason="the specification's text is not here")


def _section(first: int, last: int) -> str:
    text = _FILE.read_text(encoding="utf-8")
    starts = {int(found[1]): found.start() for found in re.finditer(r"^(\d)\. [A-Z]", text, re.MULTILINE)}
    return text[starts[first] : starts[last + 1]]


def json_examples() -> list[dict[str, Any]]:
    """The objects of §2 to §4, as they stand; a comment in them stands for nothing."""
    text = _COMMENT.sub("", _section(2, 4))
    found, position = [], 0
    while start := re.compile(r"^\{", re.MULTILINE).search(text, position):
        value, position = json.JSONDecoder().raw_decode(text, start.start())
        found.append(value)
    return found


def event_examples() -> list[tuple[str, dict[str, Any]]]:
    """Name and data of each event of §5."""
    return [(name, json.loads(data)) for name, data in re.findall(r"^event: (\w+)\ndata: (.+)$", _section(5, 5), re.M)]


def typescript_source() -> str:
    return _section(6, 6).partition("\n")[2]
