"""The kernel keeps an agent and all that it starts together, limits and measures them, and ends them at once.

These tests use the real cgroup v2 of the machine. Those for limits need its controllers, which a machine may have given
to cgroup v1.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cursor_gateway.errors import AgentMissing, HostExhausted, SettingsError
from cursor_gateway.sources import cgroups, process, spawning
from cursor_gateway.sources.base import AgentUse
from cursor_gateway.sources.cgroups import AgentLimits, Cgroup, Cgroups, delegated, end_agents_in, end_left_over, place
from cursor_gateway.sources.ledger import Ledger
from cursor_gateway.sources.process import AgentProcess

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
MIB = 2**20
# As hostile as a command can be: a daemon with another session, no variable, and no parent.
DAEMON = "setsid env -i sh -c 'trap \"\" TERM HUP; (echo $$ >>pids; exec sleep 600) & exec sleep 600' & sleep 0.2"


@pytest.fixture
def base() -> Iterator[Path]:
    """A cgroup for one test, below that of the tests."""
    found = cgroups._own_cgroup()
    if found is None or not os.access(found / "cgroup.procs", os.W_OK):
        pytest.skip("this process cannot make cgroups: cgroup v2 is not mounted, or not writable")
    made = found / f"test-{os.getpid()}"
    made.mkdir()
    cgroups._enable(found, {"memory", "cpu", "pids"})
    try:
        yield made
    finally:
        cgroups._end_processes(made)
        made.rmdir()


@pytest.fixture
def own(base: Path) -> Iterator[Cgroups]:
    found = delegated(AgentLimits(), base)
    assert found is not None
    yield found
    found.close()


def limited(base: Path, limits: AgentLimits) -> Cgroups:
    wanted = {name.partition(".")[0] for name in limits.files()}
    available = set((base / "cgroup.controllers").read_text().split())
    if not wanted <= available:
        pytest.skip(f"cgroup v2 has no controller {' and '.join(sorted(wanted - available))} on this machine")
    found = delegated(limits, base)
    assert found is not None
    return found


async def started(script: str, cgroup: Cgroup | None, folder: Path) -> AgentProcess:
    return await AgentProcess.start(
        ["/bin/sh", "-c", script], folder=str(folder), environment=ENVIRONMENT, stdin=None, cgroup=cgroup
    )


def cgroup_of(pid: int) -> str:
    text = Path(f"/proc/{pid}/cgroup").read_text()
    return next(line for line in text.splitlines() if line.startswith("0::"))[3:]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def spawn_ways() -> list[str]:
    return ["started in it", "moved into it"]


@pytest.fixture(params=spawn_ways())
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    library = spawning._library()
    if request.param == "moved into it":
        if library is not None:
            monkeypatch.setattr(library, "can_set_cgroup", False)
    elif library is None or not library.can_set_cgroup:
        pytest.skip("this C library cannot start a process in a cgroup (glibc 2.39)")


@pytest.mark.usefixtures("way")
async def test_an_agent_and_its_commands_are_in_its_cgroup(own: Cgroups, tmp_path: Path) -> None:
    cgroup = own.new()
    agent = await started("sleep 600 & echo $! >child; echo ready; exec sleep 600", cgroup, tmp_path)
    assert await agent.speaks()
    child = int((tmp_path / "child").read_text())
    place = f"{own.path.name}/{Path(cgroup.path).name}"
    async with asyncio.timeout(20):
        while not cgroup_of(child).endswith(place):  # a process without limits is moved a moment later
            await asyncio.sleep(0.01)
    assert cgroup_of(agent.pid) == cgroup_of(child)
    await agent.end(0.01)
    assert not is_alive(child)
    assert not Path(cgroup.path).exists()


@pytest.mark.usefixtures("way")
async def test_a_program_that_is_missing_leaves_no_cgroup(own: Cgroups, tmp_path: Path) -> None:
    cgroup = own.new()
    with pytest.raises(AgentMissing):
        await AgentProcess.start(
            ["/no/such/agent"], folder=str(tmp_path), environment=ENVIRONMENT, stdin=None, cgroup=cgroup
        )
    assert not Path(cgroup.path).exists()


async def test_a_kernel_that_refuses_to_start_in_a_cgroup_is_asked_once(
    own: Cgroups, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the system call filters of some containers do."""
    library = spawning._library()
    if library is None:
        pytest.skip("this C library cannot do all that is needed")
    monkeypatch.setattr(library, "can_set_cgroup", True)
    asked: list[int] = []

    def refuse(self: object, cgroup: int) -> bool:
        asked.append(cgroup)
        return False

    monkeypatch.setattr(spawning._Start, "_started_in_cgroup", lambda self: refuse(self, 1))
    for _ in range(2):
        cgroup = own.new()
        cgroup.is_limited = True
        cgroup.make()
        agent = await started("exec sleep 600", cgroup, tmp_path)
        assert cgroup_of(agent.pid).endswith(Path(cgroup.path).name)
        await agent.end(0.01)
    assert asked == [1]


async def test_an_agent_that_ends_before_it_is_moved_is_not_moved(
    own: Cgroups, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number may be another process's by then."""
    if (library := spawning._library()) is not None:
        monkeypatch.setattr(library, "can_set_cgroup", False)
    placed: list[int] = []
    monkeypatch.setattr(process, "place", lambda pid, path: placed.append(pid))
    monkeypatch.setattr(process, "_PLACE_SECONDS", 0.02)
    short = await started("exit 0", cgroup := own.new(), tmp_path)
    await short.end(1)
    assert not Path(cgroup.path).exists()
    long = await started("exec sleep 600", own.new(), tmp_path)
    async with asyncio.timeout(20):
        while not placed:
            await asyncio.sleep(0.01)
    await long.end(0.01)
    await asyncio.sleep(0.1)
    assert placed == [long.pid]


async def test_what_no_signal_to_a_group_reaches_ends_with_its_agent(own: Cgroups, tmp_path: Path) -> None:
    """Without the subreaper: this process is none."""
    cgroup = own.new()
    agent = await started(f"{DAEMON}; echo done", cgroup, tmp_path)
    while await agent.read():
        pass
    await agent.end(5)
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert pids
    assert not any(map(is_alive, pids))
    assert not Path(cgroup.path).exists()


def test_what_was_started_before_the_move_is_moved_too(own: Cgroups) -> None:
    cgroup = own.new()
    cgroup.make()
    command = ["/bin/sh", "-c", "(sleep 600 & echo ready; exec sleep 600) & wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        place(process.pid, cgroup.path)
        inside = {int(pid) for pid in Path(cgroup.path, "cgroup.procs").read_text().split()}
        assert len(inside) == 3
        while not cgroup.end():
            pass
    assert not any(map(is_alive, inside))


def test_a_process_that_has_ended_is_not_moved(own: Cgroups) -> None:
    cgroup = own.new()
    cgroup.make()
    with subprocess.Popen(["/bin/sh", "-c", "exit 0"]) as process:
        process.wait()
        place(process.pid, cgroup.path)
    assert cgroup.end()
    assert cgroup.end()  # it is gone already


async def test_an_agent_that_cannot_be_placed_is_ended(
    own: Cgroups, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = spawning._library()
    if library is not None:
        monkeypatch.setattr(library, "can_set_cgroup", False)
    placed: list[int] = []

    def refuse(pid: int, path: str) -> None:
        placed.append(pid)
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(spawning, "place", refuse)
    cgroup = own.new()
    cgroup.is_limited = True
    cgroup.make()
    with pytest.raises(AgentMissing, match="Permission denied"):
        await started("exec sleep 600", cgroup, tmp_path)
    assert not is_alive(placed[0])


# --- limits and usage -------------------------------------------------------------------------------


def test_the_time_of_commands_counts_as_the_agents(own: Cgroups, tmp_path: Path) -> None:
    async def live() -> AgentUse:
        cgroup = own.new()
        work = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"
        agent = await started(f"sh -c '{work}'; echo done", cgroup, tmp_path)
        while await agent.read():
            pass
        await agent.end(5)
        use = agent.use
        assert use is not None
        return use

    use = asyncio.run(live())
    assert use.cpu_seconds > 0.005
    assert use.out_of_memory == 0


def test_limits_as_the_kernel_is_told() -> None:
    assert AgentLimits().files() == {}
    limits = AgentLimits(agent_memory_bytes=512 * MIB, agent_cpus=1.5, agent_tasks=100)
    assert limits.files() == {"memory.max": "536870912", "cpu.max": "150000 100000", "pids.max": "100"}
    assert AgentLimits(agent_cpus=0.0001).files() == {"cpu.max": "1000 100000"}  # the kernel's own least


async def test_an_agent_over_its_memory_ends_with_an_error_that_says_so(base: Path, tmp_path: Path) -> None:
    own = limited(base, AgentLimits(agent_memory_bytes=48 * MIB))
    cgroup = own.new()
    eat = f"exec {sys.executable} -S -c 'x = bytearray(200 * 2**20)'"
    agent = await started(eat, cgroup, tmp_path)
    while await agent.read():
        pass
    assert await agent.wait(60)
    error = agent.system_error
    assert error is not None
    assert error.code == "agent_out_of_memory"
    assert "48 MiB" in str(error)
    assert "`agent_memory_bytes`" in str(error)
    use = agent.use
    assert use is not None
    assert use.memory_bytes is None or use.memory_bytes >= 40 * MIB  # None: before Linux 5.19
    await agent.end(1)
    assert agent.system_error is not None  # also once the cgroup is removed
    own.close()


async def test_an_agent_has_no_more_processes_than_it_may(base: Path, tmp_path: Path) -> None:
    own = limited(base, AgentLimits(agent_tasks=5))
    script = "for i in 1 2 3 4 5 6 7 8; do sleep 600 & done; echo all"
    agent = await started(script, own.new(), tmp_path)
    said = b""
    while piece := await agent.read():
        said += piece
    await agent.wait(5)
    assert b"all" not in said  # the shell gives up
    assert "fork" in agent.stderr_tail
    await agent.end(0.01)
    own.close()


async def test_an_agent_uses_no_more_processors_than_it_may(base: Path, tmp_path: Path) -> None:
    own = limited(base, AgentLimits(agent_cpus=0.05))
    cgroup = own.new()
    agent = await started("while :; do :; done", cgroup, tmp_path)
    throttled = 0
    while throttled < 3:
        await asyncio.sleep(0.05)
        throttled = cgroups._fields(Path(cgroup.path, "cpu.stat"))["nr_throttled"]
    await agent.end(0.01)
    own.close()


def test_the_memory_error_from_the_kernels_files(tmp_path: Path) -> None:
    """Files with the kernel's text, where there is no controller."""
    cgroup = Cgroup(str(tmp_path / "one"), 100 * MIB)
    assert cgroup.use() is None, "nothing was in it"
    cgroup.make()
    (tmp_path / "one/cpu.stat").write_text("usage_usec 2500000\nuser_usec 2000000\n")
    (tmp_path / "one/memory.peak").write_text("104857600\n")
    (tmp_path / "one/memory.events").write_text("low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\n")
    assert cgroup.use() == AgentUse(2.5, 104857600, 1)
    assert "100 MiB" in str(cgroup.error())
    assert Cgroup(str(tmp_path / "nowhere")).error() is None


@pytest.mark.parametrize(
    ("count", "text"),
    [(1000, "1000 bytes"), (3 * 1024, "3 KiB"), (3 * 2**30, "3 GiB"), (2**30 + 1, "1073741825 bytes")],
)
def test_sizes_as_people_write_them(count: int, text: str) -> None:
    assert cgroups._size(count) == text


def test_a_limit_that_nobody_would_keep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot make cgroups") as refused:
        delegated(AgentLimits(agent_memory_bytes=MIB), tmp_path / "no-cgroup")
    assert refused.value.param == "agent_memory_bytes"
    assert "Delegate=yes" in str(refused.value)
    assert delegated(AgentLimits(), tmp_path / "no-cgroup") is None


def test_a_limit_without_its_controller_is_refused(base: Path) -> None:
    below = base / "without"
    below.mkdir()  # nothing was handed down to it
    with pytest.raises(SettingsError, match="controller `pids` is not delegated"):
        delegated(AgentLimits(agent_tasks=10), below)
    assert not [one for one in below.iterdir() if one.is_dir()]


def test_an_agent_is_never_started_without_its_limits(own: Cgroups, base: Path) -> None:
    own.path.rmdir()
    own._limits["memory.max"] = "1"
    with pytest.raises((AgentMissing, HostExhausted)):
        own.new()


# --- gateways that were killed ----------------------------------------------------------------------


def test_cgroups_of_a_killed_gateway_are_ended_at_the_next_start(own: Cgroups, base: Path) -> None:
    script = (
        "import os, sys, subprocess, time\n"
        "from pathlib import Path\n"
        "from cursor_gateway.sources.cgroups import AgentLimits, delegated, place\n"
        "own = delegated(AgentLimits(), Path(sys.argv[1])); one = own.new(); one.make()\n"
        "agent = subprocess.Popen(['sleep', '600'], start_new_session=True, stdout=subprocess.DEVNULL)\n"
        "place(agent.pid, one.path)\n"
        "print(own.path, agent.pid, flush=True); time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(base)], stdout=subprocess.PIPE, text=True) as gateway:
        assert gateway.stdout is not None
        path, agent = gateway.stdout.readline().split()
        end_left_over(base)
        assert is_alive(int(agent))  # its gateway lives
        gateway.kill()
    end_left_over(base)
    assert not is_alive(int(agent))
    assert not Path(path).exists()
    assert own.path.exists()  # this process lives


def test_cgroups_of_other_programs_are_left_alone(base: Path) -> None:
    for name in ("cursor-agents-mine", "agents-0123456789abcdef", "cursor-agents-0123456789abcdef0"):
        (base / name).mkdir()
    (base / "cursor-agents-0123456789abcdef").mkdir()
    end_left_over(base)
    assert not (base / "cursor-agents-0123456789abcdef").exists()
    assert len([one for one in base.iterdir() if one.is_dir()]) == 3


@pytest.mark.parametrize("times", [1, 5])
def test_a_gateway_that_starts_at_the_same_time_may_take_a_new_one_for_left_over(
    base: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    mkdir, removed = Path.mkdir, list[Path]()

    def remove_at_once(path: Path) -> None:
        mkdir(path)
        if len(removed) < times:
            removed.append(path)
            path.rmdir()

    monkeypatch.setattr(Path, "mkdir", remove_at_once)
    own = delegated(AgentLimits(), base)
    assert len(removed) == times
    assert (own is None) == (times == 5)  # it does without
    if own is not None:
        assert own.path not in removed
        own.close()


def test_the_watchdog_ends_the_cgroups_of_its_gateway(base: Path, tmp_path: Path) -> None:
    """What has neither the variable nor a parent, where nothing is a subreaper."""
    own = delegated(AgentLimits(), base)
    assert own is not None
    ledger = Ledger(tmp_path / "instances")
    ledger.open()
    ledger.use_cgroups(own)
    cgroup = ledger.new_cgroup()
    assert cgroup is not None
    cgroup.make()
    with subprocess.Popen(["sleep", "600"], start_new_session=True, env={}) as process:
        place(process.pid, cgroup.path)
        assert Ledger(tmp_path / "instances").end_agents_of(ledger.folder.name) == []
        assert process.wait(60) == -signal.SIGKILL
    assert not Path(cgroup.path).exists()
    assert own.path.exists()  # it lives, and may have others
    assert ledger.new_cgroup() is not None
    ledger.close()
    assert not own.path.exists()


def test_agents_made_cgroups_of_their_own(own: Cgroups) -> None:
    cgroup = own.new()
    below = Path(cgroup.path, "a", "b")
    below.mkdir(parents=True)
    with subprocess.Popen(["sleep", "600"]) as process:
        place(process.pid, str(below))
        end_agents_in(own.path)
        assert process.wait(60) == -signal.SIGKILL
    assert not Path(cgroup.path).exists()


@pytest.mark.parametrize("cut_off", ["", ".", "work", "{folder}", "{folder}/cursor-agents-0123"])
def test_a_path_that_was_cut_off_ends_nothing(cut_off: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk may leave an empty file, which would name the working folder; or the beginning of a path."""
    kept = tmp_path / "work" / "empty"
    kept.mkdir(parents=True)
    (tmp_path / "cursor-agents-0123" / "1").mkdir(parents=True)
    (tmp_path / "cgroup.kill").touch()
    monkeypatch.chdir(tmp_path)
    end_agents_in(Path(cut_off.format(folder=tmp_path)))
    assert kept.is_dir()
    assert (tmp_path / "cursor-agents-0123" / "1").is_dir()
    assert not (tmp_path / "cgroup.kill").read_text()


# --- whose cgroup it is -----------------------------------------------------------------------------


def test_the_gateways_own_leaf_is_not_where_agents_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cgroups, "_mount", lambda: tmp_path)
    monkeypatch.setattr(cgroups, "_path_of_own", lambda: "/system.slice/one.service/gateway")
    assert cgroups._own_cgroup() == tmp_path / "system.slice/one.service"
    monkeypatch.setattr(cgroups, "_path_of_own", lambda: "/system.slice/one.service")
    assert cgroups._own_cgroup() == tmp_path / "system.slice/one.service"
    monkeypatch.setattr(cgroups, "_path_of_own", lambda: None)
    assert cgroups._own_cgroup() is None
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cgroups._own_cgroup() is None


def test_processes_of_somebody_else_are_never_moved(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell, for example: then its cgroup gives no controllers."""
    monkeypatch.setattr(cgroups, "_path_of_own", lambda: "/user.slice/shell.scope")
    with subprocess.Popen(["sleep", "600"]) as process:
        (base / "cgroup.procs").write_text(str(process.pid))
        cgroups._enable(base, set((base / "cgroup.controllers").read_text().split()))
        assert (base / "cgroup.procs").read_text().split() == [str(process.pid)]
        process.kill()


def test_the_gateway_leaves_a_cgroup_that_shall_give_controllers(base: Path) -> None:
    cgroups._enable(base.parent, {"hugetlb"})  # the one that cgroup v1 has not taken
    available = (base / "cgroup.controllers").read_text().split()
    if not available:
        pytest.skip("cgroup v2 has no controller on this machine")
    script = (
        "import os, sys\nfrom pathlib import Path\nfrom cursor_gateway.sources import cgroups\n"
        "base = Path(sys.argv[1]); (base / 'cgroup.procs').write_text(str(os.getpid()))\n"
        "cgroups._enable(base, {sys.argv[2]}); made = base / 'agents-x'; made.mkdir()\n"
        "cgroups._hand_down(base, made, {sys.argv[2]})\n"
        "print((made / 'cgroup.subtree_control').read_text().strip(), Path('/proc/self/cgroup').read_text())\n"
    )
    command = [sys.executable, "-c", script, str(base), available[0]]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"{available[0]} ")
    assert said.rstrip().endswith(f"/{base.name}/gateway")
