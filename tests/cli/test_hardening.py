"""An agent cannot read the environment of the gateway that started it."""

import os
import subprocess
import sys

import pytest

_LOOK = """
import ctypes, os, subprocess, sys  # all at once: the other user may not be able to read them
from cursor_gateway.cli.commands.serve import protect_memory
os.setgid(65534); os.setuid(65534)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # as in a process that this user has started
if sys.argv[1] == "protected":
    assert protect_memory()
seen = subprocess.run(["cat", f"/proc/{os.getpid()}/environ"], capture_output=True).stdout
sys.exit(0 if b"hidden-password" in seen else 3)
"""


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root on Linux can become another user")
@pytest.mark.parametrize(("how", "expected"), [("open", 0), ("protected", 3)])
def test_who_can_read_the_environment(how: str, expected: int) -> None:
    environ = {"PATH": "/usr/bin:/bin", "SECRET": "hidden-password"}
    ended = subprocess.run([sys.executable, "-c", _LOOK, how], env=environ, timeout=60, check=False)
    assert ended.returncode == expected
