"""A record on disk of the agents that this gateway runs, so that the next gateway can end orphans.

A gateway that is killed cannot end its agents. Each gateway has a folder named after its process; in it is one empty
file for each agent's process group, also named after its process. A process is identified by its pid and its start
time, counted from boot. The gateway also holds a lock: a pid means nothing to a gateway in another container or on
another machine. The lock file contains the boot id and the PID namespace in which its pids are valid. Anywhere else,
they may belong to any process.

The file of an agent that has ended is kept, under another name, for the next one. A file system takes long to make a
file while many were deleted in the last seconds: ext4 does not use their numbers again at once, and looks for others.
"""

import fcntl
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from cursor_gateway.sources.process_groups import members, signal_group, start_of

_LOCK = "lock"
_MOST_SPARE = 64
_NEW_FILE = os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class Ledger:
    def __init__(self, directory: Path) -> None:
        """`directory` is shared by all gateways. Nothing is written before `open`."""
        self._all = directory
        self.folder = directory / _name(os.getpid())
        self._agents = self.folder / "agents"
        self._spare: list[str] = []  # files of agents that have ended
        self._entries: dict[int, str] = {}  # process group -> file
        self._lock = -1

    def open(self) -> None:
        """Raises `OSError`."""
        for folder in (self._all.parent, self._all, self.folder):  # conversations are stored in them, too
            if not folder.exists():
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # parents get the umask's mode, so one by one
        self._agents.mkdir(exist_ok=True, mode=0o700)
        self._lock = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with suppress(OSError):  # some file systems have no locks
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with suppress(OSError):  # a full disk must not stop the gateway
            os.write(self._lock, _pid_scope())

    def add(self, group: int) -> None:
        try:
            entry = f"{self._agents}/{_name(group)}"
            if not self._spare or not _renamed(self._spare.pop(), entry):
                os.close(os.open(entry, _NEW_FILE, 0o600))
            self._entries[group] = entry
        except (OSError, subprocess.SubprocessError):
            pass  # a full disk must not stop runs

    def remove(self, group: int) -> None:
        entry = self._entries.pop(group, None)
        if entry is None:
            return
        try:
            if len(self._spare) >= _MOST_SPARE:
                os.unlink(entry)
                return
            spare = f"{self.folder}/spare-{len(self._spare)}"
            if _renamed(entry, spare):
                self._spare.append(spare)
        except OSError:
            pass  # the group has ended, which the next gateway sees

    def is_alive(self, name: str) -> bool:
        """Whether the gateway of this name still runs."""
        return name == self.folder.name or _is_alive(self._all / name)

    def alive(self) -> list[str]:
        """The names of gateways that run."""
        return [folder.name for folder in _entries(self._all) if _is_alive(folder)]

    def dead(self) -> list[str]:
        """The names of gateways that were killed, until `end_orphans` removes their folders."""
        return [folder.name for folder in _entries(self._all) if not _is_alive(folder)]

    def orphans(self) -> list[int]:
        """The process groups of the agents of dead gateways."""
        return [group for name in self.dead() for group in _groups(self._all / name)]

    def end_orphans(self) -> list[int]:
        """Ends the agents of dead gateways and removes their folders. Returns the process groups it ended."""
        ended = []
        for name in self.dead():
            ended += self.end_agents_of(name)
            shutil.rmtree(self._all / name, ignore_errors=True)
        return ended

    def end_agents_of(self, name: str) -> list[int]:
        """Ends the agents of a gateway that has lost them, whether it is alive or not. Returns the process groups."""
        groups = _groups(self._all / name)
        for group in groups:
            signal_group(group, signal.SIGKILL)
        return groups

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _renamed(entry: str, name: str) -> bool:
    try:
        os.rename(entry, name)
    except OSError:
        return False
    return True


def _name(pid: int) -> str:
    return f"{pid}-{start_of(pid)}"


def _groups(gateway: Path) -> list[int]:
    """The process groups of its agents that still run."""
    if not _has_our_pids(gateway):
        return []
    named = (entry.name.partition("-") for entry in _entries(gateway / "agents"))
    # Another process with this pid means the group has ended: a pid is not reused before that.
    return [int(group) for group, _, start in named if start_of(int(group)) in (None, start) and members(int(group))]


def _pid_scope() -> bytes:
    """The boot id and the PID namespace; empty where the system does not provide them."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes() + os.fsencode(os.readlink("/proc/self/ns/pid"))
    except OSError:
        return b""


def _has_our_pids(gateway: Path) -> bool:
    """Also true if the lock file is empty: an earlier version wrote it, or the disk was full."""
    own = _pid_scope()
    try:
        return not own or (gateway / _LOCK).read_bytes() in (b"", own)
    except OSError:
        return True


def _is_alive(gateway: Path) -> bool:
    pid, _, start = gateway.name.partition("-")
    return (start_of(int(pid)) == start and _has_our_pids(gateway)) or _is_locked(gateway / _LOCK)


def _is_locked(path: Path) -> bool:
    try:
        file = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    finally:
        os.close(file)
    return False


def _entries(folder: Path) -> list[Path]:
    """Only the gateway's own entries."""
    try:
        return [entry for entry in folder.iterdir() if entry.name.partition("-")[0].isdigit()]
    except OSError:
        return []
