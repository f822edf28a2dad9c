"""Which files tell an agent that was started in advance from one that is started now."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cursor_gateway.sources.cursor import agent_files as module
from cursor_gateway.sources.cursor.agent_files import agent_files


def looked(home: Path) -> module.AgentFiles | None:
    (home / "repo/project").mkdir(parents=True, exist_ok=True)
    return agent_files({"HOME": str(home)}, str(home / "repo/project"))


def write(path: Path, text: str = "x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    "name",
    [
        ".cursor/cli-config.json",
        ".cursor/rules/mine.mdc",
        ".config/cursor/auth.json",
        ".claude/settings.json",
        "repo/AGENTS.md",
        "repo/.git/HEAD",
        "repo/.cursor/rules/deep/down.mdc",
        "repo/project/.cursor/mcp.json",
        "repo/project/CLAUDE.md",
    ],
)
def test_a_file_that_an_agent_reads_counts(tmp_path: Path, name: str) -> None:
    before = looked(tmp_path)
    write(tmp_path / name)
    written = looked(tmp_path)
    write(tmp_path / name, "y")
    changed = looked(tmp_path)
    assert len({before, written, changed}) == 3


@pytest.mark.parametrize("name", [".cursor/projects/x/worker.log", ".cursor/chats/a/store.db", "repo/project/main.py"])
def test_what_agents_write_and_the_users_work_do_not_count(tmp_path: Path, name: str) -> None:
    before = looked(tmp_path)
    write(tmp_path / name)
    assert looked(tmp_path) == before


def test_the_users_files_count_by_their_content(tmp_path: Path) -> None:
    """Each agent writes some of them again."""
    file = tmp_path / ".cursor/cli-config.json"
    write(file)
    before = looked(tmp_path)
    file.unlink()
    write(file)
    assert looked(tmp_path) == before


@pytest.mark.parametrize("change", [lambda file: os.utime(file, ns=(1, 1)), lambda file: write(file, "yy")])
def test_a_large_file_counts_by_its_size_and_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    monkeypatch.setattr(module, "_LARGEST", 0)
    file = tmp_path / ".cursor/cli-config.json"
    write(file)
    before = looked(tmp_path)
    change(file)
    assert looked(tmp_path) != before


def test_rules_behind_a_link_count(tmp_path: Path) -> None:
    rules = tmp_path / "repo/project/.cursor/rules"
    write(tmp_path / "shared/a.mdc")
    rules.parent.mkdir(parents=True)
    rules.symlink_to(tmp_path / "shared")
    (tmp_path / "shared/again").symlink_to(tmp_path / "shared")  # without an end
    before = looked(tmp_path)
    write(tmp_path / "shared/a.mdc", "yy")
    assert looked(tmp_path) != before


def test_too_many_are_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 2)
    for number in range(3):
        write(tmp_path / f"repo/project/.cursor/rules/{number}.mdc")
    assert looked(tmp_path) is None
