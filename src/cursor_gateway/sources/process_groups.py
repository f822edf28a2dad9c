"""Processes: all of them at a moment, their groups, start times and environments, and signals to them.

A process is identified by its pid and its start time, because pids are reused.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

_PROC = "/proc"
_WITH_ENVIRONMENT = "-axEww" if sys.platform == "darwin" else "axeww"  # of `ps`


class Process(NamedTuple):
    pid: int
    parent: int
    group: int
    session: int  # 0 where the system does not show it
    start: str  # as the system formats it
    is_zombie: bool = False


Table = Mapping[int, Process]
"""Processes by their pids."""


def start_of(pid: int) -> str | None:
    """When a process started, as the system formats it; None when it has ended (zombies have)."""
    if os.path.isdir(_PROC):
        fields = _stat(pid)
        return None if fields is None or fields[0] in "ZX" else fields[19]
    state, *start = _ps("-o", "stat=", "-o", "lstart=", "-p", str(pid)).split() or ["Z"]
    return None if state.startswith("Z") else _start(start)


def snapshot() -> dict[int, Process]:
    """All living processes, by pid."""
    if not os.path.isdir(_PROC):
        # A separate -o for each column: after the first `=` the rest, commas included, may be taken as a title.
        columns = ("pid=", "ppid=", "pgid=", "stat=", "lstart=")
        lines = (line.split() for line in _ps("-ax", *(f"-o{column}" for column in columns)).splitlines())
        found = (
            Process(int(pid), int(parent), int(group), 0, _start(start))
            for pid, parent, group, stat, *start in lines
            if not stat.startswith("Z")
        )
        return {process.pid: process for process in found}
    every = (process_of(int(name)) for name in os.listdir(_PROC) if name.isdigit())
    return {process.pid: process for process in every if process is not None and not process.is_zombie}


def process_of(pid: int) -> Process | None:
    """None when it has ended and was reaped. Only where there is /proc."""
    fields = _stat(pid)
    if fields is None:
        return None
    return Process(pid, int(fields[1]), int(fields[2]), int(fields[3]), fields[19], fields[0] in "ZX")


def children_of(pid: int, thread: int | str) -> list[int] | None:
    """What a thread of a process has started or adopted, zombies too; None if the system does not show it."""
    try:
        file = os.open(f"{_PROC}/{pid}/task/{thread}/children", os.O_RDONLY | os.O_CLOEXEC)
        try:
            pieces = []
            while piece := os.read(file, 64 * 1024):
                pieces.append(piece)
        finally:
            os.close(file)
    except OSError:
        return None
    return [int(child) for child in b"".join(pieces).split()]


def may_have_children(pid: int) -> bool:
    """False only if it is certain."""
    try:
        threads = os.listdir(f"{_PROC}/{pid}/task")
    except OSError:
        return not os.path.isdir(_PROC)
    return any(children_of(pid, thread) != [] for thread in threads)


def values_of(name: str, pids: Iterable[int]) -> dict[int, str]:
    """The value of an environment variable when each process started, for those that had it and may be read.

    Programs that write their status over their arguments (nginx, Redis) have nothing left to read.
    """
    if not os.path.isdir(_PROC):
        wanted, assigned = set(pids), re.compile(rf"(?<!\S){re.escape(name)}=(\S*)")
        lines = (line.split(maxsplit=1) for line in _ps(_WITH_ENVIRONMENT, "-opid=", "-ocommand=").splitlines())
        matches = ((int(pid), assigned.search("".join(rest))) for pid, *rest in lines if int(pid) in wanted)
        return {pid: match[1] for pid, match in matches if match is not None}
    found, prefix = {}, os.fsencode(f"\0{name}=")
    for pid in pids:
        with suppress(OSError), open(f"{_PROC}/{pid}/environ", "rb") as file:
            _, is_set, rest = (b"\0" + file.read()).partition(prefix)
            if is_set:
                found[pid] = os.fsdecode(rest.partition(b"\0")[0])
    return found


def members(group: int) -> list[int]:
    """The living processes of a group."""
    return [process.pid for process in snapshot().values() if process.group == group]


def signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # PermissionError: a group of zombies on macOS
        os.killpg(group, number)


def signal_process(process: Process, number: signal.Signals) -> None:
    """Unless it has ended, and its pid may belong to another one."""
    with suppress(OSError):
        try:
            handle = os.pidfd_open(process.pid)
        except (AttributeError, OSError):  # not Linux, an old kernel, or no file descriptor left
            if start_of(process.pid) == process.start:
                os.kill(process.pid, number)
            return
        try:
            if start_of(process.pid) == process.start:
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def reap(pid: int) -> int:
    """Waits for a child that has ended or is about to. Returns its exit status, negative for a signal.

    If the gateway was started with SIGCHLD ignored, the kernel reaps its children, and their status is unknown: 0, as
    `Popen` has it.
    """
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return 0


def _start(words: Iterable[str]) -> str:
    return "-".join(words).replace(":", ".")


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the name: state, parent, group, session, … start time (the 20th)."""
    try:
        file = os.open(f"{_PROC}/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            text = os.read(file, 4096).decode("utf-8", "replace")  # one line of some 300 bytes
        finally:
            os.close(file)
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()


def _ps(*arguments: str) -> str:
    # Gateways compare this text, also across different locales and time zones.
    environment = {**os.environ, "LC_ALL": "C", "TZ": "UTC0"}
    command = ["ps", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=10, env=environment).stdout
