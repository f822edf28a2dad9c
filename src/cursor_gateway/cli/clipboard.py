"""The clipboard of the person at the terminal: text into it, an image out of it."""

import os
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Mapping
from typing import TextIO

_SECONDS = 5.0
_MOST_BYTES = 20_000_000  # of an image
_MOST_COPIED = 70_000  # characters that terminals accept

# Programs that print the image in the clipboard, and when they can be used.
_IMAGE_COMMANDS = (
    ("WAYLAND_DISPLAY", ("wl-paste", "--no-newline", "--type", "image/png")),
    ("DISPLAY", ("xclip", "-selection", "clipboard", "-target", "image/png", "-out")),
    ("", ("pngpaste", "-")),
)


def copy(text: str, terminal: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """By a control sequence (OSC 52), which also works over SSH: the terminal has the clipboard, not this machine.
    False: it is too long. Whether the terminal takes it is not known."""
    data = b64encode(text.encode("utf-8", "replace")).decode()
    if len(data) > _MOST_COPIED:
        return False
    sequence = f"\x1b]52;c;{data}\x07"
    if environ.get("TMUX"):  # passed through, in case it does not itself set the clipboard
        sequence += f"\x1bPtmux;\x1b{sequence}\x1b\\"
    terminal.write(sequence)
    terminal.flush()
    return True


def image(environ: Mapping[str, str] = os.environ) -> bytes | None:
    """None: there is none in the clipboard, or no program that can read it. Waits for the program."""
    for variable, command in _IMAGE_COMMANDS:
        if (variable and not environ.get(variable)) or shutil.which(command[0], path=environ.get("PATH")) is None:
            continue
        try:
            ran = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False, env=environ)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if ran.returncode == 0 and ran.stdout.startswith(b"\x89PNG") and len(ran.stdout) <= _MOST_BYTES:
            return ran.stdout
    return None
