"""A command's cgroup in; its processes kept together, limited, measured and ended by the kernel, out.

Linux's cgroup v2, wherever this process may make cgroups below its own: in a systemd unit with `Delegate=yes`, in a
container whose `/sys/fs/cgroup` is writable, for a user's own services, and as root. No process can leave its cgroup
unless it may write to the cgroup above it, whatever its parent, session or environment are. Elsewhere, `processes`
finds what agents started; it does so here, too.

The tree, below the cgroup that the gateway was started in:

    gateway             the gateway itself, if controllers are to be enabled: a cgroup with processes can give none
    cursor-agents-TOKEN this gateway's; locked as long as it lives, in all containers and namespaces
      1, 2, …           one for each agent

A cgroup is one agent's, not one run's. An agent of the CLI serves one turn. One that serves several runs (ACP, the SDK)
shares its limits among them, and its usage belongs to none of them.
"""

import errno
import fcntl
import os
import re
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from msgspec import Struct

from cursor_gateway.errors import AgentError, AgentMissing, AgentOutOfMemory, SettingsError, host_exhausted
from cursor_gateway.sources.base import AgentUse
from cursor_gateway.sources.processes import below

_GATEWAY, _AGENTS = "gateway", "cursor-agents-"
_LEFT_OVER = re.compile(rf"{_AGENTS}[0-9a-f]{{16}}")
_TRIES = 5
_PERIOD = 100_000  # microseconds, the kernel's own default
_LOOK_SECONDS = 0.005
_GONE_SECONDS = 5.0  # only a process in uninterruptible sleep takes that long


class AgentLimits(Struct, frozen=True, kw_only=True):
    """0: none."""

    agent_memory_bytes: int = 0
    agent_cpus: float = 0.0
    agent_tasks: int = 0

    def controllers(self) -> list[str]:
        """Those that keep the limits that are set."""
        return [name.partition(".")[0] for name in self.files()]

    def files(self) -> dict[str, str]:
        """What the kernel is told, by controller and file."""
        wanted = {
            "memory.max": f"{self.agent_memory_bytes}" if self.agent_memory_bytes else "",
            "cpu.max": f"{max(1000, round(self.agent_cpus * _PERIOD))} {_PERIOD}" if self.agent_cpus else "",
            "pids.max": f"{self.agent_tasks}" if self.agent_tasks else "",
        }
        return {name: value for name, value in wanted.items() if value}


_SETTINGS = {"memory": "agent_memory_bytes", "cpu": "agent_cpus", "pids": "agent_tasks"}


class Cgroups:
    """Of this gateway's agents. Create it with `delegated`; `close` must be called."""

    def __init__(self, path: Path, lock: int, limits: AgentLimits) -> None:
        """`path` is an empty cgroup of its own, and `lock` its folder, which is locked."""
        self.path, self._lock = path, lock
        self.controllers = frozenset(_read(path / "cgroup.subtree_control").split())
        self._limits = limits.files()
        self._memory_bytes = limits.agent_memory_bytes
        self._count = 0

    def new(self) -> "Cgroup":
        """For an agent that is about to start. Raises `HostExhausted`, `AgentMissing`."""
        self._count += 1
        cgroup = Cgroup(f"{self.path}/{self._count}", self._memory_bytes, self._limits)
        if self._limits:
            try:
                cgroup.make()
            except OSError as error:
                why = f"The agent cannot be started within its limits: {error.strerror}; restart the gateway."
                raise host_exhausted(error) or AgentMissing(why) from error
        return cgroup

    def close(self) -> None:
        """Ends what is left in it."""
        _end_processes(self.path)
        with suppress(OSError):
            self.path.rmdir()
        os.close(self._lock)


class Cgroup:
    """One agent's. Removed once `end` has returned True."""

    def __init__(self, path: str, memory_bytes: int = 0, limits: Mapping[str, str] | None = None) -> None:
        """`memory_bytes` is one of its `limits`."""
        self.path, self._memory_bytes, self._limits = path, memory_bytes, limits or {}
        self.is_limited = bool(limits)
        self._is_made = False
        self._use: AgentUse | None = None  # once it has ended

    def make(self) -> None:
        """Before anything is in it. Raises `OSError`, and leaves nothing behind."""
        os.mkdir(self.path)
        try:
            for name, value in self._limits.items():
                _write(f"{self.path}/{name}", value)
        except BaseException:
            os.rmdir(self.path)
            raise
        self._is_made = True

    def use(self) -> AgentUse | None:
        """What was used so far; None: unknown, because nothing was in it."""
        return self._use or (_use_of(Path(self.path)) if self._is_made else None)

    def error(self) -> AgentError | None:
        """Why the system has ended something in it."""
        if (use := self.use()) is None or not use.out_of_memory:
            return None
        return AgentOutOfMemory(
            f"The agent and its commands used more memory than they may, {_size(self._memory_bytes)}, and the system "
            "ended them; ask for less at once, or have `agent_memory_bytes` raised."
        )

    def end(self) -> bool:
        """Ends all that is in it, and removes it. False: something still is in it; call it again."""
        if not self._is_made:
            return True
        self._use = self.use()
        try:
            os.rmdir(self.path)
        except FileNotFoundError:
            return True
        except OSError:  # EBUSY: somebody is still there
            with suppress(OSError):
                _write(f"{self.path}/cgroup.kill", "1")
            return False
        return True


def end_agents_in(path: Path) -> None:
    """Ends the agents of a gateway that has lost them, and waits for their end. While it lives, it keeps `path` itself:
    it may have agents again.

    The path was in a file, which a full disk may have cut off: anything without such a name is left alone."""
    if not path.is_absolute() or not _LEFT_OVER.fullmatch(path.name):
        return
    _end_processes(path)
    with suppress(OSError):
        _remove_if_left(path)


def _end_processes(path: Path) -> None:
    """Also in the cgroups below it, which are removed."""
    deadline = time.monotonic() + _GONE_SECONDS
    while path.is_dir() and time.monotonic() < deadline:
        with suppress(OSError):
            _write(path / "cgroup.kill", "1")
        below_it = _below(path)
        for one in below_it:
            with suppress(OSError):
                one.rmdir()
        if not any(one.exists() for one in below_it):
            return
        time.sleep(_LOOK_SECONDS)


def _remove_if_left(path: Path) -> None:
    """Raises `OSError`, also while its gateway lives."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _end_processes(path)
        path.rmdir()
    finally:
        os.close(folder)


def place(pid: int, path: str) -> None:
    """Moves a process that has just started, and what it may have started since, into a cgroup. Raises `OSError`.

    Where the C library cannot start a process in a cgroup. What was started before the move is below the process, and
    what is started afterwards is in the cgroup, so one look after each move finds all.
    """
    outside, moved = [pid], set[int]()
    while outside:
        for one in outside:
            with suppress(ProcessLookupError):  # it has ended
                _write(f"{path}/cgroup.procs", str(one))
        moved.update(outside)
        inside = moved.union(map(int, _read(Path(path, "cgroup.procs")).split()))
        outside = [one for one in below(pid) if one not in inside]


# --- what the system has delegated ------------------------------------------------------------------


def delegated(limits: AgentLimits, root: Path | None = None) -> Cgroups | None:
    """None if this process cannot make cgroups. Ends the agents of killed gateways that left theirs beside it.

    `root`: below which cgroup; by default, that of this process. Raises `SettingsError` if a limit cannot be kept.
    """
    wanted = set(limits.controllers())
    base = _own_cgroup() if root is None else root
    found: Cgroups | None = None
    with suppress(OSError):
        if base is not None and os.access(base / "cgroup.procs", os.W_OK):
            end_left_over(base)
            made, lock = _made_in(base)
            with suppress(OSError):
                _enable(base, wanted | {"memory"})
            _hand_down(base, made, wanted | {"memory"})
            found = Cgroups(made, lock, limits)
    missing = wanted - (found.controllers if found is not None else frozenset())
    if missing:
        if found is not None:
            found.close()
        first = sorted(missing)[0]
        why = f"the cgroup controller `{first}` is not delegated to it" if found else "it cannot make cgroups"
        raise SettingsError(
            f"`{_SETTINGS[first]}` cannot be kept by this process: {why}; set `Delegate=yes` in its systemd unit, make "
            "its container's /sys/fs/cgroup writable, or leave the limit out.",
            param=_SETTINGS[first],
        )
    return found


def _made_in(base: Path) -> tuple[Path, int]:
    """And locked. Until it is, another gateway that starts may take it for a left-over one, and remove it. Raises
    `OSError`."""
    for _ in range(_TRIES):
        path = base / f"{_AGENTS}{token_hex(8)}"
        path.mkdir()
        with suppress(FileNotFoundError, BlockingIOError):
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.stat(path)
            except OSError:
                os.close(folder)
                raise
            return path, folder
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(base))


def available(root: Path | None = None) -> frozenset[str] | None:
    """The controllers of limits that a gateway could keep if it was started here; None if it could make no cgroups.
    Changes nothing."""
    base = _own_cgroup() if root is None else root
    if base is None or not all(os.access(path, os.W_OK) for path in (base, base / "cgroup.procs")):
        return None
    there = set(_read(base / "cgroup.controllers").split())
    enabled = set(_read(base / "cgroup.subtree_control").split())
    return frozenset(_SETTINGS.keys() & (there if _may_enable(base) else enabled))


def end_left_over(base: Path) -> None:
    """What gateways that no longer live have left here."""
    for name in filter(_LEFT_OVER.fullmatch, os.listdir(base)):
        with suppress(OSError):
            _remove_if_left(base / name)


def _enable(base: Path, wanted: set[str]) -> None:
    """Gives the controllers that there are to the cgroups below; the processes in `base` must leave it for that. Raises
    `OSError`."""
    possible = wanted & set(_read(base / "cgroup.controllers").split())
    if possible <= set(_read(base / "cgroup.subtree_control").split()):
        return
    if not _may_enable(base):
        return
    own, others = _processes_in(base)
    leaf = base / _GATEWAY
    if own and not _is_root(base):
        leaf.mkdir(exist_ok=True)
        for pid in (*others, os.getpid()):
            with suppress(ProcessLookupError):
                _write(leaf / "cgroup.procs", str(pid))
    for name in sorted(possible):
        with suppress(OSError):
            _write(base / "cgroup.subtree_control", f"+{name}")


def _may_enable(base: Path) -> bool:
    """Not where programs of somebody else are, such as the shell; a container's are the gateway's own."""
    return _is_root(base) or _path_of_own() == "/" or not _processes_in(base)[1]


def _is_root(base: Path) -> bool:
    """The only cgroup that may have both processes and controllers."""
    return not (base / "cgroup.type").exists()


def _hand_down(base: Path, made: Path, wanted: set[str]) -> None:
    for name in sorted(wanted & set(_read(base / "cgroup.subtree_control").split())):
        with suppress(OSError):
            _write(made / "cgroup.subtree_control", f"+{name}")


def _processes_in(path: Path) -> tuple[bool, list[int]]:
    """Whether this process is in the cgroup, and the others; 0 is one of another namespace."""
    found = [int(pid) for pid in _read(path / "cgroup.procs").split()]
    return os.getpid() in found, [pid for pid in found if pid != os.getpid()]


def _own_cgroup() -> Path | None:
    """Above the gateway's own leaf, if it is in one."""
    if not sys.platform.startswith("linux"):
        return None
    path, mount = _path_of_own(), _mount()
    if path is None or mount is None:
        return None
    found = mount / path.lstrip("/")
    return found.parent if found.name == _GATEWAY else found


def _path_of_own() -> str | None:
    lines = _read(Path("/proc/self/cgroup")).splitlines()
    return next((line[3:] for line in lines if line.startswith("0::/") and "/.." not in line), None)


def _mount() -> Path | None:
    for line in _read(Path("/proc/self/mountinfo")).splitlines():
        fields, _, kind = line.partition(" - ")
        if kind.startswith("cgroup2 "):
            _, _, _, root, mounted, *_ = fields.split(" ")
            if root == "/":
                return Path(mounted.replace("\\040", " "))
    return None


# --- files ------------------------------------------------------------------------------------------


def _use_of(path: Path) -> AgentUse:
    peak = _read(path / "memory.peak")  # since Linux 5.19
    return AgentUse(
        cpu_seconds=_fields(path / "cpu.stat").get("usage_usec", 0) / 1_000_000,
        memory_bytes=int(peak) if peak.strip().isdigit() else None,
        out_of_memory=_fields(path / "memory.events").get("oom_kill", 0),
    )


def _fields(path: Path) -> dict[str, int]:
    words = (line.split() for line in _read(path).splitlines())
    return {name: int(value) for name, value in words}


def _read(path: Path) -> str:
    """Empty if it cannot be read."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        pieces = []
        while piece := os.read(file, 64 * 1024):
            pieces.append(piece)
        return b"".join(pieces).decode()
    except OSError:
        return ""
    finally:
        os.close(file)


def _write(path: Path | str, text: str) -> None:
    """In one call, as the kernel wants it. Raises `OSError`."""
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def _below(path: Path) -> list[Path]:
    """The cgroups below it, the deepest first: an agent may have made some of its own."""
    found = [Path(folder) for folder, _, _ in os.walk(path)]
    return sorted(found[1:], key=lambda one: len(one.parts), reverse=True)


def _size(count: int) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024 or count % 1024:
            return f"{count} {unit}"
        count //= 1024
    return f"{count} GiB"
