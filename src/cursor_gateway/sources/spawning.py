"""A command in; the id of its process, in a session of its own, out. The event loop does not wait for its start.

Starting a process suspends the thread that starts it until the new process has loaded its program (`vfork`): 0.2 ms, or
many milliseconds if the processors are busy. Python's own functions hold the interpreter's lock meanwhile, so a thread
would not help. On Linux, threads of this module call the C library's `posix_spawn` through ctypes, which releases
the lock: other runs continue. If there are none, waking a thread would take longer than it saves. Elsewhere, and with
C libraries that lack one of the functions, `Popen` is used.

The files and the arguments of a process must stay as they are until it has started, so `spawn` waits for that even
when it is cancelled, and then ends the process.
"""

import asyncio
import ctypes
import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from queue import SimpleQueue
from typing import Any

from cursor_gateway.sources.cgroups import place
from cursor_gateway.sources.processes import reap, signal_group

_THREADS = 2  # one of them may have to wait for a slow disk
_DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores them; `Popen` restores them as well
# Of Linux's <spawn.h>.
_SET_SIGNAL_DEFAULTS, _SET_SIGNAL_MASK, _SET_SESSION, _SET_CGROUP = 0x04, 0x08, 0x80, 0x100
_FLAGS = _SET_SIGNAL_DEFAULTS | _SET_SIGNAL_MASK | _SET_SESSION
_STRUCTURE = 1024  # bytes: more than any structure of <spawn.h> and <signal.h> has

_STANDARD_FILES = frozenset({0, 1, 2})

# Standard input, output and error of a process. None is /dev/null.
Files = tuple[int | None, int, int]


async def spawn(
    arguments: Sequence[str],
    folder: str,
    environment: Mapping[str, str],
    files: Files,
    *,
    is_alone: bool = False,
    cgroup: str = "",
) -> int:
    """Starts a process, in this cgroup if there is one; the caller must reap it. One that `is_alone` makes nobody wait,
    and is started at once.

    Raises `OSError` and `ValueError` as `Popen` does, and `RuntimeError` if no thread can be started.
    """
    library = _library()
    if library is None or not _STANDARD_FILES.isdisjoint(files):  # moving one of them would overwrite another
        return _placed(_spawned_by_popen(arguments, folder, environment, files), cgroup)
    queue = None if is_alone and (not cgroup or library.can_set_cgroup) else _queue()
    start = _Start(library, _path_of(arguments[0], environment), arguments, folder, environment, files, cgroup)
    if queue is None:
        start.run_now()
    else:
        queue.put(start)
    cancelled: asyncio.CancelledError | None = None
    while start.result is None:
        start.waiter = start.loop.create_future()
        try:
            await start.waiter
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        _end(start.result)
        raise cancelled
    if isinstance(start.result, BaseException):
        raise start.result
    return start.result


def starts_in_cgroups() -> bool:
    """Otherwise a process is moved after its start, for which the kernel may take ten milliseconds and stop all other
    starts meanwhile."""
    return (library := _library()) is not None and library.can_set_cgroup


def _spawned_by_popen(arguments: Sequence[str], folder: str, environment: Mapping[str, str], files: Files) -> int:
    stdin, stdout, stderr = files
    popen = subprocess.Popen(
        arguments,
        executable=_path_of(arguments[0], environment),
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL if stdin is None else stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
    )
    popen.returncode = 0  # or the garbage collector would have it reaped
    return popen.pid


def _placed(pid: int, cgroup: str) -> int:
    """Raises `OSError` if it cannot be moved, after it was ended."""
    if cgroup:
        try:
            place(pid, cgroup)
        except BaseException:
            _end(pid)
            raise
    return pid


def _path_of(program: str, environment: Mapping[str, str]) -> str:
    """A relative one, also in `PATH`, would be taken from the new process's working folder."""
    found = program if "/" in program else shutil.which(program, path=environment.get("PATH", os.defpath))
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)
    return os.path.abspath(found)


class _Library:
    def __init__(self, quick: ctypes.PyDLL, waiting: ctypes.CDLL, attributes: "ctypes.Array[ctypes.c_char]") -> None:
        self.quick = quick  # holds the interpreter's lock
        self.waiting = waiting  # releases it
        self.attributes = attributes
        # Of glibc 2.39 and newer. Some containers forbid the system call that it needs, which shows when it is used.
        self.can_set_cgroup = hasattr(quick, "posix_spawnattr_setcgroup_np")

    def attributes_in(self, cgroup: int) -> "ctypes.Array[ctypes.c_char]":
        """With which a process starts in the cgroup whose folder this is."""
        attributes = ctypes.create_string_buffer(self.attributes.raw, _STRUCTURE)  # it contains no pointers
        self.quick.posix_spawnattr_setcgroup_np(attributes, cgroup)
        self.quick.posix_spawnattr_setflags(attributes, ctypes.c_short(_FLAGS | _SET_CGROUP))
        return attributes


@cache
def _library() -> _Library | None:
    """None if this system's C library cannot do all that is needed."""
    if not sys.platform.startswith("linux"):
        return None
    quick, waiting = ctypes.PyDLL(None), ctypes.CDLL(None)
    needed = ("addchdir_np", "addclosefrom_np", "adddup2", "addopen", "destroy", "init")
    if not all(hasattr(quick, f"posix_spawn_file_actions_{name}") for name in needed):
        return None
    attributes, defaults, mask = (ctypes.create_string_buffer(_STRUCTURE) for _ in range(3))
    quick.posix_spawnattr_init(attributes)
    for number in _DEFAULT_SIGNALS:
        quick.sigaddset(defaults, int(number))
    quick.posix_spawnattr_setsigdefault(attributes, defaults)
    quick.posix_spawnattr_setsigmask(attributes, mask)
    quick.posix_spawnattr_setflags(attributes, ctypes.c_short(_FLAGS))
    return _Library(quick, waiting, attributes)


class _Start:
    """A process to be started by a thread, and the future of whoever waits for it."""

    def __init__(
        self,
        library: _Library,
        program: str,
        arguments: Sequence[str],
        folder: str,
        environment: Mapping[str, str],
        files: Files,
        cgroup: str,
    ) -> None:
        self.result: int | BaseException | None = None  # the process id, once it has started
        self.loop = asyncio.get_running_loop()
        self.waiter: asyncio.Future[None] | None = None
        self._library = library
        self._program, self._folder, *encoded = _encoded([program, folder, *arguments])
        self._arguments = _strings(encoded)
        if "=" in "".join(environment):
            raise ValueError("illegal environment variable name")
        self._environment = _strings(_encoded([f"{name}={value}" for name, value in environment.items()]))
        self._actions = self._new_actions(files)
        self._pid = ctypes.c_int()
        self._cgroup = cgroup

    def _new_actions(self, files: Files) -> "ctypes.Array[ctypes.c_char]":
        """What the new process does before it loads its program."""
        quick, actions = self._library.quick, ctypes.create_string_buffer(_STRUCTURE)
        failed = quick.posix_spawn_file_actions_init(actions)
        for number, file in enumerate(files):
            if file is None:
                null = os.fsencode(os.devnull)
                failed = failed or quick.posix_spawn_file_actions_addopen(actions, number, null, os.O_RDONLY, 0)
            else:
                failed = failed or quick.posix_spawn_file_actions_adddup2(actions, file, number)
        failed = failed or quick.posix_spawn_file_actions_addclosefrom_np(actions, len(files))
        failed = failed or quick.posix_spawn_file_actions_addchdir_np(actions, self._folder)
        if failed:
            raise OSError(failed, os.strerror(failed))
        return actions

    def run(self) -> None:
        """Called by a thread, which keeps the event loop from the interpreter as little as possible. Never fails: later
        starts need the thread."""
        result: int | BaseException
        try:
            result = self._started()
        except BaseException as error:  # noqa: BLE001 -- raised by `spawn`
            result = error
        try:
            self.loop.call_soon_threadsafe(self._finish, result)
        except RuntimeError:  # the loop was closed without waiting for its tasks
            _end(result)

    def run_now(self) -> None:
        """Called by the event loop itself."""
        self._finish(self._started())

    def _started(self) -> int | OSError:
        library = self._library
        if self._cgroup and library.can_set_cgroup and self._started_in_cgroup():
            return self._pid.value
        if (number := self._spawn(library.attributes)) != 0:
            return self._error(number)
        library.can_set_cgroup = library.can_set_cgroup and not self._cgroup  # the program is not what was wrong
        return _placed(self._pid.value, self._cgroup)

    def _started_in_cgroup(self) -> bool:
        folder = os.open(self._cgroup, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return self._spawn(self._library.attributes_in(folder)) == 0
        finally:
            os.close(folder)

    def _spawn(self, attributes: "ctypes.Array[ctypes.c_char]") -> int:
        """The number of the error, or 0."""
        number: int = self._library.waiting.posix_spawn(
            ctypes.byref(self._pid), self._program, self._actions, attributes, self._arguments, self._environment
        )
        return number

    def _error(self, number: int) -> OSError:
        """As `Popen` reports it: the folder may be what cannot be used."""
        can_enter = os.path.isdir(self._folder) and os.access(self._folder, os.X_OK)
        blamed = self._program if can_enter else self._folder
        return OSError(number, os.strerror(number), os.fsdecode(blamed))

    def _finish(self, result: int | BaseException) -> None:
        self._library.quick.posix_spawn_file_actions_destroy(self._actions)
        self.result = result
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


def _end(result: int | BaseException) -> None:
    """Of a process that nobody waits for any more."""
    if isinstance(result, int):
        signal_group(result, signal.SIGKILL)
        reap(result)


def _encoded(texts: Sequence[str]) -> list[bytes]:
    """All at once, which is quicker."""
    encoded = os.fsencode("\0".join(texts)).split(b"\0") if texts else []
    if len(encoded) != len(texts):
        raise ValueError("embedded null byte")
    return encoded


def _strings(items: Sequence[bytes]) -> Any:
    """As C has lists of strings: pointers, and a null pointer at the end."""
    return (ctypes.c_char_p * (len(items) + 1))(*items, None)


# --- the threads ------------------------------------------------------------------------------------


@cache
def _queue() -> "SimpleQueue[_Start]":
    """Read by threads that live as long as the process."""
    queue: SimpleQueue[_Start] = SimpleQueue()
    threading.Thread(target=_start_all, args=(queue,), name="spawn", daemon=True).start()
    with suppress(RuntimeError):  # one of them is enough
        for _ in range(_THREADS - 1):
            threading.Thread(target=_start_all, args=(queue,), name="spawn", daemon=True).start()
    return queue


def _start_all(queue: "SimpleQueue[_Start]") -> None:
    while True:
        queue.get().run()


os.register_at_fork(after_in_child=_queue.cache_clear)  # a child has none of its parent's threads
