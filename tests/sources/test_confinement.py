"""What an agent is left that may use nothing but its caller's tools: files, flags and environment."""

import json
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cursor_gateway.errors import AgentMisconfigured
from cursor_gateway.model.caller_tools import Tool, ToolResult
from cursor_gateway.sources.base import Offered, Turn
from cursor_gateway.sources.cursor.command import CommandOptions, Program, command_for
from cursor_gateway.sources.cursor.confinement import (
    ALLOWED_TOOLS,
    check_confinable,
    configuration_of,
    confine,
    without_proxy,
)


class Nobody:
    """Runs no tools."""

    tools: Sequence[Tool] = ()

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        raise NotImplementedError


OFFERED = Offered(server="caller", url="http://127.0.0.1:1/mcp/secret", runner=Nobody())
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


def turn(folder: Path, offered: Offered | None = OFFERED) -> Turn:
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
    workspace = confine(turn(tmp_path), Offered(server="caller", url="", runner=Nobody()), original)
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
