"""A directory in; programs in it that behave like cursor-agent, out.

program = install(tmp_path / "bin", knobs={"trust": "all", "log": str(tmp_path / "log")})
subprocess.run([program, "-p", "--output-format", "stream-json", "standin: tools"], stdin=DEVNULL)
"""

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.agent.knobs import FILE, plain

ROOT = Path(__file__).resolve().parents[2]


def install(
    directory: Path, *, names: Iterable[str] = ("cursor-agent", "agent"), knobs: Mapping[str, object] | None = None
) -> Path:
    """Returns the first program's path. The knobs are kept in a file beside it, and may be installed anew."""
    directory = directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    programs = [directory / name for name in names]
    for program in programs:
        program.write_text(_launcher(directory), encoding="utf-8")
        program.chmod(0o755)
    (directory / FILE).write_text(json.dumps(plain(knobs or {})), encoding="utf-8")
    return programs[0]


def _launcher(directory: Path) -> str:
    return (
        f"#!{sys.executable} -IS\n"
        "import os, sys\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "from tests.agent.main import main\n"
        f"os._exit(main(sys.argv[1:], {str(directory)!r}))\n"
    )
