"""A process that is killed takes back nothing that it has shown, and leaves nothing that the next one cannot finish."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def kill_at(folder: Path, every: int, first: int) -> int:
    command = [sys.executable, "-m", "tests.store.killed_writers", str(folder), str(every), str(first)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert ran.returncode == 0, ran.stderr
    return int(ran.stdout)


def test_a_kill_while_runs_are_appended_moved_and_recovered_takes_back_nothing(tmp_path: Path) -> None:
    assert kill_at(tmp_path, 97, 13) > 20


@pytest.mark.timeout(1000)
@pytest.mark.slow  # all points; the test above has some of them
def test_a_kill_at_any_point_takes_back_nothing(tmp_path: Path) -> None:
    """At every fourth; `python -m tests.store.killed_writers FOLDER 1 1` tries them all, in a few minutes."""
    assert kill_at(tmp_path, 4, 1) > 500
