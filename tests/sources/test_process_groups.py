"""Processes by their numbers: when they started, who belongs to their group, how it ends; with and without /proc."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cursor_gateway.sources import process_groups
from cursor_gateway.sources.process_groups import members, signal_group, start_of

NOBODY = 2**22 + 1  # no process has a number as large as this


@pytest.fixture(params=["proc", "ps"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "ps":
        monkeypatch.setattr(process_groups, "_PROC", Path("/nowhere"))
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
            signal_group(process.pid, signal.SIGKILL)


def wait_until_dead(pid: int) -> None:
    """Without reaping it: a zombie is left."""
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def test_a_process_has_one_start_and_it_can_be_a_files_name() -> None:
    result = start_of(os.getpid())
    assert result is not None
    assert result == start_of(os.getpid())
    assert "/" not in result
    assert not set(result) & set(": \n")


def test_the_start_is_read_alike_whatever_language_and_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    result = start_of(os.getpid())
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    time.tzset()
    try:
        assert start_of(os.getpid()) == result
    finally:
        monkeypatch.undo()
        time.tzset()


def test_nobody_and_the_dead_have_none() -> None:
    assert start_of(NOBODY) is None
    with group() as process:
        assert start_of(process.pid) is not None
        process.kill()
        wait_until_dead(process.pid)
        assert start_of(process.pid) is None  # a zombie
        assert members(process.pid) == []
        process.wait()
        assert start_of(process.pid) is None


def test_a_strange_name_confuses_nobody(tmp_path: Path) -> None:
    program = tmp_path / ") Z 1 (x"
    program.symlink_to("/bin/sleep")
    with group(f"exec '{program}' 600") as process:
        while b"Z 1" not in subprocess.run(["ps", "-o", "comm=", "-p", str(process.pid)], capture_output=True).stdout:
            pass
        assert start_of(process.pid) is not None
        assert members(process.pid) == [process.pid]


def test_the_members_of_a_group_are_known_also_without_their_leader() -> None:
    with group("sleep 600 & sleep 600 & kill -9 $$") as process:
        process.wait()
        left = members(process.pid)
        assert len(left) == 2
        assert process.pid not in left
        assert start_of(process.pid) is None
        signal_group(process.pid, signal.SIGKILL)
        while members(process.pid):
            pass
    assert members(NOBODY) == []


def test_a_group_that_is_gone_can_be_signalled() -> None:
    signal_group(NOBODY, signal.SIGKILL)


def test_a_group_of_others_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(group: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "killpg", refuse)
    signal_group(1, signal.SIGKILL)
