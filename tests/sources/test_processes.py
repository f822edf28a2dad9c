"""What agents start is found and ended, wherever it has gone; nothing else ever is."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from cursor_gateway.sources import processes
from cursor_gateway.sources.process import AgentProcess

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
SLEEP = "echo $$ >>pids; exec sleep 600"
LONG = 600.0

linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="it needs Linux")


@contextmanager
def running(*scripts: str, environment: dict[str, str] | None = None) -> Iterator[list[int]]:
    """Processes that are no agents of a gateway."""
    with_all: list[subprocess.Popen[bytes]] = []
    try:
        for script in scripts:
            command = ["/bin/sh", "-c", f"echo ready; {script}"]
            env = {**ENVIRONMENT, **(environment or {})}
            with_all.append(subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True, env=env))
        for process in with_all:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
        yield [process.pid for process in with_all]
    finally:
        for process in with_all:
            process.kill()
            process.wait(LONG)
            assert process.stdout is not None
            process.stdout.close()  # not read to its end: what it has started may keep it open


def processes_of(pids: Sequence[int]) -> processes.Table:
    table = processes.snapshot()
    return {pid: table[pid] for pid in pids if pid in table}


async def pids_in(folder: Path, count: int) -> list[int]:
    """Once that many have written theirs."""
    found: list[str] = []
    while len(found) < count:
        await asyncio.sleep(0.005)
        if (folder / "pids").exists():
            found = (folder / "pids").read_text().split()
    return [int(pid) for pid in found]


async def start(script: str, folder: Path) -> AgentProcess:
    return await AgentProcess.start(["/bin/sh", "-c", script], folder=str(folder), environment=ENVIRONMENT, stdin=None)


# --- an agent without a subreaper: the variable, and what was below it ------------------------------------

LEFT_BEHIND = {
    "in a session": f"setsid sh -c '{SLEEP}' &",
    "deaf": f"setsid sh -c 'trap \"\" TERM; {SLEEP}' &",
    "without a parent": f"(setsid sh -c '{SLEEP}' &);",
    "below such a process": f"(setsid sh -c 'sh -c \"{SLEEP}\" & sleep 600' &);".replace("$$", "\\$\\$"),
    "without its environment": f"env -i setsid sh -c '{SLEEP}' &",
}


@linux
@pytest.mark.parametrize("how", LEFT_BEHIND)
async def test_what_an_agent_started_is_ended_with_it(how: str, tmp_path: Path) -> None:
    agent = await start(f"{LEFT_BEHIND[how]} sleep 600", tmp_path)
    (pid,) = await pids_in(tmp_path, 1)
    assert processes.start_of(pid) is not None
    await agent.end(LONG)
    assert processes.start_of(pid) is None


@linux
@pytest.mark.parametrize("how", ["in a session", "without a parent"])
async def test_what_an_agent_leaves_when_it_ends_by_itself_is_ended(how: str, tmp_path: Path) -> None:
    agent = await start(f"{LEFT_BEHIND[how]} while ! test -e pids; do sleep 0.01; done", tmp_path)
    assert await agent.wait(LONG)
    (pid,) = await pids_in(tmp_path, 1)
    await agent.end(LONG)
    assert processes.start_of(pid) is None


@linux
async def test_an_end_that_is_cancelled_ends_the_rest_all_the_same(tmp_path: Path) -> None:
    agent = await start(f"{LEFT_BEHIND['without a parent']} trap '' TERM; sleep 600 & wait; wait", tmp_path)
    (pid,) = await pids_in(tmp_path, 1)
    ending = asyncio.ensure_future(agent.end(LONG))
    await asyncio.sleep(0.05)
    ending.cancel()
    await asyncio.wait([ending])
    while processes.start_of(pid) is not None:
        await asyncio.sleep(0.005)


# --- a subreaper, in a process of its own -----------------------------------------------------------------

# `await go("script")` starts an agent, `await said(n)` returns the pids that n processes have written.
_PROGRAM = """
import asyncio, os, subprocess, sys
from pathlib import Path
from cursor_gateway.sources.processes import adopted, end_commands, subreaper, unnamed
from cursor_gateway.sources.process import AgentProcess
from cursor_gateway.sources.processes import process_of, start_of
SLEEP = "echo $$ >>pids; exec sleep 600"
BARE = f"(env -i setsid sh -c '{SLEEP}' &);"
LIAR = f"(CURSOR_GATEWAY_AGENT=0123456789abcdef.1 setsid sh -c '{SLEEP}' &);"

async def go(script, **variables):
    return await AgentProcess.start(["/bin/sh", "-c", script], folder=os.getcwd(), stdin=None,
        environment={"PATH": "/usr/bin:/bin", **variables})

async def said(count):
    found = []
    while len(found) < count:
        await asyncio.sleep(0.005)
        if Path("pids").exists():
            found = Path("pids").read_text().split()
    return [int(pid) for pid in found]

def lives(pid):
    return start_of(pid) is not None

async def main():
"""


def as_subreaper(folder: Path, program: str) -> None:
    lines = "\n".join(f"    {line}" for line in program.strip().splitlines())
    text = f"{_PROGRAM}{lines}\n\nwith subreaper():\n    asyncio.run(main())\n"
    ran = subprocess.run([sys.executable, "-c", text], cwd=folder, capture_output=True, text=True, timeout=LONG)
    left = (folder / "pids").read_text().split() if (folder / "pids").exists() else []
    alive = [pid for pid in map(int, left) if processes.start_of(pid) is not None]
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
    assert ran.returncode == 0, ran.stderr
    assert alive == []


@linux
@pytest.mark.parametrize("how", ["BARE", "LIAR"])
def test_an_orphan_that_names_no_agent_is_ended_with_the_last_that_may_have_started_it(
    how: str, tmp_path: Path
) -> None:
    as_subreaper(
        tmp_path,
        """
old = await go("sleep 600")
await asyncio.sleep(0.02)  # start times are in hundredths of a second
one = await go(f"{HOW} sleep 600")
(pid,) = await said(1)
while [process.pid for process in unnamed()] != [pid]:
    await asyncio.sleep(0.005)
await asyncio.sleep(0.02)
new = await go("sleep 600")
await one.end(1)
assert lives(pid)
await old.end(1)
assert not lives(pid)
assert process_of(pid) is None, "it was reaped"
await new.end(1)
""".replace("HOW", how),
    )


@linux
def test_helpers_and_what_was_there_before_the_first_agent_are_left_alone(tmp_path: Path) -> None:
    as_subreaper(
        tmp_path,
        """
before = subprocess.Popen(["sleep", "600"], start_new_session=True)
await asyncio.sleep(0.02)
helper = subprocess.Popen(["sleep", "600"], process_group=0)
ended = subprocess.Popen(["true"], process_group=0)
agent = await go(f"{BARE} while ! test -e pids; do sleep 0.01; done")
await said(1)
await agent.end(1)
assert lives(before.pid) and lives(helper.pid)
assert [process.pid for process in adopted()] == [before.pid]
assert ended.wait() == 0
before.kill()
helper.kill()
helper.wait()
""",
    )


@linux
def test_an_agent_that_is_just_starting_is_no_orphan(tmp_path: Path) -> None:
    as_subreaper(
        tmp_path,
        """
from cursor_gateway.sources import processes
first = await go("sleep 600")
stranger = subprocess.Popen(["sleep", "600"], start_new_session=True)  # as an agent is, before its pid is known
processes._own.starting += 1
await first.end(1)
assert lives(stranger.pid) and unnamed() == []
processes._own.starting -= 1
assert [process.pid for process in unnamed()] == [stranger.pid]
stranger.kill()
stranger.wait()
""",
    )


@linux
def test_the_commands_of_one_session_are_ended_while_the_agent_lives(tmp_path: Path) -> None:
    as_subreaper(
        tmp_path,
        """
command = f"CURSOR_CONVERSATION_ID=%s setsid sh -c '{SLEEP}' &"
agent = await go(f"{command % 'one'} sleep 0.2; {command % 'two'} sleep 0.2; sh -c '{SLEEP}' & {BARE} sleep 600")
pids = await said(4)
(one,) = [pid for pid in pids if b"ID=one" in Path(f"/proc/{pid}/environ").read_bytes()]
await end_commands(agent.pid, "one", is_alone=lambda: False, seconds=5)
assert [pid for pid in pids if not lives(pid)] == [one]
await end_commands(agent.pid, "none", is_alone=lambda: False, seconds=5)
assert [pid for pid in pids if not lives(pid)] == [one]
await end_commands(agent.pid, "none", is_alone=lambda: True, seconds=5)
(server,) = [pid for pid in pids if lives(pid)]
assert process_of(server).session == agent.pid, "a server of the agent's own, which the next turn needs"
await agent.end(1)
assert not lives(server)
""",
    )


@linux
def test_the_commands_of_a_turn_that_begins_meanwhile_are_left_alone(tmp_path: Path) -> None:
    as_subreaper(
        tmp_path,
        """
deaf, wait = f'trap "" TERM; {SLEEP}', "while [ ! -e begun ]; do sleep 0.01; done"
agent = await go(f"setsid sh -c '{deaf}' & {wait}; setsid sh -c '{SLEEP}' & sleep 600")
await said(1)
turns = []
def is_alone():
    return not turns
ending = asyncio.ensure_future(end_commands(agent.pid, "one", is_alone=is_alone, seconds=1))
await asyncio.sleep(0.2)
turns.append("another")
Path("begun").touch()
(_, command) = await said(2)
await ending
assert lives(command)
turns.clear()
await end_commands(agent.pid, "another", is_alone=is_alone, seconds=0.1)
assert not any(lives(pid) for pid in await said(2))
await agent.end(1)
""",
    )


@linux
def test_without_file_descriptors_an_end_is_noticed_all_the_same(tmp_path: Path) -> None:
    as_subreaper(
        tmp_path,
        """
import resource, signal
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
agent = await go(f"setsid sh -c '{SLEEP}' & sleep 0.3")
(pid,) = await said(1)
gone, files = [], []
agent._on_gone = gone.append
try:
    while True:
        files.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
while not gone:
    await asyncio.sleep(0.005)
assert agent._pidfd == -1
for file in files:
    os.close(file)
await agent.end(1)
if lives(pid):  # without file descriptors, nobody could see it
    os.kill(pid, signal.SIGKILL)
    while lives(pid):
        await asyncio.sleep(0.005)
""",
    )


@linux
@pytest.mark.parametrize("name", ["CURSOR_CONVERSATION_ID=made_up", "CURSOR_GATEWAY_AGENT=made_up", ""])
def test_a_command_without_a_parent_is_ended_with_its_turn_whatever_it_says_of_itself(
    name: str, tmp_path: Path
) -> None:
    as_subreaper(
        tmp_path,
        f"""
agent = await go(f"({name} setsid sh -c '{{SLEEP}}' &); sleep 600")
(pid,) = await said(1)
while [process.pid for process in adopted()] != [pid]:
    await asyncio.sleep(0.005)
await end_commands(agent.pid, "one", is_alone=lambda: False, seconds=5)
assert lives(pid)
await end_commands(agent.pid, "one", is_alone=lambda: True, seconds=5)
assert not lives(pid)
assert lives(agent.pid)
await agent.end(1)
""",
    )


@linux
def test_a_kernel_that_does_not_list_children_is_good_enough(tmp_path: Path) -> None:
    as_subreaper(
        tmp_path,
        """
from cursor_gateway.sources import processes
processes.children_of = processes.children_of = lambda pid, thread: None
agent = await go(f"{BARE} while ! test -e pids; do sleep 0.01; done")
(pid,) = await said(1)
await agent.end(1)
assert not lives(pid)
""",
    )


# --- another gateway's ------------------------------------------------------------------------------------


@linux
def test_what_another_gateway_left_is_found_by_group_and_by_variable() -> None:
    names = {processes.AGENT: "0123456789abcdef.7"}
    with (
        running("sleep 600 & exec sleep 600") as [group],
        running("setsid sleep 600 & exec sleep 600", environment=names) as [named],
        running("exec sleep 600", environment={processes.AGENT: "0123456789abcde.71"}) as [other],
    ):
        while len(found := processes.of_gateway("0123456789abcdef", [group])) < 4:  # until the shells have started them
            time.sleep(0.001)
        assert {group, named} <= found.keys()
        assert len(found) == 4
        assert other not in found
        assert processes.of_gateway("", []) == {}
        processes.end(lambda: processes.of_gateway("0123456789abcdef", [group]))
        assert processes_of([*found, other]).keys() == {other}


@linux
def test_a_gateway_that_was_started_by_an_agent_does_not_end_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    own = processes.process_of(os.getpid())
    assert own is not None
    found = processes.of_gateway("", [own.group])
    assert os.getpid() not in found
    assert own.parent not in found


# --- ending -----------------------------------------------------------------------------------------------


@linux
def test_those_that_end_when_asked_are_not_killed(tmp_path: Path) -> None:
    script = f"trap 'echo asked >{tmp_path}/asked; exit' TERM; touch {tmp_path}/set; while :; do sleep 0.01; done"
    with running(script) as pids:
        while not (tmp_path / "set").exists():
            time.sleep(0.005)
        assert processes.end(lambda: processes_of(pids), 600.0).keys() == set(pids)
        assert (tmp_path / "asked").read_text() == "asked\n"


@linux
def test_those_that_start_others_all_the_time_are_ended(tmp_path: Path) -> None:
    """Each has the variable, so that the test itself finds all."""
    names = {processes.AGENT: "0123456789abcdef.8"}
    script = 'f() { setsid sh -c "$0" "$0" & }; trap \'\' TERM; while :; do sleep 0.02; sleep 600 & done'
    with running(script, script, environment=names):
        processes.end(lambda: processes.of_gateway("0123456789abcdef", []))
        assert processes.of_gateway("0123456789abcdef", []) == {}


@linux
def test_what_cannot_be_ended_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_LIMIT_SECONDS", 0.05)
    monkeypatch.setattr(processes, "signal_process", lambda process, number: None)
    with running("exec sleep 600") as pids:
        assert processes.end(lambda: processes_of(pids)).keys() == set(pids)
        assert processes_of(pids).keys() == set(pids)


def test_the_processes_below_others() -> None:
    table = {
        pid: processes.Process(pid, parent, pid, pid, "1") for pid, parent in ((2, 1), (3, 2), (4, 3), (5, 1), (6, 6))
    }
    assert set(processes._below(table, [2])) == {3, 4}
    assert set(processes._below(table, [1])) == {2, 3, 4, 5}
    assert set(processes._below(table, [6])) == {6}, "a loop, which a snapshot may show, ends"
    assert set(processes._with_below(table, [3, 9])) == {3, 4}


def test_a_forked_process_has_a_name_of_its_own() -> None:
    read_end, write_end = os.pipe()
    if (pid := os.fork()) == 0:
        os.write(write_end, processes.token().encode())
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read_end, 100).decode() != processes.token()
    os.close(read_end)
    os.close(write_end)


def test_no_commands_no_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "may_have_children", lambda pid: False)
    monkeypatch.setattr(processes, "adopted", list)
    monkeypatch.setattr(processes, "snapshot", lambda: pytest.fail("a scan"))
    asyncio.run(processes.end_commands(1, "one", is_alone=lambda: True, seconds=1))


def test_what_cannot_be_listed_is_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def no_file() -> processes.Table:
        asked.append(1)
        if len(asked) < 3:
            raise OSError(24, "Too many open files")
        return {}

    monkeypatch.setattr(processes, "_AGAIN_SECONDS", 0)
    monkeypatch.setattr(processes._own, "is_subreaper", True)
    monkeypatch.setattr(processes, "children_of", lambda pid, thread: None)
    monkeypatch.setattr(processes, "snapshot", no_file)
    agent = processes.Agent()
    agent.started(None)
    assert agent.may_have_left_some()
    asyncio.run(agent.end_rest())
    asked.clear()
    monkeypatch.setattr(processes, "_LIMIT_SECONDS", -1)
    with pytest.raises(OSError, match="Too many"):
        asyncio.run(agent.end_rest())


def test_without_the_kernels_help_nothing_is_adopted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with processes.subreaper():
        assert processes.adopted() is None
        assert processes.start_of(os.getpid())
