"""Commands in; what they printed out. A command that fails ends everything, with all that it printed."""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
REQUIREMENTS = ROOT / "requirements"
_LIMIT = 600  # seconds, for a red build only
_UV = Path(sys.executable).parent / "uv"


def run(command: Sequence[str | Path], *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    words = [str(word) for word in command]
    ran = subprocess.run(
        words, cwd=cwd, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=_LIMIT, check=False,
    )  # fmt: skip
    if ran.returncode != 0:
        raise SystemExit(f"failed with {ran.returncode}: {shlex.join(words)}\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def uv(*words: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    return run([_UV, *words], env=env, cwd=cwd)


def new_environment(folder: Path, requirements: Path | None = None) -> Path:
    """The Python of an empty virtual environment, or of one with exactly these requirements, by hash."""
    uv("venv", "-q", "--python", sys.executable, folder)
    python = folder / "bin" / "python"
    if requirements is not None:
        uv("pip", "install", "-q", "--python", python, "--require-hashes", "-r", requirements)
    return python
