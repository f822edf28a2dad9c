"""Confine an agent to the caller's tools, with a workspace and a configuration of its own.

Everything is denied before the agent starts, so safety never depends on how fast its output is read. There are three
layers: deny rules for everything that touches this machine, an allow list of tools, and an empty working folder. Such
a run never gets `--force`, which would override the rules.
"""

from collections.abc import Mapping
from pathlib import Path

from cursor_gateway.errors import AgentMisconfigured
from cursor_gateway.sources.base import Offered, Turn
from cursor_gateway.sources.cursor.command import Program
from cursor_gateway.sources.cursor.configuration import (
    SETTINGS,
    copy_configuration,
    encode_settings,
    read_settings,
    unusable,
)
from cursor_gateway.sources.private_files import data_of, private_folder, remove_entry, write_private

ALLOWED_TOOLS = ("mcp_tool_call", "get_mcp_tools_tool_call")  # as the protocol names them; the second reads schemas
_DENIED = ("Shell(*)", "Read(**)", "Read(/**)", "Write(**)", "Write(/**)", "WebFetch(*)")
_OTHERS = frozenset({"mcp.json", "hooks.json"})  # callers must not reach the user's own servers and programs
_FIRST = "2026.08"  # earlier builds lack `--allowed-tools`: they keep grep, glob and subagents despite deny rules


OWN_CONFIGURATION = "cursor"  # the folder of runs with the agent's own tools


def check_confinable(program: Program) -> None:
    """Raises `AgentMisconfigured` for an agent that would keep its own tools."""
    if not program.is_since(_FIRST) or not program.can("--approve-mcps"):
        raise AgentMisconfigured(
            f"cursor-agent {program.version} cannot disable its own tools, so `tools` cannot be used safely; update "
            f"it with `cursor-agent update` ({_FIRST} or newer), or omit "
            "`tools`."
        )


def configuration_of(turn: Turn) -> str:
    """Runs with and without the caller's tools use separate folders: neither may resume the other's chats."""
    return f"{turn.folder}/{OWN_CONFIGURATION if turn.offered is None else 'confined'}"


def confine(turn: Turn, offered: Offered, original: Path) -> str:
    """Returns the workspace. Raises `AgentMisconfigured`. `original` is the user's configuration."""
    configuration = configuration_of(turn)
    copy_configuration(original, configuration, data_of(turn.folder), without=_OTHERS)
    workspace = empty_workspace(turn)
    try:
        servers = {offered.server: {"url": offered.url}} if offered.url else {}
        with private_folder(data_of(turn.folder), f"{workspace}/.cursor") as folder:
            write_private(folder, "mcp.json", encode_settings({"mcpServers": servers}))
        settings = read_settings(configuration, data_of(turn.folder))
        rules = {"allow": [f"Mcp({offered.server}:*)"], "deny": list(_DENIED)}
        changed = {"version": 1, **settings, "permissions": rules, "approvalMode": "allowlist"}
        with private_folder(data_of(turn.folder), configuration) as folder:
            write_private(folder, SETTINGS, encode_settings(changed))
    except OSError as error:
        raise unusable(error) from error
    return workspace


def empty_workspace(turn: Turn) -> str:
    """The agent's working folder, emptied of anything from the previous turn. Raises as `copy_configuration`."""
    name = "scratch"
    try:
        with private_folder(data_of(turn.folder), turn.folder) as folder:
            remove_entry(folder, name)
        with private_folder(data_of(turn.folder), f"{turn.folder}/{name}"):
            return f"{turn.folder}/{name}"
    except OSError as error:
        raise unusable(error) from error


def without_proxy(environment: Mapping[str, str]) -> dict[str, str]:
    """The tool server is on this machine; a proxy could not reach it."""
    names = {name: environment.get(name, "") for name in ("NO_PROXY", "no_proxy")}
    return {**environment, **{name: ",".join(filter(None, (value, "127.0.0.1"))) for name, value in names.items()}}
