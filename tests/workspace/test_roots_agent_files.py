"""Which files of a workspace start programs with the agent, or allow it more."""

import json
import os
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from cursor_gateway.workspace import roots as module
from cursor_gateway.workspace.roots import agent_files

HOOKS = {"preToolUse": [{"command": "evil"}]}
SERVERS = {"mcpServers": {"evil": {"command": "evil"}}}
CONTENTS: dict[str, list[dict[str, Any]]] = {
    ".cursor/hooks.json": [{"version": 1, "hooks": HOOKS}],
    # A server may have any name.
    ".cursor/mcp.json": [
        SERVERS,
        {"evil": {"url": "http://evil"}},
        {"mcpServers": {"version": {"command": "evil"}}},
        {"version": {"command": "evil"}},
    ],
    ".cursor/cli.json": [{"permissions": {"allow": ["Shell(rm)"]}}, {"permissions": "all"}, {"approvalMode": "all"}],
    ".cursor/permissions.json": [{"terminalAllowlist": ["rm"]}, {"autoRun": {"allow_instructions": ["everything"]}}],
    ".cursor/sandbox.json": [{"type": "insecure_none"}, {"additionalReadwritePaths": ["/"]}],
    ".cursor/settings.json": [{"plugins": {"evil": {"enabled": True, "gitUrl": "https://evil.example"}}}],
    ".claude/settings.json": [{"hooks": HOOKS}, {"enabledPlugins": {"evil@market": True}}],
    ".claude/settings.local.json": [{"hooks": HOOKS}],
    ".mcp.json": [SERVERS],
}
PERMISSIONS = {"permissions": {"allow": ["Bash(ls)"], "deny": ["Read(.env)"]}, "env": {"A": "b"}}
HARMLESS: list[tuple[str, dict[str, Any]]] = [
    (".cursor/hooks.json", {"version": 1, "hooks": {}}),
    (".cursor/hooks.json", {"version": 1, "hooks": {"preToolUse": []}}),
    (".cursor/mcp.json", {"mcpServers": {}}),
    (".cursor/cli.json", {"version": 1, "permissions": {"allow": [], "deny": ["Shell(rm)"]}}),
    (".cursor/permissions.json", {"terminalAllowlist": [], "mcpAllowlist": []}),
    (".cursor/sandbox.json", {}),
    (".cursor/settings.json", {"plugins": {}, "editor": "vim"}),
    (".claude/settings.json", {"$schema": "https://example.com", **PERMISSIONS}),
    (".claude/settings.local.json", {**PERMISSIONS, "hooks": {}, "enabledPlugins": {"plugin@market": False}}),
    (".mcp.json", {}),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A workspace below the beginning of a repository."""
    below = tmp_path / "repository" / "below" / "deep"
    below.mkdir(parents=True)
    return below


def put(folder: Path, name: str, content: object) -> Path:
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


def paths(workspace: Path) -> list[Path]:
    return [file.path for file in agent_files(str(workspace))]


@pytest.mark.parametrize("name", CONTENTS)
def test_files_that_start_or_allow_something(folder: Path, name: str) -> None:
    for content in CONTENTS[name]:
        file = put(folder, name, content)
        (found,) = agent_files(str(folder))
        assert (found.folder, found.path) == (folder, file)


@pytest.mark.parametrize(("name", "content"), HARMLESS)
def test_files_that_do_not(folder: Path, name: str, content: object) -> None:
    put(folder, name, content)
    assert paths(folder) == []


BROKEN = [
    "",
    "[]",
    "null",
    '{"hooks": {}} // none',
    '\ufeff{"hooks": {}}',
    '{"hooks": ' * 100_000,
    '{"a": ' * 600 + "1" + "}" * 600,
]


@pytest.mark.parametrize("content", BROKEN, ids=range(len(BROKEN)))
def test_what_cannot_be_understood_counts(folder: Path, content: str) -> None:
    assert paths(folder) == []
    file = put(folder, ".cursor/hooks.json", content)
    assert paths(folder) == [file]


def test_what_is_too_large_counts(folder: Path) -> None:
    file = put(folder, ".mcp.json", "{}".ljust(1024 * 1024) + json.dumps(SERVERS))
    assert paths(folder) == [file]


def test_what_cannot_be_read_counts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = put(folder, ".mcp.json", " " * (module._MAX_BYTES - 2) + "{}")
    assert paths(folder) == []
    put(folder, ".mcp.json", " " * (module._MAX_BYTES - 1) + "{}")
    assert paths(folder) == [file]
    file.write_bytes("{}".encode("utf-16"))
    assert paths(folder) == [file]
    file.unlink()
    os.mkfifo(file)
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", None)
        assert paths(folder) == [file]
    file.unlink()
    file.symlink_to(folder / "missing")
    assert paths(folder) == [file]
    file.unlink()
    put(folder, ".cursor", "")  # not a folder
    assert paths(folder) == []

    (folder / ".cursor").unlink()
    (folder / ".cursor").mkdir()
    look = os.lstat

    def refuse(path: str) -> os.stat_result:
        if "/.cursor/" in path:
            raise PermissionError(path)
        return look(path)

    monkeypatch.setattr(os, "lstat", refuse)
    names = ("hooks.json", "mcp.json", "cli.json", "permissions.json", "sandbox.json", "settings.json")
    assert paths(folder) == [folder / ".cursor" / name for name in names]


def test_a_file_is_read_again_only_if_it_has_changed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = put(folder, ".cursor/mcp.json", {"mcpServers": {}})
    sleep(0.05)
    assert paths(folder) == []
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", None)
        assert paths(folder) == []
    known = file.stat()
    sleep(0.02)  # a tick of the file system's clock
    file.write_text('{"mcpServers": 77}')  # as long as before
    os.utime(file, ns=(known.st_atime_ns, known.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (known.st_size, known.st_mtime_ns)
    assert paths(folder) == [file]


def test_a_file_that_has_just_changed_is_not_remembered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may change again within one tick of the file system's clock, and look the same."""
    file = put(folder, ".mcp.json", "{}".ljust(len(json.dumps(SERVERS))))
    known = os.stat(file)
    monkeypatch.setattr("time.time_ns", lambda: known.st_ctime_ns + 1_000_000)
    monkeypatch.setattr(module, "_version", lambda found: (1,))  # always the same
    assert not paths(folder)
    file.write_text(json.dumps(SERVERS))
    assert paths(folder) == [file]


def test_what_was_looked_at_is_what_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders that are exchanged in between do not make a file known as harmless."""
    evil, other = put(folder, ".cursor/mcp.json", SERVERS), put(folder, "other/mcp.json", {})
    real_open = os.open

    def exchanged(path: str, flags: int) -> int:
        return real_open(other, flags)

    sleep(0.05)
    monkeypatch.setattr(os, "open", exchanged)
    assert paths(folder) == [evil]
    monkeypatch.undo()
    assert paths(folder) == [evil]


def test_all_folders_up_to_the_beginning_of_the_repository_count(folder: Path) -> None:
    repository = folder.parents[1]
    above = put(repository, ".mcp.json", SERVERS)
    assert paths(folder) == []  # another folder's, as far as the agent is concerned
    (repository / ".git").mkdir()
    own = put(folder, ".mcp.json", SERVERS)
    assert paths(folder) == [own, above]
    (folder / ".git").touch()  # a worktree of its own
    assert paths(folder) == [own]


def test_those_in_the_home_folder_are_the_users_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(folder, ".cursor/mcp.json", SERVERS)
    (folder / "link").symlink_to(folder)
    monkeypatch.setenv("HOME", str(folder / "link"))
    assert paths(folder) == []
    (folder / ".git").mkdir()
    (folder / "below").mkdir()
    own = put(folder / "below", ".mcp.json", SERVERS)
    assert paths(folder / "below") == [own]
