"""Answers that are looked up, cancelled and deleted in their dialect, and paths that need no agent."""

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx2
import pytest

from cursor_gateway.errors import AgentCrashed, AgentOverloaded
from cursor_gateway.wire.sse import SseDecoder
from tests.dialects.looked_up import LOOKED_UP
from tests.dialects.test_third_dialect import HELLO, gateway_of
from tests.runs.scripted import STARTED, Step, Until, say


def answering(folder: Path, script: list[Step]) -> AbstractAsyncContextManager[httpx2.AsyncClient]:
    return gateway_of(folder, [script], dialects=[LOOKED_UP])


async def ask(client: httpx2.AsyncClient, **more: object) -> tuple[httpx2.Response, str]:
    """The reply, and the path of its answer."""
    reply = await client.post("/v1/seen", json={"prompt": "Hi", **more})
    return reply, f"/v1/seen/{reply.headers['x-chat-id'].replace('chat_', 'seen:')}"


async def test_an_answer_is_looked_up_by_its_id(tmp_path: Path) -> None:
    async with answering(tmp_path, HELLO) as client:
        reply, path = await ask(client)
        assert reply.text == "kept Hi: Hello you."
        assert reply.headers["x-turn"] == reply.headers["x-chat-id"]
        again = await client.get(path)
        assert (again.text, again.headers["x-turn"]) == (reply.text, reply.headers["x-turn"])
        assert (await client.get(f"{path}/request", params={"more": "!"})).text == "kept Hi!"
        frames = SseDecoder().push((await client.get(path, params={"stream": ""})).content)
        assert [frame.data for frame in frames] == ['"Hello "', '"you."', "done"]
        assert (await client.head(path, params={"stream": ""})).status_code == 200


async def test_an_answer_in_the_background_is_there_at_once_and_can_be_cancelled(tmp_path: Path) -> None:
    waits = Until(asyncio.Event())

    async with answering(tmp_path, [[STARTED], say("Hello"), waits]) as client:
        reply, path = await ask(client, background=True)
        assert (reply.status_code, reply.text) == (200, "kept Hi: not yet")
        assert (await client.get(path)).text == "kept Hi: not yet"
        cancelled = await client.post(f"{path}/cancel", json={})
        assert (cancelled.status_code, cancelled.text) == (200, "kept Hi: cancelled")


async def test_a_deleted_answer_is_gone(tmp_path: Path) -> None:
    async with answering(tmp_path, HELLO) as client:
        _, path = await ask(client)
        assert (await client.delete(path)).text == f"no {path.rpartition('/')[2]}"
        gone = [
            await client.get(path),
            await client.get(f"{path}/request"),
            await client.delete(path),
            await client.post(f"{path}/cancel", json={}),
        ]
        assert [reply.status_code for reply in gone] == [404] * 4
        assert all(reply.text.startswith("not_found: ") for reply in gone)  # as the dialect encodes errors


async def test_a_run_of_another_dialect_is_not_looked_up(tmp_path: Path) -> None:
    async with answering(tmp_path, HELLO) as client:
        reply = await client.post("/v1/chat", json={"message": "Hi"})
        assert (await client.get(f"/v1/seen/{reply.json()['id']}")).status_code == 404


async def test_an_unknown_answer_cannot_be_continued(tmp_path: Path) -> None:
    async with answering(tmp_path, HELLO) as client:
        first, _ = await ask(client)
        second, _ = await ask(client, follows=first.headers["x-chat-id"].replace("chat_", "seen:"))
        assert second.headers["x-conversation-id"] == first.headers["x-conversation-id"]
        refused = await client.post("/v1/seen", json={"prompt": "Hi", "follows": "seen:none"})
        assert (refused.status_code, refused.text.partition(":")[0]) == (400, "previous_response_not_found")


@pytest.mark.parametrize(("headers", "status"), [({}, 429), ({"x-streams": "1"}, 200)])
async def test_an_early_failure_is_a_status_or_a_stream(tmp_path: Path, headers: dict[str, str], status: int) -> None:
    async with answering(tmp_path, [AgentOverloaded("Full.")]) as client:
        reply = await client.post("/v1/seen", json={"prompt": "Hi", "stream": True}, headers=headers)
        assert reply.status_code == status
        assert "agent_overloaded" in reply.text
        assert reply.headers["x-turn"].startswith("chat_")


async def test_a_run_that_failed_is_an_error_at_first_and_an_answer_when_it_is_looked_up(tmp_path: Path) -> None:
    async with answering(tmp_path, [[STARTED], say("Hello"), AgentCrashed("It crashed.")]) as client:
        reply, path = await ask(client)
        assert (reply.status_code, reply.text) == (502, "agent_crashed: It crashed.")
        again = await client.get(path)
        assert (again.status_code, again.text) == (200, "kept Hi: agent_crashed")


async def test_a_path_can_be_answered_without_an_agent(tmp_path: Path) -> None:
    async with answering(tmp_path, []) as client:
        assert (await client.post("/v1/seen/size", json={})).json() == {"bytes": 2}
        refused = await client.get("/v1/seen")
        assert (refused.status_code, refused.text) == (400, "invalid_request: There is no body.")


async def test_every_reply_names_its_request_as_both_vendors_do(tmp_path: Path) -> None:
    async with answering(tmp_path, []) as client:
        reply = await client.post("/v1/seen/size", json={})
        assert reply.headers["request-id"] == reply.headers["x-request-id"]
