"""Real repositories for tests, made by git."""

import os
import subprocess
from pathlib import Path


def git(folder: Path, *words: str, given: bytes = b"") -> bytes:
    named = ("-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main")
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", "-C", folder, *named, *words], input=given, check=True, capture_output=True, env=environment
    )
    return done.stdout


def old(path: Path) -> None:
    """As if it had been written a while ago: git and the gateway do not trust what was changed just now."""
    os.utime(path, (1_700_000_000, 1_700_000_000))
