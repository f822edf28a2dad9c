"""The runtime's home folder: the user's own files by links, the gateway's hook, and a shell with the user's home."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cursor_gateway.sources.sdk.bridge import make_home, project_folders, write_project_hook

SOCKET = "/tmp/x y/socket"


@pytest.fixture
def user(tmp_path: Path) -> Path:
    user = tmp_path / "user"
    (user / ".cursor" / "rules").mkdir(parents=True)
    (user / ".cursor" / "projects").mkdir()
    (user / ".gitconfig").write_text("[user]\n")
    (user / ".cursor" / "mcp.json").write_text("{}")
    return user


def made(user: Path, folder: Path, *, loads_settings: bool = True, **environ: str) -> dict[str, str]:
    known = {"HOME": str(user), "PATH": "/usr/bin:/bin", "SHELL": "/bin/bash", **environ}
    return make_home(folder, SOCKET, known, loads_settings=loads_settings)


def hooks(home: str | Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((Path(home) / ".cursor" / "hooks.json").read_text())["hooks"]["preToolUse"]
    return found


def test_the_users_files_and_settings_are_there(user: Path, tmp_path: Path) -> None:
    home = Path(made(user, tmp_path / "sdk")["HOME"])
    assert (home / ".gitconfig").readlink() == user / ".gitconfig"
    assert (home / ".cursor" / "mcp.json").readlink() == user / ".cursor" / "mcp.json"
    assert (home / ".cursor" / "rules").is_dir()
    assert not (home / ".cursor" / "projects").exists()
    (hook,) = hooks(home)
    assert hook["failClosed"] is True
    assert hook["timeout"] >= 3600
    assert hook["command"].endswith(f"'{SOCKET}'")


def test_without_settings_there_is_only_the_hook(user: Path, tmp_path: Path) -> None:
    (user / ".claude").mkdir()
    made(user, tmp_path / "sdk")
    home = Path(made(user, tmp_path / "sdk", loads_settings=False)["HOME"])
    assert os.listdir(home / ".cursor") == ["hooks.json"]
    assert sorted(os.listdir(home)) == [".cursor", ".gitconfig"]


def test_the_users_hooks_stay(user: Path, tmp_path: Path) -> None:
    own = {"version": 1, "hooks": {"preToolUse": [{"command": "mine"}], "stop": [{"command": "end"}]}}
    (user / ".cursor" / "hooks.json").write_text(json.dumps(own))
    home = made(user, tmp_path / "sdk")["HOME"]
    assert [hook["command"] for hook in hooks(home)][1:] == ["mine"]
    assert json.loads((Path(home) / ".cursor" / "hooks.json").read_text())["hooks"]["stop"] == [{"command": "end"}]
    for broken in ("nonsense", "[]", '{"hooks": {"preToolUse": 1}}'):
        (user / ".cursor" / "hooks.json").write_text(broken)
        assert len(hooks(made(user, tmp_path / "sdk")["HOME"])) == 1


def test_what_is_gone_has_no_link(user: Path, tmp_path: Path) -> None:
    made(user, tmp_path / "sdk")
    (user / ".gitconfig").unlink()
    (user / ".netrc").write_text("x")
    home = made(user, tmp_path / "sdk")["HOME"]
    assert sorted(os.listdir(home)) == [".cursor", ".netrc"]


def test_a_planted_link_is_replaced(user: Path, tmp_path: Path) -> None:
    home = Path(made(user, tmp_path / "sdk")["HOME"])
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (home / ".cursor" / "hooks.json").unlink()
    (home / ".cursor" / "hooks.json").symlink_to(victim)
    made(user, tmp_path / "sdk")
    assert victim.read_text() == "mine"
    assert len(hooks(home)) == 1


@pytest.mark.parametrize(
    ("shell", "path", "name"),
    [("/bin/bash", "/usr/bin:/bin", "bash"), ("/bin/sh", "/nowhere", "sh"), ("", "/nowhere", "sh")],
)
def test_the_shell_has_the_users_home(user: Path, tmp_path: Path, shell: str, path: str, name: str) -> None:
    found = made(user, tmp_path / "sdk dir", SHELL=shell, PATH=path)
    assert os.path.basename(found["SHELL"]) == name
    done = subprocess.run(
        [found["SHELL"], "-c", "echo $HOME $0 $1", "a", "b c"], env=found, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{user} a b c\n"


def test_a_folder_of_the_gateway_gets_the_hook(tmp_path: Path) -> None:
    write_project_hook(tmp_path / "data" / "scratch", str(tmp_path / "data"), SOCKET)
    assert len(hooks(tmp_path / "data" / "scratch")) == 1


def test_where_conversations_are_kept(tmp_path: Path) -> None:
    """Also those of a time when the runtime had the user's own home folder."""
    assert project_folders(tmp_path, {"HOME": "/home/me"}, "/data/conversations/conv_1/scratch") == [
        tmp_path / "home/.cursor/projects/data-conversations-conv-1-scratch",
        Path("/home/me/.cursor/projects/data-conversations-conv-1-scratch"),
    ]
