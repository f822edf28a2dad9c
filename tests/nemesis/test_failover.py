"""A synchronous standby takes over while a run is written, and has all of it."""

import asyncio
import json
from pathlib import Path

import httpx2
import pytest

from nemesis.cluster import cluster
from nemesis.observer import Observer

_SECONDS = 120
_WORDS = 60

pytestmark = pytest.mark.slow  # tests/cluster/test_failover.py has the same without links, and with a standby that lags


def test_a_run_outlives_two_servers(tmp_path: Path) -> None:
    async def test() -> None:
        words = [f"{number} " for number in range(_WORDS)]
        steps = [step for word in words for step in ({"say": word}, {"pause_ms": 50})]
        message = f"standin: program\n---\n{json.dumps(steps)}\n--- end"
        async with (
            cluster(tmp_path) as running,
            httpx2.AsyncClient(base_url=running.address, timeout=_SECONDS) as client,
        ):
            asked = asyncio.create_task(client.post("/v1/chat", json={"message": message}))
            observer = Observer(lambda: running.url)
            while not await observer.open():
                await asyncio.sleep(0.02)
            for _ in range(2):
                await asyncio.to_thread(running.follow)
                await asyncio.to_thread(running.server.kill)
                await asyncio.to_thread(running.fail_over)
            reply = (await asked).json()
            (stored,) = await observer.runs()
        said = "".join(words)
        assert (reply["status"], reply["documents"][-1]["content"]) == ("completed", said)
        assert stored.row is not None
        assert (stored.id, stored.state, stored.row.text) == (reply["id"], "completed", said)

    asyncio.run(asyncio.wait_for(test(), _SECONDS))
