"""One run, read by a client through a balancer, while its front is killed ten times and its runner is cut off once."""

import asyncio
import json
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import pytest

from nemesis.cluster import Cluster, Options, cluster
from nemesis.history import History, Shown
from nemesis.laws import text_of, violations
from nemesis.observer import Observer
from nemesis.reader import SILENT_SECONDS, read
from nemesis.witness import agents
from tools.cluster.balancer import Address, Balancer

_T = TypeVar("_T")

_KILLS = 10
_CUT_AT, _CUT_SECONDS = 5, 2.0
_STEP_SECONDS = 60.0  # from one word to the next, on a busy machine
_TOOL = {"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {}}}


def _prompt() -> str:
    """It waits for its caller after each word: the test decides how far it is."""
    steps: list[dict[str, object]] = []
    for number in range(_KILLS):
        steps += [{"say": f"word {number} "}, {"call": "look", "args": {}}, {"say": f"${number + 1} "}]
    return f"question-1 standin: program\n---\n{json.dumps(steps)}\n--- end"


async def _post(client: httpx2.AsyncClient, path: str, body: Mapping[str, object], key: str) -> dict[str, Any]:
    """Until it is accepted."""
    while True:
        try:
            headers = {"Idempotency-Key": key, "Prefer": "respond-async"}
            reply = await client.post(path, json=body, headers=headers, timeout=30)
        except (httpx2.TransportError, OSError):
            pass
        else:
            if reply.status_code in (200, 202):
                found: dict[str, Any] = reply.json()
                return found
            assert reply.status_code >= 500, reply.text
        await asyncio.sleep(0.1)


async def _soon(what: Coroutine[Any, Any, _T], reading: "asyncio.Task[str | None]") -> _T:
    """Fails at once when the reader has stopped, and after a while in any case."""
    doing = asyncio.ensure_future(what)
    try:
        await asyncio.wait((doing, reading), timeout=_STEP_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return await doing
        if reading.done():
            pytest.fail(f"the client stopped reading: {reading.result() or 'the run has ended'}")
        pytest.fail(f"it took more than {_STEP_SECONDS} s")
    finally:
        doing.cancel()


async def _longer(served: Sequence[Address], length: int) -> None:
    while len(served) <= length:
        await asyncio.sleep(0.02)


async def _interrupted(running: Cluster, client: httpx2.AsyncClient) -> tuple[str, list[Shown]]:
    shown: list[Shown] = []
    waiting: asyncio.Queue[str] = asyncio.Queue()
    served: list[Address] = []  # the fronts of the reader, which has a balancer of its own
    balancer = Balancer(running.balancer.fronts, served.append)
    volume = running.volumes[0]
    (running.folder_of(volume) / "work").mkdir()
    body: dict[str, object] = {"message": _prompt(), "tools": [_TOOL], "workspace": f"{volume}/work"}
    run: str = (await _post(client, "/v1/chat", body, "start"))["id"]

    def see(number: int, data: bytes) -> None:
        shown.append(Shown("reader", run, number, data))
        if data.startswith(b"done "):
            for call in json.loads(data[5:])["metadata"].get("waitingFor", ()):
                waiting.put_nowait(call["toolCallId"])

    host, port = await balancer.start()
    async with _client(f"http://{host}:{port}") as reader:
        reading = asyncio.create_task(read(reader, run, see, lambda: float("inf")))
        try:
            for number in range(_KILLS):
                call = await _soon(waiting.get(), reading)
                await asyncio.gather(*(member.ready() for member in running.members.values()))
                front = next(member for member in running.members.values() if member.address == served[-1])
                seen = len(served)
                front.kill()
                if number == _CUT_AT:
                    running.links["runner-1"].cut()
                    asyncio.get_running_loop().call_later(_CUT_SECONDS, running.links["runner-1"].mend)
                await _soon(_longer(served, seen), reading)  # until the client has come to the other front
                front.start()  # and is ready before the next is killed
                result = {"toolResults": [{"toolCallId": call, "content": f"result {number}"}]}
                async with asyncio.timeout(_STEP_SECONDS):
                    await _post(client, f"/v1/chat/{run}/answer", result, f"result {number}")
            await asyncio.wait((reading,), timeout=_STEP_SECONDS)
            assert reading.done(), f"the last event that the client has is {shown[-1]}"
            assert reading.result() is None
        finally:
            reading.cancel()
            await asyncio.wait((reading,))
            await balancer.close()
    return run, shown


def _client(address: str) -> httpx2.AsyncClient:
    limits = httpx2.Limits(max_keepalive_connections=0)  # each request goes to the next front
    return httpx2.AsyncClient(base_url=address, limits=limits, timeout=httpx2.Timeout(30, read=SILENT_SECONDS))


@pytest.mark.slow  # tests/cluster has each of these interruptions alone
async def test_a_client_has_every_byte_once_and_the_agent_ran_once(tmp_path: Path) -> None:
    options = Options(settings={"lease_seconds": "20", "beat_seconds": "0.5"})
    async with cluster(tmp_path, options) as running:
        async with _client(running.address) as client:
            run, shown = await _interrupted(running, client)
        (stored,) = await Observer(lambda: running.url).runs()
        assert sum(len(member.ended) for member in running.members.values()) == _KILLS
    assert (stored.id, stored.state, stored.epoch) == (run, "completed", 1)
    stored_ones = [(event.number, event.data) for event in stored.events if event.data]
    assert [(one.number, one.data) for one in shown] == stored_ones
    assert text_of(stored) == "".join(f"word {number} result {number} " for number in range(_KILLS))
    (agent,) = agents(running.witness)
    assert agent.question == "question-1"
    history = History(
        asked=(run,), readers=(("reader", run),), finished=(("reader", run),), shown=tuple(shown), runs=(stored,)
    )
    assert violations(history) == []
