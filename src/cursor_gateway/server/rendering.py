"""Render HTML in worker processes, while the event loop serves other clients.

Highlighting and Markdown take quadratic time for some texts, in C code that holds the interpreter's lock. A thread
would only hide that: the loop would wait for the lock. So there are a few threads, each with a worker process. A reply
runs in one of the threads, where everything linear is done, and its slow jobs are sent to the thread's process. That
is killed, and replaced, at a limit of CPU time (not of wall time, so a busy machine changes nothing); its job then has
no result, and plain text is shown instead. A job that was killed once is not tried again.

Owners take turns (`fair_threads.py`). Work whose client is gone is dropped: before it starts, or at its next job.
Worker processes start when they are first needed, know none of the
gateway's secrets, and end when their standard input does: with the gateway, whatever ends it.
"""

import hashlib
import os
import select
import signal
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from cursor_gateway.fair_threads import FairThreads, NobodyWaits
from cursor_gateway.model.changes import FileChange
from cursor_gateway.server.bodies import while_connected
from cursor_gateway.server.logs import StructuredLog
from cursor_gateway.stages.changes import EditedFile, listed

if TYPE_CHECKING:
    from cursor_gateway.render.html.work import Job, Rendered

T = TypeVar("T")

_log = StructuredLog()
_WORKERS = 2
_JOB_SECONDS = 3.0  # of CPU time: highlighting 200,000 characters takes about one
_REPLY_SECONDS = 15.0  # of CPU time, for all jobs of a reply or of one step of a stream
_WALL_PER_CPU_SECOND = 20  # a limit of wall time, too: the machine may be busy, or have stopped the process
_REMEMBERED = 1000  # jobs that took too long


class Renderings:
    def __init__(
        self, workers: int = _WORKERS, job_seconds: float = _JOB_SECONDS, reply_seconds: float = _REPLY_SECONDS
    ) -> None:
        self._job_seconds, self._reply_seconds = job_seconds, reply_seconds
        self._threads = FairThreads("rendering", workers)
        self._workers = [_Worker() for _ in range(workers)]
        self._free = list(self._workers)  # no thread has it yet
        self._local = threading.local()  # a thread's worker, and its reply
        self._slow: OrderedDict[bytes, None] = OrderedDict()
        self._slow_lock = threading.Lock()

    @property
    def started(self) -> int:
        """How many worker processes have been started."""
        return sum(worker.started for worker in self._workers)

    async def run(self, owner: str, work: Callable[[], T], is_gone: Callable[[], bool] = lambda: False) -> T:
        """Does `work` in a thread in which `do` may be called. Raises `ClientDisconnect` if the client is gone."""

        def reply(is_gone: Callable[[], bool]) -> T:
            if not hasattr(self._local, "worker"):
                self._local.worker = self._free.pop()
            self._local.reply = _Reply(owner, is_gone)
            return work()

        try:
            return await self._threads.run(owner, reply, is_gone)
        except NobodyWaits:
            raise ClientDisconnect from None

    async def run_for(self, request: Request, work: Callable[[], T]) -> T:
        """Until the client of this request disconnects. Its body has been read."""
        return await while_connected(request, self.run(request.state.owner, work))

    def do(self, job: "Job") -> "Rendered | None":
        """Within `run`: has the job done. None when it takes too long, or fails."""
        from cursor_gateway.render.html.work import Rendered

        result = self._done(msgspec.json.encode(job))
        return msgspec.json.decode(result, type=Rendered) if result else None

    def combine(self, file: EditedFile) -> FileChange:
        """Within `run`: the edits of a file, combined if that does not take too long."""
        result = self._done(msgspec.json.encode(file))
        return msgspec.json.decode(result, type=FileChange) if result else listed(file)

    def _done(self, data: bytes) -> bytes:
        """Nothing if there is no result."""
        worker: _Worker = self._local.worker
        reply: _Reply = self._local.reply
        if reply.is_gone():
            raise ClientDisconnect
        digest = hashlib.sha256(data).digest()
        if digest in self._slow or reply.spent >= self._reply_seconds:
            return b""
        try:
            seconds, result = worker.ask(data, self._job_seconds)
        except _TooSlow:
            reply.spent += self._job_seconds
            self._remember(digest)
            _log.warning(
                "rendering_cut",
                owner=reply.owner,
                size=len(data),
                advice=f"Formatting took over {self._job_seconds:g} s of CPU time; it is shown as plain text.",
            )
            return b""
        reply.spent += seconds
        return result

    def close(self) -> None:
        """Ends the processes. Jobs in progress have no result."""
        for worker in self._workers:
            worker.kill()
        self._threads.close()
        for worker in self._workers:
            worker.end()

    def _remember(self, digest: bytes) -> None:
        with self._slow_lock:
            self._slow[digest] = None
            if len(self._slow) > _REMEMBERED:
                self._slow.popitem(last=False)


class _Reply:
    """A reply, or a step of one, that is being rendered."""

    def __init__(self, owner: str, is_gone: Callable[[], bool]) -> None:
        self.owner, self.is_gone = owner, is_gone
        self.spent = 0.0  # CPU seconds of its jobs


class _TooSlow(Exception):
    pass


class _Worker:
    """A process that does one job after the other, for one thread."""

    def __init__(self) -> None:
        self._popen: subprocess.Popen[bytes] | None = None
        self._is_killed = False
        self._lock = threading.Lock()  # or a process could start after it was killed for good
        self.started = 0

    def ask(self, data: bytes, seconds: float) -> tuple[float, bytes]:
        """The CPU time that it took, and the result: nothing if it failed. Raises `_TooSlow`."""
        try:
            popen = self._running()
        except OSError:  # the system has no room for another process
            return 0.0, b""
        try:
            return _exchange(popen, data, seconds)
        except (OSError, EOFError, TimeoutError) as error:
            popen.kill()
            self.end()
            if popen.returncode == -signal.SIGVTALRM or isinstance(error, TimeoutError):
                raise _TooSlow from error
            return 0.0, b""

    def kill(self) -> None:
        """Permanently; may be called from any thread."""
        with self._lock:
            self._is_killed = True
            if self._popen is not None:
                self._popen.kill()

    def end(self) -> None:
        with self._lock:
            popen, self._popen = self._popen, None
        if popen is not None:
            with popen:  # which closes its pipes, and waits
                pass

    def _running(self) -> "subprocess.Popen[bytes]":
        with self._lock:
            if self._is_killed:
                raise BrokenPipeError
            if self._popen is None:
                self._popen = subprocess.Popen(
                    [sys.executable, "-P", "-m", "cursor_gateway.render.worker"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    env={name: os.environ[name] for name in ("PATH", "PYTHONPATH", "PYTHONHOME") if name in os.environ},
                    process_group=0,  # Ctrl-C is for the gateway; its session is what agents do not have
                    bufsize=0,
                )
                self.started += 1
            return self._popen


def _exchange(popen: "subprocess.Popen[bytes]", data: bytes, seconds: float) -> tuple[float, bytes]:
    from cursor_gateway.render.worker import JOB_HEAD, RESULT_HEAD

    assert popen.stdin is not None
    assert popen.stdout is not None
    left = memoryview(JOB_HEAD.pack(seconds, len(data)) + data)
    while left:
        left = left[os.write(popen.stdin.fileno(), left) :]
    took, length = RESULT_HEAD.unpack(_read(popen.stdout.fileno(), RESULT_HEAD.size, seconds * _WALL_PER_CPU_SECOND))
    return took, _read(popen.stdout.fileno(), length, seconds * _WALL_PER_CPU_SECOND)


def _read(pipe: int, size: int, seconds: float) -> bytes:
    pieces = bytearray()
    while len(pieces) < size:
        if not select.select([pipe], [], [], seconds)[0]:
            raise TimeoutError
        piece = os.read(pipe, size - len(pieces))
        if not piece:
            raise EOFError
        pieces += piece
    return bytes(pieces)
