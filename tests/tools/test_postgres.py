"""The server of our own: it works, survives being killed, and ends with whoever started it."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # tests of a tool

_HOLDER = """
import sys, time
from tools.postgres import running

with running() as server:
    print(server.folder, server.pid, flush=True)
    time.sleep(600)
"""


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
