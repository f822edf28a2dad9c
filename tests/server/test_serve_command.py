"""`cursor-gateway serve` as a process: how it starts, what it says, what it records, and how it stops."""

import json
import signal
import socket
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cursor_gateway import demo
from tests.agent.install import install
from tests.cli.processes import TIMEOUT, arguments_of
from tests.gateways import RunningGateway, running_gateway
from tests.openai_shapes import read_stream
from tests.preloaded import run
from tests.server.conftest import (
    NO_TLS,
    Dialect,
    chat,
    eventually,
    growing,
    http_client,
    invocation,
    is_gone,
    openai_client,
    sse,
    standin,
    unique,
)

DIALECTS: list[Dialect] = ["documents", "openai"]


def refused(home: Path, *flags: str, settings: Mapping[str, str] | None = None) -> str:
    """What a gateway says that does not start."""
    (home / "data").mkdir(exist_ok=True)
    given = {"data_dir": str(home / "data"), **(settings or {})}
    environment = {
        "PATH": f"{home / 'bin'}:/usr/bin:/bin",
        "HOME": str(home),
        **{f"CURSOR_GATEWAY_{name.upper()}": value for name, value in given.items()},
    }
    ended = run(["serve", *flags], environment, home, timeout=TIMEOUT)
    result = ended.stderr.decode()
    assert (ended.returncode, ended.stdout) == (2, b""), result
    assert result.startswith("cursor-gateway: ")
    assert result.count("\n") == 1  # a sentence, no traceback
    return result


# --- starting -------------------------------------------------------------------------------------------


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    install(tmp_path / "bin")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = refused(tmp_path, "--port", str(port))
    assert f"cannot listen on 127.0.0.1 port {port}" in result
    assert "choose another with `--port`" in result


def test_two_gateways_on_one_port(gateway: RunningGateway, tmp_path: Path) -> None:
    install(tmp_path / "bin")
    assert "in use" in refused(tmp_path, "--port", gateway.url.rpartition(":")[2])


def test_no_agent_where_the_agent_is_asked_for(tmp_path: Path) -> None:
    assert "cursor-agent is not installed; install it" in refused(tmp_path, "--source", "cli")


def test_another_program_is_not_taken_for_the_agent(tmp_path: Path) -> None:
    program = tmp_path / "mine"
    program.write_text("#!/bin/sh\necho hello\n")
    program.chmod(0o755)
    result = refused(tmp_path, settings={"agent_program": str(program)})
    assert f"{program} is not Cursor's agent" in result
    assert "is not installed" in refused(tmp_path, settings={"agent_program": str(tmp_path / "nothing")})


def test_a_workspace_that_does_not_exist(tmp_path: Path) -> None:
    install(tmp_path / "bin")
    assert "does not exist" in refused(tmp_path, "--workspace", str(tmp_path / "nowhere"))


def test_a_rule_that_is_none(tmp_path: Path) -> None:
    result = refused(tmp_path, "--allow", "Shell(git)", "--allow", "git")
    assert "'git' is not a rule; write it like Shell(git)" in result


def test_an_address_for_everybody_needs_keys(tmp_path: Path) -> None:
    install(tmp_path / "bin")
    assert "key" in refused(tmp_path, "--host", "0.0.0.0", "--port", "0")


def test_health_says_what_answers(gateway: RunningGateway, http: httpx2.Client) -> None:
    result = http.get("/health").json()
    assert (result["status"], result["source"]["name"], result["source"]["demo"]) == ("ok", "cli", False)
    assert "2026.10.01-e373342" in result["source"]["detail"]
    assert result["runs"]["limit"] == 8
    assert http.get("/health").headers["x-cursor-gateway-source"] == "cli"


# --- the demo -------------------------------------------------------------------------------------------


def test_the_demo_says_that_it_is_one(tmp_path: Path) -> None:
    """Without an agent recordings answer, so that a newcomer sees something; nobody may take it for the agent."""
    settings = {"replay_speed": "0"}
    with running_gateway(tmp_path, settings=settings, has_agent=False) as gateway, http_client(gateway) as http:
        health = http.get("/health").json()["source"]
        assert (health["name"], health["demo"]) == ("demo", True)
        result = http.post("/v1/chat", json={"message": "hello"})
        assert result.headers["x-cursor-gateway-source"] == "demo"
        assert (result.json()["status"], result.json()["model"]) == ("completed", "demo")
        with openai_client(gateway) as client:
            assert next(iter(client.models.list())).id == "demo"
            for model in ("demo", "auto"):
                completion = client.chat.completions.create(
                    model=model, messages=[{"role": "user", "content": "hello"}]
                )
                assert completion.choices[0].message.content
        other = http.post("/v1/chat", json={"message": "hello", "model": "gpt-5-mini"})
        assert (other.status_code, other.json()["error"]["code"]) == (404, "model_not_found")
        everything = http.post("/v1/chat", json={"message": "recording: jwt_authentication"}).json()
        assert len({document["type"] for document in everything["documents"]}) == 10


def test_the_demos_banner(tmp_path: Path) -> None:
    """What it prints is read by `running_gateway`, so here it is started by hand."""
    (tmp_path / "data").mkdir()
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "CURSOR_GATEWAY_DATA_DIR": str(tmp_path / "data")}
    with subprocess.Popen(
        arguments_of("serve", "--port", "0"),
        env={**environment, "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line.decode().strip())
            if lines[-1].startswith("Press Ctrl-C"):
                break
        process.send_signal(signal.SIGTERM)
        process.wait(TIMEOUT)
    said = "\n".join(lines)
    assert "DEMO: answers are built-in recordings. No agent runs" in said
    assert "cursor-agent is not installed; install it with `curl https://cursor.com/install -fsS | bash`" in said
    assert "/v1/chat -H 'Content-Type: application/json'" in said


def test_a_workspace_with_hooks_of_its_own_is_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    file, line = tmp_path / "work" / ".mcp.json", f'`allow_workspace_hooks = ["{tmp_path / "work"}"]`'
    file.touch()
    with running_gateway(tmp_path) as gateway:
        assert str(file) in gateway.banner
        assert line in gateway.banner
    file.write_text("{}")
    with running_gateway(tmp_path) as gateway:
        assert "allow_workspace_hooks" not in gateway.banner


# --- recording ------------------------------------------------------------------------------------------

_OF_A_RUN = ("id", "conversationId", "created", "model", "metadata")  # what two runs differ in
SCENARIOS = [
    "tools",
    "thinking",
    "fences",
    "fail-quota",
    "fail-capacity-late",
    "plan",
]  # an exit status is not recorded


def without_run(result: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result.items() if name not in _OF_A_RUN}


def test_a_recording_replayed_gives_the_same_documents(tmp_path: Path) -> None:
    recordings = tmp_path / "recordings"
    with running_gateway(tmp_path / "one", "--record", str(recordings)) as gateway, http_client(gateway) as http:
        recorded = {name: http.post("/v1/chat", json={"message": standin(name)}) for name in SCENARIOS}
        eventually(lambda: len(list(recordings.glob("*.ndjson"))) == len(SCENARIOS))
    assert all(file.stat().st_mode & 0o077 == 0 for file in recordings.iterdir())  # they hold prompts
    with (
        running_gateway(
            tmp_path / "two", "--replay", str(recordings), settings={"replay_speed": "0"}, has_agent=False
        ) as gateway,
        http_client(gateway) as http,
    ):
        assert http.get("/health").json()["source"]["name"] == "replay"
        for name, before in recorded.items():
            after = http.post("/v1/chat", json={"message": standin(name)})
            assert after.status_code == before.status_code, name
            assert without_run(after.json()) == without_run(before.json()), name


def test_a_replay_says_what_it_is_and_an_unknown_prompt_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "recordings"
    folder.mkdir()
    for name, data in demo.recordings().items():
        (folder / f"{name}.ndjson").write_bytes(data)
    with (
        running_gateway(
            tmp_path / "gateway", "--replay", str(folder), settings={"replay_speed": "0"}, has_agent=False
        ) as gateway,
        http_client(gateway) as http,
    ):
        answer = http.post("/v1/chat", json={"message": "Why is one test failing?"}).json()
        assert answer["metadata"]["recording"] == {"name": "failing_tests", "reason": "similar_prompt"}
        eventually(lambda: '"chosen"' in gateway.log.read_text())
        (ended,) = [result for line in gateway.log.read_text().splitlines() if "chosen" in (result := json.loads(line))]
        assert (ended["recording"], ended["chosen"]) == ("failing_tests", "similar_prompt")
        for path, body in (
            ("/v1/chat", {"message": "Qu'en dis-tu?"}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Qu'en dis-tu?"}]}),
        ):
            refused = http.post(path, json=body)
            assert refused.status_code == 404
            assert "`recording: NAME`" in refused.json()["error"]["message"]
            assert "failing_tests" in refused.json()["error"]["message"]


def test_recordings_without_prompts(tmp_path: Path) -> None:
    flags = ("--record", str(tmp_path / "recordings"), "--no-record-prompts")
    mark = unique()
    with running_gateway(tmp_path / "home", *flags) as gateway, http_client(gateway) as http:
        chat(http, f"{mark} {standin('text')}")
    (file,) = (tmp_path / "recordings").iterdir()
    assert mark not in file.read_text()
    assert "[prompt removed]" in file.read_text()


# --- outputs that nobody reads, and threads ---------------------------------------------------------------


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full", ">/dev/full 2>/dev/full"])
def test_a_gateway_whose_outputs_are_gone_serves_and_ends_well(tmp_path: Path, redirection: str) -> None:
    port = _free_port()
    arguments = arguments_of("serve", "--port", str(port), "--source", "replay")
    environment = {"HOME": str(tmp_path), "CURSOR_GATEWAY_DATA_DIR": str(tmp_path / "data")}
    with subprocess.Popen(
        ["/bin/sh", "-c", f'exec "$@" {redirection}', "sh", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        cwd=tmp_path,
    ) as process:
        try:
            eventually(lambda: process.poll() is not None or _is_healthy(port))
            assert _is_healthy(port)
            process.terminate()
            assert process.wait(TIMEOUT) == 0
        finally:
            process.kill()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _is_healthy(port: int) -> bool:
    try:
        return httpx2.get(f"http://127.0.0.1:{port}/health", timeout=5, verify=NO_TLS).status_code == 200
    except httpx2.TransportError:
        return False


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts what /proc tells")
def test_all_threads_are_there_from_the_start(tmp_path: Path) -> None:
    """Later the system may refuse them."""
    with running_gateway(tmp_path) as gateway, http_client(gateway) as http:
        tasks = Path(f"/proc/{gateway.process.pid}/task")
        before = len(list(tasks.iterdir()))
        with ThreadPoolExecutor(16) as pool:
            assert {reply.status_code for reply in pool.map(http.get, ["/v1/conversations"] * 64)} == {200}
        assert len(list(tasks.iterdir())) <= before


# --- stopping -------------------------------------------------------------------------------------------


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_sigterm_lets_a_running_stream_finish(tmp_path: Path, dialect: Dialect) -> None:
    file = tmp_path / "go"
    settings = {"drain_seconds": "60"}
    with running_gateway(tmp_path / "home", settings=settings) as gateway, http_client(gateway) as http:
        with growing(http, dialect, standin(f"wait-for file={file}")) as reply:
            reply.until(b"file.")
            gateway.process.send_signal(signal.SIGTERM)
            eventually(lambda: not _accepts(gateway))
            file.touch()
            body = reply.rest()
        assert gateway.process.wait(TIMEOUT) == 0
    if dialect == "openai":
        assert read_stream(body).text == "Waiting for the file. It is there."
    else:
        assert json.loads(sse(body)[-1].data)["status"] == "completed"


def _accepts(gateway: RunningGateway) -> bool:
    try:
        return httpx2.get(f"{gateway.url}/health", timeout=1, verify=NO_TLS).status_code == 200
    except httpx2.TransportError:
        return False


def test_ctrl_c_twice_does_not_wait(tmp_path: Path) -> None:
    """The first lets runs finish (here for an hour), the second means it."""
    mark = unique()
    with running_gateway(tmp_path, settings={"drain_seconds": "3600"}) as gateway, http_client(gateway) as http:
        with growing(http, "openai", f"{mark} {standin('hang-mid')}") as reply:
            reply.until(b"more")
            pid = invocation(gateway, mark)["pid"]
            gateway.process.send_signal(signal.SIGINT)
            eventually(lambda: not _accepts(gateway))
            gateway.process.send_signal(signal.SIGINT)
            gateway.process.wait(60)
        eventually(lambda: is_gone(pid))


def test_it_opens_the_page_in_the_browser(tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}.new && mv {opened}.new {opened}\n')
    browser.chmod(0o755)
    environment = {"BROWSER": f"{browser} %s"}
    with running_gateway(tmp_path, "--open", has_agent=False, environment=environment) as running:
        eventually(opened.exists)
        assert opened.read_text().strip() == f"{running.url}/"
