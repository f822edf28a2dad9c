"""`.ci/phase`: a command has a limit, and nothing outlives it."""

import subprocess
import sys
from pathlib import Path

import pytest

_PHASE = Path(__file__).parents[2] / ".ci" / "phase"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it needs /proc and prctl")


def phase(minutes: float, script: str) -> tuple[int, str]:
    """What it prints is read to the end: a process that lived on would hold the pipe."""
    command = [sys.executable, str(_PHASE), str(minutes), "bash", "-c", script]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60)
    return ended.returncode, ended.stdout


def test_the_status_is_that_of_the_command() -> None:
    status, printed = phase(1, "echo hello; exit 3")
    assert status == 3
    assert printed.startswith("hello\n")


def test_processes_left_behind_are_killed_and_named() -> None:
    status, printed = phase(1, "setsid sleep 300 & (sleep 200 &)")
    assert status == 0
    assert "sleep 300" in printed
    assert "sleep 200" in printed


def test_a_command_that_takes_too_long_is_stopped() -> None:
    status, printed = phase(0.005, "sleep 300")
    assert status == 124
    assert "stopped after 0.005 minutes" in printed


def test_orphans_that_end_do_not_stay() -> None:
    orphan = "bash -c 'sleep 0.05 > /dev/null & echo $!'"
    status, printed = phase(0.5, f"p=$({orphan}); while kill -0 $p 2> /dev/null; do sleep 0.01; done; echo gone")
    assert status == 0
    assert printed.startswith("gone\n")
