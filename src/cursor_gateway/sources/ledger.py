"""A record on disk of the agents that this gateway runs, so that the next gateway can end orphans.

A gateway that is killed cannot end its agents. Each gateway has a folder named after its process; in it is one empty
file for each agent's process group, also named after its process. A process is identified by its pid and its start
time, counted from boot. The folder also has the token that is in the environment of all processes below these agents.
The gateway also holds a lock: a pid means nothing to a gateway in another container or on another machine. The lock
file contains the boot id and the PID namespace in which its pids are valid. Anywhere else, they may belong to any
process.

Gateways of one machine may have different data directories, and still work in the same folders. So a directory of the
machine, the registry, has a link to each gateway's folder.

A gateway that has lost its runs to another one may be frozen instead of dead. Whoever ends its agents first renames the
folder `agents`: an agent that the other one starts when it wakes up can no longer be noted, and is ended at once.

The file of an agent that has ended is kept, under another name, for the next one. A file system takes long to make a
file while many were deleted in the last seconds: ext4 does not use their numbers again at once, and looks for others.
"""

import asyncio
import fcntl
import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from secrets import token_hex
from typing import TypeAlias

from msgspec import Struct

from cursor_gateway.errors import ConversationBusy
from cursor_gateway.sources.cgroups import Cgroup, Cgroups, end_agents_in
from cursor_gateway.sources.processes import Table, end, members, of_gateway, signal_group, start_of, token, unnamed

_LOCK = "lock"
_MEMBER = "member"  # the cluster that the gateway is in, and its id there
_AGENTS, _ENDED = "agents", "ended-"
_TOKEN = "token"
_CGROUP = "cgroup"  # the folder of its agents' cgroups
_NOTE_SECONDS = 0.1  # a look takes 50 µs
_MOST_SPARE = 64
_COARSE_NS = 20_000_000  # of a file system's clock: a folder may change again in this time without any sign
_NEW_FILE = os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_WAIT = "trap '' HUP INT TERM; read -r closed || exec \"$@\""  # a script
_PASSED_ON = ("PATH", "PYTHONPATH", "PYTHONHOME")
_CLOSING_SECONDS = 1.0


def registry(path: str = "") -> Path | None:
    """The directory that all gateways of this user on this machine share; None if another user could write to it."""
    found = Path(path or f"/tmp/cursor-gateway-{os.geteuid()}")
    try:
        with suppress(FileExistsError):
            found.mkdir(mode=0o700)
        facts = found.lstat()
    except OSError:
        return None
    is_ours = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & 0o022
    return found if is_ours else None


class OtherGateway(Struct, frozen=True):
    name: str
    cluster: str
    member: str  # its id in the cluster


class Ledger:
    def __init__(self, directory: Path, registry: Path | None = None) -> None:
        """`directory` is shared by all gateways with the same data, `registry` by all on this machine. Nothing is
        written before `open`."""
        self._all, self._registry = directory, registry
        self.folder = directory / _name(os.getpid())
        self._agents = self.folder / _AGENTS
        self._spare: list[str] = []  # files of agents that have ended
        self._entries: dict[int, str] = {}  # process group -> file
        self._locks: list[int] = []
        self._places = [str(place) for place in (directory, registry) if place is not None]
        self._others = _Others()
        self._looking = threading.Lock()  # `end_orphans` looks in a thread
        self._alive_since: list[int] = []  # when the places changed last, if all others in them are watched
        self._watchdog: Watchdog | None = None
        self._cgroups: Cgroups | None = None

    def open(self) -> None:
        """Raises `OSError`."""
        for folder in (self._all.parent, self._all, self.folder):  # conversations are stored in them, too
            if not folder.exists():
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # parents get the umask's mode, so one by one
        self._agents.mkdir(exist_ok=True, mode=0o700)
        lock = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        self._locks.append(lock)
        with suppress(OSError):  # some file systems have no locks
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with suppress(OSError):  # a full disk must not stop the gateway
            os.write(lock, _pid_scope())
            (self.folder / _TOKEN).write_text(token(), "utf-8")
        if self._registry is not None:
            with suppress(OSError):
                self._locks.append(os.open(self._registry, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
                fcntl.flock(self._locks[-1], fcntl.LOCK_SH | fcntl.LOCK_NB)  # systemd-tmpfiles leaves it alone
                os.symlink(self.folder.absolute(), self._registry / self.folder.name)

    @property
    def is_registered(self) -> bool:
        return self._registry is not None

    def use_cgroups(self, cgroups: Cgroups) -> None:
        """From now on, for each agent. They are closed with the ledger."""
        self._cgroups = cgroups
        with suppress(OSError):  # a full disk; whoever starts next in the same cgroup finds them, too
            (self.folder / _CGROUP).write_text(str(cgroups.path), "utf-8")

    def new_cgroup(self) -> Cgroup | None:
        """For an agent that is about to start; None where there are none. Raises `HostExhausted`, `AgentMissing`."""
        return None if self._cgroups is None else self._cgroups.new()

    def note_member(self, cluster: str, id: str) -> None:
        """This gateway is a member of a cluster. Raises `OSError`."""
        (self.folder / _MEMBER).write_text(f"{cluster} {id}")

    def reopen(self) -> None:
        """Notes agents again, after another gateway has ended those that were noted before."""
        with suppress(OSError):
            self._agents.mkdir(exist_ok=True, mode=0o700)

    def add(self, group: int) -> None:
        try:
            entry = f"{self._agents}/{_name(group)}"
            if not self._spare or not _renamed(self._spare.pop(), entry):
                os.close(os.open(entry, _NEW_FILE, 0o600))
            self._entries[group] = entry
        except FileNotFoundError:
            if self.folder.exists():  # another gateway has ended the agents of this one, which does not know it yet
                signal_group(group, signal.SIGKILL)
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

    def watch(self) -> None:
        """Has the agents ended as soon as this gateway is killed."""
        with suppress(OSError):  # no process can be started; the next gateway ends them
            self._watchdog = Watchdog([sys.executable, "-P", "-m", __name__, str(self.folder.absolute()), token()])

    async def note_orphans(self) -> None:
        """Until it is cancelled: adds processes that the next gateway could not find otherwise."""
        noted: set[int] = set()
        while True:
            await asyncio.sleep(_NOTE_SECONDS)
            try:
                groups = {process.group for process in unnamed()}
            except OSError:  # no file descriptor left
                continue
            for group in groups - noted:
                self.add(group)
            for group in noted - groups:
                self.remove(group)
            noted = groups

    def is_alive(self, name: str) -> bool:
        """Whether the gateway of this name still runs."""
        return name == self.folder.name or (_is_name(name) and _is_alive(self._all / name))

    def dead(self) -> list[str]:
        """The names of gateways that were killed, until `end_orphans` removes them."""
        with self._looking:
            return self._look()

    def _look(self) -> list[str]:
        changed = self._changed()
        if changed and changed == self._alive_since and not self._others.have_ended():  # as at each start of an agent
            return []
        self._alive_since = []
        others = [(name, folder) for name, folder in self._folders().items() if name != self.folder.name]
        dead = [name for name, folder in others if not _is_alive(folder)]
        if not dead and self._others.watch(others) and max(changed, default=0) < time.time_ns() - _COARSE_NS:
            self._alive_since = changed
        return dead

    def _changed(self) -> list[int]:
        """When gateways came or went last; empty if the system does not tell."""
        try:
            return [os.stat(place).st_mtime_ns for place in self._places]
        except OSError:
            return []

    def others(self) -> list[OtherGateway]:
        """The other members of clusters on this machine, whether they are alive or not."""
        found = []
        for name, folder in self._folders().items():
            if name != self.folder.name:
                with suppress(OSError, ValueError):
                    found.append(OtherGateway(name, *(folder / _MEMBER).read_text().split(" ")))
        return found

    def orphans(self) -> list[int]:
        """The process groups that the agents of dead gateways have left."""
        dead = (folder for folder in self._folders().values() if not _is_alive(folder))
        return [group for folder in dead for group in _groups_in(_left_by(folder))]

    def end_orphans(self) -> list[int]:
        """Ends the agents of dead gateways and removes their folders. Returns the process groups it ended."""
        ended = []
        for name in self.dead():
            ended += self.end_agents_of(name)
            shutil.rmtree(self._all / name, ignore_errors=True)  # with other data, its next gateway does that
            self._unregister(name)
        return ended

    def end_agents_of(self, name: str) -> list[int]:
        """Ends the agents of a gateway that has lost them, and all that they started, whether the gateway is alive or
        not; until it is told (`reopen`), it can start no others. Waits for their end. Returns the process groups."""
        folder = self._folders().get(name, self._all / name)
        _renamed(f"{folder}/{_AGENTS}", f"{folder}/{_ENDED}{token_hex(4)}")
        _end_cgroups_of(folder)
        return _groups_in(end(lambda: _left_by(folder)))

    def close(self) -> None:
        if self._watchdog is not None:
            self._watchdog.close()
            self._watchdog = None
        if self._cgroups is not None:
            self._cgroups.close()
            self._cgroups = None
        shutil.rmtree(self.folder, ignore_errors=True)
        self._unregister(self.folder.name)
        with self._looking:
            self._others.watch(())
        while self._locks:
            os.close(self._locks.pop())

    def _folders(self) -> dict[str, Path]:
        """Of all gateways with this data, or on this machine, by name."""
        found = {folder.name: folder for folder in _entries(self._all)}
        for link in _entries(self._registry) if self._registry is not None else ():
            with suppress(OSError):
                found.setdefault(link.name, Path(os.readlink(link)))
        return found

    def _unregister(self, name: str) -> None:
        if self._registry is not None:
            with suppress(OSError):
                (self._registry / name).unlink()


class _Others:
    """Other gateways of this system. While their processes run, they need not be looked for."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}  # that name their processes, by the gateways' names
        self._ends = select.poll()

    def watch(self, gateways: Collection[tuple[str, Path]]) -> bool:
        """These, which are alive, and no others. False: not all of them can be watched."""
        names = {name for name, _ in gateways}
        for name in self._files.keys() - names:
            self._ends.unregister(self._files[name])
            os.close(self._files.pop(name))
        return all(name in self._files or self._add(name, folder) for name, folder in gateways)

    def have_ended(self) -> bool:
        """Whether one of them has."""
        return bool(self._files and self._ends.poll(0))

    def _add(self, name: str, folder: Path) -> bool:
        pid, _, start = name.partition("-")
        try:
            file = os.pidfd_open(int(pid))
        except (AttributeError, OSError):  # not Linux, an old kernel, no file descriptor left, or no process of ours
            return False
        if start_of(int(pid)) != start or not _has_our_pids(folder):  # another process has its number
            os.close(file)
            return False
        self._files[name] = file
        self._ends.register(file, select.POLLIN)
        return True


class Watchdog:
    """Runs a command as soon as this process is killed.

    A shell waits for the end of a pipe that only this process can write to. `close` writes a line first; otherwise the
    shell becomes the command. Until then it takes next to no memory. A signal to the agents (`PR_SET_PDEATHSIG`) would
    not do in its place: they would die before their commands are found.
    """

    def __init__(self, command: Sequence[str]) -> None:
        """Raises `OSError`."""
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _WAIT, "watchdog", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
            process_group=0,  # signals of the terminal are for the gateway
        )

    def close(self) -> None:
        with suppress(OSError, subprocess.TimeoutExpired):
            self._shell.communicate(b"closed\n", timeout=_CLOSING_SECONDS)


def _renamed(entry: str, name: str) -> bool:
    try:
        os.rename(entry, name)
    except OSError:
        return False
    return True


def _name(pid: int) -> str:
    return f"{pid}-{start_of(pid)}"


def _is_name(text: str) -> bool:
    """As `_name` makes them. Those in a damaged history may be any text."""
    pid, _, start = text.partition("-")
    return pid.isascii() and pid.isdigit() and start.isprintable() and "/" not in start


def _groups(gateway: Path) -> list[int]:
    """The process groups of its agents that still run."""
    if not _has_our_pids(gateway):
        return []
    folders = [gateway / _AGENTS, *gateway.glob(f"{_ENDED}*")]
    named = (entry.name.partition("-") for folder in folders for entry in _entries(folder))
    # Another process with this pid means the group has ended: a pid is not reused before that.
    return [int(group) for group, _, start in named if start_of(int(group)) in (None, start) and members(int(group))]


def _left_by(gateway: Path) -> Table:
    """Its agents and all that they started, as far as they still run."""
    if not _has_our_pids(gateway):
        return {}
    try:
        own = (gateway / _TOKEN).read_text("utf-8")
    except (OSError, UnicodeError):  # an earlier version wrote none, or the disk was full
        own = ""
    return of_gateway(own, _groups(gateway))


def _end_cgroups_of(gateway: Path) -> None:
    """Where it has some. Their names are random, so they are no other gateway's, wherever this one runs."""
    if _has_our_pids(gateway):
        with suppress(OSError, UnicodeError):
            end_agents_in(Path((gateway / _CGROUP).read_text("utf-8")))


def _groups_in(processes: Table) -> list[int]:
    return sorted({process.group for process in processes.values()})


@cache
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
        return [entry for entry in folder.iterdir() if _is_name(entry.name)]
    except OSError:
        return []


# --- Agents of other gateways on this machine that have lost their runs ----------------------------
# A conversation is free as soon as the run of a dead gateway is ended in the store, by any process on any machine. Its
# agent may still be there, and works in the same folder. So whoever starts an agent first ends those of gateways on its
# machine that are dead, or that are no longer members of its cluster: these may also be frozen or cut off.

_GONE_SECONDS = 10.0  # only a process in uninterruptible sleep takes that long to end
_LOOK_SECONDS = 0.005


Absent: TypeAlias = Callable[[Collection[str]], Awaitable[Collection[str]]]  # which of these are no members


class LostAgents:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._cluster = ""
        self._absent: Absent | None = None  # in a cluster

    def join(self, cluster: str, own: str, absent: Absent) -> None:
        """Raises `OSError`."""
        self._ledger.note_member(cluster, own)
        self._cluster, self._absent = cluster, absent

    def joined(self) -> None:
        """This gateway has its runs: others do not end its agents any more."""
        self._ledger.reopen()

    async def end(self) -> None:
        """Raises `StoreUnavailable` if nobody knows who is a member, `ConversationBusy` if an agent cannot be ended."""
        groups = await asyncio.to_thread(self._ledger.end_orphans) if self._ledger.dead() else []
        if self._absent is not None:
            names = {other.member: other.name for other in self._ledger.others() if other.cluster == self._cluster}
            for id in await self._absent(names) if names else ():
                groups += await asyncio.to_thread(self._ledger.end_agents_of, names[id])
        await _gone(groups)

    async def end_of(self, member: str) -> None:
        """The same for a member of the cluster that has just been removed."""
        lost = [
            other.name for other in self._ledger.others() if (other.cluster, other.member) == (self._cluster, member)
        ]
        for name in lost:
            await _gone(await asyncio.to_thread(self._ledger.end_agents_of, name))


async def _gone(groups: Collection[int]) -> None:
    deadline = asyncio.get_running_loop().time() + _GONE_SECONDS
    while any(map(members, groups)):
        if asyncio.get_running_loop().time() > deadline:
            raise ConversationBusy("The agent of a process that died is still working; try again in a moment.")
        await asyncio.sleep(_LOOK_SECONDS)


def main(gateway: Path, token: str = "") -> None:
    """Ends the agents of a gateway that was killed. Its folder stays: it tells the next one whose runs to end. It may
    also be gone by now, so its token is passed on its own."""
    Ledger(gateway.parent).end_agents_of(gateway.name)
    end(lambda: of_gateway(token, ()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])  # a gateway from before an update passes no token
