"""Sessions that are opened while other messages come, with a gateway that takes its time."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cursor_gateway.acp_server.server import AcpServer, Connected, StdioTransport
from cursor_gateway.acp_server.session_ids import SessionIds
from cursor_gateway.client.asynchronous import AsyncClient
from cursor_gateway.sources.acp.rpc import RpcError
from cursor_gateway.stdio import StdioLines
from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import http_client, unique


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with running_gateway(tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture
def active(gateway: RunningGateway) -> Iterator[tuple[str, str]]:
    """A run of somebody else's, and its conversation."""
    gate = gateway.workspace / unique()
    with http_client(gateway) as http:
        message = {"message": f"standin: wait-for file={gate}"}
        begun = http.post("/v1/chat", json=message, headers={"prefer": "respond-async"}).json()
        yield begun["id"], begun["conversationId"]
        gate.touch()


class Served:
    """A server whose way to the gateway can be closed."""

    def __init__(self, gateway: RunningGateway, ids: Path) -> None:
        self._gateway = gateway
        self.way = asyncio.Event()
        self.way.set()
        nothing, self._keeps_it_open = os.pipe()
        transport = StdioTransport(StdioLines(nothing, os.open(os.devnull, os.O_WRONLY)))
        self.server = AcpServer(
            transport, self._connect, SessionIds(ids), folder="/", default_mode="agent", log=lambda text: None
        )

    @asynccontextmanager
    async def _connect(self, folder: str) -> AsyncIterator[Connected]:
        await self.way.wait()
        async with AsyncClient(self._gateway.url) as client:
            yield client, folder

    async def request(self, method: str, session: str, **params: Any) -> Any:
        cwd = str(self._gateway.workspace)
        return await self.server._requested(method, {"sessionId": session, "cwd": cwd, **params})


@asynccontextmanager
async def serving(gateway: RunningGateway, ids: Path) -> AsyncIterator[Served]:
    served = Served(gateway, ids)
    yield served
    await served.server.close()


async def test_a_session_that_is_being_opened_takes_no_prompt_and_is_not_opened_twice(
    gateway: RunningGateway, active: tuple[str, str], tmp_path: Path
) -> None:
    _, session = active

    async with serving(gateway, tmp_path / "ids") as served:
        served.way.clear()
        opening = asyncio.ensure_future(served.request("session/load", session))
        await asyncio.sleep(0)
        with pytest.raises(RpcError, match="This session is busy"):
            await asyncio.wait_for(served.request("session/load", session), 5)
        prompt = [{"type": "text", "text": "Hello."}]
        with pytest.raises(RpcError, match="still working"):
            await asyncio.wait_for(served.request("session/prompt", session, prompt=prompt), 5)
        served.way.set()
        await opening


async def test_an_open_session_survives_a_load_that_fails(gateway: RunningGateway, tmp_path: Path) -> None:
    async with serving(gateway, tmp_path / "ids") as served:
        created = await served.request("session/new", "")
        session = served.server._sessions[created.session_id]
        session.conversation_id = "conv_0"
        served.server._note(session)
        with pytest.raises(RpcError, match="Unknown session"):
            await served.request("session/load", session.id)
        assert served.server._sessions[session.id] is session


@pytest.mark.parametrize("stop", ["notification", "request", ""])
async def test_a_run_is_no_longer_watched_though_the_gateway_is_not_reached(
    gateway: RunningGateway, active: tuple[str, str], tmp_path: Path, stop: str
) -> None:
    _, session = active

    async with serving(gateway, tmp_path / "ids") as served:
        await served.request("session/resume", session)
        served.way.clear()
        await asyncio.sleep(0)  # the watching begins, and waits for the gateway
        if stop == "notification":
            served.server._notified("session/cancel", {"sessionId": session})
        elif stop:  # with an id, which the protocol does not ask for
            assert await served.server._requested("session/cancel", {"sessionId": session}) == {}
        if stop:
            while served.server._sessions[session].turn is not None:
                await asyncio.sleep(0.01)
