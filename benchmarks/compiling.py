"""The C sources in `programs/` in; the agent and the load client, compiled, out."""

import os
import shutil
import subprocess
from pathlib import Path

from benchmarks.failing import BenchmarkFailed

_SOURCES = Path(__file__).parent / "programs"


def compile_program(source: str, to: Path) -> Path:
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise BenchmarkFailed("The benchmarks need a C compiler: install gcc or clang, or name yours in CC.")
    command = [compiler, "-O2", "-Wall", "-Wextra", "-o", str(to), str(_SOURCES / source)]
    compiled = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if compiled.returncode or compiled.stderr:  # a warning, too, is a mistake of ours
        raise BenchmarkFailed(f"{source} does not compile cleanly:\n{compiled.stderr}")
    return to
