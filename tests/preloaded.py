"""Gateways as processes of their own that need not import anything: they are forked from one that has done so.

Most of the CPU time of a gateway's start is Python's and its imports'. `Forks` starts one process, without threads,
that imports what `cursor-gateway serve` needs and then waits on a Unix socket. Each connection carries a command line,
an environment, a folder and the three standard streams; it gets the new process's id, and later its exit status.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import BinaryIO, Protocol, Self

_START_SECONDS = 60
_MOST = 1 << 20  # bytes of a request


class Process(Protocol):
    """What tests need of `subprocess.Popen`."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class Forked:
    """A process that was forked elsewhere. Its exit status arrives over a socket."""

    def __init__(self, connection: socket.socket, pid: int, stdout: BinaryIO) -> None:
        self._connection, self.pid, self.stdout = connection, pid, stdout
        self.returncode: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stdout.close()
        self.wait()
        self._connection.close()

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            ready, _, _ = select.select([self._connection], [], [], timeout)
            if not ready:
                raise subprocess.TimeoutExpired("cursor-gateway", timeout or 0)
            self.returncode = int(self._connection.recv(64))
        return self.returncode

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Forks:
    """Starts the process from which gateways are forked when the first one is needed."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = Lock()  # some tests start several gateways at once

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, errors: BinaryIO) -> Forked:
        """`python -m cursor_gateway …` without standard input, and with a pipe as standard output."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with self._lock:
            connection.connect(self._address())
        reading, writing = os.pipe()
        request = json.dumps({"arguments": list(arguments), "environment": dict(environment), "folder": str(folder)})
        with open(os.devnull, "rb") as nothing:
            socket.send_fds(connection, [request.encode()], [nothing.fileno(), writing, errors.fileno()])
        os.close(writing)
        return Forked(connection, int(connection.recv(64)), os.fdopen(reading, "rb"))

    def end(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
        if self._folder is not None:
            self._folder.cleanup()

    def _address(self) -> str:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory()
            address = f"{self._folder.name}/forks"
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.preloaded", address],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                cwd=Path(__file__).parents[1],
            )
            assert self._process.stdout is not None
            ready, _, _ = select.select([self._process.stdout], [], [], _START_SECONDS)
            assert ready
            assert self._process.stdout.read(1)
            self._process.stdout.close()
        return f"{self._folder.name}/forks"


def can_fork(environment: Mapping[str, str]) -> bool:
    """Python itself reads some variables, and only when it starts."""
    own = {"PYTHONUNBUFFERED"}
    is_python = any(name.startswith(("PYTHON", "LC_", "LANG")) for name in set(environment) - own)
    return hasattr(os, "pidfd_open") and not is_python


# --- the process from which others are forked -----------------------------------------------------------


def _serve(address: str) -> None:
    """Returns in each child, whose command line is then in `sys.argv`."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(address)
    listener.listen(64)
    os.write(1, b".")
    running: dict[int, tuple[int, socket.socket]] = {}  # by the descriptor that becomes readable when it ends
    while True:
        watched: list[socket.socket | int] = [listener, *running]
        for which in select.select(watched, [], [])[0]:
            if isinstance(which, int):
                pid, connection = running.pop(which)
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                os.close(which)
                with suppress(OSError), connection:  # the test may be over
                    connection.send(str(status).encode())
                continue
            connection, _ = listener.accept()
            request, descriptors, _, _ = socket.recv_fds(connection, _MOST, 3)
            pid = os.fork()
            if pid == 0:
                listener.close()
                connection.close()
                for descriptor, (_, other) in running.items():
                    os.close(descriptor)
                    other.close()
                _become(json.loads(request), descriptors)
                return
            for descriptor in descriptors:
                os.close(descriptor)
            running[os.pidfd_open(pid)] = pid, connection
            connection.send(str(pid).encode())


def _become(request: dict[str, object], descriptors: Sequence[int]) -> None:
    arguments, environment = request["arguments"], request["environment"]
    assert isinstance(arguments, list)
    assert isinstance(environment, dict)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(str(request["folder"]))
    sys.argv = ["cursor-gateway", *arguments]


if __name__ == "__main__":
    import cursor_gateway.cli.composition
    import cursor_gateway.cli.dialects
    import cursor_gateway.cli.serve
    import cursor_gateway.server.app
    import cursor_gateway.server.serving  # noqa: F401 -- what a gateway needs
    from cursor_gateway.cli.main import main

    _serve(sys.argv[1])
    main()
