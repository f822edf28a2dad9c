"""Run a command of the person in the shell, show what it writes, and keep the end of it."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from contextlib import suppress

from msgspec import Struct

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
