"""Processes: all they say is read, their end is noticed however it can be, and nothing of them is left behind.

The programs are shells that wait for nothing but signals, so no test depends on how fast anything is.
"""

import asyncio
import errno
import fcntl
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from time import monotonic
from typing import Any, TypeAlias

import pytest
import uvloop

from cursor_gateway.errors import AgentMissing, HostExhausted
from cursor_gateway.sources import process, processes
from cursor_gateway.sources.process import AgentProcess, start_with_stdin
from cursor_gateway.sources.processes import start_of
from cursor_gateway.sources.spawning import spawn

Run: TypeAlias = Callable[[Coroutine[Any, Any, None]], None]

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
LONG = 600.0  # seconds, for a red build only
HANG = "sleep 600"  # not for ever: a red build may leave it behind
DEAF = f"trap '' TERM; echo ready; {HANG}"


def no_pidfd(pid: int, flags: int = 0) -> int:
    raise OSError(errno.ENOSYS, "Function not implemented")


@pytest.fixture(
    params=[(asyncio.run, "pidfd"), (uvloop.run, "pidfd"), (asyncio.run, "thread"), (uvloop.run, "waitpid")],
    ids=lambda param: f"{param[0].__module__.partition('.')[0]}-{param[1]}",
)
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Both loops, and the three ways of noticing an end: Linux, an old kernel, and macOS before Python 3.13."""
    run, way = request.param
    if way != "pidfd":
        monkeypatch.setattr(os, "pidfd_open", no_pidfd, raising=False)
    if way == "waitpid":
        monkeypatch.delattr(os, "waitid", raising=False)
    found: Run = run
    return found


async def start(
    script: str, *, stdin: bytes | None = None, folder: str = "/", gone: list[int] | None = None
) -> AgentProcess:
    result = [] if gone is None else gone
    return await AgentProcess.start(
        ["/bin/sh", "-c", script], folder=folder, environment=ENVIRONMENT, stdin=stdin, on_gone=result.append
    )


async def everything(agent: AgentProcess) -> bytes:
    pieces = []
    while piece := await agent.read():
        pieces.append(piece)
    return b"".join(pieces)


async def read_until(agent: AgentProcess, expected: bytes) -> bytes:
    said = b""
    while expected not in said:
        piece = await agent.read()
        assert piece, f"the output ended without {expected!r}: {said!r}"
        said += piece
    return said


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def assert_reaped(pid: int) -> None:
    assert start_of(pid) is None
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def open_files() -> set[str]:
    return set(os.listdir("/dev/fd"))


# --- what it says ---------------------------------------------------------------------------------------


async def test_output_last_words_and_status(loop: Run) -> None:
    gone: list[int] = []
    agent = await start("echo out; echo err >&2; pwd; exit 3", folder="/usr", gone=gone)
    assert await everything(agent) == b"out\n/usr\n"
    assert await agent.wait(LONG)
    assert (agent.status, agent.stderr_tail, gone) == (3, "err\n", [agent.pid])
    assert await agent.read() == b""
    await agent.end(LONG)
    await agent.end(LONG)
    assert gone == [agent.pid]
    assert_reaped(agent.pid)


WRITES = "echo one; while ! test -e two; do sleep 0.01; done; echo two; echo three; touch written"


async def merged(folder: Path) -> AgentProcess:
    """An agent that has been read once, and has written more since then."""
    agent = await start(f"{WRITES}; {HANG}", folder=str(folder))
    agent.merges_reads = True
    assert await agent.read() == b"one\n"  # never delayed
    (folder / "two").touch()
    await until((folder / "written").exists)
    await until(lambda: _merged()._timer)
    return agent


def _merged() -> process._MergedReads:
    return process._MergedReads.of(asyncio.get_running_loop())


async def test_output_that_follows_soon_is_read_together(
    loop: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_PAUSE", LONG)
    agent = await merged(tmp_path)
    assert not agent._pieces
    monkeypatch.setattr(process, "monotonic", lambda: monotonic() + 2 * LONG)
    _merged()._look()
    assert await agent.read() == b"two\nthree\n"
    await agent.end(LONG)
    assert_reaped(agent.pid)


async def test_the_end_of_the_agent_ends_a_pause(loop: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_PAUSE", LONG)
    agent = await merged(tmp_path)
    os.killpg(agent.pid, signal.SIGKILL)
    assert await everything(agent) == b"two\nthree\n"
    assert await agent.wait(LONG)
    await agent.end(LONG)


async def test_an_agent_can_be_ended_in_a_pause(loop: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_PAUSE", LONG)
    before = open_files()
    agent = await merged(tmp_path)
    await agent.end(LONG)
    assert_reaped(agent.pid)
    assert open_files() == before


async def test_the_first_output_is_read_at_once_although_the_machine_has_just_started(
    loop: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_PAUSE", LONG)
    monkeypatch.setattr(process, "monotonic", lambda: 0.0)
    agent = await start(f"echo one; {HANG}")
    agent.merges_reads = True
    async with asyncio.timeout(60):
        assert await agent.read() == b"one\n"
    await agent.end(LONG)


def test_what_many_agents_write_is_read_together(loop: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """While there are many reads, a pause follows them; while there are few, the next one comes at once."""
    monkeypatch.setattr(process, "_PAUSE", LONG)
    now = 0.0
    monkeypatch.setattr(process, "monotonic", lambda: now)

    async def live() -> None:
        nonlocal now
        started = [
            await start_with_stdin(["/bin/cat"], folder="/", environment=ENVIRONMENT, on_gone=lambda pid: None)
            for _ in range(process._MANY)
        ]
        agents, inputs = [agent for agent, _ in started], [stdin for _, stdin in started]
        for agent in agents:
            agent.merges_reads = True

        for few in (b"one", b"two"):
            inputs[0].write(few)
            assert await agents[0].read() == few
            assert _merged()._timer is None  # it watches
            now += 2 * LONG
        for stdin in inputs:
            stdin.write(b"many")
        assert [await agent.read() for agent in agents] == [b"many"] * len(agents)
        assert _merged()._timer is not None  # it waits, also for agents that have been silent
        now += LONG / 2
        for stdin in inputs[:2]:
            stdin.write(b"late")
        await until(lambda: len(_merged()._pipes.select(0)) == 2)
        assert not any(agent._pieces for agent in agents)
        now += LONG
        _merged()._look()
        assert [agent._pieces for agent in agents[:2]] == [[b"late"], [b"late"]]
        assert _merged()._timer is None
        for agent in agents:
            await agent.end(LONG)

    loop(live())


async def test_nothing_is_lost_in_many_pauses(loop: Run) -> None:
    agent = await start("n=0; while test $n -lt 3000; do echo $n; n=$((n+1)); done")
    agent.merges_reads = True
    assert await everything(agent) == b"".join(b"%d\n" % number for number in range(3000))
    await agent.end(LONG)


async def test_a_signal_is_a_negative_status(loop: Run) -> None:
    agent = await start("kill -9 $$")
    assert await agent.wait(LONG)
    assert agent.status == -9
    await agent.end(LONG)


async def test_pieces_come_as_soon_as_they_are_there(loop: Run, tmp_path: Path) -> None:
    agent = await start(f"mkfifo {tmp_path}/pipe; echo one; read go < {tmp_path}/pipe; echo two")
    assert await read_until(agent, b"\n") == b"one\n"
    (tmp_path / "pipe").write_text("go\n")
    assert await everything(agent) == b"two\n"
    await agent.end(LONG)


async def test_a_read_can_be_interrupted(loop: Run, tmp_path: Path) -> None:
    agent = await start(f"mkfifo {tmp_path}/pipe; echo one; read go < {tmp_path}/pipe; echo two")
    assert await read_until(agent, b"\n") == b"one\n"
    reading = asyncio.get_running_loop().create_task(agent.read())
    await asyncio.sleep(0)
    agent.interrupt()
    assert (await reading, await agent.read(), agent.is_interrupted) == (b"", b"", True)
    agent.is_interrupted = False
    (tmp_path / "pipe").write_text("go\n")
    assert await everything(agent) == b"two\n"
    await agent.end(LONG)


async def test_huge_output_is_read_to_its_last_byte(loop: Run) -> None:
    agent = await start("head -c 5000000 /dev/zero; printf end")
    said = await everything(agent)
    assert (len(said), said[-3:]) == (5_000_003, b"end")
    await agent.end(LONG)


async def test_a_flood_of_errors_neither_blocks_nor_stays(loop: Run) -> None:
    agent = await start("head -c 3000000 /dev/zero >&2; echo last words >&2; echo out")
    assert await everything(agent) == b"out\n"
    assert await agent.wait(LONG)
    assert len(agent.stderr_tail) == 64 * 1024
    assert agent.stderr_tail.endswith("last words\n")
    await agent.end(LONG)


async def test_what_is_discarded_is_not_kept(loop: Run) -> None:
    agent = await start("head -c 3000000 /dev/zero")
    agent.is_discarding = True
    assert await agent.wait(LONG)
    assert await agent.read() == b""
    await agent.end(LONG)


async def test_nothing_is_kept_of_what_a_program_says_while_it_is_ended() -> None:
    agent = await start("trap '' TERM PIPE; while :; do echo babble; done")
    await agent.read()
    await agent.end(0.01)
    assert (await agent.read(), agent.status) == (b"", -9)


# --- what it is given -----------------------------------------------------------------------------------


@pytest.mark.parametrize("has_memory_files", [True, False])
@pytest.mark.parametrize("stdin", [b"", b"\0\xff prompt", b"x" * 3_000_000])
async def test_standard_input_is_read_whole_and_ends(
    stdin: bytes, has_memory_files: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_memory_files:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    before = open_files()
    agent = await start("cat", stdin=stdin)
    assert await everything(agent) == stdin
    await agent.end(LONG)
    assert open_files() == before


async def test_a_program_that_does_not_read_its_input_breaks_nothing() -> None:
    agent = await start("echo out", stdin=b"x" * 3_000_000)
    assert await everything(agent) == b"out\n"
    await agent.end(LONG)


async def test_without_input_standard_input_is_closed() -> None:
    agent = await start("cat; echo end")
    assert await everything(agent) == b"end\n"
    await agent.end(LONG)


async def test_the_environment_is_the_one_that_is_given() -> None:
    agent = await AgentProcess.start(["/usr/bin/env"], folder="/", environment={"A": "é"}, stdin=None)
    assert (await everything(agent)).startswith(f"A=é\nCURSOR_GATEWAY_AGENT={processes.token()}.".encode())
    await agent.end(LONG)


# --- what cannot be started -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "folder", "expected", "details"),
    [
        (["/missing/agent"], "/", "No such file or directory", "/missing/agent"),
        (["/etc/passwd"], "/", "Permission denied", "/etc/passwd"),
        (["/bin/sh"], "/missing", "No such file or directory", "/missing"),
        (["/bin/sh", "a\0b"], "/", "embedded null byte", "/bin/sh"),
        (["/bin/sh", "\ud800"], "/", "surrogates not allowed", "/bin/sh"),
        (["/bin/sh", "x" * 3_000_000], "/", "Argument list too long", "/bin/sh"),
    ],
)
async def test_what_cannot_be_started_says_why(arguments: list[str], folder: str, expected: str, details: str) -> None:
    before = open_files()
    with pytest.raises(AgentMissing, match=expected) as caught:
        await AgentProcess.start(arguments, folder=folder, environment=ENVIRONMENT, stdin=b"prompt")
    assert caught.value.details == details
    assert open_files() == before


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EAGAIN, errno.ENOMEM])
async def test_a_system_without_resources_is_reported(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(process, "spawn", refuse)
    before = open_files()
    with pytest.raises(HostExhausted, match=os.strerror(number)):
        await start("true", stdin=b"prompt")
    assert open_files() == before


@pytest.mark.parametrize("has_memory_files", [True, False])
async def test_a_prompt_that_cannot_be_written_is_reported(
    has_memory_files: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = open_files()
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        if not has_memory_files:
            patched.delattr(os, "memfd_create", raising=False)
        with pytest.raises(HostExhausted, match="No space left on device"):
            await start("cat", stdin=b"prompt")
    assert open_files() == before


async def test_a_process_that_cannot_be_watched_is_ended_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []

    async def noted(*arguments: Any, is_alone: bool, cgroup: str) -> int:
        started.append(await spawn(*arguments, is_alone=is_alone, cgroup=cgroup))
        return started[0]

    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    before = open_files()
    with monkeypatch.context() as patched:
        patched.setattr(os, "pidfd_open", no_pidfd, raising=False)
        patched.setattr(threading.Thread, "start", refuse)
        patched.setattr(process, "spawn", noted)
        with pytest.raises(HostExhausted, match="can't start new thread"):
            await start(HANG)
    assert open_files() == before
    (pid,) = started
    assert_reaped(pid)


# --- ending it ------------------------------------------------------------------------------------------


async def test_a_program_may_end_by_itself_when_it_is_asked_to(loop: Run) -> None:
    agent = await start(f"trap 'echo saved >&2; exit 5' TERM; echo ready; {HANG} & wait")
    await read_until(agent, b"ready")
    await agent.end(LONG)
    assert (agent.status, agent.stderr_tail) == (5, "saved\n")
    assert_reaped(agent.pid)


async def test_a_program_that_does_not_listen_is_killed(loop: Run) -> None:
    gone: list[int] = []
    agent = await start(DEAF, gone=gone)
    await read_until(agent, b"ready")
    assert not await agent.wait(0.01)
    await agent.end(0.01)
    assert (agent.status, gone) == (-9, [agent.pid])
    assert_reaped(agent.pid)


async def test_who_is_cancelled_still_ends_it_in_good_order(loop: Run) -> None:
    """A task that was cancelled has time limits of its own while it cleans up."""
    agent = await start(DEAF)
    await read_until(agent, b"ready")

    async def use() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await agent.end(0.01)

    using = asyncio.ensure_future(use())
    await asyncio.sleep(0)
    using.cancel()
    await asyncio.wait([using])
    assert using.cancelled()
    assert agent.status == -9
    assert_reaped(agent.pid)


async def test_who_is_cancelled_while_ending_it_leaves_it_dead(loop: Run) -> None:
    gone: list[int] = []
    agent = await start(DEAF, gone=gone)
    await read_until(agent, b"ready")
    ending = asyncio.ensure_future(agent.end(LONG))
    await asyncio.sleep(0)
    ending.cancel()
    await asyncio.wait([ending])
    assert ending.cancelled()
    await until(lambda: gone)
    assert agent.status == -9
    assert_reaped(agent.pid)


async def test_two_may_end_it_at_once(loop: Run) -> None:
    agent = await start(DEAF)
    await read_until(agent, b"ready")
    await asyncio.gather(agent.end(0.01), agent.end(0.01), agent.wait(LONG))
    assert agent.status == -9


async def test_it_may_end_in_the_moment_it_is_ended(loop: Run) -> None:
    for _ in range(10):
        agent = await start("exec true")
        await agent.end(LONG)
        assert agent.status in (0, -15)
        assert_reaped(agent.pid)


async def test_no_file_is_left_open(loop: Run) -> None:
    await (agent := await start("true")).wait(LONG)  # whatever the loop itself opens is open then
    await agent.end(LONG)
    before = open_files()
    for script in ("true", "echo out; echo err >&2", DEAF, "exec 1>&- 2>&-; sleep 600"):
        agent = await start(script, stdin=b"prompt")
        await agent.read()
        await agent.end(0.01)
    assert open_files() == before


async def test_an_observer_of_its_end_may_fail() -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))

    def fail(pid: int) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    agent = await AgentProcess.start(["true"], folder="/", environment=ENVIRONMENT, stdin=None, on_gone=fail)
    assert await agent.wait(LONG)
    assert agent.status == 0
    await agent.end(LONG)
    assert len(complaints) == 1


def test_a_loop_that_is_closed_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread waits for the end, and the loop does not."""
    ended: list[AgentProcess] = []

    async def live() -> None:
        agent = await start(HANG)
        ended.append(agent)
        ending = asyncio.ensure_future(agent.end(LONG))
        await asyncio.sleep(0)
        ending.cancel()
        await asyncio.wait([ending])

    monkeypatch.setattr(os, "pidfd_open", no_pidfd, raising=False)
    asyncio.run(live())
    (agent,) = ended
    for thread in threading.enumerate():
        if thread.name == f"agent {agent.pid}":
            thread.join(LONG)
    agent._reap()
    assert_reaped(agent.pid)


def test_the_end_is_noticed_if_the_kernel_reaps(loop: Run) -> None:
    """As it does for a gateway whose parent ignored SIGCHLD. The status is unknown then."""

    async def live() -> None:
        agent = await start("echo done; exit 3")
        assert await everything(agent) == b"done\n"
        assert await agent.wait(LONG)
        assert agent.status == 0
        await agent.end(LONG)

    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        loop(live())
    finally:
        signal.signal(signal.SIGCHLD, before)


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run])
def test_only_an_agent_that_is_alone_is_started_by_the_loop_itself(loop: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others would have to wait."""
    alone: list[bool] = []

    async def noted(*arguments: Any, is_alone: bool, cgroup: str) -> int:
        alone.append(is_alone)
        return await spawn(*arguments, is_alone=is_alone, cgroup=cgroup)

    async def live() -> None:
        first = await start(HANG)
        second = await start(HANG)
        await first.end(0.01)
        await second.end(0.01)
        await (await start("true")).end(0.01)

    monkeypatch.setattr(process, "spawn", noted)
    monkeypatch.setattr(processes, "_own", processes._Own())  # other tests leave agents behind
    loop(live())
    assert alone == [True, False, True]


# --- what it has started --------------------------------------------------------------------------------


async def test_its_children_do_not_outlive_it(loop: Run) -> None:
    agent = await start("sleep 600 & echo $!; exit 0")
    child = int(await read_until(agent, b"\n"))
    assert await agent.wait(LONG)
    await until(lambda: start_of(child) is None)
    await agent.end(LONG)


async def test_its_children_end_with_it(loop: Run) -> None:
    agent = await start(f"sleep 600 & echo $!; trap '' TERM; {HANG}")
    child = int(await read_until(agent, b"\n"))
    await agent.end(0.01)
    await until(lambda: start_of(child) is None)


async def with_a_keeper(script: str, act: Callable[[AgentProcess], Awaitable[None]], folder: Path) -> None:
    """Another session keeps the output open: a daemon that the agent has started, and that nothing leads to."""
    keeper = "env -i setsid sh -c 'echo $$ > pid; mv pid keeper; exec sleep 600' &"
    agent = await start(f"{keeper} while [ ! -e keeper ]; do :; done; {script}", folder=str(folder))
    try:
        await act(agent)
    finally:
        await agent.end(LONG)
        os.kill(int((folder / "keeper").read_text()), signal.SIGKILL)


def test_a_pipe_that_somebody_keeps_open_is_given_up(
    loop: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(agent: AgentProcess) -> None:
        assert await everything(agent) == b"out\n"
        assert await agent.wait(LONG)
        assert agent.status == 0

    monkeypatch.setattr(process, "_DEAD_PIPE_SECONDS", 0.01)
    loop(with_a_keeper("echo out; exit 0", act, tmp_path))


@pytest.mark.skipif(sys.platform != "linux", reason="the size of a pipe is Linux's to tell")
def test_a_loop_that_was_busy_reads_all_that_a_dead_program_has_said(
    loop: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pipe is full, its program dead, and its time is up before anybody has looked."""

    async def act(agent: AgentProcess) -> None:
        size = fcntl.fcntl(agent._out, 1032)  # F_GETPIPE_SZ
        (tmp_path / "size").write_text(f"{size}\n")
        (tmp_path / "size").rename(tmp_path / "go")
        while start_of(agent.pid) is not None:  # busy: the loop does not run meanwhile
            pass
        assert len(await everything(agent)) == size

    monkeypatch.setattr(process, "_DEAD_PIPE_SECONDS", 0.0)
    loop(with_a_keeper('while [ ! -e go ]; do :; done; head -c "$(cat go)" /dev/zero; exit 0', act, tmp_path))


def test_a_number_is_not_signalled_when_its_process_is_gone(
    loop: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may have it then."""
    sent: list[tuple[bool, signal.Signals]] = []

    async def act(agent: AgentProcess) -> None:
        def note(group: int, number: signal.Signals) -> None:
            sent.append((agent.status is None or agent._gone is False, number))

        monkeypatch.setattr(process, "signal_group", note)
        (tmp_path / "go").touch()
        await until(lambda: agent._gone)
        assert not await agent.wait(0)  # the keeper has the pipe
        await agent.end(0)
        assert sent == [(True, signal.SIGKILL)]

    monkeypatch.setattr(process, "_DEAD_PIPE_SECONDS", LONG)
    loop(with_a_keeper("while [ ! -e go ]; do :; done", act, tmp_path))
