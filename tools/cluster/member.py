"""One process of a cluster: started, watched, stopped, killed, suspended, and started again at the same address."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

from tools.cluster.balancer import Address

Role: TypeAlias = Literal["all", "front", "runner"]

COMMAND = (sys.executable, "-m", "cursor_gateway", "serve")
_START_SECONDS = 90.0  # on a busy machine
_TAIL = 2000  # characters of a log in an error


class Member:
    """Its settings are environment variables, and everything that it writes is in its folder."""

    def __init__(
        self,
        name: str,
        role: Role,
        folder: Path,
        settings: Mapping[str, str],
        environment: Mapping[str, str],
        command: Sequence[str] = COMMAND,
        host: str = "127.0.0.1",
    ) -> None:
        self.name, self.role, self.folder, self.command = name, role, folder, tuple(command)
        self.address: Address = (host, free_port())
        (folder / "data").mkdir(parents=True, exist_ok=True)
        given = {
            "role": role,
            "host": host,
            "port": str(self.address[1]),
            "data_dir": str(folder / "data"),
            **settings,
        }
        self.environment = {
            **environment,
            "PYTHONUNBUFFERED": "1",
            **{f"CURSOR_GATEWAY_{name.upper()}": value for name, value in given.items()},
        }
        self._process: subprocess.Popen[bytes] | None = None
        self.ended: list[int] = []  # the ids of its former processes
        self._is_wanted = False  # it was started, and neither stopped nor killed

    @property
    def url(self) -> str:
        return f"http://{self.address[0]}:{self.address[1]}"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """None while it runs."""
        return None if self._process is None else self._process.poll()

    def how_ended(self) -> str:
        """How it ended; empty while it runs."""
        status = self.exit_status
        if status is None:
            return ""
        return f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"

    @property
    def has_failed(self) -> bool:
        """It has ended by itself."""
        return self._is_wanted and self.exit_status is not None

    def start(self) -> None:
        self._is_wanted = True
        if self._process is not None and self._process.pid not in self.ended:
            self.ended.append(self._process.pid)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                cwd=self.folder,
                start_new_session=True,  # Ctrl-C is for whoever started it
            )
        (self.folder / "pid").write_text(f"{self._process.pid}\n")

    async def ready(self) -> None:
        """Waits until it says that it is (`/readyz`). Raises `RuntimeError` if it ends before."""
        async with asyncio.timeout(_START_SECONDS):
            while not await self._is_ready():
                if self.exit_status is not None:
                    raise RuntimeError(f"{self.name} ended with status {self.exit_status}:\n{self.log_tail()}")
                await asyncio.sleep(0.05)

    async def _is_ready(self) -> bool:
        try:
            reader, writer = await asyncio.open_connection(*self.address)
            try:
                writer.write(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
                return b" 200 " in await reader.readline()
            finally:
                writer.close()
        except OSError:
            return False

    def log_tail(self) -> str:
        return self.log.read_text("utf-8", "replace")[-_TAIL:]

    def signal(self, number: signal.Signals) -> None:
        """To the process alone: its agents have groups of their own."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """Like `kill -9`."""
        self._is_wanted = False
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
            self.ended.append(self._process.pid)

    async def stop(self, seconds: float) -> None:
        """Asks it to end, and kills it after that time, with all that is in its process group."""
        self._is_wanted = False
        if self._process is None:
            return
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._process.poll() is None:
                    await asyncio.sleep(0.05)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.ended.append(self._process.pid)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
