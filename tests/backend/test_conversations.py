"""Conversations with Cursor's own runtime: it keeps them, and the gateway rebuilds what it has lost."""

import os
import re
import signal
from pathlib import Path

import httpx2
import pytest

from tests.backend.conftest import client_of, program, runtime_gateway
from tests.backend.server import Backend
from tests.backend.stream import prompt_of
from tests.gateways import RunningGateway
from tests.server.conftest import Json, chat, eventually, growing, is_gone, text_of

FIRST, SECOND = program({"say": "The word is plum."}), program({"say": "I said plum."})


def bridge_of(client: httpx2.Client) -> int:
    """The process of the running bridge, as /health reports it."""
    found = re.search(r"process (\d+)", client.get("/health").text)
    assert found is not None
    return int(found[1])


def turns(request: Json) -> int:
    """How many earlier turns the runtime has sent."""
    return len(request.get("conversation_state", {}).get("turns", []))


def test_a_second_turn(client: httpx2.Client, backend: Backend) -> None:
    """The second message continues the runtime's own conversation."""
    first = chat(client, FIRST)
    second = chat(client, SECOND, conversationId=first["conversationId"])
    assert (text_of(second), second["conversationId"]) == ("I said plum.", first["conversationId"])
    assert [turns(request) for request in backend.requests] == [0, 1]
    assert len({request["conversation_id"] for request in backend.requests}) == 1
    assert "The word is plum" not in prompt_of(backend.requests[1])


def test_a_conversation_that_is_busy(client: httpx2.Client) -> None:
    """A second message while the first one runs: 409."""
    steps = program({"say": "Wait"}, {"pause_ms": 60_000})
    with growing(client, "documents", steps) as stream:
        stream.until(b"Wait")
        conversation = stream.response.headers["x-conversation-id"]
        reply = client.post("/v1/chat", json={"message": "Hi", "conversationId": conversation})
        assert (reply.status_code, reply.json()["error"]["code"]) == (409, "conversation_busy")


def kill_bridge(client: httpx2.Client) -> None:
    pid = bridge_of(client)
    os.killpg(pid, signal.SIGKILL)
    eventually(lambda: is_gone(pid))


@pytest.mark.slow  # several bridges
def test_a_run_whose_bridge_is_killed(tmp_path: Path, backend: Backend) -> None:
    """The bridge is killed in the middle of a run: the run fails at once, the next one gets a new bridge."""
    with runtime_gateway(tmp_path, backend) as gateway, client_of(gateway) as client:
        with growing(client, "documents", program({"say": "Wait"}, {"pause_ms": 600_000})) as stream:
            stream.until(b"Wait")
            kill_bridge(client)
            assert b"AGENT_CRASHED" in stream.rest()
        assert text_of(chat(client, program({"say": "Hi"}))) == "Hi"


@pytest.mark.slow  # several gateways
def test_a_gateway_that_is_killed(tmp_path: Path, backend: Backend) -> None:
    """The gateway is killed in the middle of a run: the next one ends its bridge, and continues the conversation."""
    with runtime_gateway(tmp_path, backend) as gateway, client_of(gateway) as client:
        first = chat(client, FIRST)
        steps = program({"say": "Wait"}, {"pause_ms": 600_000})
        with growing(client, "documents", steps, conversationId=first["conversationId"]) as stream:
            stream.until(b"Wait")
            bridge = bridge_of(client)
            gateway.process.kill()
            gateway.process.wait(60)
    with runtime_gateway(tmp_path, backend) as gateway, client_of(gateway) as client:
        eventually(lambda: is_gone(bridge))
        said = chat(client, SECOND, conversationId=first["conversationId"])
        assert text_of(said) == "I said plum."


def command_of(gateway: RunningGateway, name: str) -> tuple[str, Path]:
    """A program whose command runs for ever, and the file that will contain its process id."""
    file = gateway.workspace / name
    return program({"native": "shell", "args": {"command": f"echo $$ > {file}; exec sleep 600"}}), file


def test_a_run_that_is_cancelled(client: httpx2.Client, gateway: RunningGateway) -> None:
    """Cancel during a command: the run ends, and so does the command."""
    steps, file = command_of(gateway, "cancelled.pid")
    with growing(client, "documents", steps) as stream:
        stream.until(b"document_start")
        eventually(lambda: file.exists() and file.read_text().strip())
        pid = int(file.read_text())
        assert client.post(f"/v1/chat/{stream.response.headers['x-chat-id']}/cancel").status_code == 200
        assert b"CANCELLED" in stream.rest()
    eventually(lambda: is_gone(pid))


def test_a_client_that_leaves(client: httpx2.Client, gateway: RunningGateway) -> None:
    """The client closes its connection during a command: the run is cancelled, and the command ends."""
    steps, file = command_of(gateway, "left.pid")
    with growing(client, "openai", steps):
        eventually(lambda: file.exists() and file.read_text().strip())
    pid = int(file.read_text())
    eventually(lambda: is_gone(pid))
