"""Render HTML in worker processes, while the event loop serves other clients.

Highlighting and Markdown take quadratic time for some texts, in C code that holds the interpreter's lock. A thread
would only hide that: the loop would wait for the lock. So there are a few threads, each with a worker process. A reply
runs in one of the threads, where everything linear is done, and its slow jobs are sent to the thread's process. That
is killed, and replaced, at a limit of CPU time (not of wall time, so a busy machine changes nothing); its job then has
no result, and plain text is shown instead. A job that was killed once is not tried again.

Owners take turns, and no owner has all threads at once, so one owner cannot block the others. Work whose client is gone
is dropped: before it starts, or at its next job. Worker processes start when they are first needed, know none of the
gateway's secrets, and end when their standard input does: with the gateway, whatever ends it.
"""

import asyncio
import hashlib
import os
import select
import signal
import subprocess
import sys
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from cursor_gateway.server.logs import Log

if TYPE_CHECKING:
    from cursor_gateway.render.html import Job, Rendered

T = TypeVar("T")

_log = Log()
_WORKERS = 2
_JOB_SECONDS = 3.0  # of CPU time: highlighting 200,000 characters takes about one
_REPLY_SECONDS = 15.0  # of CPU time, for all jobs of a reply or of one step of a stream
_WALL_PER_CPU_SECOND = 20  # a limit of wall time, too: the machine may be busy, or have stopped the process
_CLOSING_SECONDS = 1.0
_REMEMBERED = 1000  # jobs that took too long


class _Task:
    """A reply, or a step of one, that is to be rendered."""

    def __init__(self, owner: str, work: Callable[[], Any], is_gone: Callable[[], bool]) -> None:
        self.owner, self._work, self._is_gone = owner, work, is_gone
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self._loop.create_future()
        self.spent = 0.0  # CPU seconds of its jobs

    def check(self) -> None:
        """Raises `ClientDisconnect` if the result is no longer needed."""
        if self.future.cancelled() or self._is_gone():
            raise ClientDisconnect

    def run(self) -> None:
        try:
            self.check()
            result, error = self._work(), None
        except Exception as raised:  # noqa: BLE001 -- passed to the waiter
            result, error = None, raised
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._resolve, result, error)

    def _resolve(self, result: Any, error: Exception | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


class _Queue:
    """Tasks; their owners take turns. No owner has more than `most` of them running."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._tasks: OrderedDict[str, deque[_Task]] = OrderedDict()
        self._running_tasks = Counter[str]()
        self._changed = threading.Condition()
        self._is_closed = False

    def put(self, task: _Task) -> None:
        with self._changed:
            self._tasks.setdefault(task.owner, deque()).append(task)
            self._changed.notify()

    def take(self) -> _Task | None:
        """Waits for one; None at the end."""
        with self._changed:
            while not self._is_closed:
                for owner, tasks in self._tasks.items():
                    if self._running_tasks[owner] < self._most:
                        task = tasks.popleft()
                        self._running_tasks[owner] += 1
                        del self._tasks[owner]
                        if tasks:
                            self._tasks[owner] = tasks  # after all others
                        return task
                self._changed.wait()
            return None

    def done(self, task: _Task) -> None:
        with self._changed:
            self._running_tasks[task.owner] -= 1
            if not self._running_tasks[task.owner]:
                del self._running_tasks[task.owner]
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()


class Renderings:
    def __init__(
        self, workers: int = _WORKERS, job_seconds: float = _JOB_SECONDS, reply_seconds: float = _REPLY_SECONDS
    ) -> None:
        self._job_seconds, self._reply_seconds = job_seconds, reply_seconds
        self._queue = _Queue(max(1, workers - 1))
        self._workers = [_Worker() for _ in range(workers)]
        self._threads: list[threading.Thread] = []
        self._local = threading.local()  # a thread's worker, and its task
        self._slow: OrderedDict[bytes, None] = OrderedDict()
        self._slow_lock = threading.Lock()

    @property
    def started(self) -> int:
        """How many worker processes have been started."""
        return sum(worker.started for worker in self._workers)

    async def run(self, owner: str, work: Callable[[], T], is_gone: Callable[[], bool] = lambda: False) -> T:
        """Does `work` in a thread in which `do` may be called. Raises `ClientDisconnect` if the client is gone."""
        if not self._threads:
            self._threads = [
                threading.Thread(target=self._serve, args=(worker,), name="rendering", daemon=True)
                for worker in self._workers
            ]
            for thread in self._threads:
                thread.start()
        task = _Task(owner, work, is_gone)
        self._queue.put(task)
        result: T = await task.future
        return result

    async def run_for(self, request: Request, work: Callable[[], T]) -> T:
        """Until the client of this request disconnects. Its body has been read."""

        async def disconnected() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        watch = asyncio.get_running_loop().create_task(disconnected())
        try:
            return await self.run(request.state.owner, work, watch.done)
        finally:
            watch.cancel()

    def do(self, job: "Job") -> "Rendered | None":
        """Within `run`: has the job done. None when it takes too long, or fails."""
        from cursor_gateway.render.html import Rendered

        worker: _Worker = self._local.worker
        task: _Task = self._local.task
        task.check()
        data = msgspec.msgpack.encode(job)
        digest = hashlib.sha256(data).digest()
        if digest in self._slow or task.spent >= self._reply_seconds:
            return None
        try:
            seconds, result = worker.ask(data, self._job_seconds)
        except _TooSlow:
            task.spent += self._job_seconds
            self._remember(digest)
            _log.warning(
                "rendering_cut",
                owner=task.owner,
                size=len(data),
                advice=f"Formatting took over {self._job_seconds:g} s of CPU time; it is shown as plain text.",
            )
            return None
        task.spent += seconds
        return msgspec.msgpack.decode(result, type=Rendered) if result else None

    def close(self) -> None:
        """Ends the processes. Jobs in progress have no result."""
        self._queue.close()
        for worker in self._workers:
            worker.kill()
        for thread in self._threads:
            thread.join(_CLOSING_SECONDS)

    def _serve(self, worker: "_Worker") -> None:
        try:
            while (task := self._queue.take()) is not None:
                self._local.worker, self._local.task = worker, task
                task.run()
                self._queue.done(task)
                del self._local.task, task  # or the last reply is kept until the next one
        finally:
            worker.end()

    def _remember(self, digest: bytes) -> None:
        with self._slow_lock:
            self._slow[digest] = None
            if len(self._slow) > _REMEMBERED:
                self._slow.popitem(last=False)


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
                    start_new_session=True,  # Ctrl-C is for the gateway
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
