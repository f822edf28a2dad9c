"""The stand-in of the SDK's bridge, driven by the SDK's own client, attached and launched."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from cursor_sdk import (
    AgentNotFoundError,
    AgentOptions,
    AsyncAgent,
    AsyncClient,
    AsyncRun,
    AuthenticationError,
    BadRequestError,
    ConfigurationError,
    CustomTool,
    LocalAgentOptions,
    NetworkError,
    SendOptions,
)

from cursor_gateway.sources.sdk.bridge import ready_in, take_token
from tests.agent.bridge_install import install_bridge
from tests.agent.install import ROOT

KEY = "key"


@asynccontextmanager
async def attached(home: Path, **knobs: object) -> AsyncIterator[AsyncClient]:
    process = subprocess.Popen(
        install_bridge(home / "bridge", **knobs),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={"HOME": str(home), "TMPDIR": str(home), "PATH": os.environ["PATH"]},
        start_new_session=True,
    )
    assert process.stderr is not None
    try:
        ready = ready_in(process.stderr.readline().decode())
        assert ready is not None
        async with (
            httpx.AsyncClient(trust_env=False) as http,
            AsyncClient(
                base_url=ready.url,
                auth_token=take_token(ready),
                http_client=http,
                unary_timeout=20,
                allow_api_key_env_fallback=True,
            ) as client,
        ):
            yield client
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stderr.close()


async def new_agent(client: AsyncClient, home: Path, **local: Any) -> AsyncAgent:
    options = AgentOptions(model="auto", api_key=KEY, local=LocalAgentOptions(cwd=str(home), **local))
    return await client.create_agent(options)


def with_deltas() -> SendOptions:
    return SendOptions(on_delta=lambda _: None)


async def test_a_run_is_reported_twice_over(tmp_path: Path) -> None:
    async with attached(tmp_path) as client:
        assert await client.ping() == "pong"
        assert (await client.get_version())["protocolVersion"] == "1"
        assert (await client.me(api_key=KEY)).api_key_name == "standin"
        assert (await client.list_models(api_key=KEY))[0].id == "auto"
        assert await client.list_repositories(api_key=KEY) == []
        agent = await new_agent(client, tmp_path)
        assert (await client.get_agent(agent.agent_id, cwd=tmp_path)).agent_id == agent.agent_id
        assert [info.agent_id for info in (await client.list_agents()).items] == [agent.agent_id]
        run = await agent.send("standin: thinking", with_deltas())
        events = [event async for event in run.events()]
        deltas = [event.interaction_update.type for event in events if event.interaction_update is not None]  # type: ignore[union-attr]
        assert {"text-delta", "thinking-delta", "thinking-completed", "turn-ended"} <= {*deltas}
        messages = [getattr(event.sdk_message, "type", "") for event in events if event.sdk_message is not None]
        assert messages[0] == "status"
        assert messages[-2:] == ["usage", "status"]
        assert {*messages} == {"status", "thinking", "assistant", "usage"}
        assert [event.kind for event in events[-2:]] == ["result", "done"]
        assert [event.offset for event in events] == [str(number) for number in range(len(events))]
        assert run.usage is not None
        assert run.usage.cache_read_tokens > run.usage.input_tokens > 0
        assert (await client.get_run(run.id)).status == "finished"
        assert (await client.wait_live_run(run.id)).result == "I have thought once. I have thought twice."
        observed = [event async for event in run.observe()]
        assert not any(event.interaction_update for event in observed)
        assert [event.kind async for event in run.observe(after_offset=str(len(observed) - 2))] == ["done"]
        await agent.close()


async def test_without_being_asked_for_there_are_no_deltas(tmp_path: Path) -> None:
    async with attached(tmp_path) as client:
        run = await (await new_agent(client, tmp_path)).send("standin: text")
        assert not [event async for event in run.events() if event.kind == "interaction_update"]
        assert (await run.text()).startswith("The quick brown fox")


async def test_silence_is_kept_alive_and_a_run_outlives_its_reader(tmp_path: Path) -> None:
    async with attached(tmp_path, keep_alive_seconds=0.02) as client:
        agent = await new_agent(client, tmp_path)
        run = await agent.send("standin: hang-mid")
        async for event in run.events():
            if event.kind == "unknown" and run.id:  # on a busy machine, silence comes before the first event
                break
        assert (await client.list_runs(agent.agent_id)).items[0].status == "running"
        await client.cancel_run(run.id)
        assert (await client.wait_live_run(run.id)).status == "cancelled"
        with pytest.raises(Exception, match="has ended"):
            await client.cancel_run(run.id)


async def test_errors_have_the_classes_that_the_real_bridges_have(tmp_path: Path) -> None:
    async with attached(tmp_path) as client:
        with pytest.raises(AgentNotFoundError) as missing:
            await client.resume_agent("00000000-0000-4000-8000-000000000000", AgentOptions(model="auto", api_key=KEY))
        assert (missing.value.status, missing.value.code) == (404, "not_found")
        with pytest.raises(BadRequestError):
            await client.cancel_run("run-x")
        with pytest.raises(AuthenticationError) as refused:
            await client.list_models(api_key="bad-key")
        assert refused.value.proto_error_code == "SDK_ERROR_CODE_UNAUTHORIZED"
        with pytest.raises(ConfigurationError):
            await client.create_agent(AgentOptions(model="none", api_key=KEY))
        with pytest.raises(BadRequestError):
            await client.create_agent(AgentOptions(model="auto", api_key=KEY, tools=["teleport"]))
        agent = await new_agent(client, tmp_path)
        with pytest.raises(Exception, match="has no capacity") as in_stream:
            await agent.send('standin: sdk-error early=1 error="unavailable UPSTREAM_ERROR 3s it has no capacity"')
        assert getattr(in_stream.value, "status", None) == 200
        assert getattr(in_stream.value, "retry_after", None) == "3s"
        with pytest.raises(NetworkError):
            await drained(await agent.send("standin: killed"))
        with pytest.raises(NetworkError):
            await client.ping()


async def drained(run: AsyncRun) -> None:
    async for _ in run.events():
        pass


async def test_a_stranger_is_not_answered(tmp_path: Path) -> None:
    async with attached(tmp_path, token="another") as client:
        with pytest.raises(AuthenticationError) as refused:
            await client.ping()
        assert (refused.value.status, refused.value.proto_error_code) == (401, None)


PROGRAM = 'standin: program\n---\n[{"call": "add", "args": {"a": 1, "b": 2}}, {"call": "gone"}]'


async def test_it_is_launched_by_the_sdk_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    async def add(arguments: Any, _: Any) -> Any:
        return {"content": [{"type": "text", "text": str(arguments["a"] + arguments["b"])}]}

    command = [sys.executable, "-m", "tests.agent.bridge"]
    async with await AsyncClient.launch_bridge(command, timeout=20) as client:
        agent = await new_agent(client, tmp_path, custom_tools={"add": CustomTool(add, "Adds.")})
        run = await agent.send(PROGRAM, with_deltas())
        await drained(run)
        assert run.result == "no tool goneResults: 3, no tool gone"
