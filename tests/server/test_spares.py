"""A gateway with its default settings starts agents in advance: who gets one, and that none is left."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cursor_gateway.sources.processes import members
from tests.agent.bridge_install import install_bridge
from tests.agent.records import records
from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import Json, chat, eventually, http_client, invocations, unique
from tests.server.test_leaks import ended_agents


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    with ended_agents(tmp_path) as home:
        yield home


def agents(gateway: RunningGateway) -> list[int]:
    """The process groups of those that have no prompt."""
    groups = [int(entry.name.partition("-")[0]) for entry in gateway.data.glob("instances/*/agents/*")]
    asked = {record["pid"] for record in records(gateway.agent_log) if record["prompt"]}
    return [group for group in groups if group not in asked]


def ask(client: httpx2.Client, mark: str, **fields: Any) -> Json:
    return chat(client, f"{mark} standin: text", **fields)


def waiting(gateway: RunningGateway, count: int = 1) -> list[int]:
    eventually(lambda: len(agents(gateway)) == count)
    return agents(gateway)


def test_the_next_turn_is_answered_by_an_agent_that_waited(home: Path) -> None:
    mark = unique()
    with (
        running_gateway(home, settings={"max_runs": "1", "log_format": "json"}) as gateway,
        http_client(gateway) as client,
    ):
        first = ask(client, mark)
        (spare,) = waiting(gateway)
        second = ask(client, mark, conversationId=first["conversationId"])  # it has no place of `max_runs`
        assert ["warm" in answer["metadata"] for answer in (first, second)] == [False, True]
        assert second["metadata"]["warm"] is True
        log = invocations(gateway, mark)
        assert (log[1]["pid"], log[1]["session"]) == (spare, log[0]["session"])
        assert len(log[1]["history"]) == 1
        metrics = client.get("/metrics").text
        for start in ("warm", "cold"):
            assert f'cursor_gateway_first_event_seconds_count{{start="{start}"}} 1.0' in metrics
    lines = [json.loads(line) for line in gateway.log.read_text().splitlines() if '"first event"' in line]
    assert [line["start"] for line in lines] == ["cold", "warm"]
    assert not members(spare)


def test_a_new_conversation_begins_in_the_folder_of_the_agent_that_waited(home: Path) -> None:
    mark = unique()
    with running_gateway(home, settings={"spare_agents": "2"}) as gateway, http_client(gateway) as client:
        ask(client, mark)
        waiting(gateway, 2)
        second = ask(client, mark)
        assert second["metadata"]["warm"] is True
        folder = gateway.data / "conversations" / second["conversationId"]
        assert invocations(gateway, mark)[1]["config_dir"] == str(folder / "cursor")
        waiting(gateway, 2)
        third = ask(client, mark, conversationId=second["conversationId"])
        assert third["metadata"]["warm"] is True
        assert len(invocations(gateway, mark)[2]["history"]) == 1
        for answer in (second, third):
            assert client.get(f"/v1/chat/{answer['id']}").json() == answer
    stored = {answer["conversationId"] for answer in (second, third)}
    left = {found.name for found in gateway.data.glob("conversations/conv_*")}
    assert stored <= left
    assert len(left) == 2  # and that of the first conversation


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_gateway_that_ends_leaves_no_agent_that_waits(home: Path, how: signal.Signals) -> None:
    with running_gateway(home) as gateway, http_client(gateway) as client:
        ask(client, unique())
        (spare,) = waiting(gateway)
        gateway.process.send_signal(how)
        gateway.process.wait(60)
        assert eventually(lambda: not members(spare))


def test_none_is_started_where_that_is_turned_off(home: Path) -> None:
    mark = unique()
    with running_gateway(home, settings={"spare_agents": "0"}) as gateway, http_client(gateway) as client:
        first = ask(client, mark)
        ask(client, mark, conversationId=first["conversationId"])
        waiting(gateway, 0)
    asked = [record for record in records(gateway.agent_log) if "-p" in record["argv"]]
    assert asked == invocations(gateway, mark)


@pytest.mark.parametrize("source", ["acp", "sdk"])
def test_the_other_backends_say_so_too(home: Path, source: str) -> None:
    settings = {"source": source, "sdk_bridge": ",".join(install_bridge(home / "bridge"))}
    environment = {"CURSOR_API_KEY": "key"} if source == "sdk" else {}
    with running_gateway(home, settings=settings, environment=environment) as gateway, http_client(gateway) as client:
        waiting(gateway)  # an agent, or the bridge, is started with the gateway
        first = ask(client, unique())
        second = ask(client, unique(), conversationId=first["conversationId"])
        assert second["metadata"]["warm"] is True
