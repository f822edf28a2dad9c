"""The processes that agents start, and those that they start: find them all, and end them.

A process is identified by its pid and its start time, because pids are reused.

An agent runs commands in sessions of their own, so killing its process group is not enough. A command may start others,
leave its session, and exit before them: then its parent is another process. Three facts find it all the same:

- Its parents. `subreaper` makes the gateway the parent of every process below it whose own parent has exited
  (Linux). So nothing leaves the tree below the gateway, whatever it does.
- A variable in its environment, which each process inherits. It names the gateway and the agent.
- Its session. Each agent starts in a new session, and the gateway's other children stay in the gateway's. So a child
  of the gateway in another session that is no agent was adopted.

An adopted process whose variable names no agent that runs (it cleared its environment, wrote over it, as nginx does, or
made a value up) may belong to each agent that ran when it started. It is ended with the last of them. One that takes
the name of another agent, which it can read, is ended with that one.

Processes are ended in two steps: all that are found are stopped, again and again, until no new ones appear. Only then
are they killed, so none can start another, unseen, between the two.
"""

import asyncio
import ctypes
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
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


def below(pid: int) -> list[int]:
    """The processes that it has started, and those that they have; on Linux."""
    found, rest = [], [pid]
    while rest:
        one = rest.pop()
        with suppress(OSError):
            for thread in os.listdir(f"{_PROC}/{one}/task"):
                rest += (children := children_of(one, thread) or [])
                found += children
    return found


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


# --- The processes of agents -----------------------------------------------------------------------

AGENT = "CURSOR_GATEWAY_AGENT"  # the variable
CONVERSATION = "CURSOR_CONVERSATION_ID"  # Cursor's agents set it for the commands of a session
_PR_SET_CHILD_SUBREAPER = 36  # of <linux/prctl.h>
_LOOK_SECONDS = 0.005
_AGAIN_SECONDS = 0.1
_LIMIT_SECONDS = 5.0  # only a process in uninterruptible sleep, or of root, takes that long

Find = Callable[[], Table]


class _Own:
    """What this process knows of its agents."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(8)
        self.count = 0
        self.running: dict[int, str] = {}  # the agents that run, by their pids, and their values of the variable
        self.waiting: set[int] = set()  # those of them that have no prompt yet, so that nothing can be theirs
        self.starting = 0  # agents whose pids are not known yet
        self.first: int | None = None  # when the first one started
        self.is_subreaper = False


_own = _Own()


def _forget_parent() -> None:
    global _own
    _own = _Own()


os.register_at_fork(after_in_child=_forget_parent)


def token() -> str:
    """The beginning of the variable's value, for all agents of this process."""
    return _own.token


def running() -> int:
    """How many agents of this process work, or may."""
    return len(_own.running.keys() - _own.waiting)


@contextmanager
def subreaper() -> Iterator[None]:
    """Adopts orphans meanwhile, where the system can (Linux). Only for a process that starts nothing but agents and
    helpers in its own session: see `adopted`."""
    if not sys.platform.startswith("linux"):
        yield
        return
    prctl = ctypes.CDLL(None).prctl
    _own.is_subreaper = prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    try:
        yield
    finally:
        _own.is_subreaper = False
        prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def adopted() -> list[Process] | None:
    """The orphans whose parent this process has become; reaps those that have ended. None: it cannot know.

    Raises `OSError` if no file descriptor is left.
    """
    if not _own.is_subreaper:
        return None
    me = os.getpid()
    children = children_of(me, me)  # the kernel gives orphans to the main thread
    if children is None:
        children = [process.pid for process in snapshot().values() if process.parent == me]
    session, found = os.getsid(0), []
    for pid in children:
        if pid in _own.running:
            continue
        process = process_of(pid)
        if process is None or process.session == session:  # gone, or a helper
            continue
        if not process.is_zombie:
            found.append(process)
        elif not _own.starting:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
    return found


def unnamed() -> list[Process]:
    """Adopted processes that name no agent that runs, in groups of their own. Only their parent can find them."""
    orphans = adopted() or []
    values = values_of(AGENT, [process.pid for process in orphans]) if orphans else {}
    agents = set(_own.running.values())
    return [process for process in orphans if values.get(process.pid) not in agents and _may_be_of_an_agent(process)]


class Agent:
    """The processes of one agent. Made before it starts: `value` is for its environment."""

    def __init__(self) -> None:
        _own.count += 1
        _own.starting += 1
        self.value = f"{_own.token}.{_own.count}"
        self._pid = 0
        self._seen: dict[int, str] = {}  # processes below it, with their start times

    def started(self, pid: int | None) -> None:
        """None: it could not be started."""
        _own.starting -= 1
        if pid is not None:
            self._pid = pid
            _own.running[pid] = self.value
            if _own.first is None and (process := process_of(pid)) is not None:  # it may have ended already
                _own.first = _ticks(process.start)

    def ended(self) -> None:
        """After it was reaped."""
        _own.running.pop(self._pid, None)
        _own.waiting.discard(self._pid)

    def waits(self, *, still: bool) -> None:
        """For its first prompt."""
        if still and self._pid in _own.running:
            _own.waiting.add(self._pid)
        else:
            _own.waiting.discard(self._pid)

    async def look(self) -> None:
        """Before it is ended: remembers what is below it."""
        if may_have_children(self._pid):
            below = await asyncio.to_thread(lambda: _below(snapshot(), [self._pid]))
            self._seen |= {process.pid: process.start for process in below.values()}

    def may_have_left_some(self) -> bool:
        """After it has ended. False only if it is certain."""
        try:
            return bool(self._seen) or adopted() != []
        except OSError:
            return True

    async def end_rest(self) -> None:
        """Ends all that it left behind. Tries again for a while if no file descriptor is left."""
        deadline = time.monotonic() + _LIMIT_SECONDS
        while True:
            try:
                await asyncio.to_thread(end, self._find)
            except OSError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(_AGAIN_SECONDS)
            else:
                return

    def _find(self) -> Table:
        table = snapshot()
        orphans = _orphans(table)
        values, agents = values_of(AGENT, orphans), set(_own.running.values())
        found = [pid for pid, value in values.items() if value == self.value]
        found += [pid for pid in orphans if values.get(pid) not in agents and _has_no_agent(orphans[pid])]
        found += [pid for pid, start in self._seen.items() if pid in table and table[pid].start == start]
        return _with_below(table, found)


async def end_commands(agent: int, session_id: str, *, is_alone: Callable[[], bool], seconds: float) -> None:
    """Ends the commands of a session whose turn is over, while the agent lives on: first SIGTERM, then SIGKILL.

    `is_alone`: the agent has no other turn, so no command is in use. They are the processes in other sessions. It is
    called again each time, in another thread: a turn may begin while commands end.
    """
    if not may_have_children(agent) and adopted() == []:
        return

    def find() -> Table:
        table = snapshot()
        below = _below(table, [agent])
        orphans = _orphans(table)
        candidates = {**below, **orphans}
        found = [pid for pid, value in values_of(CONVERSATION, candidates).items() if value == session_id]
        has_no_turn = is_alone()
        if has_no_turn and agent in table:
            named = values_of(AGENT, orphans.keys() - below.keys() - {agent})
            below |= {pid: table[pid] for pid, value in named.items() if value == _own.running.get(agent)}
            found += [pid for pid, process in below.items() if process.session != table[agent].session]
        if has_no_turn and _own.running.keys() - _own.waiting == {agent}:
            found += [process.pid for process in unnamed()]
        return _with_below(table, found)

    await asyncio.to_thread(end, find, seconds)


def of_gateway(token: str, groups: Iterable[int]) -> Table:
    """All that the agents of another gateway started: these process groups, and what has its variable."""
    table, wanted = snapshot(), set(groups)
    found = [pid for pid, process in table.items() if process.group in wanted]
    if token:
        found += [pid for pid, value in values_of(AGENT, table).items() if value.startswith(f"{token}.")]
    result = dict(_with_below(table, found))
    pid = os.getpid()
    while pid in table:  # an agent may have started this process
        result.pop(pid, None)
        pid = table[pid].parent
    return result


def end(find: Find, seconds: float = 0.0) -> Table:
    """Ends what `find` returns. They get SIGTERM and this time first, if there is any. Waits for their end; returns
    those that were found at first."""
    first = find()
    if seconds and first:
        for process in first.values():
            signal_process(process, signal.SIGTERM)
        _wait(first, seconds)
    deadline = time.monotonic() + _LIMIT_SECONDS
    stopped: dict[int, Process] = {}
    while new := {pid: one for pid, one in find().items() if pid not in stopped or stopped[pid].start != one.start}:
        for process in new.values():
            signal_process(process, signal.SIGSTOP)
        stopped |= new
        if time.monotonic() > deadline:
            break
    for process in stopped.values():
        signal_process(process, signal.SIGKILL)
    _wait(stopped, _LIMIT_SECONDS)
    adopted()  # reaps them
    return first


def _wait(processes: Table, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    left = list(processes.values())
    while (left := [process for process in left if start_of(process.pid) == process.start]) and (
        time.monotonic() < deadline
    ):
        time.sleep(_LOOK_SECONDS)


def _orphans(table: Table) -> Table:
    """What may have lost its parent: below this process if it adopts them, otherwise anywhere."""
    orphans = adopted()
    return table if orphans is None else _with_below(table, [process.pid for process in orphans])


def _has_no_agent(process: Process) -> bool:
    """Whether no agent is left that may have started it."""
    return _may_be_of_an_agent(process) and not any(
        (start := start_of(pid)) is not None and _ticks(start) <= _ticks(process.start)
        for pid in _own.running.keys() - _own.waiting
    )


def _may_be_of_an_agent(process: Process) -> bool:
    """Of an adopted process without the variable. An agent itself has none for a moment, when it starts."""
    is_adopted = _own.is_subreaper and process.parent == os.getpid() and process.group not in _own.running
    return is_adopted and not _own.starting and _own.first is not None and _ticks(process.start) >= _own.first


def _ticks(start: str) -> int:
    return int(start)  # where a process can be a subreaper, this is its format


def _below(table: Table, pids: Iterable[int]) -> dict[int, Process]:
    """The processes below these, without them."""
    children: dict[int, list[Process]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process)
    found: dict[int, Process] = {}
    rest = list(pids)
    while rest:
        for process in children.get(rest.pop(), ()):
            if process.pid not in found:
                found[process.pid] = process
                rest.append(process.pid)
    return found


def _with_below(table: Table, pids: Iterable[int]) -> Table:
    pids = [pid for pid in pids if pid in table]
    return {pid: table[pid] for pid in pids} | _below(table, pids)
