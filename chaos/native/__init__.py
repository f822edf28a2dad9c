"""A small C program's name in; it, compiled into a folder, out."""

import os
import shutil
import subprocess
from pathlib import Path

from chaos.table import Skipped

_HERE = Path(__file__).parent


def light_agent(folder: Path) -> str:
    """An agent of which a thousand can run at once."""
    return _compiled("light_agent.c", folder / "cursor-agent")


def shim(folder: Path) -> str:
    """Loaded with LD_PRELOAD it makes the clock wrong, or has new processes refused."""
    return _compiled("shim.c", folder / "shim.so", "-shared", "-fPIC", "-ldl")


def _compiled(source: str, target: Path, *flags: str) -> str:
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise Skipped("there is no C compiler here")
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [compiler, "-O2", "-o", str(target), str(_HERE / source), *flags]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return str(target)
