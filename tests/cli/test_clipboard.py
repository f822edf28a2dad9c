"""Text into the clipboard of the terminal; an image out of the clipboard of the desktop."""

from base64 import b64decode
from io import StringIO
from pathlib import Path

import pytest

from cursor_gateway.cli.terminal.session import copy, image

PNG = b"\x89PNG\r\n\x1a\n"


def test_the_terminal_gets_the_text() -> None:
    terminal, within = StringIO(), StringIO()
    assert copy("héllo", terminal, {})
    written = terminal.getvalue()
    assert written.startswith("\x1b]52;c;")
    assert b64decode(written.removeprefix("\x1b]52;c;").removesuffix("\x07")).decode() == "héllo"
    assert copy("héllo", within, {"TMUX": "/tmp/tmux"})
    assert within.getvalue() == f"{written}\x1bPtmux;\x1b{written}\x1b\\"
    assert not copy("x" * 100_000, terminal, {})
    assert terminal.getvalue() == written


@pytest.mark.parametrize(
    ("program", "variable", "script", "found"),
    [
        ("wl-paste", "WAYLAND_DISPLAY", r"printf '\211PNG\r\n\032\n'", PNG),
        ("xclip", "DISPLAY", r"printf '\211PNG\r\n\032\n'", PNG),
        ("pngpaste", "", r"printf '\211PNG\r\n\032\n'", PNG),
        ("xclip", "OTHER", r"printf '\211PNG\r\n\032\n'", None),  # there is no desktop
        ("xclip", "DISPLAY", "echo text", None),
        ("xclip", "DISPLAY", "exit 1", None),
        ("none", "DISPLAY", "", None),
    ],
)
def test_an_image_comes_from_the_program_of_the_desktop(
    program: str, variable: str, script: str, found: bytes | None, tmp_path: Path
) -> None:
    path = tmp_path / program
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    environ = {"PATH": str(tmp_path), **({variable: ":0"} if variable else {})}
    assert image(environ) == found


def test_a_program_that_cannot_be_started_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "pngpaste"
    path.write_text("no program")
    path.chmod(0o700)
    assert image({"PATH": str(tmp_path)}) is None
