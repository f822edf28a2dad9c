"""A program in a terminal of its own in; what it writes out. Its questions to the terminal are answered."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Condition, Thread

_PASTE_SECONDS = 1.0  # a key that follows at once counts as part of what was pasted
_LIMIT_SECONDS = 300  # for a red build only
_SIZE = struct.pack("HHHH", 40, 120, 0, 0)  # rows and columns
_CODES = re.compile(rb"\x1b\[[0-9;?<>=]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]")
# What programs ask of a terminal at their start, and wait for.
_REPLIES = {
    b"\x1b[6n": b"\x1b[1;1R",  # where the cursor is
    b"\x1b[c": b"\x1b[?1;2c",  # what it can do
    b"\x1b]10;?": b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\",  # its colours
    b"\x1b]11;?": b"\x1b]11;rgb:0000/0000/0000\x1b\\",
}


class Terminal:
    def __init__(self, command: Sequence[str | Path], folder: Path, environment: Mapping[str, str]) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, _SIZE)
        self._output, self._has_ended = b"", False
        self._changed = Condition()
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=folder,
            env={**environment, "TERM": "xterm-256color"},
            start_new_session=True,
        )
        os.close(slave)
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        """Reading fails when the program has ended."""
        with suppress(OSError):
            while piece := os.read(self._master, 65536):
                for asked, reply in _REPLIES.items():
                    for _ in range(piece.count(asked)):
                        os.write(self._master, reply)
                with self._changed:
                    self._output += piece
                    self._changed.notify_all()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def text(self) -> str:
        """What it has written, without colours and movements of the cursor, and without white space."""
        return "".join(_CODES.sub(b"", self._output).decode("utf-8", "replace").split())

    def until(self, text: str) -> None:
        """Waits until this was written. White space does not count: programs move the cursor instead."""
        wanted = "".join(text.split())
        with self._changed:
            self._changed.wait_for(lambda: wanted in self.text() or self._has_ended, _LIMIT_SECONDS)
        assert wanted in self.text(), self.text()

    def paste(self, text: str) -> None:
        """As one text of several lines, then Enter."""
        os.write(self._master, b"\x1b[200~" + text.encode() + b"\x1b[201~")
        time.sleep(_PASTE_SECONDS)
        os.write(self._master, b"\r")

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join()
        os.close(self._master)
