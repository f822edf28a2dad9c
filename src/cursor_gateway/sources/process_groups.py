"""Process groups: the start times of processes, the members of groups, and signals to them.

A process is identified by its pid and its start time, because pids are reused.
"""

import os
import signal
import subprocess
from contextlib import suppress

_PROC = "/proc"


def start_of(pid: int) -> str | None:
    """When a process started, as the system formats it; None when it has ended (zombies have)."""
    if os.path.isdir(_PROC):
        fields = _stat(pid)
        return None if fields is None or fields[0] in "ZX" else fields[19]
    state, *start = _ps("-o", "stat=", "-o", "lstart=", "-p", str(pid)).split() or ["Z"]
    return None if state.startswith("Z") else "-".join(start).replace(":", ".")


def members(group: int) -> list[int]:
    """The living processes of a group."""
    if not os.path.isdir(_PROC):
        # A separate -o for each column: after the first `=` the rest, commas included, may be taken as a title.
        lines = (line.split() for line in _ps("-ax", "-o", "pid=", "-o", "pgid=", "-o", "stat=").splitlines())
        return [int(pid) for pid, pgid, stat in lines if pgid == str(group) and not stat.startswith("Z")]
    found = []
    for name in os.listdir(_PROC):
        if name.isdigit():
            fields = _stat(int(name))
            if fields is not None and fields[2] == str(group) and fields[0] not in "ZX":
                found.append(int(name))
    return found


def signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # PermissionError: a group of zombies on macOS
        os.killpg(group, number)


def reap(pid: int) -> int:
    """Waits for a child that has ended or is about to. Returns its exit status, negative for a signal.

    If the gateway was started with SIGCHLD ignored, the kernel reaps its children, and their status is unknown: 0, as
    `Popen` has it.
    """
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return 0


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
