"""Somebody else's repository as a workspace: nothing in it is run, whatever its configuration says.

Each trap is proven with git itself first. Then every endpoint that looks at a workspace, and every command that may run
in one, must leave it alone. Besides, the gateway never starts git at all.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from tests.cli.processes import finished
from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import http_client, standin

GIT = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0", "PAGER": "cat", "PATH": "/usr/bin:/bin"}
IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@b")


def git(folder: Path, *words: str) -> None:
    environment = {**GIT, "HOME": str(folder)}
    subprocess.run(["git", *IDENTITY, *words], cwd=folder, env=environment, check=True, capture_output=True, timeout=60)


def try_git(folder: Path, *words: str) -> None:
    """As a person would, in a terminal. It may fail."""
    terminal, output = os.openpty()
    with open(terminal, "rb"), open(output, "wb") as opened:
        subprocess.run(
            ["git", *words],
            cwd=folder,
            env={**GIT, "HOME": str(folder)},
            input=b"protocol=https\nhost=a.example\n\n",
            stdout=opened,
            stderr=opened,
            check=False,
            timeout=60,
        )


class Trap:
    """A repository and the program that it wants to have run, which leaves a file beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sprung = folder.parent / f"{folder.name}.sprung"
        self.program = folder.parent / f"{folder.name}.sh"
        self.program.write_text(f"#!/bin/sh\ntouch '{self.sprung}'\nexit 1\n")
        self.program.chmod(0o755)
        folder.mkdir()
        git(folder, "init", "-q")
        (folder / "a.py").write_text("1\n")
        git(folder, "add", ".")
        git(folder, "commit", "-qm", "first")

    def set(self, name: str, value: str) -> None:
        git(self.folder, "config", name, value)


def _fsmonitor(trap: Trap) -> tuple[str, ...]:
    trap.set("core.fsmonitor", str(trap.program))
    return ("status",)


def _hooks(trap: Trap) -> tuple[str, ...]:
    hooks = trap.folder / "hooks"
    hooks.mkdir()
    for name in ("post-checkout", "pre-commit", "post-index-change", "fsmonitor-watchman"):
        (hooks / name).symlink_to(trap.program)
    trap.set("core.hooksPath", "hooks")
    return (*IDENTITY, "commit", "--allow-empty", "-m", "x")


def _textconv(trap: Trap) -> tuple[str, ...]:
    (trap.folder / ".gitattributes").write_text("*.py diff=x\n")
    trap.set("diff.x.textconv", str(trap.program))
    (trap.folder / "a.py").write_text("2\n")
    return ("diff",)


def _external_diff(trap: Trap) -> tuple[str, ...]:
    trap.set("diff.external", str(trap.program))
    (trap.folder / "a.py").write_text("2\n")
    return ("diff",)


def _filter(trap: Trap) -> tuple[str, ...]:
    (trap.folder / ".gitattributes").write_text("*.py filter=x\n")
    trap.set("filter.x.clean", str(trap.program))
    (trap.folder / "a.py").write_text("2\n")
    return ("add", ".")


def _ssh_command(trap: Trap) -> tuple[str, ...]:
    trap.set("core.sshCommand", str(trap.program))
    trap.set("remote.origin.url", "ssh://127.0.0.1:1/x")
    return ("fetch", "origin")


def _credential_helper(trap: Trap) -> tuple[str, ...]:
    trap.set("credential.helper", f"!{trap.program}")
    return ("credential", "fill")


def _include(trap: Trap) -> tuple[str, ...]:
    (trap.folder / "more").write_text(f"[core]\n\tfsmonitor = {trap.program}\n")
    trap.set("include.path", "../more")
    return ("status",)


def _alias(trap: Trap) -> tuple[str, ...]:
    trap.set("alias.lsfiles", f"!{trap.program}")
    return ("lsfiles",)


def _pager(trap: Trap) -> tuple[str, ...]:
    trap.set("core.pager", str(trap.program))
    return ("--paginate", "log")


def _lazy_fetch(trap: Trap) -> tuple[str, ...]:
    """A `.gitignore` that is in the index alone, and whose content only the remote has."""
    (trap.folder / ".gitignore").write_text("*.log\n")
    git(trap.folder, "add", ".gitignore")
    git(trap.folder, "commit", "-qm", "second")
    stored = subprocess.run(
        ["git", "rev-parse", "HEAD:.gitignore"], cwd=trap.folder, capture_output=True, text=True, check=True
    ).stdout.strip()
    (trap.folder / ".git" / "objects" / stored[:2] / stored[2:]).unlink()
    (trap.folder / ".gitignore").unlink()
    trap.set("core.repositoryformatversion", "1")
    trap.set("extensions.partialClone", "origin")
    trap.set("remote.origin.url", str(trap.folder))
    trap.set("remote.origin.promisor", "true")
    trap.set("remote.origin.uploadpack", str(trap.program))
    (trap.folder / "b.py").touch()
    return ("-c", "core.sparseCheckout=false", "cat-file", "-p", stored)


def _submodule(trap: Trap) -> tuple[str, ...]:
    inner = trap.folder / "module"
    inner.mkdir()
    git(inner, "init", "-q")
    git(inner, "commit", "-q", "--allow-empty", "-m", "x")
    git(trap.folder, "add", "module")
    git(inner, "config", "core.fsmonitor", str(trap.program))
    return ("status",)


def _bare_repository(trap: Trap) -> tuple[str, ...]:
    """Its files look like any others', so a clone can contain it."""
    bare = trap.folder / "data"
    git(trap.folder, "init", "-q", "--bare", "data")
    with (bare / "config").open("a") as config:
        config.write(f"[core]\n\tbare = false\n\tworktree = ..\n\tfsmonitor = {trap.program}\n")
    return ("-C", "data", "status")


WAYS: dict[str, Callable[[Trap], tuple[str, ...]]] = {
    "fsmonitor": _fsmonitor,
    "hooksPath": _hooks,
    "textconv": _textconv,
    "external diff": _external_diff,
    "filter": _filter,
    "sshCommand": _ssh_command,
    "credential helper": _credential_helper,
    "include": _include,
    "alias": _alias,
    "pager": _pager,
    "lazy fetch": _lazy_fetch,
    "submodule": _submodule,
    "bare repository": _bare_repository,
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """The first `git` in its path leaves a file, whoever starts it."""
    home = tmp_path_factory.mktemp("repositories")
    (home / "bin").mkdir()
    program = home / "bin" / "git"
    program.write_text(f"#!/bin/sh\ntouch '{home}/git.started'\nexec /usr/bin/git \"$@\"\n")
    program.chmod(0o755)
    with running_gateway(home) as running:
        yield running


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize("way", WAYS)
def test_a_repository_runs_nothing(gateway: RunningGateway, way: str) -> None:
    trap = Trap(gateway.workspace / way.replace(" ", "-"))
    command = WAYS[way](trap)
    try_git(trap.folder, *command)
    assert trap.sprung.exists()  # it is a trap
    trap.sprung.unlink()
    with http_client(gateway) as client:
        _look_everywhere(client, trap.folder)
        _look_everywhere(client, trap.folder / "data" if way == "bare repository" else trap.folder.parent)
    for words in (("doctor",), ("chat", standin("text"))):
        finished(
            *words,
            CURSOR_GATEWAY_WORKSPACE=str(trap.folder),
            CURSOR_GATEWAY_DATA_DIR=str(gateway.home / "other"),
            HOME=str(gateway.home),
            PATH=f"{gateway.home / 'bin'}:/usr/bin:/bin",
        )
    assert not trap.sprung.exists()
    assert not (gateway.home / "git.started").exists()


def _look_everywhere(client: httpx2.Client, folder: Path) -> None:
    workspace = {"workspace": str(folder)}
    listed = client.get("/v1/workspace/files", params=workspace).json()["files"]
    assert listed
    assert client.get("/v1/workspace/folders", params={"q": f"{folder}/"}).status_code == 200
    answer = client.post("/v1/chat", json={"message": standin("edit path=new.py", "x = 1"), **workspace})
    assert answer.status_code == 200, answer.text
    conversation = answer.headers["x-conversation-id"]
    for path in ("", "/changes", "/export"):
        assert client.get(f"/v1/conversations/{conversation}{path}").status_code == 200
    client.post(f"/v1/conversations/{conversation}/revert", json={})
