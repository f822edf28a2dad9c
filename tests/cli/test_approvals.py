"""`cursor-gateway permissions --watch`: whoever sits at a terminal decides about the commands of other programs."""

import os
import pty
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.cli.processes import TIMEOUT, finished
from tests.cli.test_interview import Terminal
from tests.gateways import RunningGateway, running_gateway
from tests.preloaded import Process, start
from tests.server.conftest import http_client, question
from tests.server.test_permissions import counter, counting, runs_of

OPENCODE = {"user-agent": "opencode/1.2.3"}


@contextmanager
def watching(gateway: RunningGateway) -> Iterator[tuple[Terminal, Process]]:
    ours, theirs = pty.openpty()
    environment = {
        "HOME": str(gateway.home),
        "PATH": "/usr/bin:/bin",
        "TERM": "xterm-256color",
        "CURSOR_GATEWAY_DATA_DIR": str(gateway.data),
    }
    command = ["permissions", "--watch", "--url", gateway.url]
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    with start(command, environment, gateway.home, **streams, start_new_session=True) as process:
        os.close(theirs)
        try:
            terminal = Terminal(ours)
            terminal.until(b"Press Ctrl-C to stop")
            yield terminal, process
            process.send_signal(signal.SIGINT)
            assert process.wait(TIMEOUT) == 0
        finally:
            if process.poll() is None:
                process.kill()
            os.close(ours)


def ask(client: httpx2.Client, mark: str) -> httpx2.Response:
    return client.post("/v1/chat/completions", json=question(counting(mark)), headers=OPENCODE)


def test_a_run_that_waits_is_allowed_here_and_goes_on(tmp_path: Path) -> None:
    settings = {"wait_for_approval_seconds": "60"}
    with running_gateway(tmp_path, settings=settings) as gateway, http_client(gateway) as client:
        mark = counter(gateway)
        with ThreadPoolExecutor(1) as pool, watching(gateway) as (terminal, _):
            asked = pool.submit(lambda: ask(client, mark))
            terminal.until(b"OpenCode: ")
            terminal.until(str(gateway.workspace).encode())
            terminal.until(f"The agent wants to run: python3 {mark}.py".encode())
            terminal.until(b"Shell(python3)")
            terminal.until(b"Enter to leave it")
            terminal.type("o")
            terminal.until(b"Allowed; the run continues.")
            reply = asked.result(TIMEOUT)
        assert reply.json()["choices"][0]["finish_reason"] == "stop"
        assert "refused" not in reply.json()["cursor"]
        assert runs_of(gateway, mark) == 1


def test_what_was_refused_is_allowed_denied_or_left(tmp_path: Path) -> None:
    with running_gateway(tmp_path, settings={"source": "cli"}) as gateway, http_client(gateway) as client:
        first, second, third = (counter(gateway) for _ in range(3))
        ask(client, first)
        with watching(gateway) as (terminal, _):
            terminal.until(f"was not allowed to run: python3 {first}.py".encode())
            terminal.until(b"Enter to leave it")
            terminal.type("w")
            terminal.until(b"Allowed; the agent tries again.")
            entries = client.get("/v1/permissions").json()["permissions"]
            assert [entry["decision"] for entry in entries] == ["workspace"]
            client.delete(f"/v1/permissions/{entries[0]['id']}")
            ask(client, second)
            terminal.until(f"python3 {second}.py".encode())
            terminal.until(b"Enter to leave it")
            terminal.type("d")
            terminal.until(b"Why not?")
            terminal.type("")
            terminal.until(b"Denied.")
            ask(client, third)
            terminal.until(f"python3 {third}.py".encode())
            terminal.until(b"Enter to leave it")
            terminal.type("")
        seen = terminal.seen.decode()
        assert seen.count(f"run: python3 {third}.py") == 1  # it is left, and not asked about again
        assert (runs_of(gateway, second), runs_of(gateway, third)) == (0, 0)
        conversations = client.get("/v1/conversations").json()["conversations"]
        assert [one["client"] for one in conversations if one.get("isWaiting")] == ["OpenCode"]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("place", ["--direct", "--url"])
def test_it_needs_a_terminal_and_a_gateway(tmp_path: Path, place: str) -> None:
    arguments = [place] if place == "--direct" else [place, "http://127.0.0.1:1"]
    result = finished("permissions", "--watch", *arguments, CURSOR_GATEWAY_DATA_DIR=str(tmp_path))
    assert result.returncode == 2
    assert b"needs a terminal" in result.stderr
