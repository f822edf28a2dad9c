"""What the tests' own set-up promises: no test hangs, and none leaves a process running."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cursor_gateway.sources.processes import start_of
from tests.server.conftest import eventually

pytestmark = pytest.mark.slow  # tests of a tool

ROOT = Path(__file__).parents[1]


def inner(tmp_path: Path, source: str, *options: str, ignored: tuple[signal.Signals, ...] = ()) -> tuple[int, str]:
    """The exit status and the output of a run of pytest with these tests in it, set up as this one is."""
    tests = tmp_path / "test_inner.py"
    tests.write_text(source, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(ROOT / "pyproject.toml"), "-p", "tests.conftest"]
    ran = subprocess.run(
        [*command, "-p", "no:cacheprovider", *options, str(tests)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: [signal.signal(number, signal.SIG_IGN) for number in ignored],
    )
    return ran.returncode, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    "hang",
    [
        "socket.socketpair()[0].recv(1)",
        "asyncio.run(asyncio.sleep(600))",
        "threading.Event().wait()",
        "subprocess.run(['sleep', '600'])",
    ],
)
@pytest.mark.quick_cases(1)
def test_a_test_that_hangs_fails_and_the_next_one_runs(tmp_path: Path, hang: str) -> None:
    source = f"""
import asyncio, socket, subprocess, threading

def test_that_hangs() -> None:
    {hang}

def test_that_follows() -> None:
    pass
"""
    status, result = inner(tmp_path, source, "-o", "timeout=1", "-o", "faulthandler_timeout=60")
    assert status == 1, result
    assert "1 failed, 1 passed" in result


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="there is no /proc here")
def test_what_a_test_leaves_running_is_killed(tmp_path: Path) -> None:
    """A child of its own, and one of somebody else's that works in its folder."""
    source = """
import os, subprocess, sys, warnings

def test_it(tmp_path) -> None:
    warnings.simplefilter("ignore")  # of what is killed below the feet of a Popen
    child = subprocess.Popen(["sleep", "600"])
    orphan = subprocess.run(
        ["sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!"], cwd=tmp_path, capture_output=True, check=True
    )
    with open(os.environ["PIDS"], "w") as file:
        file.write(f"{child.pid} {int(orphan.stdout)}")
    child.returncode = 0
"""
    pids = tmp_path / "pids"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIDS", str(pids))
        status, result = inner(tmp_path, source)
    assert status == 0, result
    eventually(lambda: [start_of(int(pid)) for pid in pids.read_text().split()] == [None, None])
