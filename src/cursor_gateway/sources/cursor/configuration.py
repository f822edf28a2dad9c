"""cursor-agent's configuration: its user's in; a copy for one conversation, or for the caller's tools only, out.

`--model` rewrites the configuration, which would change the user's later runs, so each conversation gets its own
copy. The copy keeps its path for as long as the conversation lives, because the agent stores its chats in it. Rules
that a user allowed are added to the copy alone, and only for one run at a time.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from cursor_gateway.errors import AgentMisconfigured, host_exhausted
from cursor_gateway.sources.base import OfferedTools, Turn
from cursor_gateway.sources.cursor.ask_user import UserTool
from cursor_gateway.sources.cursor.command import Program
from cursor_gateway.sources.private_files import (
    PathOrText,
    data_of,
    private_folder,
    read_private,
    remove_entry,
    write_private,
)

SETTINGS = "cli-config.json"
HOOKS = "hooks.json"
_DEFAULT_ALLOW = ("Shell(ls)",)  # of an agent without settings
_LARGEST = 4 * 1024 * 1024  # settings, MCP servers and logins are small; skip larger files


def user_configuration(environ: Mapping[str, str]) -> Path:
    """The folder that the agent itself would use."""
    if given := environ.get("CURSOR_CONFIG_DIR"):
        return Path(given)
    if (base := environ.get("XDG_CONFIG_HOME")) and os.path.isdir(f"{base}/cursor"):
        return Path(f"{base}/cursor")
    return Path(os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".cursor"))


def configuration_stamp(environ: Mapping[str, str]) -> frozenset[tuple[str, int, int]]:
    """Changes whenever a file of the agent's configuration or login changes."""
    base = environ.get("XDG_CONFIG_HOME") or f"{environ.get('HOME') or os.path.expanduser('~')}/.config"
    stamps = set()
    for folder in {user_configuration(environ), Path(base) / "cursor"}:
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_file():
                    file = entry.stat()
                    stamps.add((entry.path, file.st_mtime_ns, file.st_size))
    return frozenset(stamps)


@contextmanager
def configuration_errors() -> Iterator[None]:
    """An `OSError` in it becomes `AgentMisconfigured` or `HostExhausted`. Also a decorator."""
    try:
        yield
    except OSError as error:
        raise host_exhausted(error) or AgentMisconfigured(
            f"The agent's configuration cannot be copied: {error.strerror}; make it readable.",
            details=str(error.filename),
        ) from error


@configuration_errors()
def copy_configuration(original: PathOrText, copy: PathOrText, data: PathOrText, without: Collection[str] = ()) -> bool:
    """Copies the top-level files; subfolders hold chats and caches. Other files already in the copy are kept. Returns
    whether it has any.

    `data` is the gateway's data directory, which contains the copy. Raises `AgentMisconfigured`, `HostExhausted`.
    """
    with private_folder(data, copy) as folder, _entries(original) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # another agent's temporary file, deleted in the meantime
                if entry.name not in without and os.path.isfile(entry) and entry.stat().st_size <= _LARGEST:
                    write_private(folder, entry.name, _read(entry.path))
        return bool(os.listdir(folder))


def _entries(folder: PathOrText) -> AbstractContextManager[Iterable["os.DirEntry[str]"]]:
    """Empty if there is no such folder."""
    try:
        return os.scandir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return nullcontext(())


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


@configuration_errors()
def set_rules(original: PathOrText, copy: PathOrText, data: PathOrText, rules: Sequence[str]) -> None:
    """Allows what the original's settings allow, and these rules. What they deny stays denied.

    The copy may have the rules of an earlier run. Raises as `copy_configuration`.
    """
    settings = read_settings(copy, data)
    if not rules and "permissions" not in settings:
        return
    own, allowed = _permissions(original), own_rules(original)
    wanted = {**own, "allow": [*allowed, *(rule for rule in rules if rule not in allowed)]}
    wanted.setdefault("deny", [])
    if settings.get("permissions") == wanted:
        return
    with private_folder(data, copy) as folder:
        write_private(folder, SETTINGS, encode_settings({"version": 1, **settings, "permissions": wanted}))


@configuration_errors()
def use_http1(copy: PathOrText, data: PathOrText) -> None:
    """In place of HTTP/2. Raises as `copy_configuration`."""
    settings = read_settings(copy, data)
    network = settings.get("network")
    wanted = {**(network if isinstance(network, dict) else {}), "useHttp1ForAgent": True}
    with private_folder(data, copy) as folder:
        write_private(folder, SETTINGS, encode_settings({"version": 1, **settings, "network": wanted}))


@configuration_errors()
def remove_hooks(original: PathOrText, copy: PathOrText, data: PathOrText) -> None:
    """Removes hooks from the copy that the original lacks: of an earlier turn. Raises as `copy_configuration`."""
    if os.path.lexists(f"{copy}/{HOOKS}") and not os.path.isfile(f"{original}/{HOOKS}"):
        with private_folder(data, copy) as folder:
            remove_entry(folder, HOOKS)


def own_rules(original: PathOrText) -> list[str]:
    """What the original's settings allow."""
    allowed = _permissions(original).get("allow")
    return allowed if isinstance(allowed, list) else list(_DEFAULT_ALLOW)


def _permissions(original: PathOrText) -> dict[str, Any]:
    found = read_settings(original).get("permissions")
    return found if isinstance(found, dict) else {}


def read_settings(configuration: PathOrText, data: PathOrText | None = None) -> dict[str, Any]:
    """`data` is the gateway's data directory, if they are in it: an agent may have replaced the file by a link."""
    path = f"{configuration}/{SETTINGS}"
    try:
        return msgspec.json.decode(_read(path) if data is None else read_private(data, path), type=dict[str, Any])
    except msgspec.DecodeError:
        return {}
    except OSError as error:  # also what the agent itself could not read
        if data is None and not isinstance(error, FileNotFoundError):
            raise
        return {}


def encode_settings(settings: dict[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(settings))


# --- Runs with the caller's tools ------------------------------------------------------------------
# Everything is denied before the agent starts, so safety never depends on how fast its output is read. There are three
# layers: deny rules for everything that touches this machine, an allow list of tools, and an empty working folder. Such
# a run never gets `--force`, which would override the rules.

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


@configuration_errors()
def confine(turn: Turn, offered: OfferedTools, original: Path) -> str:
    """Returns the workspace. Raises as `copy_configuration`. `original` is the user's configuration."""
    configuration, data = configuration_of(turn), data_of(turn.folder)
    copy_configuration(original, configuration, data, without=_OTHERS)
    workspace = empty_workspace(turn)
    servers = {offered.server: {"url": offered.url}} if offered.url else {}
    with private_folder(data, f"{workspace}/.cursor") as folder:
        write_private(folder, "mcp.json", encode_settings({"mcpServers": servers}))
    settings = read_settings(configuration, data)
    rules = {"allow": [f"Mcp({offered.server}:*)"], "deny": list(_DENIED)}
    changed = {"version": 1, **settings, "permissions": rules, "approvalMode": "allowlist"}
    with private_folder(data, configuration) as folder:
        write_private(folder, SETTINGS, encode_settings(changed))
    return workspace


@configuration_errors()
def empty_workspace(turn: Turn) -> str:
    """The agent's working folder, emptied of anything from the previous turn. Raises as `copy_configuration`."""
    data, workspace = data_of(turn.folder), f"{turn.folder}/scratch"
    with private_folder(data, turn.folder) as folder:
        remove_entry(folder, "scratch")
    with private_folder(data, workspace):
        return workspace


def without_proxy(environment: Mapping[str, str]) -> dict[str, str]:
    """The tool server is on this machine; a proxy could not reach it."""
    names = {name: environment.get(name, "") for name in ("NO_PROXY", "no_proxy")}
    return {**environment, **{name: ",".join(filter(None, (value, "127.0.0.1"))) for name, value in names.items()}}


# --- The plugin that gives one run of the CLI the gateway's own tool for questions -----------------
# The CLI finds MCP servers in the workspace's `.cursor`, which is not the gateway's, in the user's home folder, and in
# plugins. Only those of a plugin need no approval: `--approve-mcps` would approve every server that a workspace brings.
# Calls need a rule all the same. The CLI calls the server `plugin-PLUGIN-SERVER`.

_PLUGIN = "cursor-gateway"


@configuration_errors()
def write_plugin(path: str, data: str, tool: UserTool, url: str) -> list[str]:
    """Returns the rules that allow its tool. `data` is the gateway's data directory, which contains the path.

    Raises as `copy_configuration`.
    """
    with private_folder(data, f"{path}/.cursor-plugin") as folder:
        write_private(folder, "plugin.json", encode_settings({"name": _PLUGIN, "version": "1.0.0"}))
    with private_folder(data, path) as folder:
        write_private(folder, "mcp.json", encode_settings({"mcpServers": {tool.server: {"url": url}}}))
    return [f"Mcp(plugin-{_PLUGIN}-{tool.server}:{tool.name})"]


# --- The files that the agent reads by itself: of its user, and the rules of a workspace -----------
# An agent that was started in advance has read some of them already. It is used only if all of them are as they were.

AgentFiles: TypeAlias = frozenset[tuple[str, bytes | tuple[int, ...]]]
"""Paths, each with what tells whether the file has changed."""

_LARGEST_COMPARED = 4 * 1024 * 1024  # bytes; of a larger one, only the times and the size are compared
_MOST_FILES = 2000  # files
# Of a workspace, and of each folder above it. `.git/HEAD`: another branch has other rules.
_RULE_FILES = ("AGENTS.md", "CLAUDE.md", "CLAUDE.local.md", ".cursorrules", ".mcp.json", ".git/HEAD")
_RULE_FOLDERS = (".cursor", ".claude")
_USER_FOLDERS = ("rules", "commands", "skills", "agents", "plugins")  # others are caches and chats


def agent_files(environ: Mapping[str, str], workspace: str) -> AgentFiles | None:
    """None: there are too many to look at."""
    found: set[tuple[str, bytes | tuple[int, ...]]] = set()
    for path, has_content in _paths(environ, workspace):
        with suppress(OSError):
            found.add((path, _content(path) if has_content else _stamp(os.stat(path))))
        if len(found) > _MOST_FILES:
            return None
    return frozenset(found)


def _paths(environ: Mapping[str, str], workspace: str) -> Iterator[tuple[str, bool]]:
    """And whether the content counts: other agents rewrite the user's files without changing them."""
    home = environ.get("HOME") or os.path.expanduser("~")
    own, base = user_configuration(environ), environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    for folder in dict.fromkeys((own, Path(f"{home}/.cursor"), Path(base, "cursor"), Path(f"{home}/.claude"))):
        with suppress(OSError), os.scandir(folder) as entries:
            yield from ((entry.path, True) for entry in entries if entry.is_file())
        for name in _USER_FOLDERS:
            yield from ((path, False) for path in _below(f"{folder}/{name}"))
    for place in (workspace, *map(str, Path(workspace).parents)):
        yield from ((f"{place}/{name}", False) for name in _RULE_FILES)
        if place != home:  # that is the user's configuration
            for name in _RULE_FOLDERS:
                yield from ((path, False) for path in _below(f"{place}/{name}"))


def _below(folder: str) -> Iterator[str]:
    """Also below links: rules are often shared by several workspaces."""
    seen: set[str] = set()
    for parent, folders, names in os.walk(folder, followlinks=True):
        if (real := os.path.realpath(parent)) in seen:
            folders.clear()  # a link to a folder above it
            continue
        seen.add(real)
        yield from (f"{parent}/{name}" for name in names)


def _content(path: str) -> bytes | tuple[int, ...]:
    facts = os.stat(path)
    if facts.st_size > _LARGEST_COMPARED:
        return _stamp(facts)
    with open(path, "rb") as file:
        return blake2b(file.read(_LARGEST_COMPARED), digest_size=16).digest()


def _stamp(facts: os.stat_result) -> tuple[int, ...]:
    return facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns
