"""Run programs for the person at the terminal.

In the foreground, a program stays in this process's group, as in a shell, so Ctrl-C, Ctrl-Z and the terminal itself
reach it directly. This process ignores Ctrl-C meanwhile, and forwards the signals that only it receives.
"""

import asyncio
import os
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Thread

from msgspec import Struct

# --- in the foreground -------------------------------------------------------------------------------


_FORWARDED = (signal.SIGTERM, signal.SIGHUP)
_KILL_SECONDS = 10.0  # after a forwarded signal


async def run_in_foreground(command: Sequence[str], environment: Mapping[str, str], folder: str | None = None) -> int:
    """The exit status as in a shell: 128 plus the number of the signal that ended it. Raises `OSError`."""
    loop = asyncio.get_running_loop()
    process = subprocess.Popen(command, env=environment, cwd=folder)

    def forward(number: int) -> None:
        process.send_signal(number)
        loop.call_later(_KILL_SECONDS, process.kill)

    loop.add_signal_handler(signal.SIGINT, lambda: None)
    for number in _FORWARDED:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under `nohup`
            loop.add_signal_handler(number, forward, number)
    try:
        status = await _exit_status(process)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return 128 - status if status < 0 else status


async def _exit_status(process: "subprocess.Popen[bytes]") -> int:
    """A thread waits for it, because not every event loop can."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def report(status: int) -> None:
        if not ended.cancelled():
            ended.set_result(status)

    def wait() -> None:
        status = process.wait()
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(report, status)

    Thread(target=wait, daemon=True, name="client").start()
    return await ended


# --- a command whose output is kept ------------------------------------------------------------------


_KEPT = 20_000  # bytes of output that are kept for the agent
_PIECE = 65536
_END_SECONDS = 2.0  # for a command that was told to stop


class ShellResult(Struct, frozen=True):
    command: str
    status: int
    output: str  # the end of it
    is_cut: bool

    @property
    def note(self) -> str:
        """For the agent."""
        cut = ", the end of its output" if self.is_cut else ""
        fence = "```" if "```" not in self.output else "~~~~"
        return f"I ran `{self.command}` (exit status {self.status}{cut}):\n{fence}\n{self.output.rstrip()}\n{fence}"


async def run_shown(command: str, folder: str) -> ShellResult:
    """It reads the terminal, and writes to it through this process. Raises `OSError`."""
    shell = os.environ.get("SHELL") or "/bin/sh"
    process = await asyncio.create_subprocess_exec(shell, "-c", command, cwd=folder, stdout=PIPE, stderr=STDOUT)
    assert process.stdout is not None
    kept, size = b"", 0
    try:
        while piece := await process.stdout.read(_PIECE):
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
            size += len(piece)
            kept = (kept + piece)[-_KEPT:]
        status = await process.wait()
    except asyncio.CancelledError:
        await _stop(process)
        raise
    if kept and not kept.endswith(b"\n"):
        sys.stdout.buffer.write(b"\n")
        sys.stdout.buffer.flush()
    is_cut = size > len(kept)
    return ShellResult(command, 128 - status if status < 0 else status, kept.decode("utf-8", "replace"), is_cut)


async def _stop(process: Process) -> None:
    """Ctrl-C has reached it, too; most commands end by themselves."""
    with suppress(ProcessLookupError):
        process.terminate()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
