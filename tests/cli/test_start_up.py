"""Nothing is loaded before it is needed: what a start does without would cost everybody time and memory."""

import re
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from cursor_gateway.cli.assembly.serving import run_loop
from cursor_gateway.cli.main import cli
from tests.cli.processes import TIMEOUT, finished_process
from tests.gateways import running_gateway
from tests.server.conftest import NO_TLS

_NEVER_AT_A_START = {
    *("acp", "cursor_sdk", "mcp", "sse_starlette"),  # for runs that need them
    *("psycopg", "cursor_gateway.store.postgres"),  # for a history in a database
    *("httpx", "httpx2", "uvicorn"),  # for clients, and for the agent's tool calls
    *("jsonschema", "markdown_it", "pygments", "prometheus_client", "rich"),  # for answers that need them
    *("cursor_gateway.render.html", "cursor_gateway.render.terminal", "cursor_gateway.schema"),
    *("cursor_gateway.client", "cursor_gateway.library", "cursor_gateway.server.openapi"),
    *("http.server", "pydantic", "unittest", "xml"),
}
_MOST_MODULES = 575  # of all packages: each takes about 40 kB, for as long as the gateway runs


def loaded_by(program: str) -> set[str]:
    ended = subprocess.run(
        [sys.executable, "-c", f"import sys; {program}; print('loaded:', *sys.modules)"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=True,
    )
    return set(ended.stdout.rpartition("loaded:")[2].split())


def of_ours(modules: set[str]) -> set[str]:
    return {name for name in modules if name.partition(".")[0] == "cursor_gateway"}


def test_the_library_is_loaded_when_it_is_used() -> None:
    assert of_ours(loaded_by("import cursor_gateway")) == {"cursor_gateway"}
    assert "cursor_gateway.library" in loaded_by("import cursor_gateway; cursor_gateway.Client")


@pytest.mark.parametrize("arguments", [["--help"], []])
def test_help_loads_no_command(arguments: list[str]) -> None:
    modules = loaded_by(f"from cursor_gateway.cli.main import run; run({arguments!r})")
    assert of_ours(modules) == {"cursor_gateway", "cursor_gateway.cli", "cursor_gateway.cli.main"}
    assert not modules & {"asyncio", "logging", "msgspec", "rich", "socket", "ssl", "subprocess"}


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("name", sorted(cli.commands))
def test_a_commands_help_loads_neither_the_server_nor_what_runs_need(name: str) -> None:
    modules = loaded_by(f"from cursor_gateway.cli.main import run; run([{name!r}, '--help'])")
    server = {module for module in modules if module.startswith("cursor_gateway.server")}
    assert not modules & _NEVER_AT_A_START | server


@pytest.mark.parametrize("has_agent", [True, False])
def test_the_first_answer_waits_for_nothing_that_it_does_without(has_agent: bool, tmp_path: Path) -> None:
    result = {"PYTHONPROFILEIMPORTTIME": "1"}  # Python tells of each import when it is done
    with running_gateway(tmp_path, has_agent=has_agent, environment=result) as gateway:
        assert httpx2.get(f"{gateway.url}/health", verify=NO_TLS).status_code == 200
        loaded = set(re.findall(r"^import time: .* \| +(\S+)$", gateway.log.read_text(), re.MULTILINE))
    assert "cursor_gateway.server.app" in loaded
    assert not loaded & _NEVER_AT_A_START
    assert len(loaded) <= _MOST_MODULES


def test_a_thread_that_computes_keeps_the_event_loop_waiting_for_a_moment_only() -> None:
    async def interval() -> float:
        return sys.getswitchinterval()

    before = sys.getswitchinterval()
    try:
        assert run_loop(interval()) <= 0.0005
    finally:
        sys.setswitchinterval(before)


# --- commands that are imported when they are used ------------------------------------------------------


def completed(*words: str) -> list[str]:
    """What a shell would offer for the last of them."""
    result = finished_process(
        _CURSOR_GATEWAY_COMPLETE="bash_complete", COMP_WORDS=" ".join(words), COMP_CWORD=str(len(words) - 1)
    )
    assert result.stderr == b""
    return [line.partition(",")[2] for line in result.stdout.decode().splitlines()]


def test_the_shell_completes_commands_and_their_options() -> None:
    assert completed("cursor-gateway", "con") == ["connect", "conversations", "convert"]
    assert completed("cursor-gateway", "convert", "--to") == ["--to"]
    assert completed("cursor-gateway", "convert", "--to", "open") == ["openai", "openai-sse"]
    assert completed("cursor-gateway", "conversations", "sea") == ["search"]


def test_a_mistake_in_a_command_is_not_hidden() -> None:
    program = (
        "from cursor_gateway.cli.commands import operations; from cursor_gateway.cli.main import run; "
        "operations.key.callback = lambda **given: 1 / 0; run(['key', 'a'])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert ended.returncode == 1
    assert "ZeroDivisionError" in ended.stderr
