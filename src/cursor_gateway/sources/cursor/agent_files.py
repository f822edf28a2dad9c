"""The files that Cursor's agent reads by itself: its user's configuration and login, and the rules of a workspace.

An agent that was started in advance has read some of them already. It is used only if all of them are as they were.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import TypeAlias

from cursor_gateway.sources.cursor.configuration import user_configuration

AgentFiles: TypeAlias = frozenset[tuple[str, bytes | tuple[int, ...]]]
"""Paths, each with what tells whether the file has changed."""

_LARGEST = 4 * 1024 * 1024  # bytes; of a larger one, only the times and the size are compared
_MOST = 2000  # files
# Of a workspace, and of each folder above it. `.git/HEAD`: another branch has other rules.
_RULES = ("AGENTS.md", "CLAUDE.md", "CLAUDE.local.md", ".cursorrules", ".mcp.json", ".git/HEAD")
_RULE_FOLDERS = (".cursor", ".claude")
_USER_FOLDERS = ("rules", "commands", "skills", "agents", "plugins")  # others are caches and chats


def agent_files(environ: Mapping[str, str], workspace: str) -> AgentFiles | None:
    """None: there are too many to look at."""
    found: set[tuple[str, bytes | tuple[int, ...]]] = set()
    for path, has_content in _paths(environ, workspace):
        with suppress(OSError):
            found.add((path, _content(path) if has_content else _stamp(os.stat(path))))
        if len(found) > _MOST:
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
        yield from ((f"{place}/{name}", False) for name in _RULES)
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
    if facts.st_size > _LARGEST:
        return _stamp(facts)
    with open(path, "rb") as file:
        return blake2b(file.read(_LARGEST), digest_size=16).digest()


def _stamp(facts: os.stat_result) -> tuple[int, ...]:
    return facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns
