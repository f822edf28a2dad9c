"""Run a program in the foreground of the terminal, as the shell would.

It stays in this process's group, so Ctrl-C, Ctrl-Z and the terminal itself reach it directly. This process ignores
Ctrl-C meanwhile, and forwards the signals that only it receives.
"""

import asyncio
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Thread

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
