"""Two runners on one host: one dies or freezes, and the other continues its conversation, alone in the folder."""

import asyncio
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from nemesis.cluster import ONE, Cluster, Hosts, Options, cluster
from nemesis.history import Agent
from nemesis.witness import agents, is_alive
from tools.cluster.member import Member


def _prompt(*steps: dict[str, object]) -> str:
    return f"standin: program\n---\n{json.dumps(steps)}\n--- end"


async def _asked(client: httpx2.AsyncClient, body: dict[str, Any]) -> dict[str, Any]:
    """Until it is accepted."""
    while True:
        headers = {"Prefer": "respond-async"}
        reply = await client.post("/v1/chat", json={"workspace": f"{ONE}/work", **body}, headers=headers)
        if reply.status_code == 202:
            found: dict[str, Any] = reply.json()
            return found
        assert reply.status_code in (409, 429, 502, 503), reply.text
        await asyncio.sleep(0.1)


async def _until(is_true: Callable[[], bool]) -> None:
    while not is_true():
        await asyncio.sleep(0.02)


def _runner_of(running: Cluster, agent: Agent) -> Member:
    parent = int(Path(f"/proc/{agent.pid}/stat").read_text().rpartition(")")[2].split()[1])
    return next(member for member in running.members.values() if member.pid == parent)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("hosts", ["one", "one, with one data directory"])
async def test_its_silent_agent_has_ended_before_the_next_one_starts(
    tmp_path: Path, hosts: Hosts, number: signal.Signals
) -> None:
    async with (
        cluster(tmp_path, Options(hosts=hosts)) as running,
        httpx2.AsyncClient(base_url=running.address) as client,
    ):
        (running.folder_of(ONE) / "work").mkdir()
        silent = await _asked(client, {"message": _prompt({"say": "one"}, {"pause_ms": 600_000})})
        await _until(lambda: len(agents(running.witness)) == 1)
        (first,) = agents(running.witness)
        runner = _runner_of(running, first)
        if number == signal.SIGKILL:
            runner.kill()
        else:
            runner.signal(number)
        body = {"message": _prompt({"say": "two"}), "conversationId": silent["conversationId"]}
        await _asked(client, body)
        await _until(lambda: len(agents(running.witness)) == 2)
        second = agents(running.witness)[1]
        assert second.folder == first.folder
        assert second.alone
        assert not is_alive(first.pid, running.witness)
        runner.signal(signal.SIGCONT)
