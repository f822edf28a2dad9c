"""The clipboard of the person at the terminal, and the images that a prompt names."""

import os
import re
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TextIO
from urllib.parse import unquote

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


# --- paths, as they are typed, completed, or dropped on a terminal window ----------------------------


_ENDINGS = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_QUOTED_PATH = r"'[^'\n]+'|\"[^\"\n]+\""
_WORDS = re.compile(rf"@?(?:{_QUOTED_PATH}|(?:\\.|[^\s\\])+)")
_PASTED = re.compile(r"\[image \d+\]")


def images_in(text: str, folder: Path, pasted: Mapping[str, bytes]) -> list[Path | bytes]:
    """The files that exist, and what was pasted; each once, in their order."""
    found: dict[str, Path | bytes] = {}
    for match in _PASTED.finditer(text):
        if match[0] in pasted:
            found[match[0]] = pasted[match[0]]
    for path in _paths(text):
        with suppress(OSError, RuntimeError):  # a name that is too long, or a home directory that does not exist
            whole = folder / path.expanduser()
            if whole.is_file():
                found.setdefault(str(whole), whole)
    return list(found.values())


def _paths(text: str) -> Iterator[Path]:
    for match in _WORDS.finditer(text):
        word = match[0].removeprefix("@")
        is_quoted = word[:1] in ("'", '"')
        word = word[1:-1] if is_quoted else re.sub(r"\\(.)", r"\1", word).rstrip(".,;:!?)")
        if word.startswith("file://"):
            word = unquote(word.removeprefix("file://").removeprefix("localhost"))
        if word.lower().endswith(_ENDINGS) and "\0" not in word:
            yield Path(word)
