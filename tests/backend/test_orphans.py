"""Commands that Cursor's own runtime really starts do not outlive their run, whatever they do to be left behind."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx2
import pytest

from cursor_gateway.sources.processes import start_of
from tests.agent.troubles import ORPHANS
from tests.backend.conftest import client_of, program, runtime_gateway
from tests.backend.server import Backend
from tests.gateways import RunningGateway
from tests.server.conftest import eventually, growing
from tests.server.test_orphans import agent_of, alive, cancel, kill, linux, noted

COUNT = 8


def command(folder: Path) -> str:
    """It starts the processes, each of which writes its pid."""
    folder.mkdir(exist_ok=True)
    (folder / "orphans.sh").write_text(ORPHANS)
    return program({"native": "shell", "args": {"command": f"BARE=1 sh -c '. {folder}/orphans.sh' {folder}/pids"}})


def pids_in(folder: Path) -> list[int]:
    """As soon as all have written theirs."""
    file = folder / "pids"
    found = eventually(lambda: file.exists() and len(pids := file.read_text().split()) == COUNT and pids)
    assert isinstance(found, list)
    return [int(pid) for pid in found]


@contextmanager
def with_orphans(home: Path, backend: Backend) -> Iterator[tuple[RunningGateway, httpx2.Client, list[int]]]:
    """A run whose command has started them."""
    pids: list[int] = []
    try:
        with (
            runtime_gateway(home, backend) as gateway,
            client_of(gateway) as client,
            growing(client, "documents", command(home / "work")) as reply,
        ):
            pids = pids_in(home / "work")
            assert alive(pids) == pids
            yield gateway, client, pids
            reply.response.close()
    finally:
        for pid in alive(pids):
            os.kill(pid, signal.SIGKILL)


@linux
def test_cancel_replies_when_all_are_dead(tmp_path: Path, shared_backend: Backend) -> None:
    with (
        runtime_gateway(tmp_path, shared_backend) as gateway,
        client_of(gateway) as client,
        growing(client, "documents", command(tmp_path / "work")) as reply,
    ):
        pids = pids_in(tmp_path / "work")
        cancel(client, reply)
        assert alive(pids) == []


@linux
@pytest.mark.parametrize("killed", ["bridge", "gateway"])
@pytest.mark.quick_cases(1)
def test_nothing_is_left_when_one_is_killed(tmp_path: Path, shared_backend: Backend, killed: str) -> None:
    with with_orphans(tmp_path, shared_backend) as (gateway, _, pids):
        if killed == "gateway":
            eventually(lambda: noted(gateway, pids))
            kill(gateway)
        else:
            os.kill(agent_of(pids, gateway), signal.SIGKILL)
        eventually(lambda: not alive(pids))


def pid_in(file: Path) -> int:
    return int(file.read_text() or 0) if file.exists() else 0


@linux
def test_a_run_ends_only_its_own_commands(tmp_path: Path, shared_backend: Backend) -> None:
    """Two runs share a bridge: ending one does not end the commands of the other."""
    script = "echo $$ >{0}/one; trap '' TERM; setsid sh -c 'echo $$ >{0}/two; exec sleep 600' & sleep 600"
    folders = [tmp_path / "a", tmp_path / "b"]

    def pids(folder: Path) -> list[int]:
        return [eventually(partial(pid_in, folder / name)) for name in ("one", "two")]

    for folder in folders:
        folder.mkdir()
    steps = [program({"native": "shell", "args": {"command": script.format(folder)}}) for folder in folders]
    with (
        runtime_gateway(tmp_path, shared_backend) as gateway,
        client_of(gateway) as client,
        growing(client, "documents", steps[0]) as first,
        growing(client, "documents", steps[1]) as second,
    ):
        mine, others = map(pids, folders)
        cancel(client, first)
        assert (alive(mine), alive(others)) == ([], others)
        cancel(client, second)
        assert alive(others) == []


@linux
def test_a_server_that_was_started_in_the_background_ends_with_its_run(
    client: httpx2.Client, gateway: RunningGateway
) -> None:
    file = gateway.workspace / "server.pid"
    server = f"nohup setsid sh -c 'echo $$ >{file}; exec sleep 600' >/dev/null 2>&1"
    script = f"{server} & while ! test -s {file}; do sleep 0.01; done"
    steps = program({"native": "shell", "args": {"command": script}}, {"say": "It runs."})
    with growing(client, "documents", steps) as reply:
        assert b"It runs." in reply.rest()
    eventually(lambda: start_of(int(file.read_text())) is None)
