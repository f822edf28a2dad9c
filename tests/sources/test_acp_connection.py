"""Connections to agents that say strange things."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop

from cursor_gateway.errors import AgentCrashed, AgentError, AgentMissing, AgentTimedOut
from cursor_gateway.sources.acp.connection import AgentConnection, Session, refusal_of
from cursor_gateway.sources.acp.models import Choice
from cursor_gateway.sources.acp.rpc import LineTransport, RpcError
from cursor_gateway.sources.acp.running import RunningTurn
from cursor_gateway.sources.process import AgentProcess, start_with_stdin
from cursor_gateway.wire.payload import Fields

AGENT = """
import json, sys
script = json.loads(sys.argv[1])
for line in sys.stdin:
    message = json.loads(line)
    print("received", json.dumps(message), file=sys.stderr, flush=True)
    for answer in script.get(message.get("method") or "answer", []):
        if answer == "exit":
            sys.exit(3)
        if answer == "close":
            import os
            os.close(1)
            continue
        if "method" not in answer:
            answer = {**answer, "id": message["id"]}
        print(json.dumps(answer), flush=True)
"""


@asynccontextmanager
async def living(tmp_path: Path, script: dict[str, list[Any]]) -> AsyncIterator[AgentConnection]:
    gone: list[int] = []
    command = [sys.executable, "-ISc", AGENT, json.dumps(script)]
    process, stdin = await start_with_stdin(command, folder=str(tmp_path), environment={}, on_gone=gone.append)
    connection = AgentConnection(process, stdin, 1_000_000, 0.05)
    try:
        yield connection
    finally:
        await connection.end()
        await connection.end()  # as often as anybody likes
    assert gone == [process.pid]
    assert connection.is_gone


class Hearer:
    def __init__(self) -> None:
        self.received: list[object] = []

    def update(self, update: object, session_id: str) -> None:
        self.received.append(update)

    def knows(self, call_id: str) -> bool:
        return call_id == "mine"

    async def permission(self, params: Fields) -> dict[str, Any]:
        raise NotImplementedError

    question = plan = permission

    def extension(self, method: str, params: Fields) -> None:
        self.received.append(method)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ({"result": {"protocolVersion": 2}}, "agent_misconfigured"),
        ({"error": {"code": -32603, "message": "Internal error", "data": {"message": "odd"}}}, "agent_failed"),
        ({"error": {"code": -32000, "message": "Authentication required"}}, "agent_unauthenticated"),
        ("exit", "agent_crashed"),
        ("close", "agent_crashed"),
    ],
)
async def test_an_agent_that_does_not_greet_well_is_refused(tmp_path: Path, answer: Any, code: str) -> None:
    async with living(tmp_path, {"initialize": [answer]}) as connection:
        with pytest.raises(AgentError) as caught:
            await connection.initialize(30)
        assert caught.value.code == code


async def test_what_nobody_hears_is_answered_all_the_same(tmp_path: Path) -> None:
    asks = [
        "session/request_permission",
        "cursor/ask_question",
        "cursor/create_plan",
        "cursor/task",
        "fs/read_text_file",
    ]
    script = {
        "go": [
            {"method": "session/update", "params": {"sessionId": "unknown", "update": {}}},
            *({"method": method, "id": number, "params": None} for number, method in enumerate(asks)),
            {"result": 1},
        ]
    }

    async with living(tmp_path, script) as connection:
        assert await connection.request("go", {}, 30) == 1
        while (result := connection._process.stderr_tail).count("received") < 1 + len(asks):
            await asyncio.sleep(0.001)
        received = [json.loads(line.removeprefix("received ")) for line in result.splitlines()]
        answers = {message["id"]: message for message in received if "method" not in message}
        assert answers[0]["result"] == {"outcome": {"outcome": "cancelled"}}
        assert answers[1]["result"]["outcome"]["outcome"] == "skipped"
        assert answers[2]["result"] == {"outcome": {"outcome": "cancelled"}}
        assert answers[3]["result"] == {}
        assert answers[4]["error"]["code"] == -32601


async def test_a_message_that_cannot_be_handled_is_answered_and_ends_nothing(tmp_path: Path) -> None:
    ask = {"method": "session/request_permission", "id": 7, "params": {"sessionId": "a"}}
    told = {"method": "session/update", "params": {"sessionId": "a", "update": {}}}
    strange = {"error": {"code": "x"}}
    reported: list[str] = []

    class Broken(Hearer):
        def update(self, update: object, session_id: str) -> None:
            raise ValueError("update")

    async with living(tmp_path, {"go": [ask, told, {"result": 1}, {"result": 2}], "odd": [strange]}) as connection:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(str(context["exception"])))
        connection.listen("a", cast(RunningTurn, Broken()))
        assert await connection.request("go", {}, 30) == 1
        while "received" not in (tail := connection._process.stderr_tail) or '"id": 7' not in tail:
            await asyncio.sleep(0.001)
        assert '"code": -32603' in tail
        assert reported == ["", "update"]
        with pytest.raises(RpcError) as caught:
            await connection.request("odd", {}, 30)
        assert caught.value.code == -32603


@pytest.mark.parametrize("strange", [{"error": "words"}, {"error": None}, {}, {"error": {"code": -1}}])
async def test_a_strange_answer_is_an_answer(tmp_path: Path, strange: dict[str, Any]) -> None:
    """Otherwise a prompt would wait for its timeout."""
    async with living(tmp_path, {"odd": [strange]}) as connection:
        with pytest.raises(RpcError) as caught:
            await connection.request("odd", {}, 30)
        assert caught.value.code == -32603


@pytest.mark.parametrize("id", [None, 1.5, "a", 0])
async def test_requests_are_answered_under_their_own_ids(tmp_path: Path, id: object) -> None:
    told = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "Hello"}}
    script = {
        "go": [
            {"method": "session/request_permission", "id": id, "params": {"sessionId": "unknown"}},
            {"method": "session/update", "id": id, "params": {"sessionId": "a", "update": told}},
            {"result": 1},
        ]
    }

    async with living(tmp_path, script) as connection:
        hearer = Hearer()
        connection.listen("a", cast(RunningTurn, hearer))
        assert await connection.request("go", {}, 30) == 1
        assert hearer.received == [told]
        while (tail := connection._process.stderr_tail).count("received") < 3:
            await asyncio.sleep(0.001)
        received = [json.loads(line.removeprefix("received ")) for line in tail.splitlines()][1:]
        assert [(answer["id"], answer["result"]) for answer in received] == [
            (id, {"outcome": {"outcome": "cancelled"}}),
            (id, {}),
        ]


async def test_messages_find_the_session_that_knows_their_call(tmp_path: Path) -> None:
    script = {
        "go": [
            {"method": "cursor/update_todos", "params": {"toolCallId": "mine"}},
            {"method": "cursor/task", "params": {"toolCallId": "unknown"}},
            {"method": "cursor/task", "params": {"toolCallId": "unknown", "sessionId": "b"}},
            {"result": 1},
        ]
    }

    class Other(Hearer):
        def knows(self, call_id: str) -> bool:
            return False

    async with living(tmp_path, script) as connection:
        one, two = Hearer(), Other()
        connection.listen("a", cast(RunningTurn, one))
        connection.listen("b", cast(RunningTurn, two))
        await connection.request("go", {}, 30)
        assert (one.received, two.received) == (["cursor/update_todos"], ["cursor/task"])
        connection.forget(cast(RunningTurn, one))
        await connection.request("go", {}, 30)
        assert two.received == ["cursor/task", "cursor/update_todos", "cursor/task", "cursor/task"]


async def test_an_agent_is_well_as_long_as_it_answers_anything(tmp_path: Path) -> None:
    answers: list[dict[str, Any]] = [{"result": {}}, {"error": {"code": -32601, "message": "no"}}]
    for answer in answers:
        async with living(tmp_path, {"session/list": [answer]}) as connection:
            assert await connection.is_responsive(30)
    async with living(tmp_path, {}) as connection:
        assert not await connection.is_responsive(0.05)
        with pytest.raises(AgentTimedOut, match="did not answer `session/new` within"):
            await connection.request("session/new", {}, 0.05)
    async with living(tmp_path, {"session/list": ["exit"]}) as connection:
        assert not await connection.is_responsive(30)
        connection.notify("session/cancel", {})
        with pytest.raises(AgentCrashed) as caught:
            await connection.request("session/new", {}, 30)
        assert caught.value.details.startswith("exit status 3")


def test_a_refusal_says_what_it_means() -> None:
    services = RpcError(-32603, "Internal error: Failed to initialize session services")
    assert refusal_of(services, has_key=True).code == "agent_unauthenticated"
    assert refusal_of(services, has_key=False).code == "agent_failed"
    assert refusal_of(RpcError(-32000, "x"), has_key=False).code == "agent_unauthenticated"
    assert refusal_of(RpcError(-32603, "[unavailable] x"), has_key=False).code == "agent_unreachable"


async def test_a_program_that_is_none_is_reported(tmp_path: Path) -> None:
    with pytest.raises(AgentMissing, match="cannot be started"):
        await start_with_stdin([str(tmp_path / "no")], folder="/", environment={}, on_gone=lambda pid: None)


def transported(script: str, life: Callable[[AgentProcess, LineTransport], Coroutine[Any, Any, None]]) -> None:
    async def live() -> None:
        process, stdin = await start_with_stdin(
            [sys.executable, "-ISc", script], folder="/", environment={}, on_gone=lambda pid: None
        )
        transport = LineTransport(process, stdin, 1_000_000)
        try:
            async with asyncio.timeout(60):
                await life(process, transport)
        finally:
            transport.close()
            transport.close()  # as often as anybody likes
            await process.end(0.05)

    for run in (asyncio.run, uvloop.run):
        run(live())


def test_what_is_written_to_nobody_is_lost_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    async def life(process: AgentProcess, transport: LineTransport) -> None:
        transport.send({"id": 1, "method": "x" * 1_000_000})  # more than a pipe holds
        assert await transport.receive() == {"id": 1, "result": None}
        await process.wait(60)
        for _ in range(20):
            transport.send({"id": 2, "method": "y"})
            await asyncio.sleep(0)

    transported('import os; os.read(0, 1); print(\'{"id": 1, "result": null}\')', life)
    assert not caplog.records


def test_what_a_pipe_cannot_hold_is_written_when_it_is_read() -> None:
    async def life(process: AgentProcess, transport: LineTransport) -> None:
        sent = [{"id": 1, "method": "x" * 200_000}, {"id": 2, "method": "y"}]
        for message in sent:
            transport.send(message)
        assert [await transport.receive(), await transport.receive()] == sent

    transported("import sys, time; time.sleep(0.01); [print(line, end='', flush=True) for line in sys.stdin]", life)


@pytest.mark.parametrize("is_heard", [True, False])
async def test_a_mode_that_the_agent_changes_by_itself_is_known(tmp_path: Path, *, is_heard: bool) -> None:
    """Also between two turns: the next one sets it again."""

    def changed(session: str, mode: str) -> dict[str, Any]:
        update = {"sessionUpdate": "current_mode_update", "currentModeId": mode}
        return {"method": "session/update", "params": {"sessionId": session, "update": update}}

    async with living(
        tmp_path, {"session/list": [changed("s", "agent"), changed("other", "ask"), {"result": {}}]}
    ) as connection:
        session = connection.sessions["s"] = Session("s", "plan", Choice(), None)
        if is_heard:
            connection.listen("s", cast(RunningTurn, Hearer()))
        await connection.request("session/list", {}, 30)
        assert session.mode == "agent"
