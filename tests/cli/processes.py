"""Arguments in; what the command did, out.

In this process where that shows as much (most of a short command is the start of Python and its imports), and as a
process of its own for signals and whatever belongs to a process.
"""

import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import pytest

from cursor_gateway.cli.main import run
from tests import preloaded
from tests.preloaded import Process

TIMEOUT = 300  # for a red build only: a loaded machine must not come near it


def own_machine(monkeypatch: pytest.MonkeyPatch, home: Path, **settings: str) -> None:
    """Nobody's settings, no agent, no gateway on the usual port, and a folder to work in."""
    for name in [*os.environ]:
        if name.startswith(("CURSOR_", "XDG_")):
            monkeypatch.delenv(name)
    (home / "work").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{home / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin")
    for name, value in {"port": "0", **settings}.items():
        monkeypatch.setenv(f"CURSOR_GATEWAY_{name.upper()}", value)
    monkeypatch.chdir(home / "work")


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    return {**kept, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", **more}


def arguments_of(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "cursor_gateway", *arguments]


def finished(*arguments: str, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess[bytes]:
    """The command in this process, with files of its own as standard input, output and error."""
    env = _environment(environment)
    with TemporaryFile() as source, TemporaryFile() as out, TemporaryFile() as errors:
        source.write(stdin)
        source.seek(0)
        with _standard_streams(source, out, errors, env["PYTHONIOENCODING"]), _environ(env), _same_signals():
            status = run(arguments)
        out.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(arguments_of(*arguments), status, out.read(), errors.read())


@contextmanager
def _standard_streams(source: IO[bytes], out: IO[bytes], errors: IO[bytes], encoding: str) -> Iterator[None]:
    """Both the numbers 0, 1 and 2 and Python's objects: a child has the former."""
    before = sys.stdin, sys.stdout, sys.stderr
    for stream in before[1:]:
        stream.flush()
    kept = [os.dup(number) for number in range(3)]
    try:
        for number, file in enumerate((source, out, errors)):
            os.dup2(file.fileno(), number)
        sys.stdin = open(0, encoding=encoding, closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding=encoding, closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding=encoding, errors="backslashreplace", closefd=False)  # noqa: SIM115
        try:
            yield
        finally:
            for stream in (sys.stdin, sys.stdout, sys.stderr):
                stream.close()
    finally:
        sys.stdin, sys.stdout, sys.stderr = before
        for number, copy in enumerate(kept):
            os.dup2(copy, number)
            os.close(copy)


@contextmanager
def _environ(environment: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _same_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def finished_process(*arguments: str, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess[bytes]:
    return preloaded.run(arguments, _environment(environment), Path.cwd(), input=stdin, timeout=TIMEOUT)


def started(*arguments: str) -> Process:
    return preloaded.start(arguments, _environment({}), Path.cwd(), stdin=subprocess.PIPE)


def read_until(file: int, expected: bytes, seen: bytes = b"") -> bytes:
    """What has come when `expected` has. The time limit is for a red build only."""
    while expected not in seen:
        ready, _, _ = select.select([file], [], [], TIMEOUT)
        assert ready, f"{expected!r} did not come; what came: {seen!r}"
        piece = os.read(file, 65536)
        assert piece, f"the output ended without {expected!r}: {seen!r}"
        seen += piece
    return seen


def on_a_terminal(*arguments: str, stdin: bytes | None = b"", **environment: str) -> tuple[int, str, str]:
    """Exit status, what the terminal was sent, and stderr; in this process. Without `stdin`, a terminal is what is
    read, too, and it is at its end.
    """
    env = _environment(environment)
    ours, theirs = pty.openpty()
    pieces: list[bytes] = []
    with ThreadPoolExecutor(1) as pool, TemporaryFile() as source, TemporaryFile() as errors:
        reading = pool.submit(_read_all, ours, pieces)
        with open(theirs, "r+b", buffering=0) as terminal:
            if stdin is None:
                os.write(ours, b"\x04")
            else:
                source.write(stdin)
                source.seek(0)
            read = terminal if stdin is None else source
            with _standard_streams(read, terminal, errors, env["PYTHONIOENCODING"]), _environ(env), _same_signals():
                status = run(arguments)
        reading.result(TIMEOUT)
        errors.seek(0)
        result = errors.read()
    os.close(ours)
    return status, b"".join(pieces).decode().replace("\r\n", "\n"), result.decode()


def _read_all(terminal: int, pieces: list[bytes]) -> None:
    with suppress(OSError):  # how Linux says that the other end is closed
        while piece := os.read(terminal, 65536):
            pieces.append(piece)
