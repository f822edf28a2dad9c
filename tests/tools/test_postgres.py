"""The server of our own: it works, survives being killed, and ends with whoever started it."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from tools.postgres import Server, running

pytestmark = pytest.mark.slow  # tests of a tool

_HOLDER = """
import sys, time
from tools.postgres import running

with running() as server:
    print(server.folder, server.pid, flush=True)
    time.sleep(600)
"""


def _numbers(server: Server, database: str) -> list[int]:
    with psycopg.connect(server.url(database)) as connection:
        return [number for (number,) in connection.execute("SELECT number FROM numbers ORDER BY number")]


def test_a_database_is_a_copy_of_its_template_and_survives_a_kill() -> None:
    with running() as server:
        server.create_database("first")
        server.execute("first", "CREATE TABLE numbers AS SELECT 1 AS number")
        server.create_database("second", "first")
        server.execute("second", "INSERT INTO numbers VALUES (2)")
        server.kill()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(server.url("first"))
        server.start()
        assert (_numbers(server, "first"), _numbers(server, "second")) == ([1], [1, 2])
        server.drop_database("second")
        with pytest.raises(psycopg.OperationalError, match="does not exist"):
            psycopg.connect(server.url("second"))
    assert not server.folder.exists()


def test_it_ends_when_the_process_that_started_it_is_killed() -> None:
    holder = subprocess.Popen([sys.executable, "-c", _HOLDER], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    with holder:
        folder, _ = holder.stdout.readline().split()
        socket = Path(folder) / ".s.PGSQL.5432"
        assert socket.exists()
        holder.kill()
    while socket.exists():  # the test's own timeout limits this
        time.sleep(0.05)
    shutil.rmtree(folder)
