"""`cursor-gateway connect --write`, and then the real programs as their users start them."""

import os
import sys
from collections.abc import Sequence

import pytest

from tests.clients.programs import Project, on_path
from tests.gateways import RunningGateway

ASKED = "standin: echo-args"

# As the pages of the clients say, and without a screen.
STARTED = {
    "claude": ["-p", ASKED],
    "codex": ["-p", "cursor", "exec", "--skip-git-repo-check", ASKED],
    "opencode": ["run", "--model", "cursor-gateway/auto", ASKED],
    "kilo": ["run", "--model", "cursor-gateway/auto", ASKED],
    "qwen": ["-p", ASKED],
    "pi": ["--provider", "cursor-gateway", "--model", "auto", "-p", ASKED],
    "cn": ["-p", ASKED],
    "llm": ["-m", "cursor-gateway/auto", ASKED],
}


@pytest.mark.parametrize("name", STARTED)
def test_a_client_keeps_using_the_gateway(name: str, gateway: RunningGateway, project: Project) -> None:
    path = os.pathsep.join([str(on_path(project.home / "clients", name)), "/usr/bin", "/bin"])

    def run(command: Sequence[str]) -> str:
        environment = {
            "PATH": path,
            "CURSOR_GATEWAY_DATA_DIR": str(project.home / "gateway"),
            "CURSOR_GATEWAY_VERIFY_GATEWAY": "false",  # it has another data directory
            "PI_OFFLINE": "1",
        }
        return project.run(*command, environment=environment)

    connect = [sys.executable, "-m", "cursor_gateway", "connect", "--url", gateway.url, name]
    before = {path for path in project.home.rglob("*") if path.is_file()}
    assert gateway.url in run([*connect, "--write"])
    assert '"stream-json"' in run([str(project.home / "clients" / name), *STARTED[name]])
    run([*connect, "--undo"])
    left = {path for path in project.home.rglob("*") if path.is_file() and "cache" not in path.parts} - before
    assert not [path for path in left if gateway.url in path.read_text(encoding="utf-8", errors="replace")]
