"""The next version, as the nemesis makes it: it differs from this one where versions may, and both work together."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cursor_gateway.store.cluster import LEVEL, OLDEST
from cursor_gateway.store.postgres.schema import newest
from nemesis.versions import SOURCES, newer

pytestmark = pytest.mark.slow  # tests of a tool

_LOOK = """
from cursor_gateway.cluster.commands import Take, encode
from cursor_gateway.model.messages import UserMessage
from cursor_gateway.runs.run_service import RunRequest
from cursor_gateway.store.cluster import LEVEL, OLDEST
from cursor_gateway.store.postgres.schema import newest
import sys
print(LEVEL, OLDEST, newest(), encode(Take(request=RunRequest(owner="me", messages=[UserMessage("hello")]))).hex())
"""


def test_the_next_version_understands_this_one_and_is_understood(tmp_path: Path) -> None:
    from cursor_gateway.cluster.commands import Take, command_of

    source = newer(tmp_path / "newer", SOURCES)
    environment = {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run([sys.executable, "-c", _LOOK], env=environment, capture_output=True, text=True, check=True)
    level, oldest, tables, command = done.stdout.split()
    assert (int(level), int(tables)) == (LEVEL + 1, newest() + 1)
    assert int(oldest) <= LEVEL, "the next version must work with this one"
    assert OLDEST <= LEVEL
    decoded = command_of(bytes.fromhex(command))
    assert isinstance(decoded, Take)
    assert decoded.request.owner == "me"


def test_sources_that_it_does_not_know_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "cursor_gateway" / "store"
    folder.mkdir(parents=True)
    (folder / "cluster.py").write_text("LEVEL = 7\n")
    with pytest.raises(ValueError, match=r"update nemesis/versions\.py"):
        newer(tmp_path / "newer", tmp_path)
