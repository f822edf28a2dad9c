"""A running gateway in; a host around it that gives it less, for a while, out.

Limits are set from outside, on a process that already runs, and taken back: so it shows that all heals.
"""

import ctypes
import os
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from urllib.error import URLError
from urllib.request import urlopen

from chaos.place import TIMEOUT, wait_until
from chaos.table import Skipped

_CGROUPS = Path("/sys/fs/cgroup")
_CLONE_NEWNS = 0x00020000


# --- limits -------------------------------------------------------------------------------------------


@contextmanager
def limited(pid: int, what: int, soft: int) -> Iterator[None]:
    before = resource.prlimit(pid, what)
    resource.prlimit(pid, what, (soft, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, what, before)


def next_descriptor(pid: int) -> int:
    """The number that the next file would get: a limit of this allows none."""
    taken = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    return next(number for number in range(len(taken) + 1) if number not in taken)


def many_descriptors() -> None:
    """For this process and those that it starts: some systems allow a thousand unless asked."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def no_new_tasks(pid: int) -> Iterator[str]:
    """Neither processes nor threads; yields what refuses them. Limits of users do not hold for root: groups do."""
    if os.geteuid() != 0:
        with limited(pid, resource.RLIMIT_NPROC, 1):
            yield "the user's limit of processes"
        return
    version_2 = (_CGROUPS / "cgroup.controllers").exists()
    home = _CGROUPS / _group_of(pid, "" if version_2 else "pids", version_2).lstrip("/")
    group = home / f"chaos-{pid}"
    try:
        group.mkdir()
        if version_2 and not (group / "pids.max").exists():
            (home / "cgroup.subtree_control").write_text("+pids")
        (group / "cgroup.procs").write_text(str(pid))
        (group / "pids.max").write_text((group / "pids.current").read_text())
    except OSError as error:
        _remove(group, home, pid)
        raise Skipped(f"no group of processes can be limited here: {error}") from error
    try:
        yield "a group's limit of tasks"
    finally:
        _remove(group, home, pid)


def _group_of(pid: int, controller: str, version_2: bool) -> str:
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            return path if version_2 else f"pids/{path.lstrip('/')}"
    raise Skipped("this system has no groups of processes")


def _remove(group: Path, home: Path, pid: int) -> None:
    if group.is_dir():
        (home / "cgroup.procs").write_text(str(pid))
        wait_until(lambda: not (group / "cgroup.procs").read_text().strip(), what="an empty group of processes")
        group.rmdir()


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- disks --------------------------------------------------------------------------------------------


@contextmanager
def small_disk(at: Path, megabytes: int = 3) -> Iterator[Path]:
    at.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        _own_mounts()
    mounted = _as_root("mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0777", "tmpfs", str(at))
    if mounted is not None:
        raise Skipped(f"no small disk can be mounted here: {mounted}")
    try:
        yield at
    finally:
        _as_root("umount", "--lazy", str(at))


def _own_mounts() -> None:
    """What is mounted after this goes with this process, however it ends."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS) != 0:
        raise Skipped(f"no small disk can be mounted here: {os.strerror(ctypes.get_errno())}")
    failed = _as_root("mount", "--make-rprivate", "/")
    if failed is not None:
        raise Skipped(f"no small disk can be mounted here: {failed}")


def remount(disk: Path, how: str) -> None:
    failed = _as_root("mount", "-o", f"remount,{how}", str(disk))
    assert failed is None, failed


def _as_root(*command: str) -> str | None:
    """Why it failed."""
    if shutil.which(command[0]) is None:
        return f"there is no {command[0]}"
    asked = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if asked and shutil.which("sudo") is None:
        return "only root can"
    ran = subprocess.run([*asked, *command], capture_output=True, text=True, check=False, timeout=30)
    return None if ran.returncode == 0 else ran.stderr.strip()


def fill(disk: Path) -> Path:
    """To the last byte."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (65536, 4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return ballast


# --- a gateway whose outputs are what they are ----------------------------------------------------------


class Bare:
    """A gateway that was started as it is, without anybody who reads what it prints."""

    def __init__(self, url: str, process: "subprocess.Popen[bytes]") -> None:
        self.url, self.process = url, process


@contextmanager
def bare_gateway(
    home: Path,
    *,
    stdout: int | IO[bytes] | None = subprocess.DEVNULL,
    stderr: int | IO[bytes] | None = subprocess.DEVNULL,
    environment: Mapping[str, str] | None = None,
    closed: tuple[int, ...] = (),
) -> Iterator[Bare]:
    """`closed`: descriptors that it is started without, as `serve >&-` does."""
    port = _free_port()
    command = [sys.executable, "-m", "cursor_gateway", "serve", "--port", str(port)]
    if closed:
        ends = " ".join(f"{number}>&-" for number in closed)
        command = ["sh", "-c", f'exec "$@" {ends}', "sh", *command]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=dict(environment or {}), cwd=home
    )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: process.poll() is not None or _answers(url), TIMEOUT, "the first answer")
        assert process.poll() is None, f"it ended at once: {process.returncode}"
        yield Bare(url, process)
        process.terminate()
        process.wait(TIMEOUT)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(TIMEOUT)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def _answers(url: str) -> bool:
    try:
        with urlopen(f"{url}/health", timeout=5) as reply:
            return bool(reply.status == 200)
    except (URLError, OSError):
        return False
