"""A conversation that was deleted: its bytes are in no file that the gateway or an agent of its keeps."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.agent.bridge_install import install_bridge, set_knobs
from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import eventually, http_client, question, standin, unique
from tests.server.test_caller_tools import WEATHER, Caller, call, only_call, program, say

SOURCES = ("cli", "acp", "sdk")
LOGS = {"agent.log", "bridge.log"}  # of the stand-ins, which note all that they are told


@contextmanager
def gateway_of(home: Path, **settings: str) -> Iterator[tuple[RunningGateway, httpx2.Client]]:
    given = {"sdk_bridge": ",".join(install_bridge(home / "bridge")), **settings}
    with (
        running_gateway(home, settings=given, environment={"CURSOR_API_KEY": "key"}) as gateway,
        http_client(gateway) as client,
    ):
        yield gateway, client


def files_with(home: Path, mark: str) -> list[str]:
    """Every file below the user's home, as bytes: the database's pages, its log and its index, too."""
    found = []
    for folder, _, names in os.walk(home):  # which passes over what is gone meanwhile
        for path in (Path(folder) / name for name in names if name not in LOGS):
            with suppress(OSError):
                if path.is_file() and mark.encode() in path.read_bytes():
                    found.append(str(path.relative_to(home)))
    return sorted(found)


def begin(client: httpx2.Client, message: str, **more: Any) -> str:
    reply = client.post("/v1/chat", json={"message": message, **more})
    assert reply.status_code == 200, reply.text
    conversation: str = reply.json()["conversationId"]
    return conversation


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("source", SOURCES)
def test_no_byte_of_it_is_left(tmp_path: Path, source: str) -> None:
    mark = f"secret{unique()}"
    with gateway_of(tmp_path) as (gateway, client):
        conversation = begin(client, f"{standin('text')}\n{mark}", source=source)
        begin(client, f"Once more {mark}", source=source, conversationId=conversation)
        stays = f"other{unique()}"
        begin(client, f"{standin('text')}\n{stays}", source=source)
        kept = files_with(tmp_path, mark)
        assert len(kept) >= 2  # the history's, and the agent's own: the test can fail
        assert client.delete(f"/v1/conversations/{conversation}").status_code == 204
        outside = [file for file in files_with(tmp_path, mark) if not file.startswith("data/history.db")]
        assert outside == []
        eventually(lambda: files_with(tmp_path, mark) == [])  # the history is swept in the background
        assert files_with(tmp_path, stays)
        assert list((gateway.data / "conversations").glob(conversation)) == []
    assert files_with(tmp_path, mark) == []  # an agent that ends writes what it remembers


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("source", SOURCES)
def test_nor_of_what_a_caller_with_tools_has_said(tmp_path: Path, source: str) -> None:
    mark = f"secret{unique()}"
    with gateway_of(tmp_path) as (_, client):
        prompt = f"{mark} {program(call('weather', city=mark), say('It is $1.'))}"
        caller = Caller(client, prompt, [WEATHER], cursor={"source": source})
        caller.give((only_call(caller.ask())["id"], f"result {mark}"))
        assert caller.ask()["content"] == f"It is result {mark}."
        listed = client.get("/v1/conversations").json()["conversations"]
        assert files_with(tmp_path, mark)
        for entry in listed:
            assert client.delete(f"/v1/conversations/{entry['id']}").status_code == 204
        eventually(lambda: files_with(tmp_path, mark) == [])
    assert files_with(tmp_path, mark) == []


def test_an_agent_that_others_use_gives_it_up_when_they_are_done(tmp_path: Path) -> None:
    """One process, two conversations: the deleted one is in the memory of the agent that still works for the other."""
    mark = f"secret{unique()}"
    with gateway_of(tmp_path, source="acp", max_agents="1") as (_, client):
        conversation = begin(client, f"{standin('text')}\n{mark}")
        with client.stream("POST", "/v1/chat", json={"message": standin("hang-mid"), "stream": True}) as other:
            reply = client.delete(f"/v1/conversations/{conversation}")
            assert reply.status_code == 202
            assert "as soon as it can" in reply.json()["message"]
            assert client.get(f"/v1/conversations/{conversation}").status_code == 404
            assert client.post(f"/v1/chat/{other.headers['x-chat-id']}/cancel", json={}).status_code == 200
        eventually(lambda: files_with(tmp_path, mark) == [])
    assert files_with(tmp_path, mark) == []


def test_what_cannot_be_deleted_now_is_noted_and_the_rest_is_gone(tmp_path: Path) -> None:
    mark = f"secret{unique()}"
    with gateway_of(tmp_path) as (gateway, client):
        conversation = begin(client, f"{standin('text')}\n{mark}", source="sdk")
        set_knobs(tmp_path / "bridge", delete_error="unavailable")
        assert client.delete(f"/v1/conversations/{conversation}").status_code == 202
        folder = gateway.data / "conversations" / conversation
        assert [path.name for path in folder.iterdir()] == ["sessions.json"]
        assert mark not in (folder / "sessions.json").read_text()


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("source", ["cli", "acp"])
def test_without_a_history_nothing_outlives_the_gateway(tmp_path: Path, source: str) -> None:
    mark = f"secret{unique()}"
    with gateway_of(tmp_path, history="false") as (_, client):
        begin(client, f"{standin('text')}\n{mark}", source=source)
        result = client.post("/v1/chat/completions", json=question(f"{standin('text')} {mark}"))
        assert result.status_code == 200
        assert files_with(tmp_path, mark)
    assert files_with(tmp_path, mark) == []
