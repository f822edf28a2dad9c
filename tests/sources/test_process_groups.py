"""Processes by their numbers: when they started, who belongs to their group, how it ends; with and without /proc."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cursor_gateway.sources import processes

NOBODY = 2**22 + 1  # no process has a number as large as this


@pytest.fixture(params=["proc", "ps"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "ps":
        monkeypatch.setattr(processes, "_PROC", Path("/nowhere"))
    elif not Path("/proc/self/stat").exists():
        pytest.skip("there is no /proc here")
    return str(request.param)


@contextmanager
def group(script: str = "exec sleep 600") -> Iterator["subprocess.Popen[bytes]"]:
    """A group of its own that has said `ready`."""
    command = ["/bin/sh", "-c", f"echo ready; {script}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield process
        finally:
            processes.signal_group(process.pid, signal.SIGKILL)


def wait_until_dead(pid: int) -> None:
    """Without reaping it: a zombie is left."""
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def test_a_process_has_one_start_and_it_can_be_a_files_name() -> None:
    result = processes.start_of(os.getpid())
    assert result is not None
    assert result == processes.start_of(os.getpid())
    assert "/" not in result
    assert not set(result) & set(": \n")


def test_the_start_is_read_alike_whatever_language_and_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    result = processes.start_of(os.getpid())
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    time.tzset()
    try:
        assert processes.start_of(os.getpid()) == result
    finally:
        monkeypatch.undo()
        time.tzset()


def test_nobody_and_the_dead_have_none() -> None:
    assert processes.start_of(NOBODY) is None
    with group() as process:
        assert processes.start_of(process.pid) is not None
        process.kill()
        wait_until_dead(process.pid)
        assert processes.start_of(process.pid) is None  # a zombie
        assert processes.members(process.pid) == []
        process.wait()
        assert processes.start_of(process.pid) is None


def test_a_strange_name_confuses_nobody(tmp_path: Path) -> None:
    program = tmp_path / ") Z 1 (x"
    program.symlink_to("/bin/sleep")
    with group(f"exec '{program}' 600") as process:
        while b"Z 1" not in subprocess.run(["ps", "-o", "comm=", "-p", str(process.pid)], capture_output=True).stdout:
            pass
        assert processes.start_of(process.pid) is not None
        assert processes.members(process.pid) == [process.pid]


def test_the_members_of_a_group_are_known_also_without_their_leader() -> None:
    with group("sleep 600 & sleep 600 & kill -9 $$") as process:
        process.wait()
        left = processes.members(process.pid)
        assert len(left) == 2
        assert process.pid not in left
        assert processes.start_of(process.pid) is None
        processes.signal_group(process.pid, signal.SIGKILL)
        while processes.members(process.pid):
            pass
    assert processes.members(NOBODY) == []


def test_a_group_that_is_gone_can_be_signalled() -> None:
    processes.signal_group(NOBODY, signal.SIGKILL)


def test_a_group_of_others_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(group: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "killpg", refuse)
    processes.signal_group(1, signal.SIGKILL)


def test_all_processes_are_known_with_their_parents() -> None:
    with group("sleep 600 & exec sleep 600") as process:
        while len(processes.members(process.pid)) < 2:  # the shell may not have started the other one yet
            time.sleep(0.005)
        table = processes.snapshot()
        found = table[process.pid]
        assert (found.pid, found.parent, found.group) == (process.pid, os.getpid(), process.pid)
        assert found.start == processes.start_of(process.pid)
        (child,) = [one for one in table.values() if one.parent == process.pid]
        assert child.group == process.pid
        process.kill()
        wait_until_dead(process.pid)
        assert process.pid not in processes.snapshot()  # a zombie


def test_a_variable_is_read_from_the_environment_of_those_that_have_it(way: str) -> None:
    command = ["/bin/sh", "-c", "exec sleep 600"]
    environments = [{"SOME": "one"}, {"SOME": ""}, {"SOMETHING": "x", "AWE": "SOME=no"}]
    started = [subprocess.Popen(command, env={"PATH": "/usr/bin:/bin", **some}) for some in environments]
    try:
        pids = [process.pid for process in started]
        while set(processes.values_of("SOME", pids)) != {*pids[:2]}:  # between fork and exec it has ours
            time.sleep(0.005)
        assert processes.values_of("SOME", [*pids, NOBODY]) == {pids[0]: "one", pids[1]: ""}
        assert processes.values_of("SOME", []) == {}
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_a_signal_reaches_the_process_that_is_meant_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    with group() as process:
        found = processes.snapshot()[process.pid]
        processes.signal_process(found._replace(start="another"), signal.SIGKILL)
        assert processes.start_of(process.pid) is not None
        processes.signal_process(found._replace(pid=NOBODY), signal.SIGKILL)
        processes.signal_process(found, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    with group() as process:
        found = processes.snapshot()[process.pid]
        processes.signal_process(found._replace(start="another"), signal.SIGKILL)
        assert processes.start_of(process.pid) is not None
        processes.signal_process(found, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL


def test_whether_a_process_has_children(way: str) -> None:
    with group("exec sleep 600") as alone, group("sleep 600 & exec sleep 600") as parent:
        while len(processes.members(parent.pid)) < 2:
            time.sleep(0.005)
        assert processes.may_have_children(alone.pid) == (way == "ps")  # it cannot know
        assert processes.may_have_children(parent.pid)
        assert processes.may_have_children(NOBODY) == (way == "ps")
        assert (processes.children_of(parent.pid, parent.pid) is None) == (way == "ps")
