"""What `connect --write` keeps about the files that it changed."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from cursor_gateway.cli.kept_files import ClientConnection, ClientConnections


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_a_record_is_its_owners_alone(tmp_path: Path) -> None:
    """It has the text of files that contain keys."""
    data = tmp_path / "data"
    kept = ClientConnections(data)
    for written in ("first", "second"):
        kept.write("client", ClientConnection(file="f", before="a key", written=written))
        (file,) = (data / "connections").iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        found = kept.read("client")
        assert found is not None
        assert found.written == written
    kept.remove("client")
    assert kept.read("client") is None
