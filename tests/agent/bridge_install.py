"""A directory in; a program in it that behaves like the SDK's bridge, out. Its knobs may be changed while it runs.

command = install_bridge(tmp_path / "bridge", keep_alive_seconds=0.05)
"""

import json
import os
import sys
from pathlib import Path

from tests.agent.install import ROOT
from tests.agent.knobs import FILE


def install_bridge(directory: Path, **knobs: object) -> list[str]:
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / "bridge.py"
    program.write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        f"from tests.agent.bridge import main\nmain(sys.argv[1:], {str(directory)!r})\n",
        encoding="utf-8",
    )
    set_knobs(directory, **knobs)
    return [sys.executable, "-I", str(program)]


def set_knobs(directory: Path, **knobs: object) -> None:
    """At once: the bridge may be reading."""
    (directory / f"{FILE}.new").write_text(json.dumps(knobs), encoding="utf-8")
    os.replace(directory / f"{FILE}.new", directory / FILE)
