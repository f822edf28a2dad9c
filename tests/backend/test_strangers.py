"""What a cloned repository brings: Cursor's own runtime starts none of it unless the operator allows it."""

import json
from pathlib import Path

from tests.backend.conftest import client_of, program, runtime_gateway
from tests.backend.server import Backend
from tests.server.conftest import eventually

WORK = program({"native": "shell", "args": {"command": "true"}}, {"say": "Done."})
STARTED = {"cursor-hook", "claude-hook", "local-hook", "server"}  # where it is allowed


def clone(workspace: Path, marks: Path) -> None:
    """A repository in which each file starts a program that leaves a mark."""
    marks.mkdir()

    def touch(name: str) -> str:
        return f"touch {marks}/{name}"

    hooks = {"version": 1, "hooks": {"preToolUse": [{"command": touch("cursor-hook")}]}}
    server = {"mcpServers": {"stranger": {"command": "/bin/sh", "args": ["-c", touch("server")]}}}
    files: dict[str, object] = {".cursor/hooks.json": hooks, ".cursor/mcp.json": server}
    for file, name in (("settings.json", "claude-hook"), ("settings.local.json", "local-hook")):
        command = {"type": "command", "command": touch(name)}
        files[f".claude/{file}"] = {"hooks": {"PreToolUse": [{"matcher": "*", "hooks": [command]}]}}
    for path, content in files.items():
        (workspace / path).parent.mkdir(exist_ok=True)
        (workspace / path).write_text(json.dumps(content))


def started(marks: Path) -> set[str]:
    return {mark.name for mark in marks.iterdir()}


def test_it_is_refused_and_used_where_it_is_allowed(tmp_path: Path, backend: Backend) -> None:
    home, marks = tmp_path / "home", tmp_path / "marks"
    home.mkdir()
    allowed = str(home / "work" / "own")
    with runtime_gateway(home, backend, allow_workspace_hooks=allowed) as gateway, client_of(gateway) as client:
        own, cloned = gateway.workspace / "own", gateway.workspace / "cloned"
        for folder in (own, cloned):
            folder.mkdir()
        clone(cloned, marks)
        refused = client.post("/v1/chat", json={"message": WORK, "workspace": "cloned"})
        assert (refused.status_code, "hooks.json" in refused.text) == (403, True)
        assert not backend.requests
        assert started(marks) == set()
        marks.rmdir()
        clone(own, marks)
        assert client.post("/v1/chat", json={"message": WORK, "workspace": "own"}).json()["status"] == "completed"
        eventually(lambda: started(marks) == STARTED)  # each of them is run, so each must be refused


def test_the_settings_of_a_workspace_can_be_left_out(tmp_path: Path, backend: Backend) -> None:
    """Also those that nobody has refused."""
    home, marks = tmp_path / "home", tmp_path / "marks"
    home.mkdir()
    given = runtime_gateway(home, backend, sdk_settings="false", refuse_workspace_hooks="false")
    with given as gateway, client_of(gateway) as client:
        clone(gateway.workspace, marks)
        assert client.post("/v1/chat", json={"message": WORK}).json()["status"] == "completed"
    assert started(marks) == set()
