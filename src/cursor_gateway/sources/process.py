"""A command in; its output as it arrives, and its exit status, out. No process that it started outlives it.

Its pipes are read with `add_reader`: uvloop's own subprocesses take four times as long to start, with a large heap
forty times. Output that flows is read in blocks, and the blocks of many agents are read together: see `_MergedReads`.
"""

import asyncio
import fcntl
import math
import os
import selectors
import signal
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from time import monotonic
from typing import ClassVar

from cursor_gateway.errors import AgentError, AgentMissing, GatewayError, host_exhausted
from cursor_gateway.sources.base import AgentUse
from cursor_gateway.sources.cgroups import Cgroup, place
from cursor_gateway.sources.processes import AGENT, Agent, reap, running, signal_group
from cursor_gateway.sources.spawning import spawn, starts_in_cgroups

_PIECE = 256 * 1024
_PIPE = 1024 * 1024  # a large buffer, so that one read returns many writes
# Seconds between two reads of output that flows: see `merges_reads`. If much came, the pipe is soon full again.
_PAUSE, _SHORT_PAUSE = 0.004, 0.001
_MUCH = 32 * 1024
_MANY = 4  # reads in a pause: so many are worth waiting for the next ones
# Of all reads: `os.read` would allocate a whole piece for each line, which takes ten times as long.
_buffer = bytearray(_PIECE)
_buffer_view = memoryview(_buffer)
_F_SETPIPE_SZ = 1031  # Linux only; Python 3.11 does not define it everywhere
_STDERR_TAIL = 64 * 1024
_KILLED_SECONDS = 10.0  # only a process in uninterruptible sleep takes that long
_LOOK_SECONDS = 0.005
_PLACE_SECONDS = 0.1
_DEAD_PIPE_SECONDS = 0.5  # to drain a dead agent's pipe that another process keeps open


Tap = Callable[[Sequence[str]], Callable[[bytes], None]]
"""Called with the arguments of each agent that starts; what it returns gets the agent's output."""

_taps: list[Tap] = []


@contextmanager
def tapped(tap: Tap) -> Iterator[None]:
    """Meanwhile, the output of agents is also given to the tap, as they write it."""
    _taps.append(tap)
    try:
        yield
    finally:
        _taps.remove(tap)


def copies_of(arguments: Sequence[str]) -> list[Callable[[bytes], None]]:
    """What must be called with the output of an agent that was started so; nothing, unless it is `tapped`."""
    return [tap(arguments) for tap in _taps]


class AgentProcess:
    """Create it with `start`. `end` must be awaited."""

    def __init__(
        self, pid: int, out: int, err: int, agent: Agent, on_gone: Callable[[int], None], cgroup: Cgroup | None
    ) -> None:
        self.pid = pid
        self.status: int | None = None  # its exit status, negative for a signal; None while it runs
        self.is_discarding = self.is_interrupted = False
        # An agent writes line by line. If true, output that follows the last read within some milliseconds is left in
        # the pipe until then. Output after a longer silence is read at once, unless many agents write at the time.
        self.merges_reads = False
        self.read_next = -math.inf  # by the monotonic clock, which may have started just now
        self._merged: _MergedReads | None = None  # where its output is read, if that is to be merged
        self._agent, self._on_gone, self._cgroup = agent, on_gone, cgroup
        self._placing: threading.Lock | None = None
        self._place_timer: asyncio.TimerHandle | None = None
        self._ending_rest: asyncio.Task[None] | None = None  # of what it left behind
        self._loop = asyncio.get_running_loop()
        self._pieces: list[bytes] = []
        self._copies: list[Callable[[bytes], None]] = []  # see `tapped`
        self._errors = bytearray()
        self._out, self._err = out, err
        self._open_pipes = {out, err}
        self._waiting: list[asyncio.Future[None]] = []  # for any change
        self._gone = False
        self._pidfd = -1
        self._deadline: asyncio.TimerHandle | None = None
        self._watch_end()  # first: it may fail
        for pipe in (self._out, self._err):
            os.set_blocking(pipe, False)
            self._loop.add_reader(pipe, self._readable, pipe)

    @classmethod
    async def start(
        cls,
        arguments: Sequence[str],
        *,
        folder: str,
        environment: Mapping[str, str],
        stdin: bytes | int | None,
        on_gone: Callable[[int], None] = lambda pid: None,
        cgroup: Cgroup | None = None,
    ) -> "AgentProcess":
        """`stdin` is what it reads, or a file to read from, which is closed here. None: /dev/null. `on_gone` is called
        with the process group once it has ended. The `cgroup` is removed with it.

        Raises `AgentMissing`, `HostExhausted`.
        """
        ours: list[int] = []  # ends of the pipes
        theirs: list[int] = []
        try:
            source = _file_of(stdin) if isinstance(stdin, bytes) else stdin
            if source is not None:
                theirs.append(source)
            for _ in ("stdout", "stderr"):
                read_end, write_end = os.pipe()
                ours.append(read_end)
                theirs.append(write_end)
            files = (source, theirs[-2], theirs[-1])
            is_alone, agent, pid = not running(), Agent(), None
            try:
                variables = {**environment, AGENT: agent.value}
                is_placed = cgroup is not None and (cgroup.is_limited or _can_start_in(cgroup))
                path = cgroup.path if cgroup is not None and is_placed else ""
                pid = await spawn(arguments, folder, variables, files, is_alone=is_alone, cgroup=path)
            finally:
                agent.started(pid)
            try:
                with suppress(OSError):
                    fcntl.fcntl(ours[0], _F_SETPIPE_SZ, _PIPE)
                started = cls(pid, ours[0], ours[1], agent, on_gone, cgroup)
                if cgroup is not None and not is_placed:
                    started._place_later(cgroup)
                cgroup = None
            except BaseException:  # without an owner it would never be ended
                signal_group(pid, signal.SIGKILL)
                reap(pid)
                agent.ended()
                raise
            ours.clear()  # they are its own now
            started._copies = copies_of(arguments)
            return started
        except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: no thread can be started
            raise cannot_start(error, arguments) from error
        finally:
            for file in (*ours, *theirs):
                os.close(file)
            if cgroup is not None:  # it was not started
                cgroup.end()

    @property
    def use(self) -> AgentUse | None:
        """None: unknown, because it was in no cgroup."""
        return None if self._cgroup is None else self._cgroup.use()

    @property
    def system_error(self) -> AgentError | None:
        """Why the system has ended it, or what it needed. One that ended well had no need of what was ended."""
        return None if self._cgroup is None or self.status == 0 else self._cgroup.error()

    @property
    def is_silent(self) -> bool:
        """It runs, and has written nothing."""
        return not (self._gone or self._pieces or self._errors) and len(self._open_pipes) == 2

    def waits(self, *, still: bool) -> None:
        """For its first prompt: until it has one, no process can be its own."""
        self._agent.waits(still=still)

    @property
    def ending(self) -> str:
        """How it ended, as text; empty while it runs."""
        if self.status is None:
            return ""
        return f"ended by signal {-self.status}" if self.status < 0 else f"exit status {self.status}"

    @property
    def stderr_tail(self) -> str:
        """The end of what it wrote to its standard error."""
        return self._errors.decode("utf-8", "replace")

    async def read(self) -> bytes:
        """Waits for output and returns all of it since the last call; empty at the end of the output, and where there
        is none when `is_interrupted` is set."""
        while not (self._pieces or self.is_interrupted) and self._out in self._open_pipes:
            self._waiting.append(change := self._loop.create_future())
            await change
        piece = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        return piece

    def interrupt(self) -> None:
        """Lets `read` return, until `is_interrupted` is reset."""
        self.is_interrupted = True
        self._wake()

    async def speaks(self) -> bool:
        """Waits for its first output, which `read` returns. False: it closed its output without any."""
        while not self._pieces and self._out in self._open_pipes:
            await self._next_change()
        return bool(self._pieces)

    async def wait(self, seconds: float) -> bool:
        """Whether it ended, with its pipes read to the end, within that time."""
        # Not `asyncio.timeout`: before Python 3.11.3 it does not work in a task that is being cancelled.
        deadline = self._loop.time() + seconds
        while not self._gone or self._open_pipes:
            left = deadline - self._loop.time()
            if left <= 0:
                return False
            change = self._next_change()
            timer = self._loop.call_later(left, _settle, change)
            try:
                await change
            finally:
                timer.cancel()
        return True

    async def end(self, grace_seconds: float) -> None:
        """Sends SIGTERM to the group, then SIGKILL. Afterwards no process that it started is left."""
        self.is_discarding = True  # further output is not read
        try:
            if not self._gone:
                await self._agent.look()
            self._signal(signal.SIGTERM)  # its session stays resumable
            if not self._gone and not await self.wait(grace_seconds):
                self._signal(signal.SIGKILL)
                await self.wait(_KILLED_SECONDS)
            if self._ending_rest is not None:
                await asyncio.wait([self._ending_rest])  # which continues even if this is cancelled
        finally:  # also when cancelled
            self._signal(signal.SIGKILL)
            self._close_pipes()
            if self._deadline is not None:
                self._deadline.cancel()

    def _signal(self, number: signal.Signals) -> None:
        if not self._gone:  # afterwards the pid may belong to another process
            signal_group(self.pid, number)

    # --- callbacks ----------------------------------------------------------------------------------

    def _readable(self, pipe: int) -> None:
        if pipe == self._out and self.merges_reads and not (self._gone or self.is_discarding):
            with suppress(OSError):  # no file descriptor or memory left: it is read as before
                merged = _MergedReads.of(self._loop)
                merged.add(self, pipe)
                self._merged = merged
                self._loop.remove_reader(pipe)
                return
        self.read_pipe(pipe)

    def read_pipe(self, pipe: int) -> None:
        try:
            piece = bytes(_buffer_view[: os.readv(pipe, (_buffer,))])
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            self._close_pipe(pipe)
        elif pipe == self._err:
            self._errors += piece
            del self._errors[:-_STDERR_TAIL]
            return
        elif not self.is_discarding:
            self.read_next = monotonic() + (_PAUSE if len(piece) < _MUCH else _SHORT_PAUSE)
            self._pieces.append(piece)
            for copy in self._copies:
                copy(piece)
        self._wake()

    def _watch_end(self) -> None:
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # not Linux, an old kernel, or no file descriptor left
            threading.Thread(target=self._wait_in_thread, name=f"agent {self.pid}", daemon=True).start()
        else:
            self._loop.add_reader(self._pidfd, self._ended)

    def _wait_in_thread(self) -> None:
        waitid = getattr(os, "waitid", None)
        if waitid is None:  # macOS before Python 3.13; pids are not reused this soon
            self._reap()
        else:
            with suppress(ChildProcessError):
                waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._ended)

    def _ended(self) -> None:
        if self._gone:
            return
        # Before reaping: until then the pid, and so the group id, cannot be reused.
        signal_group(self.pid, signal.SIGKILL)
        self._reap()
        self._agent.ended()
        self._gone = True
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        if self._place_timer is not None:
            self._place_timer.cancel()
        is_empty = self._cgroup is None or self._cgroup.end()
        if not is_empty or self._agent.may_have_left_some():
            self._ending_rest = self._loop.create_task(self._end_rest(), name=f"rest of agent {self.pid}")
        self._deadline = self._loop.call_later(_DEAD_PIPE_SECONDS, self._close_dead_pipes)
        if self._merged is not None:  # nothing more will come to wait for
            self._read_rest(self._out)
        if self._merged is not None:  # another process keeps it open
            self._merged.remove(self._out)
            self._merged = None
            self._loop.add_reader(self._out, self._readable, self._out)
        if self._err in self._open_pipes:  # its last words, before anybody asks why it ended
            self.read_pipe(self._err)
        self._wake()
        self._on_gone(self.pid)

    async def _end_rest(self) -> None:
        deadline = self._loop.time() + _KILLED_SECONDS
        while self._cgroup is not None and not self._cgroup.end() and self._loop.time() < deadline:
            await asyncio.sleep(_LOOK_SECONDS)
        if self._agent.may_have_left_some():
            await self._agent.end_rest()

    def _reap(self) -> None:
        with self._placing or nullcontext():  # until then, the pid is no other process's
            if self.status is None:
                self.status = reap(self.pid)

    def _place_later(self, cgroup: Cgroup) -> None:
        """Moving it into its cgroup is slow and delays other starts. A real agent takes longer than this moment to
        start, so all that it starts is in the cgroup; what ends earlier does not need one, and none is made.
        """
        self._placing = lock = threading.Lock()

        def place_now() -> None:
            with lock, suppress(OSError):
                if self.status is None:
                    cgroup.make()
                    place(self.pid, cgroup.path)

        self._place_timer = self._loop.call_later(_PLACE_SECONDS, self._loop.run_in_executor, None, place_now)

    # --- cleaning up --------------------------------------------------------------------------------

    def _close_pipe(self, pipe: int) -> None:
        if pipe in self._open_pipes:
            self._open_pipes.discard(pipe)
            if pipe == self._out and self._merged is not None:
                self._merged.remove(pipe)
                self._merged = None
            else:
                self._loop.remove_reader(pipe)
            os.close(pipe)

    def _close_dead_pipes(self) -> None:
        """Reads once more first: a busy event loop may not have drained the pipe yet."""
        for pipe in tuple(self._open_pipes):
            self._read_rest(pipe)
        self._close_pipes()

    def _read_rest(self, pipe: int) -> None:
        for _ in range(_PIPE // _PIECE):
            if pipe in self._open_pipes:
                self.read_pipe(pipe)

    def _close_pipes(self) -> None:
        for pipe in tuple(self._open_pipes):
            self._close_pipe(pipe)
        self._wake()

    def _next_change(self) -> "asyncio.Future[None]":
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(future)
        return future

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


class _MergedReads:
    """Reads the output of the agents of an event loop that write all the time.

    An event that comes alone costs nearly twice as much as one of ten that are read, stored and sent together: each
    step finds the processor's caches full of other things, and each turn of the event loop has a price of its own. So
    while there are many events, they are read once in a pause, and nobody sees a delay of some milliseconds.
    """

    _all: "ClassVar[dict[asyncio.AbstractEventLoop, _MergedReads]]" = {}

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pipes = selectors.DefaultSelector()
        self._timer: asyncio.TimerHandle | None = None  # until the next look; without it, the loop watches the pipes
        self._since, self._count = -math.inf, 0  # of these reads
        self._loop.add_reader(self._pipes, self._look)

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> "_MergedReads":
        """Those of the loop, as long as there are any."""
        if (found := cls._all.get(loop)) is None:
            found = cls._all[loop] = cls(loop)
        return found

    def add(self, agent: AgentProcess, pipe: int) -> None:
        self._pipes.register(pipe, selectors.EVENT_READ, agent)

    def remove(self, pipe: int) -> None:
        self._pipes.unregister(pipe)
        if not self._pipes.get_map():
            del self._all[self._loop]
            if self._timer is not None:
                self._timer.cancel()
            else:
                self._loop.remove_reader(self._pipes)
            self._pipes.close()

    def _look(self) -> None:
        ready, now = self._pipes.select(0), monotonic()
        if self._timer is not None or now - self._since > _PAUSE:
            self._since, self._count = now, 0
        early: list[float] = []
        try:
            for key, _ in ready:
                agent: AgentProcess = key.data
                if agent.read_next > now:  # it has just been read
                    early.append(agent.read_next)
                else:
                    agent.read_pipe(key.fd)
            self._count += len(ready) - len(early)
            if self._count >= _MANY:
                early.append(now + _PAUSE)
        finally:  # also if one of them fails, or no agent would be read any more
            if self._pipes.get_map():
                self._look_again(min(early) - now if early else None)

    def _look_again(self, seconds: float | None) -> None:
        """None: as soon as there is anything."""
        was_watching = self._timer is None
        self._timer = None if seconds is None else self._loop.call_later(seconds, self._look)
        if seconds is None and not was_watching:
            self._loop.add_reader(self._pipes, self._look)
        elif seconds is not None and was_watching:
            self._loop.remove_reader(self._pipes)


def _can_start_in(cgroup: Cgroup) -> bool:
    """Without a move. The system may refuse another cgroup; an agent without limits does without one."""
    if starts_in_cgroups():
        with suppress(OSError):
            cgroup.make()
            return True
    return False


def _settle(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def cannot_start(error: Exception, arguments: Sequence[str]) -> GatewayError:
    if (exhausted := host_exhausted(error)) is not None:
        return exhausted
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    where = error.filename if isinstance(error, OSError) else None
    return AgentMissing(
        f"The agent cannot be started: {reason}; run `cursor-gateway doctor`, then try again.",
        details=str(where or arguments[0]),  # the working folder may be what is missing
    )


def _file_of(data: bytes) -> int:
    """A file, not a pipe: it needs no writer task, and an agent that never reads it blocks nothing."""
    try:
        file = os.memfd_create("prompt")
    except (AttributeError, OSError):
        with tempfile.TemporaryFile() as unnamed:
            file = os.dup(unnamed.fileno())
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
        os.lseek(file, 0, os.SEEK_SET)
    except OSError:
        os.close(file)
        raise
    return file


# --- A standard input that stays open --------------------------------------------------------------


async def start_with_stdin(
    arguments: Sequence[str],
    *,
    folder: str,
    environment: Mapping[str, str],
    on_gone: Callable[[int], None],
    cgroup: Cgroup | None = None,
) -> "tuple[AgentProcess, StdinWriter]":
    """An agent whose standard input stays open. Raises `AgentMissing`, `HostExhausted`."""
    try:
        theirs, ours = os.pipe()
    except OSError as error:
        if cgroup is not None:
            cgroup.end()
        raise cannot_start(error, arguments) from error
    stdin = StdinWriter(ours)
    try:
        process = await AgentProcess.start(
            arguments, folder=folder, environment=environment, stdin=theirs, on_gone=on_gone, cgroup=cgroup
        )
    except BaseException:
        stdin.close()
        raise
    return process, stdin


class StdinWriter:
    """Writes to a process without ever waiting: data that it does not read is buffered until it ends.

    Not a transport of the event loop: uvloop closes the descriptor of a pipe twice, and by then it may be the number of
    a file that another thread has opened.
    """

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._loop = asyncio.get_running_loop()
        self._rest: deque[memoryview] = deque()
        self._is_ending = False
        os.set_blocking(pipe, False)

    def write(self, data: bytes) -> None:
        """Does nothing when the process is gone; the end of its output reports that."""
        if self._pipe < 0:
            return
        self._rest.append(memoryview(data))
        if len(self._rest) == 1:
            self._writable()
            if self._rest:
                self._loop.add_writer(self._pipe, self._writable)

    def end(self, data: bytes) -> None:
        """Writes the last data. The process reads the end of its input after it."""
        self._is_ending = True
        if data:
            self.write(data)
        else:
            self.close()

    def close(self) -> None:
        if self._pipe >= 0:
            self._loop.remove_writer(self._pipe)
            os.close(self._pipe)
            self._pipe = -1
            self._rest.clear()

    def _writable(self) -> None:
        try:
            while self._rest:
                written = os.write(self._pipe, self._rest[0])
                self._rest[0] = self._rest[0][written:]
                if not self._rest[0]:
                    self._rest.popleft()
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        self._loop.remove_writer(self._pipe)
        if self._is_ending:
            self.close()
