"""`cursor-gateway …` as a process of its own that need not import anything: it is forked from one that has done so.

Most of the CPU time of a short command, and of a gateway's start, is Python's and its imports'. `Forks` starts one
process, without threads, that imports everything and then waits on a Unix socket. Each connection carries a command
line, an environment, a folder and the three standard streams; it gets the new process's id, and later its exit status.
"""

import atexit
import gc
import io
import json
import os
import pkgutil
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import IO, Any, Protocol, Self, TypeAlias

from tests import run_law

_MOST = 1 << 20  # bytes of a request
_DEFERRED = re.compile(r"^ +(?:from|import) ([a-z][\w.]*)(?: import| as|$)", re.MULTILINE)  # within a function
_PER_PROCESS = {"PYTHONUNBUFFERED", "PYTHONIOENCODING"}  # obeyed by each that is forked

Stream: TypeAlias = int | IO[Any]  # what `subprocess.Popen` takes: PIPE, DEVNULL, or something open


class Process(Protocol):
    """What tests need of `subprocess.Popen`."""

    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    stderr: IO[bytes] | None

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | Any: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def communicate(self, input: bytes | None = None, timeout: float | None = None) -> tuple[bytes, bytes]: ...
    def send_signal(self, sig: int, /) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class Forked:
    """A process that was forked elsewhere. Its exit status arrives over a socket."""

    def __init__(self, connection: socket.socket, pid: int, pipes: Sequence[IO[bytes] | None]) -> None:
        self._connection, self.pid = connection, pid
        self.stdin, self.stdout, self.stderr = pipes
        self.returncode: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe in (self.stdout, self.stderr, self.stdin):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
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

    def communicate(self, input: bytes | None = None, timeout: float | None = None) -> tuple[bytes, bytes]:
        with ThreadPoolExecutor(2) as pool:
            reading = [pool.submit(pipe.read) if pipe is not None else None for pipe in (self.stdout, self.stderr)]
            try:
                if self.stdin is not None:
                    with suppress(BrokenPipeError):
                        self.stdin.write(input or b"")
                    with suppress(BrokenPipeError):
                        self.stdin.close()
                output, errors = (each.result(timeout) if each is not None else b"" for each in reading)
                self.wait(timeout)
            except BaseException:
                self.kill()  # or the threads read for ever
                raise
        return output, errors

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended, and its exit status is on its way
                os.kill(self.pid, sig)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Forks:
    """Starts the process from which others are forked when the first one is needed, or uses the one at an address."""

    def __init__(self, address: str = "") -> None:
        self._given = address
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = Lock()  # some tests start several gateways at once

    def start(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        *,
        stdin: Stream = subprocess.DEVNULL,
        stdout: Stream = subprocess.PIPE,
        stderr: Stream = subprocess.PIPE,
        start_new_session: bool = False,
    ) -> Forked:
        """`python -m cursor_gateway …`"""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with self._lock:
            connection.connect(self.address())
        request = {
            "arguments": list(arguments),
            "environment": dict(environment),
            "folder": str(folder),
            "session": start_new_session,
        }
        theirs, ours = zip(
            *(_ends(stream, number) for number, stream in enumerate((stdin, stdout, stderr))), strict=True
        )
        try:
            socket.send_fds(connection, [json.dumps(request).encode()], [descriptor for descriptor, _ in theirs])
        finally:
            for descriptor, is_made_here in theirs:
                if is_made_here:
                    os.close(descriptor)
        return Forked(connection, int(connection.recv(64)), ours)

    def end(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.communicate()
        if self._folder is not None:
            self._folder.cleanup()

    def address(self) -> str:
        """Who connects at once waits until everything is imported."""
        if self._given:
            return self._given
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory()
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
                listener.bind(f"{self._folder.name}/forks")
                listener.listen(64)
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tests.preloaded", str(listener.fileno())],
                    stdin=subprocess.PIPE,  # it ends when this process does, however it ends
                    cwd=Path(__file__).parents[1],
                    pass_fds=[listener.fileno()],
                )
        return f"{self._folder.name}/forks"


forks: list[Forks] = []  # one, where many processes are started: see tests/conftest.py


def _ends(stream: Stream, number: int) -> tuple[tuple[int, bool], IO[bytes] | None]:
    """Of one of the standard streams: the new process's, with whether it is made here, and that of a pipe."""
    if stream == subprocess.PIPE:
        reading, writing = os.pipe()
        return ((reading, True), open(writing, "wb")) if number == 0 else ((writing, True), open(reading, "rb"))
    if stream == subprocess.DEVNULL:
        return (os.open(os.devnull, os.O_RDWR), True), None
    return (stream if isinstance(stream, int) else stream.fileno(), False), None


def can_fork(environment: Mapping[str, str]) -> bool:
    """Python itself reads some variables, and only when it starts."""
    names = {name for name in environment if name.startswith(("PYTHON", "LC_", "LANG"))} - _PER_PROCESS
    return hasattr(os, "pidfd_open") and all(environment[name] == os.environ.get(name) for name in names)


def start(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    *,
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = subprocess.PIPE,
    stderr: Stream = subprocess.PIPE,
    start_new_session: bool = False,
) -> Process:
    """`cursor-gateway …`, forked where that is possible, and without the start of Python, then."""
    if forks and can_fork(environment):
        return forks[0].start(
            arguments,
            environment,
            folder,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=start_new_session,
        )
    return subprocess.Popen(
        [sys.executable, "-m", "cursor_gateway", *arguments],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=environment,
        cwd=folder,
        start_new_session=start_new_session,
    )


def command(environment: Mapping[str, str]) -> list[str]:
    """The same for another program that starts it: the words before its arguments."""
    if forks and can_fork(environment):
        return [sys.executable, "-IS", str(Path(__file__).with_name("forked.py")), forks[0].address()]
    return [sys.executable, "-m", "cursor_gateway"]


def run(
    arguments: Sequence[str], environment: Mapping[str, str], folder: Path, *, input: bytes = b"", timeout: float = 300
) -> subprocess.CompletedProcess[bytes]:
    """The same, to its end."""
    with start(arguments, environment, folder, stdin=subprocess.PIPE) as process:
        output, errors = process.communicate(input, timeout)
    return subprocess.CompletedProcess(["cursor-gateway", *arguments], process.returncode, output, errors)


def run_text(
    arguments: Sequence[str], environment: Mapping[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    done = run(arguments, environment, folder)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


# --- the process from which others are forked -----------------------------------------------------------


def _serve(listener: socket.socket) -> None:
    """Returns in each child, whose command line is then in `sys.argv`."""
    running: dict[int, tuple[int, socket.socket]] = {}  # by the descriptor that becomes readable when it ends
    while True:
        watched: list[socket.socket | int] = [0, listener, *running]
        for which in select.select(watched, [], [])[0]:
            if which == 0:
                os._exit(0)  # whoever started this has ended
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


def _become(request: dict[str, Any], descriptors: Sequence[int]) -> None:
    environment: dict[str, str] = request["environment"]
    if request["session"]:
        os.setsid()
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(str(request["folder"]))
    sys.argv = ["cursor-gateway", *request["arguments"]]
    encoding, _, errors = environment.get("PYTHONIOENCODING", "").partition(":")
    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        before: io.TextIOWrapper = getattr(sys, name)
        buffer = open(number, "rb" if number == 0 else "wb", closefd=False)  # noqa: SIM115
        kept = "backslashreplace" if number == 2 else errors or ("strict" if encoding else before.errors)
        setattr(
            sys,
            name,
            io.TextIOWrapper(
                buffer,
                encoding or before.encoding,
                kept,
                line_buffering=number == 2 or os.isatty(number),
                write_through=number > 0 and "PYTHONUNBUFFERED" in environment,
            ),
        )


def _import_everything() -> None:
    """Also what the modules import only when they need it: some of that takes most of a second."""
    import cursor_gateway

    names = {"encodings.idna", "importlib.readers", "psycopg", "sqlite3", "uvloop"}
    for module in pkgutil.walk_packages(cursor_gateway.__path__, "cursor_gateway."):
        if not module.name.endswith("__main__"):
            with suppress(ImportError):  # something that not every system has
                file = import_module(module.name).__file__
                names.update(_DEFERRED.findall(Path(file or os.devnull).read_text(encoding="utf-8")))
    for name in names:
        with suppress(ImportError):
            import_module(name)


def _run() -> int:
    """What `python -m cursor_gateway` does, up to the end of the threads and what is registered for it."""
    from cursor_gateway.cli.main import main

    status = 1
    try:
        main()
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except KeyboardInterrupt:
        sys.excepthook(*sys.exc_info())
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:  # noqa: BLE001 -- as Python does
        sys.excepthook(*sys.exc_info())
    threading._shutdown()  # type: ignore[attr-defined] # as the interpreter does at its end
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    return status


if __name__ == "__main__":
    _import_everything()
    run_law.install()
    gc.collect()
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))
    os._exit(_run())  # without Python's own end, which takes apart all modules
