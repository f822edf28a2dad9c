"""What an older version wrote is read by this one, and goes on; what a newer one wrote is refused, and left as it is.

Each folder here was written by the version in its name: `python -m tools.old_data` writes one.
"""

import gzip
import json
import sqlite3
import subprocess
import sys
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cursor_gateway.store.postgres import schema
from cursor_gateway.store.sqlite.opening import migrations
from tests.cli.processes import TIMEOUT
from tests.gateways import RunningGateway, running_gateway
from tests.postgres import Databases
from tools.old_data import call, served

VERSIONS = sorted(folder.name for folder in Path(__file__).parent.iterdir() if (folder / "history.db.gz").exists())
DEMO = {"source": "replay", "replay_speed": "0", "workspace": "/tmp"}  # the folder that is stored with them


def stored(version: str, name: str) -> bytes:
    return gzip.decompress((Path(__file__).parent / version / name).read_bytes())


def expected(version: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(__file__).parent / version / name).read_text())
    return found


def format_of(file: Path) -> int:
    with closing(sqlite3.connect(file)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def check(gateway: RunningGateway, before: dict[str, Any]) -> None:
    assert served(gateway.url, list(before["runs"])) == before
    (pinned,) = [one["id"] for one in before["conversations"] if one["pinned"]]
    with urllib.request.urlopen(f"{gateway.url}/v1/conversations?q=failing", timeout=TIMEOUT) as found:
        assert json.load(found)["conversations"], "what was stored is still found by its words"
    again = call(gateway.url, "POST", "/v1/chat", {"message": "hello", "conversationId": pinned})
    assert (again["status"], again["conversationId"]) == ("completed", pinned)


def command(home: Path, *arguments: str, **settings: str) -> "subprocess.CompletedProcess[str]":
    variables = {f"CURSOR_GATEWAY_{name.upper()}": value for name, value in settings.items()}
    return subprocess.run(
        [sys.executable, "-m", "cursor_gateway", *arguments],
        env={"HOME": str(home), "PATH": "/usr/bin:/bin", **variables},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT, check=False,
    )  # fmt: skip


def test_there_is_something_to_upgrade() -> None:
    assert VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_a_data_directory_of_an_older_version_goes_on(version: str, tmp_path: Path) -> None:
    file = tmp_path / "data" / "history.db"
    file.parent.mkdir()
    file.write_bytes(stored(version, "history.db.gz"))
    with running_gateway(tmp_path, has_agent=False, settings=DEMO) as gateway:
        check(gateway, expected(version, "history.db.json"))
    assert format_of(file) == len(migrations())


@pytest.mark.parametrize("version", VERSIONS)
def test_a_database_of_an_older_version_goes_on(version: str, tmp_path: Path, postgres: Databases) -> None:
    with postgres.empty() as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(stored(version, "history.sql.gz"))
            connection.execute("RESET ALL")
            found = connection.execute("SELECT max(number) FROM public.cursor_gateway_migrations").fetchone()
        assert found is not None
        if found[0] < schema.newest():
            refused = command(tmp_path, "serve", "--port", "0", store=url, **DEMO)
            assert refused.returncode == 2
            assert "run `cursor-gateway migrate`" in refused.stderr
        assert command(tmp_path, "migrate", store=url).returncode == 0
        with running_gateway(tmp_path, has_agent=False, settings={**DEMO, "store": url}) as gateway:
            check(gateway, expected(version, "history.sql.json"))


def test_a_file_of_a_newer_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "history.db"
    file.write_bytes(stored(VERSIONS[-1], "history.db.gz"))
    known = len(migrations())
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(f"PRAGMA user_version = {known + 3}")
    before = file.read_bytes()
    refused = command(tmp_path, "serve", "--port", "0", data_dir=str(tmp_path), **DEMO)
    assert refused.returncode == 2
    sentence = f"newer cursor-gateway (format {known + 3}, this version supports {known}); upgrade again"
    assert sentence in refused.stderr
    assert file.read_bytes() == before
