"""`cursor-gateway mcp` over standard input and output, with the official MCP client and the stand-in agent."""

import asyncio
import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, cast

import httpx2
import pytest
from jsonschema import Draft202012Validator

from cursor_gateway import stdio
from cursor_gateway.mcp_server.methods import McpMethods
from cursor_gateway.mcp_server.stdio import StdioMcpServer
from cursor_gateway.sources.processes import members
from cursor_gateway.stdio import StdioLines
from tests.cli.processes import TIMEOUT, finished_process, read_until
from tests.gateways import RunningGateway, running_gateway
from tests.mcp_server.host import Host, environment_alone, environment_of, mcp_host, prompted_agents, text_of
from tests.preloaded import Process, start
from tests.server.conftest import eventually, http_client, invocation, invocations, option, unique


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with running_gateway(tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture(scope="module")
def host(gateway: RunningGateway) -> Iterator[Host]:
    with mcp_host(gateway.workspace, environment_of(gateway)) as host:
        yield host


@pytest.fixture
def http(gateway: RunningGateway) -> Iterator[httpx2.Client]:
    with http_client(gateway) as client:
        yield client


def types_of(response: dict[str, Any]) -> list[str]:
    return [document["type"] for document in response["documents"]]


# --- the tools ------------------------------------------------------------------------------------------


def test_the_tools_are_described(host: Host) -> None:
    assert list(host.tools) == ["ask", "run", "status", "answer", "cancel"]
    for tool in host.tools.values():
        assert tool.description
        for schema in (tool.input_schema, tool.output_schema):
            assert schema is not None
            Draft202012Validator.check_schema(schema)
            assert schema["type"] == "object"


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_question_is_asked_once_and_in_ask_mode(gateway: RunningGateway, mode: Literal["auto", "legacy"]) -> None:
    mark = unique()
    with mcp_host(gateway.workspace, environment_of(gateway), mode=mode) as host:
        result = host.result("ask", prompt=f"{mark} Where is the price?")
        answer = host.call("ask", prompt="And the tax?", conversationId=result.structured_content["conversationId"])
    assert f"{mark} Where is the price?" in text_of(result)
    assert result.structured_content["id"] in text_of(result)
    started = invocation(gateway, mark)  # only one
    assert option(started["argv"], "--mode") == "ask"
    assert started["workspace"] == str(gateway.workspace)
    assert answer["conversationId"] == result.structured_content["conversationId"]


def test_a_run_reports_what_it_does_and_returns_the_documents(host: Host, http: httpx2.Client) -> None:
    progress: list[tuple[float, str]] = []
    response = host.call("run", progress, prompt="standin: tools")
    assert response.pop("summary").startswith(f"Run {response['id']} is completed")
    assert response == http.get(f"/v1/chat/{response['id']}").json()
    assert {"text", "tool_call", "file_edit", "terminal_command", "todo_update"} <= set(types_of(response))
    lines = [line for _, line in progress]
    assert lines[0] == "I'll look around first."
    assert "Running `pytest -q`" in lines
    assert "Ran `pytest -q` (exit status 0)" in lines
    numbers = [number for number, _ in progress]
    assert numbers == sorted(set(numbers))


def test_long_outputs_are_cut(host: Host, gateway: RunningGateway) -> None:
    (gateway.workspace / "long.txt").write_text("x" * 10_000)
    response = host.call("run", prompt="standin: read path=long.txt")
    (read,) = [document for document in response["documents"] if document["type"] == "tool_call"]
    assert "7,000 characters left out" in read["metadata"]["result"]["data"]


# --- answering ------------------------------------------------------------------------------------------


def test_a_question_of_the_agent_is_answered(host: Host, http: httpx2.Client) -> None:
    asked = host.result("run", prompt="standin: question")
    waiting = asked.structured_content
    assert waiting["status"] == "streaming"
    assert waiting["metadata"]["waitingFor"]
    line = next(line for line in text_of(asked).splitlines() if line.startswith("{"))  # an example of what to send
    answered = host.call("answer", **json.loads(line))
    assert (answered["id"], answered["status"]) == (waiting["id"], "completed")
    assert answered["documents"][-1]["content"] == "You chose notes.txt."
    detail = http.get(f"/v1/conversations/{answered['conversationId']}").json()
    assert len(detail["runs"]) == 1


def test_a_plan_is_accepted(host: Host) -> None:
    proposed = host.result("run", prompt="standin: plan", mode="plan")
    assert "Dump, load, switch." in text_of(proposed)
    id = proposed.structured_content["id"]
    accepted = host.result("answer", runId=id, plan="accept")
    assert (accepted.structured_content["id"], accepted.structured_content["status"]) == (id, "completed")
    assert "proposes a plan" not in text_of(accepted)


def test_a_plan_is_rejected(host: Host) -> None:
    proposed = host.call("run", prompt="standin: plan", mode="plan")
    refused = host.error("answer", runId=proposed["id"], plan="reject", text="Keep SQLite.")
    assert "omit `text`" in refused
    rejected = host.call("answer", runId=proposed["id"], plan="reject")
    assert rejected["documents"][-1]["content"] == "The plan was rejected."


def test_a_command_is_permitted(host: Host) -> None:
    asked = host.call("run", prompt='standin: shell command="expr 20 + 22"')
    (wanted,) = [document["id"] for document in asked["documents"] if "permission" in document["metadata"]]
    done = host.call("answer", runId=asked["id"], permissions=[{"documentId": wanted, "decision": "once"}])
    (command,) = [document for document in done["documents"] if document["type"] == "terminal_command"]
    assert command["metadata"]["output"] == "42\n"


# --- runs in the background, and their end --------------------------------------------------------------


def test_a_run_in_the_background_is_looked_at_and_stopped(host: Host) -> None:
    started = host.call("run", prompt="standin: hang-mid", background=True)
    assert started["status"] == "streaming"
    id = started["id"]
    assert eventually(lambda: host.call("status", runId=id)["documents"])[0]["content"] == "I was about to say more."
    stopped = host.call("cancel", runId=id)
    assert (stopped["status"], stopped["documents"][-1]["metadata"]["errorCode"]) == ("error", "CANCELLED")
    assert host.call("status", runId=id, waitSeconds=60)["status"] == "error"


def test_status_waits_for_the_end_or_for_its_time(host: Host, gateway: RunningGateway) -> None:
    gate = gateway.workspace / unique()
    started = host.call("run", prompt=f"standin: wait-for file={gate}", background=True)
    assert host.call("status", runId=started["id"], waitSeconds=1)["status"] == "streaming"
    waiting = host.start("status", runId=started["id"], waitSeconds=300)
    gate.touch()
    assert waiting.result(TIMEOUT).structured_content["status"] == "completed"


@pytest.mark.parametrize("tool", ["ask", "run"])
def test_a_cancelled_request_stops_the_run(host: Host, gateway: RunningGateway, http: httpx2.Client, tool: str) -> None:
    mark = unique()
    progress: list[tuple[float, str]] = []
    started = host.start(tool, progress, prompt=f"{mark} standin: hang-mid")
    found = eventually(lambda: http.get("/v1/conversations", params={"q": mark}).json()["conversations"])
    started.cancel()
    assert eventually(lambda: ended_run(http, found[0]["id"])) == "cancelled"
    assert len(invocations(gateway, mark)) <= 1


def test_a_cancelled_answer_stops_the_run(host: Host, http: httpx2.Client) -> None:
    asked = host.call("run", prompt='standin: shell command="sleep 600"')
    (wanted,) = [document["id"] for document in asked["documents"] if "permission" in document["metadata"]]
    progress: list[tuple[float, str]] = []
    answered = host.start(
        "answer", progress, runId=asked["id"], permissions=[{"documentId": wanted, "decision": "once"}]
    )
    eventually(lambda: [line for _, line in progress if line == "Running `sleep 600`"])
    answered.cancel()
    assert eventually(lambda: ended_run(http, asked["conversationId"])) == "cancelled"


def ended_run(http: httpx2.Client, conversation: str) -> str:
    """How the last run of a conversation ended; empty while it runs."""
    run = http.get(f"/v1/conversations/{conversation}").json()["runs"][-1]
    if run["state"] == "running":
        return ""
    errors = [one for one in http.get(f"/v1/chat/{run['id']}").json()["documents"] if one["type"] == "error"]
    return errors[-1]["metadata"]["errorCode"].lower() if errors else str(run["state"])


def test_the_run_is_stopped_when_the_host_leaves(gateway: RunningGateway, http: httpx2.Client) -> None:
    mark = unique()
    with mcp_host(gateway.workspace, environment_of(gateway)) as host:
        started = host.start("run", prompt=f"{mark} standin: hang-mid")
        found = eventually(lambda: http.get("/v1/conversations", params={"q": mark}).json()["conversations"])
    assert not started.done() or started.exception() is not None
    assert eventually(lambda: ended_run(http, found[0]["id"])) == "cancelled"


# --- errors ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("ask", {}, "The arguments of `ask` are not valid: Object missing required field `prompt`."),
        ("run", {"prompt": "x", "mode": "ask"}, "The arguments of `run` are not valid: Invalid enum value 'ask'"),
        ("delete", {}, "There is no tool `delete`; use one of: ask, run, status, answer, cancel."),
        ("status", {"runId": "chat_x"}, "Unknown run 'chat_x'"),
        ("answer", {"runId": "chat_x"}, "Send one of `toolResults`, `answers`, `plan` and `permissions`."),
        ("ask", {"prompt": "x", "workspace": "/"}, "The gateway is not allowed to work in this folder"),
        ("ask", {"prompt": "standin: fail-auth"}, "cursor-agent login"),
    ],
)
def test_an_error_is_a_sentence(host: Host, tool: str, arguments: dict[str, Any], message: str) -> None:
    assert message in host.error(tool, **arguments)


def test_a_run_that_fails_halfway_returns_what_it_did(host: Host) -> None:
    failed = host.result("ask", prompt="standin: crash")
    assert failed.is_error
    assert failed.structured_content["status"] == "error"
    assert "ended with an error" in text_of(failed)


def test_a_gateway_that_is_not_there_is_an_error_of_the_call(gateway: RunningGateway) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with mcp_host(gateway.workspace, environment_of(gateway), "--url", url) as host:
        assert f"{url} cannot be reached" in host.error("ask", prompt="hello")


def test_a_folder_must_exist(tmp_path: Path) -> None:
    ended = finished_process("mcp", "--workspace", str(tmp_path / "none"), HOME=str(tmp_path))
    assert ended.returncode == 2
    assert b"does not exist; name one that does." in ended.stderr


# --- lines that cannot be read --------------------------------------------------------------------------


def test_a_request_that_cannot_be_read_is_answered_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(stdio, "_LONGEST", 100_000)
    lines = [
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"a":"%s"}}' % (b"x" * 200_000),
        b'{"jsonrpc":"2.0","id":5,"method":"ping","params":{"even":[%s1]}}' % (b"1," * 100_000),  # JSON also when cut
        b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"a":NaN}}',
        b'{"jsonrpc":"2.0","result":{"a":NaN},"id":3}',  # nobody could tell to what an error is the reply
        b'{"jsonrpc":"2.0","id":4,"method":"ping"}',
    ]
    (tmp_path / "in").write_bytes(b"\n".join(lines))

    async def serve(incoming: int, outgoing: int) -> None:
        server = StdioMcpServer(StdioLines(incoming, outgoing), cast(McpMethods, None))
        await server.serve()
        while server._requests:
            await asyncio.sleep(0)
        await server.close()

    with (tmp_path / "in").open("rb") as incoming, (tmp_path / "out").open("wb") as outgoing:
        asyncio.run(serve(incoming.fileno(), outgoing.fileno()))
    errors = {reply["id"]: reply["error"] for reply in map(json.loads, (tmp_path / "out").read_bytes().splitlines())}
    assert list(errors) == [1, 5, 2, 4]
    assert errors[1]["message"] == errors[5]["message"] == stdio.TOO_LONG
    assert errors[2]["code"] == -32700
    assert errors[4]["message"].startswith("Send `initialize` first")


# --- without a running gateway --------------------------------------------------------------------------


@pytest.fixture
def alone(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "work").mkdir()
    return environment_alone(tmp_path)


def test_it_starts_a_gateway_that_ends_with_it(tmp_path: Path, alone: dict[str, str]) -> None:
    with mcp_host(tmp_path / "work", alone) as host:
        rejected = host.result("run", prompt='standin: shell command="expr 20 + 22"')
        line = next(line for line in text_of(rejected).splitlines() if line.startswith("{"))
        allowed = host.call("answer", **json.loads(line))  # the next turn of the same session
        assert allowed["id"] != rejected.structured_content["id"]
        assert "42\n" in [one["metadata"].get("output") for one in allowed["documents"]]
        assert len(prompted_agents(tmp_path)) == 2
        assert {started["workspace"] for started in prompted_agents(tmp_path)} == {str(tmp_path / "work")}
        sockets = list((tmp_path / "data" / "sockets").glob("*.sock"))
        host.call("run", prompt="standin: hang-mid", background=True)
        groups = [started["pgid"] for started in eventually(lambda: prompted_agents(tmp_path)[2:])]
    assert len(sockets) == 1
    assert not any(members(group) for group in groups)
    assert not list((tmp_path / "data" / "sockets").glob("*.sock"))


def test_it_starts_a_gateway_if_the_running_one_may_not_work_here(tmp_path: Path, gateway: RunningGateway) -> None:
    environment = {**environment_of(gateway), "PATH": f"{gateway.home / 'bin'}:/usr/bin:/bin"}
    mark = unique()
    with mcp_host(tmp_path, environment) as host:
        host.call("ask", prompt=f"{mark} hello")
    assert invocation(gateway, mark)["workspace"] == str(tmp_path)


def test_a_demo_says_that_it_is_one(tmp_path: Path, alone: dict[str, str]) -> None:
    with mcp_host(tmp_path / "work", {**alone, "PATH": "/usr/bin:/bin", "CURSOR_GATEWAY_SOURCE": "auto"}) as host:
        assert text_of(host.result("ask", prompt="hello")).startswith("DEMO: ")


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("has_gateway", [False, True])
def test_a_signal_ends_it_and_its_agents(
    tmp_path: Path, alone: dict[str, str], number: signal.Signals, has_gateway: bool
) -> None:
    with start(["mcp"], alone, tmp_path / "work", stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            client = {"name": "test", "version": "1"}
            send(process, 1, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=client)
            read_until(process.stdout.fileno(), b'"serverInfo"')
            process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
            process.stdin.flush()
            groups: list[int] = []
            if has_gateway:
                send(process, 2, "tools/call", name="ask", arguments={"prompt": "standin: hang-mid"})
                groups = [started["pgid"] for started in eventually(lambda: prompted_agents(tmp_path))]
            process.send_signal(number)
            assert process.wait(TIMEOUT) == 128 + number
            assert not any(members(group) for group in groups)
        finally:
            process.kill()


def test_a_host_that_reads_no_more_ends_it(tmp_path: Path, alone: dict[str, str]) -> None:
    with start(["mcp"], alone, tmp_path / "work", stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            process.stdout.close()
            client = {"name": "test", "version": "1"}
            send(process, 1, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=client)
            send(process, 2, "ping")
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(TIMEOUT) == 0
            assert b"Traceback" not in process.stderr.read()
        finally:
            process.kill()


def test_half_a_surrogate_pair_is_answered(tmp_path: Path, alone: dict[str, str]) -> None:
    with start(["mcp"], alone, tmp_path / "work", stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            client = {"name": "test", "version": "1"}
            send(process, 1, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=client)
            send(process, 2, "tools/call", name="\ud83d", arguments={"\ude00": "\udfff"})
            assert b"There is no tool" in read_until(process.stdout.fileno(), b'"id":2')
        finally:
            process.kill()


def send(process: Process, id: int, method: str, **params: Any) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode() + b"\n")
    process.stdin.flush()
