"""The agent's configuration: found where the agent looks, and copied without harm to what is there."""

import errno
import json
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from cursor_gateway.errors import AgentMisconfigured, HostExhausted
from cursor_gateway.model.caller_tools import Tool, ToolResult
from cursor_gateway.sources.base import OfferedTools, Turn
from cursor_gateway.sources.cursor import configuration
from cursor_gateway.sources.cursor.command import CommandOptions, Program, command_for
from cursor_gateway.sources.cursor.configuration import (
    ALLOWED_TOOLS,
    SETTINGS,
    agent_files,
    check_confinable,
    configuration_of,
    configuration_stamp,
    confine,
    copy_configuration,
    read_settings,
    set_rules,
    use_http1,
    user_configuration,
    without_proxy,
)


@pytest.fixture
def user(tmp_path: Path) -> Path:
    folder = tmp_path / "user"
    folder.mkdir()
    (folder / "cli-config.json").write_text('{"model":"auto"}')
    (folder / "mcp.json").write_text("{}")
    return folder


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return tmp_path / "conversation" / "cursor"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- where it is ----------------------------------------------------------------------------------------


def test_it_is_where_the_agent_would_look(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    assert user_configuration({"HOME": str(tmp_path)}) == tmp_path / ".cursor"
    assert user_configuration(environ) == tmp_path / ".cursor"
    (tmp_path / "config" / "cursor").mkdir(parents=True)
    assert user_configuration(environ) == tmp_path / "config" / "cursor"
    assert user_configuration({**environ, "CURSOR_CONFIG_DIR": "/given"}) == Path("/given")
    assert user_configuration({**environ, "CURSOR_CONFIG_DIR": "", "XDG_CONFIG_HOME": ""}) == tmp_path / ".cursor"


def test_every_change_of_it_or_of_the_login_shows(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "CURSOR_CONFIG_DIR": str(tmp_path / "user")}
    seen = [configuration_stamp(environ)]
    for file in ("user/cli-config.json", ".config/cursor/auth.json"):
        path = tmp_path / file
        path.parent.mkdir(parents=True)
        path.write_text("{}")
        seen.append(configuration_stamp(environ))
        os.utime(path, (1, 1))
        seen.append(configuration_stamp(environ))
        path.unlink()
    assert len({*seen}) == len(seen)
    (tmp_path / "user" / "chats").mkdir()
    assert configuration_stamp(environ) == seen[0] == frozenset()
    elsewhere = tmp_path / "elsewhere" / "cursor"
    elsewhere.mkdir(parents=True)
    (elsewhere / "auth.json").write_text("{}")
    assert configuration_stamp({**environ, "XDG_CONFIG_HOME": str(elsewhere.parent)})


def test_without_a_home_in_the_environment_the_system_knows_one() -> None:
    assert user_configuration({}) == Path(os.path.expanduser("~")) / ".cursor"


# --- the copy -------------------------------------------------------------------------------------------


def test_the_files_are_copied_and_the_folders_are_not(user: Path, copy: Path) -> None:
    (user / "chats").mkdir()
    (user / "chats" / "meta.json").touch()
    copy_configuration(user, copy, copy.parents[1])
    assert names(copy) == ["cli-config.json", "mcp.json"]
    assert (copy / "cli-config.json").read_text() == '{"model":"auto"}'


def test_nobody_else_may_read_the_copy(user: Path, copy: Path) -> None:
    (user / "auth.json").write_text("secret")
    (user / "auth.json").chmod(0o644)
    copy_configuration(user, copy, copy.parents[1])
    assert stat.S_IMODE(copy.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in copy.iterdir()} == {0o600}


def test_the_original_is_not_touched(user: Path, copy: Path) -> None:
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_mode) for path in user.iterdir()}
    copy_configuration(user, copy, copy.parents[1])
    (copy / "cli-config.json").write_text("changed by a run")
    assert {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_mode) for path in user.iterdir()
    } == before


def test_a_later_turn_brings_what_the_user_has_changed_and_keeps_what_the_agent_has_made(
    user: Path, copy: Path
) -> None:
    copy_configuration(user, copy, copy.parents[1])
    (copy / "chats").mkdir()
    (copy / "chats" / "store.db").write_text("chat")
    (copy / "cli-config.json").write_text("changed by a run")
    (user / "mcp.json").write_text('{"new":1}')
    copy_configuration(user, copy, copy.parents[1])
    assert (copy / "chats" / "store.db").read_text() == "chat"
    assert (copy / "mcp.json").read_text() == '{"new":1}'
    assert (copy / "cli-config.json").read_text() == '{"model":"auto"}'


def test_a_user_without_configuration_has_an_empty_copy(tmp_path: Path, copy: Path) -> None:
    copy_configuration(tmp_path / "missing", copy, copy.parents[1])
    assert names(copy) == []
    (tmp_path / "file").touch()
    copy_configuration(tmp_path / "file", copy, copy.parents[1])
    assert names(copy) == []


def test_links_are_followed_to_files_and_the_copy_is_none(user: Path, copy: Path, tmp_path: Path) -> None:
    """Some keep their settings in a folder under version control, and links to them in their home."""
    (tmp_path / "dotfiles").mkdir()
    (tmp_path / "dotfiles" / "rules.json").write_text("rules")
    (user / "rules.json").symlink_to(tmp_path / "dotfiles" / "rules.json")
    (user / "folder").symlink_to(tmp_path / "dotfiles")
    (user / "dangling").symlink_to(tmp_path / "missing")
    (user / "circle").symlink_to(user / "circle")
    copy_configuration(user, copy, copy.parents[1])
    assert names(copy) == ["cli-config.json", "mcp.json", "rules.json"]
    assert not (copy / "rules.json").is_symlink()
    (copy / "rules.json").write_text("changed by a run")
    assert (tmp_path / "dotfiles" / "rules.json").read_text() == "rules"


def test_a_link_in_the_copy_is_replaced_and_not_written_through(user: Path, copy: Path, tmp_path: Path) -> None:
    copy.mkdir(parents=True)
    (tmp_path / "target").write_text("untouched")
    (copy / "mcp.json").symlink_to(tmp_path / "target")
    copy_configuration(user, copy, copy.parents[1])
    assert (tmp_path / "target").read_text() == "untouched"
    assert (copy / "mcp.json").read_text() == "{}"


def test_settings_in_a_copy_are_read_through_no_link(copy: Path, tmp_path: Path) -> None:
    """An agent that is another user than the gateway could have it read any file."""
    copy.mkdir(parents=True)
    (tmp_path / "own.json").write_text('{"secret": 1}')
    (copy / SETTINGS).symlink_to(tmp_path / "own.json")
    assert read_settings(copy, copy.parents[1]) == {}
    assert read_settings(copy) == {"secret": 1}  # of the gateway's own user


def test_a_configuration_that_is_a_link_is_followed(user: Path, copy: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(user)
    copy_configuration(tmp_path / "link", copy, copy.parents[1])
    assert names(copy) == ["cli-config.json", "mcp.json"]


def test_what_is_no_settings_file_is_left_out(user: Path, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(user / "pipe")
    (user / "large.log").write_bytes(b"x" * 101)
    (user / "small.log").write_bytes(b"x" * 100)
    monkeypatch.setattr(configuration, "_LARGEST", 100)
    copy_configuration(user, copy, copy.parents[1])
    assert names(copy) == ["cli-config.json", "mcp.json", "small.log"]


def test_a_file_that_is_gone_in_the_same_moment_is_none(
    user: Path, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another agent of the user writes its settings to a file beside them first."""
    read = configuration._read

    def race(source: str) -> bytes:
        if source.endswith("cli-config.json.123"):
            os.unlink(source)
        return read(source)

    (user / "cli-config.json.123").touch()
    monkeypatch.setattr(configuration, "_read", race)
    copy_configuration(user, copy, copy.parents[1])
    assert names(copy) == ["cli-config.json", "mcp.json"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_what_cannot_be_copied_for_now_is_worth_another_try(
    user: Path, copy: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(source: str) -> bytes:
        raise OSError(number, os.strerror(number), source)

    monkeypatch.setattr(configuration, "_read", fail)
    with pytest.raises(HostExhausted, match=os.strerror(number)):
        copy_configuration(user, copy, copy.parents[1])


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])
def test_what_cannot_be_copied_is_reported(
    user: Path, copy: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(source: str) -> bytes:
        raise OSError(number, os.strerror(number), source)

    monkeypatch.setattr(configuration, "_read", fail)
    with pytest.raises(AgentMisconfigured, match=os.strerror(number)) as caught:
        copy_configuration(user, copy, copy.parents[1])
    assert Path(caught.value.details).parent == user


def test_a_copy_that_has_no_place_is_reported(user: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AgentMisconfigured, match="Not a directory"):
        copy_configuration(user, tmp_path / "file" / "cursor", tmp_path)


def permissions_in(folder: Path) -> object:
    settings = json.loads((folder / "cli-config.json").read_text())
    assert settings["version"] == 1
    return settings.get("permissions")


def test_rules_are_added_to_the_copy_alone_and_for_one_run(tmp_path: Path) -> None:
    user, copy = tmp_path / "user", tmp_path / "data" / "conversations" / "conv_1"
    user.mkdir()
    own = {"version": 1, "permissions": {"allow": ["Shell(git)"], "deny": ["Shell(rm)"]}, "model": {"modelId": "x"}}
    (user / "cli-config.json").write_text(json.dumps(own))
    for rules in (["Shell(npm)", "Shell(git)"], ["Mcp(a:b)"], []):
        copy_configuration(user, copy, tmp_path / "data")
        set_rules(user, copy, tmp_path / "data", rules)
        added = [rule for rule in rules if rule != "Shell(git)"]
        assert permissions_in(copy) == {"allow": ["Shell(git)", *added], "deny": ["Shell(rm)"]}
        assert json.loads((copy / "cli-config.json").read_text())["model"] == {"modelId": "x"}
    assert json.loads((user / "cli-config.json").read_text()) == own


def test_without_settings_the_agents_own_rule_stays_and_old_rules_go(tmp_path: Path) -> None:
    user, copy = tmp_path / "user", tmp_path / "data" / "copy"
    user.mkdir()
    copy_configuration(user, copy, tmp_path / "data")
    set_rules(user, copy, tmp_path / "data", [])
    assert not (copy / "cli-config.json").exists()
    set_rules(user, copy, tmp_path / "data", ["Shell(npm)"])
    assert permissions_in(copy) == {"allow": ["Shell(ls)", "Shell(npm)"], "deny": []}
    set_rules(user, copy, tmp_path / "data", [])
    assert permissions_in(copy) == {"allow": ["Shell(ls)"], "deny": []}


def test_http_1_is_added_to_the_copy_alone(user: Path, copy: Path, tmp_path: Path) -> None:
    copy_configuration(user, copy, tmp_path)
    before = (user / "cli-config.json").read_bytes()
    use_http1(copy, tmp_path)
    assert read_settings(copy)["network"] == {"useHttp1ForAgent": True}
    (copy / "cli-config.json").write_text('{"network": {"a": 1}, "b": 2}')
    use_http1(copy, tmp_path)
    assert read_settings(copy) == {"version": 1, "network": {"a": 1, "useHttp1ForAgent": True}, "b": 2}
    assert (user / "cli-config.json").read_bytes() == before


def test_strange_settings_are_no_reason_to_fail(tmp_path: Path) -> None:
    user, copy = tmp_path / "user", tmp_path / "data" / "copy"
    user.mkdir()
    for text in ("no JSON", '{"version": 1, "permissions": 7}', '{"version": 1, "permissions": {"allow": 7}}'):
        (user / "cli-config.json").write_text(text)
        copy_configuration(user, copy, tmp_path / "data")
        set_rules(user, copy, tmp_path / "data", ["Shell(npm)"])
        assert permissions_in(copy) == {"allow": ["Shell(ls)", "Shell(npm)"], "deny": []}
    (tmp_path / "data" / "link").symlink_to(tmp_path)
    with pytest.raises(AgentMisconfigured):
        set_rules(user, tmp_path / "data" / "link", tmp_path / "data", ["Shell(npm)"])


# --- Runs with the caller's tools ------------------------------------------------------------------


class Nobody:
    """Runs no tools."""

    tools: Sequence[Tool] = ()

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        raise NotImplementedError


OFFERED = OfferedTools(server="caller", url="http://127.0.0.1:1/mcp/secret", runner=Nobody())
FLAGS = frozenset({"--approve-mcps", "--trust", "--workspace"})


@pytest.fixture
def original(tmp_path: Path) -> Path:
    folder = tmp_path / "user"
    folder.mkdir()
    (folder / "mcp.json").write_text('{"mcpServers": {"mine": {"command": "rm"}}}')
    (folder / "hooks.json").write_text("{}")
    (folder / "auth.json").write_text('{"token": 1}')
    rules = {"allow": ["Shell(*)"], "deny": []}
    (folder / "cli-config.json").write_text(
        json.dumps({"version": 1, "permissions": rules, "approvalMode": "unrestricted", "editor": {"vim": True}})
    )
    return folder


def turn(folder: Path, offered: OfferedTools | None = OFFERED) -> Turn:
    return Turn(run_id="r", prompt="hello", model="auto", workspace="/work", folder=str(folder), offered=offered)


def test_all_is_denied_but_the_callers_tools(tmp_path: Path, original: Path) -> None:
    folder = tmp_path / "conv"
    workspace = confine(turn(folder), OFFERED, original)
    assert workspace == str(folder / "scratch")
    mcp = Path(workspace) / ".cursor" / "mcp.json"
    assert json.loads(mcp.read_text()) == {"mcpServers": {"caller": {"url": OFFERED.url}}}
    assert stat.S_IMODE(mcp.stat().st_mode) == 0o600  # the address is the key
    configuration = Path(configuration_of(turn(folder)))
    assert sorted(path.name for path in configuration.iterdir()) == ["auth.json", "cli-config.json"]
    settings = json.loads((configuration / "cli-config.json").read_text())
    assert settings["permissions"]["allow"] == ["Mcp(caller:*)"]
    assert set(settings["permissions"]["deny"]) == {
        "Shell(*)",
        "Read(**)",  # in the workspace
        "Read(/**)",  # anywhere
        "Write(**)",
        "Write(/**)",
        "WebFetch(*)",
    }
    assert settings["approvalMode"] == "allowlist"
    assert settings["editor"] == {"vim": True}  # what is not about permissions is the user's
    assert json.loads((original / "cli-config.json").read_text())["approvalMode"] == "unrestricted"


def test_the_agent_knows_no_tools_but_those_of_servers() -> None:
    assert set(ALLOWED_TOOLS) == {"mcp_tool_call", "get_mcp_tools_tool_call"}


def test_the_scratch_folder_is_empty_whenever_a_turn_begins(tmp_path: Path, original: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    scratch = tmp_path / "conv" / "scratch"
    scratch.mkdir(parents=True)
    (scratch / "left.txt").touch()
    (scratch / "link").symlink_to(outside)
    confine(turn(tmp_path / "conv"), OFFERED, original)
    assert [path.name for path in scratch.iterdir()] == [".cursor"]
    assert (outside / "kept").exists()


def test_without_tools_there_is_no_server(tmp_path: Path, original: Path) -> None:
    workspace = confine(turn(tmp_path), OfferedTools(server="caller", url="", runner=Nobody()), original)
    assert json.loads((Path(workspace) / ".cursor" / "mcp.json").read_text()) == {"mcpServers": {}}


def test_a_configuration_that_cannot_be_read_is_made_anew(tmp_path: Path, original: Path) -> None:
    (original / "cli-config.json").write_text("// not JSON")
    confine(turn(tmp_path / "conv"), OFFERED, original)
    assert json.loads((Path(configuration_of(turn(tmp_path / "conv"))) / "cli-config.json").read_text())["version"] == 1


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path, original: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AgentMisconfigured):
        confine(turn(tmp_path / "file"), OFFERED, original)


def test_chats_with_and_without_such_tools_are_apart(tmp_path: Path) -> None:
    assert configuration_of(turn(tmp_path)) != configuration_of(turn(tmp_path, None))


@pytest.mark.parametrize(
    ("version", "flags", "can_be"),
    [
        ("2026.10.01-e373342", FLAGS, True),
        ("2026.08.04-abc", FLAGS, True),
        ("2027.01.01-abc", FLAGS, True),
        ("2026.07.20-abc", FLAGS, False),
        ("2025.11.06-abc", FLAGS, False),
        ("unknown", FLAGS, False),
        ("2026.10.01-e373342", frozenset({"--trust"}), False),
    ],
)
def test_which_agents_can_be_confined(version: str, flags: frozenset[str], can_be: bool) -> None:
    program = Program("/bin/agent", version, flags)
    if can_be:
        check_confinable(program)
    else:
        with pytest.raises(AgentMisconfigured, match="cursor-agent update"):
            check_confinable(program)


def test_the_command_forces_nothing_whatever_the_operator_allows(tmp_path: Path) -> None:
    program = Program("/bin/agent", "2026.10.01-e373342", FLAGS)
    options = CommandOptions(trust=False, force=True)
    confined = command_for(turn(tmp_path), program, options, allowed_tools=ALLOWED_TOOLS).arguments
    assert "--force" not in confined
    assert {"--approve-mcps", "--trust", f"--allowed-tools={','.join(ALLOWED_TOOLS)}"} <= set(confined)
    usual = command_for(turn(tmp_path, None), program, options).arguments
    assert "--force" in usual
    assert not {"--approve-mcps", "--trust"} & set(usual)


def test_the_server_is_not_looked_for_behind_a_proxy() -> None:
    given = {"HTTP_PROXY": "http://proxy", "NO_PROXY": "internal", "PATH": "/bin"}
    result = without_proxy(given)
    assert (result["NO_PROXY"], result["no_proxy"]) == ("internal,127.0.0.1", "127.0.0.1")
    assert (result["HTTP_PROXY"], result["PATH"]) == ("http://proxy", "/bin")


# --- The files that the agent reads by itself ------------------------------------------------------


def looked(home: Path) -> configuration.AgentFiles | None:
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
    monkeypatch.setattr(configuration, "_LARGEST_COMPARED", 0)
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
    monkeypatch.setattr(configuration, "_MOST_FILES", 2)
    for number in range(3):
        write(tmp_path / f"repo/project/.cursor/rules/{number}.mdc")
    assert looked(tmp_path) is None
