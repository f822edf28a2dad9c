"""Arguments in; the command as a process of its own, with its pipes or a terminal, out."""

import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Mapping

TIMEOUT = 300  # for a red build only: a loaded machine must not come near it


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    return {**kept, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", **more}


def arguments_of(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "cursor_gateway", *arguments]


def finished(*arguments: str, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        arguments_of(*arguments),
        input=stdin,
        capture_output=True,
        timeout=TIMEOUT,
        env=_environment(environment),
        check=False,
    )


def _heed_ctrl_c() -> None:
    """Tests that run in a shell's background inherit that Ctrl-C is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def started(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        arguments_of(*arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_environment({}),
        preexec_fn=_heed_ctrl_c,
    )


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
    """Exit status, what the terminal was sent, and stderr. Without `stdin`, a terminal is what is read, too."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        arguments_of(*arguments),
        stdin=theirs if stdin is None else subprocess.PIPE,
        stdout=theirs,
        stderr=subprocess.PIPE,
        env=_environment(environment),
    ) as process:
        os.close(theirs)
        if process.stdin is not None and stdin is not None:
            process.stdin.write(stdin)
            process.stdin.close()
        else:
            os.write(ours, b"\x04")
        sent = b""
        while True:
            ready, _, _ = select.select([ours], [], [], TIMEOUT)
            assert ready, f"the command did not end: {sent!r}"
            try:
                piece = os.read(ours, 65536)
            except OSError:  # how Linux says that the other end is closed
                break
            if not piece:
                break
            sent += piece
        assert process.stderr is not None
        told = process.stderr.read()
        status = process.wait(TIMEOUT)
    os.close(ours)
    return status, sent.decode().replace("\r\n", "\n"), told.decode()
