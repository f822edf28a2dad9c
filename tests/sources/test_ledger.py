"""The ledger: agents of a gateway that is gone are ended, those of a living one are not, and nobody else ever."""

import asyncio
import errno
import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cursor_gateway.errors import ConversationBusy, StoreUnavailable
from cursor_gateway.sources import ledger as module
from cursor_gateway.sources.ledger import Ledger, LostAgents, OtherGateway, Watchdog, main, registry
from cursor_gateway.sources.processes import AGENT, Process, members, signal_group, start_of, token
from tests.cli.processes import read_until

GONE = "4194305-1"  # no process has a number as large as this


@contextmanager
def group(script: str = "exec sleep 600") -> Iterator["subprocess.Popen[bytes]"]:
    command = ["/bin/sh", "-c", f"echo ready; {script}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            read_until(process.stdout.fileno(), b"ready\n")
            yield process
        finally:
            signal_group(process.pid, signal.SIGKILL)


def left_behind(directory: Path, *entries: str, gateway: str = GONE) -> Path:
    """What a gateway leaves that is killed."""
    folder = directory / gateway
    for entry in entries:
        (folder / "agents").mkdir(parents=True, exist_ok=True)
        (folder / "agents" / entry).touch()
    return folder


def entries(ledger: Ledger) -> list[str]:
    return sorted(entry.name for entry in (ledger.folder / "agents").iterdir())


@contextmanager
def opened(directory: Path, registry: Path | None = None) -> Iterator[Ledger]:
    ledger = Ledger(directory, registry)
    ledger.open()
    try:
        yield ledger
    finally:
        ledger.close()


def test_nothing_is_written_before_it_is_opened_and_nothing_stays_after(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "instances")
    assert list(tmp_path.iterdir()) == []
    ledger.open()
    assert ledger.folder.is_dir()
    (ledger.folder / "conversations").mkdir()
    ledger.close()
    ledger.close()
    assert list((tmp_path / "instances").iterdir()) == []


def test_its_folder_is_nobody_elses(tmp_path: Path) -> None:
    with opened(tmp_path / "instances") as ledger:
        for path in (ledger.folder, ledger.folder / "agents"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_agents_are_written_down_by_number_and_start(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger, group() as first, group() as second:
        ledger.add(first.pid)
        ledger.add(second.pid)
        assert entries(ledger) == sorted(f"{pid}-{start_of(pid)}" for pid in (first.pid, second.pid))
        ledger.remove(first.pid)
        ledger.remove(first.pid)
        assert entries(ledger) == [f"{second.pid}-{start_of(second.pid)}"]


def test_a_number_that_begins_another_is_not_taken_for_it(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        (ledger.folder / "agents" / "123-5").touch()
        ledger.remove(12)
        assert entries(ledger) == ["123-5"]


def test_orphans_are_ended_with_all_that_they_have_started(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger, group("sleep 600 & exec sleep 600") as orphan:
        folder = left_behind(tmp_path, f"{orphan.pid}-{start_of(orphan.pid)}")
        assert ledger.end_orphans() == [orphan.pid]
        assert orphan.wait() == -9
        while members(orphan.pid):
            pass
        assert not folder.exists()
        assert ledger.end_orphans() == []


def test_a_group_whose_leader_has_ended_is_ended_too(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger, group("sleep 600 & kill -9 $$") as orphan:
        start = start_of(orphan.pid)
        orphan.wait()
        assert members(orphan.pid)
        left_behind(tmp_path, f"{orphan.pid}-{start}")
        assert ledger.end_orphans() == [orphan.pid]
        while members(orphan.pid):
            pass


def test_a_process_that_got_the_number_of_an_agent_is_left_alone(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger, group() as stranger:
        folder = left_behind(tmp_path, f"{stranger.pid}-1")
        assert ledger.end_orphans() == []
        assert stranger.poll() is None
        assert not folder.exists()


def test_after_a_restart_of_the_system_a_group_with_the_number_of_an_agents_is_left_alone(tmp_path: Path) -> None:
    """Its leader has ended, so only the id of the system's start tells that it is another group."""
    with opened(tmp_path) as ledger, group("sleep 600 & echo done; exit 0") as stranger:
        stranger.wait(60)
        assert members(stranger.pid)
        folder = left_behind(tmp_path, f"{stranger.pid}-1")
        (folder / "lock").write_bytes(b"the id of an earlier start")
        assert (ledger.orphans(), ledger.end_orphans()) == ([], [])
        assert members(stranger.pid)
        left_behind(tmp_path, f"{stranger.pid}-1")
        (folder / "lock").write_bytes((ledger.folder / "lock").read_bytes())
        assert (ledger.orphans(), ledger.end_orphans()) == ([stranger.pid], [stranger.pid])


def test_where_the_system_does_not_say_pids_are_taken_for_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as ledger:
        monkeypatch.setattr(module, "_pid_scope", lambda: b"")
        assert ledger.dead() == []


def test_nor_is_a_process_taken_for_a_gateway_of_an_earlier_start(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger, group() as stranger:
        folder = left_behind(tmp_path, "1-1", gateway=f"{stranger.pid}-{start_of(stranger.pid)}")
        assert ledger.is_alive(folder.name)
        (folder / "lock").write_bytes(b"the id of an earlier start")
        assert ledger.dead() == [folder.name]


def test_an_agent_that_was_gone_before_it_was_written_down_is_no_orphan(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        with group("exit 0") as agent:
            os.waitid(os.P_PID, agent.pid, os.WEXITED | os.WNOWAIT)
            ledger.add(agent.pid)
        assert entries(ledger) == [f"{agent.pid}-None"]
        left_behind(tmp_path, f"{agent.pid}-None")
        assert ledger.end_orphans() == []


def test_a_living_gateway_keeps_its_agents(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger, group() as agent:
        ledger.add(agent.pid)
        other = Ledger(tmp_path)
        assert other.end_orphans() == []
        assert agent.poll() is None
        assert entries(ledger)


def test_a_gateway_that_was_killed_has_left_orphans(tmp_path: Path) -> None:
    script = (
        "import signal, subprocess, sys\n"
        "from pathlib import Path\n"
        "from cursor_gateway.sources.ledger import Ledger\n"
        "ledger = Ledger(Path(sys.argv[1]))\n"
        "ledger.open()\n"
        "agent = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "ledger.add(agent.pid)\n"
        "print('agent', agent.pid, 'ready', flush=True)\n"
        "signal.pause()\n"
    )
    with (
        opened(tmp_path) as ledger,
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE) as gateway,
    ):
        try:
            assert gateway.stdout is not None
            agent = int(read_until(gateway.stdout.fileno(), b"ready").split()[1])
            assert ledger.end_orphans() == []
            assert start_of(agent) is not None
        finally:
            gateway.kill()
        gateway.wait()
        assert ledger.end_orphans() == [agent]
        while start_of(agent) is not None:
            pass
        assert [folder.name for folder in tmp_path.iterdir()] == [ledger.folder.name]


def test_a_gateway_in_another_container_is_known_by_its_lock(tmp_path: Path) -> None:
    folder = left_behind(tmp_path, "5-5")
    with opened(tmp_path) as ledger:
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert ledger.end_orphans() == []
            assert folder.is_dir()
        assert ledger.end_orphans() == []
        assert not folder.exists()


def test_a_file_system_without_locks_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    folder = left_behind(tmp_path, "5-5")
    (folder / "lock").touch()
    with opened(tmp_path) as ledger:
        ledger.end_orphans()
        assert not folder.exists()
        assert ledger.folder.is_dir()


def test_another_gateway_is_noticed_although_this_one_was_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is alone, its folders are listed once: until they change."""
    ledger = Ledger(tmp_path / "gateways")
    ledger.open()
    os.utime(tmp_path / "gateways", (1, 1))
    assert ledger.dead() == []
    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", None)
        assert ledger.dead() == []
    (tmp_path / "gateways" / GONE).mkdir()
    assert ledger.dead() == [GONE]
    (tmp_path / "gateways" / GONE).rmdir()
    assert ledger.dead() == []
    (tmp_path / "gateways" / GONE).mkdir()  # perhaps in the same tick of the clock
    assert ledger.dead() == [GONE]
    ledger.close()


watched = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only where its process can be watched")


@watched
def test_a_gateway_that_runs_is_not_looked_at_again_until_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as ledger, group() as other:
        folder = left_behind(tmp_path, "1-1", gateway=f"{other.pid}-{start_of(other.pid)}")
        os.utime(tmp_path, (1, 1))
        assert ledger.dead() == []
        with monkeypatch.context() as patched:
            patched.setattr(module, "_is_alive", None)
            assert ledger.dead() == []
            os.utime(tmp_path, (2, 2))
            with pytest.raises(TypeError):  # it would be looked at
                ledger.dead()
        assert ledger.dead() == []
        signal_group(other.pid, signal.SIGKILL)
        other.wait()
        assert ledger.dead() == [folder.name]


@watched
def test_a_process_that_is_no_gateway_any_more_is_not_watched(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger, group() as other:
        folder = left_behind(tmp_path, "1-1", gateway=f"{other.pid}-1")
        os.utime(tmp_path, (1, 1))
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert (ledger.dead(), ledger.dead()) == ([], [])
        assert ledger.dead() == [folder.name]


def test_what_we_have_not_made_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "README").touch()
    folder = left_behind(tmp_path, "5-5", "README")
    with opened(tmp_path) as ledger:
        ledger.end_orphans()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README", "notes"]
    assert not folder.exists()


def test_there_may_be_nothing_to_look_at(tmp_path: Path) -> None:
    assert Ledger(tmp_path / "missing").end_orphans() == []
    (tmp_path / GONE).touch()
    assert Ledger(tmp_path).end_orphans() == []


def test_a_full_disk_keeps_nobody_from_working(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with opened(tmp_path) as ledger, monkeypatch.context() as patched:
        (ledger.folder / "agents" / "5-5").touch()
        patched.setattr(Path, "touch", refuse)
        patched.setattr(Path, "unlink", refuse)
        ledger.add(os.getpid())
        ledger.remove(5)


def test_a_system_that_does_not_tell_starts_keeps_nobody_from_working(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pid: int) -> str:
        raise subprocess.TimeoutExpired("ps", 10)

    with opened(tmp_path) as ledger:
        monkeypatch.setattr(module, "start_of", refuse)
        ledger.add(os.getpid())


def test_a_place_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="Not a directory"):
        Ledger(tmp_path / "file").open()


# --- gateways with other data ---------------------------------------------------------------------------


def other_gateway(tmp_path: Path, agent: int, name: str = GONE) -> Path:
    """What a gateway with other data leaves that is killed."""
    folder = left_behind(tmp_path / "other", f"{agent}-{start_of(agent)}", gateway=name)
    made = registry(str(tmp_path / "registry"))
    assert made is not None
    (made / name).symlink_to(folder)
    return folder


def test_gateways_with_different_data_end_each_others_orphans(tmp_path: Path) -> None:
    with group() as orphan:
        folder = other_gateway(tmp_path, orphan.pid)
        with opened(tmp_path / "instances", registry(str(tmp_path / "registry"))) as ledger:
            assert sorted(link.name for link in (tmp_path / "registry").iterdir()) == sorted([GONE, ledger.folder.name])
            assert (ledger.dead(), ledger.orphans()) == ([GONE], [orphan.pid])
            assert ledger.end_orphans() == [orphan.pid]
            assert orphan.wait() == -9
            assert (ledger.dead(), ledger.end_orphans()) == ([], [])
        assert list((tmp_path / "registry").iterdir()) == []
        assert folder.is_dir()  # the next gateway with that data removes it


def test_data_that_was_deleted_is_no_obstacle(tmp_path: Path) -> None:
    made = registry(str(tmp_path / "registry"))
    assert made is not None
    (made / GONE).symlink_to(tmp_path / "deleted" / GONE)
    (made / "1-1").mkdir()  # not one of ours
    with opened(tmp_path / "instances", made) as ledger:
        assert ledger.end_orphans() == []
        assert not (made / GONE).is_symlink()


def test_an_agent_of_a_gateway_that_lost_its_runs_and_wakes_up_is_ended_at_once(tmp_path: Path) -> None:
    made = registry(str(tmp_path / "registry"))
    with opened(tmp_path / "frozen", made) as frozen, group() as first, group() as second, group() as third:
        frozen.note_member("cluster", "frozen")
        frozen.add(first.pid)
        ours = Ledger(tmp_path / "instances", made)
        ours.folder = tmp_path / "instances" / GONE  # it is another process
        assert ours.others() == [OtherGateway(frozen.folder.name, "cluster", "frozen")]
        assert ours.end_orphans() == []
        assert ours.end_agents_of(frozen.folder.name) == [first.pid]
        assert first.wait() == -9
        frozen.add(second.pid)
        assert second.wait(30) == -9
        frozen.remove(first.pid)
        frozen.reopen()
        frozen.add(third.pid)
        assert third.poll() is None
        assert entries(frozen) == [f"{third.pid}-{start_of(third.pid)}"]


def test_an_agent_is_not_ended_because_a_cleaner_deleted_the_folder(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger, group() as agent:
        shutil.rmtree(ledger.folder)
        ledger.add(agent.pid)
        assert agent.poll() is None


def test_only_a_folder_that_is_this_users_alone_is_shared(tmp_path: Path) -> None:
    made = registry(str(tmp_path / "new"))
    assert made is not None
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert registry(str(made)) == made
    made.chmod(0o777)
    assert registry(str(made)) is None
    (tmp_path / "link").symlink_to(tmp_path)
    assert registry(str(tmp_path / "link")) is None
    (tmp_path / "file").touch()
    assert registry(str(tmp_path / "file")) is None
    assert registry(str(tmp_path / "missing" / "folder")) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_nor_is_a_folder_that_another_user_made_first(tmp_path: Path) -> None:
    planted = tmp_path / "planted"
    planted.mkdir(mode=0o700)
    os.chown(planted, 65534, 65534)
    assert registry(str(planted)) is None


def test_its_usual_place_names_the_user() -> None:
    assert registry() == Path(f"/tmp/cursor-gateway-{os.geteuid()}")


def test_what_has_the_variable_of_a_dead_gateway_is_ended(tmp_path: Path) -> None:
    """It has left its group, and its parents are gone; another gateway's has not."""
    folder = tmp_path / "5-5"
    folder.mkdir()
    with opened(tmp_path) as ledger, named("0123456789abcdef.1") as orphan, named(f"{token()}.1") as other:
        assert (ledger.folder / "token").read_text() == token()
        (folder / "token").write_text("0123456789abcdef")
        assert ledger.orphans() == [orphan.pid]
        assert ledger.end_agents_of("5-5") == [orphan.pid]
        assert orphan.wait() == -signal.SIGKILL
        assert (ledger.end_orphans(), other.poll()) == ([], None)


@contextmanager
def named(value: str) -> Iterator["subprocess.Popen[bytes]"]:
    command, environment = ["sleep", "600"], {"PATH": "/usr/bin:/bin", AGENT: value}
    with subprocess.Popen(command, start_new_session=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def test_orphans_that_only_this_gateway_can_find_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def live(ledger: Ledger, orphan: int) -> None:
        orphans = [Process(orphan, 1, orphan, orphan, "1")]
        failures = [OSError(24, "Too many open files")]

        def found() -> list[Process]:
            if failures:
                raise failures.pop()
            return orphans

        monkeypatch.setattr(module, "unnamed", found)
        noting = asyncio.ensure_future(ledger.note_orphans())
        try:
            while entries(ledger) != [f"{orphan}-{start_of(orphan)}"]:
                await asyncio.sleep(0.001)
            orphans.clear()
            while entries(ledger):
                await asyncio.sleep(0.001)
        finally:
            noting.cancel()

    monkeypatch.setattr(module, "_NOTE_SECONDS", 0.001)
    with opened(tmp_path) as ledger, group() as orphan:
        asyncio.run(live(ledger, orphan.pid))


def test_a_gateway_without_a_watchdog_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(command: list[str]) -> None:
        raise BlockingIOError

    monkeypatch.setattr(module, "Watchdog", fail)
    with opened(tmp_path) as ledger:
        ledger.watch()


# --- the watchdog of a gateway ---------------------------------------------------------------------------

_GATEWAY = """
import asyncio, os, shutil, signal, sys
from pathlib import Path
from cursor_gateway.sources.ledger import Ledger
from cursor_gateway.sources.process import AgentProcess

async def live():
    ledger = Ledger(Path(sys.argv[1]))
    ledger.open()
    ledger.watch()
    agent = await AgentProcess.start(
        ["/bin/sh", "-c", "(setsid sh -c 'echo $$; exec sleep 600' &); sleep 600"],
        folder="/", environment={"PATH": "/usr/bin:/bin"}, stdin=None)
    ledger.add(agent.pid)
    print(agent.pid, (await agent.read()).decode().strip(), flush=True)
    if len(sys.argv) > 2:
        shutil.rmtree(sys.argv[1])
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(live())
"""


def killed(folder: Path, *flags: str) -> list[int]:
    ran = subprocess.run([sys.executable, "-c", _GATEWAY, str(folder), *flags], stdout=subprocess.PIPE, check=False)
    return [int(pid) for pid in ran.stdout.split()]


def test_the_agents_of_a_gateway_that_was_killed_are_ended(tmp_path: Path) -> None:
    pids = killed(tmp_path / "instances")
    assert len(pids) == 2
    while any(start_of(pid) is not None for pid in pids):
        pass
    (folder,) = (tmp_path / "instances").iterdir()  # which tells the next gateway whose runs to end
    main(folder)


def test_they_are_ended_also_if_its_folder_is_gone(tmp_path: Path) -> None:
    pids = killed(tmp_path / "instances", "without a folder")
    assert len(pids) == 2
    while any(start_of(pid) is not None for pid in pids):
        pass


def test_a_gateway_that_closes_ends_its_watchdog(tmp_path: Path) -> None:
    watchdog = Watchdog(["touch", str(tmp_path / "ran")])
    pid = watchdog._shell.pid
    assert start_of(pid) is not None
    watchdog.close()
    assert start_of(pid) is None
    assert not (tmp_path / "ran").exists()


# --- Agents that have lost their runs --------------------------------------------------------------

OTHER = f"{os.getppid()}-{start_of(os.getppid())}"  # a gateway that lives


@contextmanager
def lost(tmp_path: Path, cluster: str = "") -> Iterator[tuple[LostAgents, "subprocess.Popen[bytes]"]]:
    """And an agent of another gateway, which is alive, and may be a member of a cluster."""
    ledger = Ledger(tmp_path)
    ledger.open()
    try:
        with group() as agent:
            folder = left_behind(tmp_path, f"{agent.pid}-{start_of(agent.pid)}", gateway=OTHER)
            if cluster:
                (folder / "member").write_text(f"{cluster} other")
            yield LostAgents(ledger), agent
    finally:
        ledger.close()


async def gone(ids: Collection[str]) -> Collection[str]:
    return ids


async def present(ids: Collection[str]) -> Collection[str]:
    return ()


async def unknown(ids: Collection[str]) -> Collection[str]:
    raise StoreUnavailable("The database is away; try again.")


def test_those_of_a_dead_gateway_have_ended_afterwards(tmp_path: Path) -> None:
    with lost(tmp_path) as (agents, living), group("trap '' TERM; sleep 600 & exec sleep 600") as orphan:
        left_behind(tmp_path, f"{orphan.pid}-{start_of(orphan.pid)}")
        asyncio.run(agents.end())
        assert members(orphan.pid) == []
        assert living.poll() is None


@pytest.mark.parametrize(
    ("cluster", "absent", "is_ended"), [("ours", gone, True), ("ours", present, False), ("theirs", gone, False)]
)
def test_those_of_a_gateway_that_is_no_member_any_more(
    tmp_path: Path, cluster: str, absent: module.Absent, is_ended: bool
) -> None:
    with lost(tmp_path, cluster) as (agents, agent):
        agents.join("ours", "own", absent)
        asyncio.run(agents.end())
        assert (members(agent.pid) == []) is is_ended


def test_no_agent_starts_while_nobody_knows_who_is_a_member(tmp_path: Path) -> None:
    with lost(tmp_path, "ours") as (agents, agent):
        agents.join("ours", "own", unknown)
        with pytest.raises(StoreUnavailable):
            asyncio.run(agents.end())
        assert agent.poll() is None


def test_those_of_one_member_that_was_removed(tmp_path: Path) -> None:
    with lost(tmp_path, "ours") as (agents, agent):
        agents.join("ours", "own", present)
        asyncio.run(agents.end_of("another"))
        assert agent.poll() is None
        asyncio.run(agents.end_of("other"))
        assert members(agent.pid) == []


def test_one_that_cannot_be_ended_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "members", lambda group: [group])
    monkeypatch.setattr(module, "_GONE_SECONDS", 0.01)
    with lost(tmp_path) as (agents, _), group() as orphan:
        left_behind(tmp_path, f"{orphan.pid}-{start_of(orphan.pid)}")
        with pytest.raises(ConversationBusy):
            asyncio.run(agents.end())


def test_a_gateway_that_rejoins_can_note_agents_again(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.open()
    (ledger.folder / "agents").rmdir()
    LostAgents(ledger).joined()
    assert (ledger.folder / "agents").is_dir()
    ledger.close()
