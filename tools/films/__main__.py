"""Run it as `python -m tools.films`. The film of the page needs a browser."""

import os
import sys
import tempfile
from pathlib import Path

from tests.page.browsers import PROGRAMS, browser_program
from tools.films.film import Rows, terminal_film
from tools.films.page import page_film, waiting_film
from tools.films.terminal import record

_IMAGES = Path(__file__).parents[2] / "docs" / "images"
_COLUMNS, _LINES = 96, 24
_PROMPT = "Fix the failing tests"


def main() -> None:
    browser = browser_program()
    if browser is None:
        sys.exit(f"There is no browser: none of {', '.join(PROGRAMS)} is on PATH.")
    with tempfile.TemporaryDirectory() as home:
        _write("chat.svg", terminal_film(_chat(Path(home)), _COLUMNS, _LINES, "cursor-gateway chat"))
    with tempfile.TemporaryDirectory() as home:
        _write("page.svg", page_film(Path(home), browser, _PROMPT))
    for backend in ("acp", "cli", "sdk"):
        with tempfile.TemporaryDirectory() as home:
            _write(f"waiting-{backend}.svg", waiting_film(backend, Path(home), browser))


def _chat(home: Path) -> list[Rows]:
    """With the built-in demo, which needs no agent: as a newcomer sees it."""
    folder = home / "project"
    folder.mkdir()
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}",
        "HOME": str(home),
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "CURSOR_GATEWAY_PORT": "0",  # no gateway of whoever runs this is used
    }
    return record(["cursor-gateway", "chat", _PROMPT], environment, folder, _COLUMNS, _LINES)


def _write(name: str, svg: str) -> None:
    (_IMAGES / name).write_text(svg, encoding="utf-8")
    print(f"{name}: {len(svg.encode()):,} bytes")  # noqa: T201 -- a command's answer


if __name__ == "__main__":
    main()
