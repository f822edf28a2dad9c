"""The first tasks of docs/first-tasks.md in; a picture of each (docs/images/task-*) out.

Run it as `python -m tools.first_tasks`. Those on the page are done in a browser, with the stand-in agent; those in a
terminal are what the commands print.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, ViewportSize

from tests.agent.install import install
from tests.cli.processes import read_until
from tests.gateways import RunningGateway, running_gateway
from tests.page.browsers import PROGRAMS, TIMEOUT_MS, browser_program, running_browser
from tests.page.first_tasks import FILE, FOLDER, Person, answered, do_tasks, prepare
from tools.films.film import Rows, terminal_film
from tools.films.page import HOME, tidy
from tools.films.screen import Row, Screen
from tools.films.terminal import record

_DOCS = Path(__file__).parents[1] / "docs"
_IMAGES = _DOCS / "images"
_COLUMNS, _LINES = 96, 20
_SIZE: ViewportSize = {"width": 1100, "height": 660}
_ASKED = "Greet in French, too"
_DONE = [
    {"native": "read", "args": {"path": FILE}},
    {"native": "edit", "args": {"path": FILE, "streamContent": 'print("Hello")\nprint("Bonjour")\n'}},
    {"say": "The program greets in both languages now."},
]


def main() -> None:
    browser = browser_program()
    if browser is None:
        sys.exit(f"There is no browser: none of {', '.join(PROGRAMS)} is on PATH.")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        _write("start", _serve(home / "start"), "cursor-gateway serve")
        with running_gateway(home / "page") as gateway:
            prepare(gateway)
            _picture_page(gateway, browser)
            _write("continue-it-in-the-terminal", _chat(gateway), "cursor-gateway chat")
    _write(
        "connect-opencode",
        _told((_DOCS / "parts" / "clients" / "opencode.txt").read_text(encoding="utf-8")),
        "OpenCode",
    )
    for picture in sorted(_IMAGES.glob("task-*")):
        print(f"{picture.name}: {picture.stat().st_size:,} bytes")  # noqa: T201 -- a command's answer


# --- on the page ----------------------------------------------------------------------------------------


def _picture_page(gateway: RunningGateway, program: str) -> None:
    with running_browser(program) as browser:
        context = browser.new_context(
            viewport=_SIZE, color_scheme="light", reduced_motion="reduce", permissions=["clipboard-write"]
        )
        context.set_default_timeout(TIMEOUT_MS)
        context.route("**/v1/chat", answered)
        page = context.new_page()
        page.goto(gateway.url)
        do_tasks(Person(page, lambda name: _take(page, name, gateway.workspace)))
        context.close()


def _take(page: Page, name: str, workspace: Path) -> None:
    page.wait_for_timeout(600)  # until the panel of changes and the sidebar have followed
    tidy(page, workspace)
    page.screenshot(path=_IMAGES / f"task-{name}.png", animations="disabled", caret="hide")


# --- in a terminal --------------------------------------------------------------------------------------


def _serve(home: Path) -> list[Row]:
    """The banner."""
    (home / "project").mkdir(parents=True)
    (home / "bin").mkdir()
    install(home / "bin")
    with _started(home) as process:
        assert process.stdout is not None
        said = read_until(process.stdout.fileno(), b"Ctrl-C to stop.").decode()
    said = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8787", said).replace(str(home), HOME)
    return _told(f"$ cursor-gateway serve --workspace ~/project --open\n{said}")


@contextmanager
def _started(home: Path) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "cursor_gateway", "serve", "--port", "0", "--workspace", str(home / "project")]
    environment = {"PATH": f"{home / 'bin'}:/usr/bin:/bin", "HOME": str(home)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment) as process:
        yield process
        process.terminate()


def _chat(gateway: RunningGateway) -> list[Row]:
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}",
        "HOME": str(gateway.home),
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "CURSOR_GATEWAY_PORT": gateway.url.rpartition(":")[2],
        "CURSOR_GATEWAY_DATA_DIR": str(gateway.data),
    }
    asked = f"{_ASKED} standin: program\n---\n{json.dumps(_DONE)}"
    command = ["cursor-gateway", "chat", "--continue", asked]
    rows = record(command, environment, gateway.workspace / FOLDER, _COLUMNS, 100)[-1].rows
    first = next(place for place, row in enumerate(rows) if not row)  # below what was typed
    typed = _told(f'$ cursor-gateway chat --continue "{_ASKED}"')
    return [*typed, *(_disguised(row, str(gateway.workspace)) for row in rows[first : first + _LINES])]


def _disguised(row: Row, path: str) -> Row:
    """Without the temporary folder of this run."""
    at = "".join(character for character, _ in row).find(path)
    if at < 0:
        return row
    return row[:at] + tuple((character, row[at][1]) for character in HOME) + row[at + len(path) :]


def _told(text: str) -> list[Row]:
    """The first lines of a transcript."""
    screen = Screen(_COLUMNS, 1000)
    screen.feed(text.replace("\n", "\r\n"))
    return screen.rows()[:_LINES]


def _write(name: str, rows: list[Row], title: str) -> None:
    svg = terminal_film([Rows(1.0, rows)], _COLUMNS, len(rows), title)
    (_IMAGES / f"task-{name}.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
