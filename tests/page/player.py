"""A file of lines in; the stand-in writes them as they are, and waits where a line says so, out.

One more scenario of the stand-in: `standin: play file=PATH`. A line `{"wait": PATH}` holds the stream until that file
exists, so a test decides what the page has been told when it looks. See scripts.py, which writes such files.

The launcher starts without site-packages: this needs the standard library only.
"""

import json
import os
import sys
import time
from pathlib import Path

from tests.agent.turn import Turn, runs

ROOT = Path(__file__).resolve().parents[2]


def install_player(directory: Path) -> Path:
    """A program like the stand-in in `directory`, with the same knobs, that also plays files."""
    program = directory / "player"
    program.write_text(
        f"#!{sys.executable} -IS\n"
        "import os, sys\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "import tests.page.player\n"
        "from tests.agent.main import main\n"
        f"os._exit(main(sys.argv[1:], {str(directory)!r}))\n",
        encoding="utf-8",
    )
    program.chmod(0o755)
    return program


@runs("play")
def play(turn: Turn) -> None:
    turn.begin()
    with open(turn.text("file", ""), "rb") as lines:
        for line in lines:
            if line.startswith(b'{"wait"'):
                _wait_for(json.loads(line)["wait"])
            else:
                turn.agent.raw(line)


def _wait_for(path: str) -> None:
    while not os.path.exists(path):
        time.sleep(0.005)
