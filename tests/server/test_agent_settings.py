"""What the operator says about the agent itself: HTTP/1.1, its sandbox, its version."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import chat, http_client, invocations, standin, unique

TOOL = {"name": "look", "parameters": {"type": "object"}}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    settings = {"http1": "true", "sandbox": "enabled"}
    with running_gateway(tmp_path_factory.mktemp("network"), settings=settings) as running:
        yield running


@pytest.fixture
def client(gateway: RunningGateway) -> Iterator[httpx2.Client]:
    with http_client(gateway) as opened:
        yield opened


def network(gateway: RunningGateway) -> list[object]:
    """Of every configuration that was written for an agent."""
    files = [
        file for file in gateway.home.rglob("cli-config.json") if "conversations" in file.parts or "acp" in file.parts
    ]
    return [json.loads(file.read_text()).get("network") for file in files]


@pytest.mark.parametrize("source", ["cli", "acp"])
@pytest.mark.parametrize("tools", [[], [TOOL]], ids=["own tools", "caller's tools"])
def test_agents_use_http_1_and_the_sandbox(
    gateway: RunningGateway, client: httpx2.Client, source: str, tools: list[object]
) -> None:
    mark = unique()
    answer = chat(client, f"{mark} {standin('text')}", source=source, tools=tools)
    assert answer["status"] == "completed"
    (started,) = invocations(gateway, mark)
    argv = started["argv"]
    assert argv[argv.index("--sandbox") + 1] == "enabled"
    found = network(gateway)
    assert found
    assert all(one == {"useHttp1ForAgent": True} for one in found), found


@pytest.mark.parametrize("source", ["auto", "cli", "acp"])
def test_an_agent_of_another_version_is_not_started(tmp_path: Path, source: str) -> None:
    settings = {"agent_version": "1999.01", "source": source}
    if source == "cli":
        with pytest.raises(AssertionError), running_gateway(tmp_path, settings=settings):
            pass
        return
    with running_gateway(tmp_path, settings=settings) as gateway, http_client(gateway) as client:
        mark = unique()
        refused = client.post("/v1/chat", json={"message": mark})
        assert refused.json()["error"]["code"] == "agent_misconfigured"
        assert "`agent_version` is 1999.01" in refused.json()["error"]["message"]
        assert invocations(gateway, mark) == []


def test_the_right_version_is_used(tmp_path: Path) -> None:
    with running_gateway(tmp_path, settings={"agent_version": "2026."}) as gateway, http_client(gateway) as client:
        assert chat(client, standin("text"))["status"] == "completed"
