"""No process that an agent started outlives its run, whatever it does to be left behind: with every backend, and
however the run, the agent or the gateway ends."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from cursor_gateway.sources.processes import Table, process_of, snapshot, start_of
from tests.agent.bridge_install import install_bridge
from tests.cli.processes import TIMEOUT
from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import Growing, chat, eventually, growing, http_client, standin

SOURCES = ["cli", "acp", "sdk"]
IN_CGROUPS = "cli in cgroups"  # where there are some; the others are without, as on most machines
linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only the Linux kernel keeps orphans in a tree")


@contextmanager
def gateway_with(source: str, home: Path) -> Iterator[tuple[RunningGateway, httpx2.Client]]:
    settings = {"source": source.split()[0], "sdk_bridge": ",".join(install_bridge(home / "bridge")), "max_agents": "1"}
    settings["agent_cgroups"] = str(source == IN_CGROUPS).lower()
    environment = {"CURSOR_API_KEY": "key"} if source == "sdk" else {}
    with running_gateway(home, settings=settings, environment=environment) as gateway, http_client(gateway) as client:
        yield gateway, client


@pytest.fixture(autouse=True)
def strays() -> Iterator[list[int]]:
    """A red test leaves nothing behind."""
    found: list[int] = []
    yield found
    for pid in found:
        if start_of(pid) is not None:
            os.kill(pid, signal.SIGKILL)


def started(reply: Growing, strays: list[int]) -> list[int]:
    reply.until(b"started.")
    found = re.search(rb"orphans=([\d,]+)", reply.body)
    assert found, reply.body
    pids = [int(pid) for pid in found[1].split(b",")]
    strays += pids
    assert alive(pids) == pids
    return pids


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if start_of(pid) is not None]


def cancel(client: httpx2.Client, reply: Growing) -> None:
    assert client.post(f"/v1/chat/{reply.response.headers['x-chat-id']}/cancel", json={}).status_code == 200


def agent_of(pids: list[int], gateway: RunningGateway) -> int:
    """The agent that started them, or the bridge."""

    def found() -> int:
        table = snapshot()
        agents = {above(table, pid, gateway.process.pid) for pid in pids} - set(pids)
        return agents.pop() if len(agents) == 1 else 0  # more while a shell between them, without a parent, ends

    return eventually(found)


def above(table: Table, pid: int, parent: int) -> int:
    """The child of the parent that it is below."""
    while table[pid].parent != parent:
        pid = table[pid].parent
    return pid


@linux
@pytest.mark.parametrize("source", [*SOURCES, IN_CGROUPS])
def test_cancel_replies_when_all_are_dead(source: str, tmp_path: Path, strays: list[int]) -> None:
    with gateway_with(source, tmp_path) as (_, client), growing(client, "documents", standin("orphans")) as reply:
        pids = started(reply, strays)
        assert len(pids) == 8
        cancel(client, reply)
        assert alive(pids) == []


@linux
@pytest.mark.parametrize("source", [*SOURCES, IN_CGROUPS])
@pytest.mark.quick_cases(1)
def test_nothing_is_left_of_a_run_that_ends_well(source: str, tmp_path: Path, strays: list[int]) -> None:
    with (
        gateway_with(source, tmp_path) as (gateway, client),
        growing(client, "documents", standin("orphans ends=1")) as reply,
    ):
        found = re.search(rb"orphans=([\d,]+)", reply.rest())
        assert found, reply.body
        strays += [int(pid) for pid in found[1].split(b",")]
        eventually(lambda: not alive(strays))
        eventually(lambda: not zombies(gateway.process.pid))


def zombies(parent: int) -> list[str]:
    processes = (process_of(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [str(one) for one in processes if one is not None and one.is_zombie and one.parent == parent]


@linux
@pytest.mark.parametrize("source", [*SOURCES, IN_CGROUPS])
@pytest.mark.quick_cases(1)
def test_nothing_is_left_when_the_agent_is_killed(source: str, tmp_path: Path, strays: list[int]) -> None:
    with gateway_with(source, tmp_path) as (gateway, client), growing(client, "documents", standin("orphans")) as reply:
        pids = started(reply, strays)
        os.kill(agent_of(pids, gateway), signal.SIGKILL)
        assert b"AGENT_CRASHED" in reply.rest()
        eventually(lambda: not alive(pids))


@linux
@pytest.mark.parametrize("source", [*SOURCES, IN_CGROUPS])
@pytest.mark.quick_cases(1)
def test_nothing_is_left_when_the_gateway_is_killed(source: str, tmp_path: Path, strays: list[int]) -> None:
    """Also if no other one is ever started."""
    with gateway_with(source, tmp_path) as (gateway, client):
        with growing(client, "documents", standin("orphans")) as reply:
            pids = started(reply, strays)
            eventually(lambda: noted(gateway, pids))
            kill(gateway)
        eventually(lambda: not alive(pids))


def kill(gateway: RunningGateway) -> None:
    gateway.process.send_signal(signal.SIGKILL)
    gateway.process.wait(TIMEOUT)


def noted(gateway: RunningGateway, pids: list[int]) -> bool:
    """Whether the ledger has the process that cleared its environment and left the agent's tree."""
    entries = (gateway.data / "instances").glob("*/agents/*")
    return not {entry.name.partition("-")[0] for entry in entries}.isdisjoint(map(str, pids))


@linux
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.quick_cases(1)
def test_the_next_gateway_ends_what_its_watchdog_did_not(source: str, tmp_path: Path, strays: list[int]) -> None:
    with gateway_with(source, tmp_path) as (gateway, client):
        with growing(client, "documents", standin("orphans")) as reply:
            pids = started(reply, strays)
            eventually(lambda: noted(gateway, pids))
            (watchdog,) = watchdogs(gateway.process.pid)
            os.kill(watchdog, signal.SIGKILL)
            kill(gateway)
        assert alive(pids) == pids
        with gateway_with(source, tmp_path):
            assert alive(pids) == []


def watchdogs(gateway: int) -> list[int]:
    children = (pid for pid, process in snapshot().items() if process.parent == gateway)
    return [pid for pid in children if b"sources.ledger" in command_line(pid)]


def command_line(pid: int) -> bytes:
    with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


@linux
@pytest.mark.parametrize("source", ["acp", "sdk"])
@pytest.mark.quick_cases(1)
def test_a_run_ends_only_its_own_commands(source: str, tmp_path: Path, strays: list[int]) -> None:
    """Both runs have the same agent."""
    with (
        gateway_with(source, tmp_path) as (_, client),
        growing(client, "documents", standin("orphans bare=0")) as first,
        growing(client, "documents", standin("orphans bare=0")) as second,
    ):
        mine, others = started(first, strays), started(second, strays)
        cancel(client, first)
        assert (alive(mine), alive(others)) == ([], others)
        cancel(client, second)
        assert alive(others) == []


@linux
def test_a_run_without_commands_leaves_the_commands_of_another_alone(tmp_path: Path, strays: list[int]) -> None:
    with gateway_with("cli", tmp_path) as (_, client), growing(client, "documents", standin("orphans")) as reply:
        pids = started(reply, strays)
        chat(client, standin("text"))
        assert alive(pids) == pids
        cancel(client, reply)
        assert alive(pids) == []


def test_a_gateway_that_closes_ends_its_watchdog(tmp_path: Path) -> None:
    with gateway_with("cli", tmp_path) as (gateway, _):
        found = watchdogs(gateway.process.pid)
        assert len(found) == 1
    assert alive(found) == []
