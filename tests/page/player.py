"""A file of lines in; the stand-in writes them as they are, and waits where a line says so, out.

One more scenario of the stand-in: `standin: play file=PATH`. A line `{"wait": PATH}` holds the stream until that file
exists, so a test decides what the page has been told when it looks. See scripts.py, which writes such files.

The launcher starts without site-packages: this needs the standard library only.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def install_player(directory: Path) -> Path:
    """A program like the stand-in in `directory`, with the same knobs, that also plays files."""
    program = directory / "player"
    program.write_text(
        f"#!{sys.executable} -IS\n"
        "import os, sys\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "import tests.page.playing\n"
        "from tests.agent.main import main\n"
        f"os._exit(main(sys.argv[1:], {str(directory)!r}))\n",
        encoding="utf-8",
    )
    program.chmod(0o755)
    return program
