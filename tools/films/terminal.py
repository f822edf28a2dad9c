"""A command in; what a terminal shows while it runs, as frames, out."""

import fcntl
import os
import pty
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.films.film import Rows
from tools.films.screen import Row, Screen

_STEP = 0.16  # seconds between two frames
_LONGEST = 1.2  # seconds for which nothing may happen
_TYPED = 3  # characters at a time
_END = 6.0  # seconds for which the last frame stays


def record(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, columns: int, lines: int
) -> list[Rows]:
    """The command is typed first. What it writes to stderr is not shown."""
    screen = Screen(columns, lines)
    line = "$ " + " ".join(f'"{word}"' if " " in word else word for word in command)
    frames = [Rows(0.8, [*_typed(columns, line[:2])])]
    frames += [Rows(0.09, _typed(columns, line[:at])) for at in range(3, len(line), _TYPED)]
    frames.append(Rows(0.5, _typed(columns, line)))
    screen.feed(f"{line}\r\n\r\n")
    shown: list[Row] = screen.rows()
    seconds = 0.0
    for pause, text in _output(command, environment, folder, columns, lines):
        seconds += pause
        if seconds >= _STEP and screen.rows() != shown:
            shown = screen.rows()
            frames.append(Rows(_STEP, shown))
            frames[-2] = Rows(min(frames[-2].seconds + seconds - _STEP, _LONGEST), frames[-2].rows)
            seconds = 0.0
        screen.feed(text)
    return [*frames, Rows(_END, screen.rows())]


def _typed(columns: int, line: str) -> list[Row]:
    screen = Screen(columns, 1)
    screen.feed(f"{line}\x1b[7m \x1b[0m")
    return screen.rows()


def _output(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, columns: int, lines: int
) -> list[tuple[float, str]]:
    """Each piece with the time that had passed since the one before."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os.execvpe(command[0], list(command), dict(environment))
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    pieces: list[tuple[float, bytes]] = []
    last = time.monotonic()
    try:
        while piece := os.read(terminal, 65536):
            now = time.monotonic()
            pieces.append((now - last, piece))
            last = now
    except OSError:  # how Linux says that the other end is closed
        pass
    finally:
        os.close(terminal)
    _, status = os.waitpid(pid, 0)
    if status != 0:
        raise SystemExit(f"{command[0]} failed:\n{b''.join(piece for _, piece in pieces).decode(errors='replace')}")
    return _whole(pieces)


def _whole(pieces: Sequence[tuple[float, bytes]]) -> list[tuple[float, str]]:
    """A piece may end within a character or a sequence: what is cut off goes to the next."""
    result, rest = [], b""
    for pause, piece in pieces:
        data = rest + piece
        end = max(data.rfind(b"\n"), data.rfind(b"m"), data.rfind(b"K"), data.rfind(b"A"), data.rfind(b" ")) + 1
        result.append((pause, data[:end].decode()))
        rest = data[end:]
    return [*result, (0.0, rest.decode())]
