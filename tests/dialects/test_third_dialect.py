"""A third dialect, added to a gateway from outside: neither the server nor the runs know of it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from cursor_gateway.cli.assembly.serving import dialects_of
from cursor_gateway.dialects.base import Dialect
from cursor_gateway.errors import AgentOverloaded
from cursor_gateway.fair_places import Shares
from cursor_gateway.runs.admission import Runs
from cursor_gateway.runs.conversations import Conversations
from cursor_gateway.runs.run_service import Defaults
from cursor_gateway.runs.service import LocalRunService
from cursor_gateway.runs.starter import RunParts
from cursor_gateway.server.app import build_app
from cursor_gateway.server.metrics import Metrics
from cursor_gateway.settings import Settings
from cursor_gateway.sources.router import routed
from cursor_gateway.store.sqlite.store import SqliteStore
from cursor_gateway.workspace.roots import Workspaces
from tests.dialects import plain
from tests.dialects.plain import PLAIN
from tests.runs.scripted import ENDLESS, FINISHED, STARTED, ScriptedSource, Step, say

HELLO: list[Step] = [[STARTED], say("Hello ", "you."), [FINISHED]]
FAILS: list[Step] = [AgentOverloaded("Full.")]


@asynccontextmanager
async def gateway_of(
    folder: Path, scripts: list[list[Step]], dialects: Sequence[Dialect] = (PLAIN,), **changed: object
) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the whole application over scripts and a real store, without a socket."""
    source, store = ScriptedSource(*scripts), SqliteStore(folder)
    runs, workspaces = Runs(source, ENDLESS, Shares(max_runs=1)), Workspaces(folder, [])
    conversations = Conversations(store, folder / "conversations", latest=runs.latest)
    settings = Settings(**changed)  # type: ignore[arg-type] # each of its right type
    defaults = Defaults(model="auto", model_aliases=settings.model_aliases)
    parts = RunParts(routed(source), runs, store, conversations, workspaces, defaults, "here", lambda: 0)
    service = LocalRunService(parts)
    app = build_app(service, settings, Metrics(), [*dialects_of(settings), *dialects])
    try:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1") as client:
            yield client
    finally:
        await service.close(0)
        await store.close()


def test_it_is_short() -> None:
    assert len(Path(plain.__file__).read_text(encoding="utf-8").splitlines()) < 100


async def test_the_whole_answer_is_plain_text(tmp_path: Path) -> None:
    async with gateway_of(tmp_path, [HELLO]) as client:
        reply = await client.post("/v1/plain", json={"prompt": "Say hello."})
        assert (reply.status_code, reply.text) == (200, "Hello you.")
        assert reply.headers["content-type"].startswith("text/plain")
        assert reply.headers["x-chat-id"].startswith("chat_")


@pytest.mark.parametrize("stream", [True, False])
async def test_a_run_that_fails_has_the_dialects_error(tmp_path: Path, stream: bool) -> None:
    async with gateway_of(tmp_path, [FAILS]) as client:
        reply = await client.post("/v1/plain", json={"prompt": "Say hello.", "stream": stream})
        assert (reply.status_code, reply.text) == (429, "agent_overloaded: Full.")
        assert reply.headers["content-type"].startswith("text/plain")


async def test_a_conversation_goes_on_after_an_answer_of_any_dialect(tmp_path: Path) -> None:
    async with gateway_of(tmp_path, [HELLO, HELLO, HELLO]) as client:
        first = await client.post("/v1/plain", json={"prompt": "Say hello."})
        answer = first.headers["x-chat-id"].replace("chat_", "plain:")
        second = await client.post("/v1/plain", json={"prompt": "Again.", "follows": answer})
        assert second.headers["x-conversation-id"] == first.headers["x-conversation-id"]
        later = await client.post("/v1/chat", json={"message": "Again.", "conversationId": second.headers["x-chat-id"]})
        assert later.json()["conversationId"] == first.headers["x-conversation-id"]


async def test_an_unknown_dialect_is_refused_with_the_names_of_all(tmp_path: Path) -> None:
    async with gateway_of(tmp_path, [HELLO]) as client:
        first = await client.post("/v1/plain", json={"prompt": "Say hello."})
        reply = await client.get(f"/v1/chat/{first.headers['x-chat-id']}/events?dialect=morse")
        expected = "`dialect` must be documents, ndjson, openai, responses, messages, ai-sdk, ag-ui, plain or html."
        assert reply.json()["error"]["message"] == expected
