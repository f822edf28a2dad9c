"""A workspace in; the files in it that start programs with the agent, or allow it more, out."""

import json
import os
import stat
import time
from functools import lru_cache
from os.path import lexists
from pathlib import Path
from typing import Any, NamedTuple

_MAX_BYTES = 1024 * 1024
_COARSE_NS = 20_000_000  # of a file system's clock
_FILES = {  # by what is looked for first
    ".cursor": (
        ".cursor/hooks.json",
        ".cursor/mcp.json",
        ".cursor/cli.json",
        ".cursor/permissions.json",  # lists of allowed commands and tools
        ".cursor/sandbox.json",  # may open the sandbox, or switch it off
        ".cursor/settings.json",  # plugins, with hooks and servers of their own
    ),
    ".claude": (  # which Cursor's runtime uses, too
        ".claude/settings.json",
        ".claude/settings.local.json",
    ),
    ".mcp.json": (".mcp.json",),
}


class AgentFile(NamedTuple):
    folder: Path  # in which it is looked for
    path: Path


def agent_files(workspace: str) -> list[AgentFile]:
    """Those that cannot be read or understood are included. The home folder's are not: they are the user's own, and
    the agent uses them everywhere.

    The agent may look for them where the repository begins, so every folder up to there counts; the last ones found
    are in the uppermost.
    """
    found = [
        (folder, name)
        for folder in _up_to_the_repository(workspace)
        for first, names in _FILES.items()
        if lexists(f"{folder}/{first}")
        for name in names
        if _counts(f"{folder}/{name}", name)
    ]
    home = os.path.realpath(os.path.expanduser("~")) if found else ""
    return [AgentFile(Path(folder), Path(folder, name)) for folder, name in found if folder != home]


def _up_to_the_repository(workspace: str) -> list[str]:
    passed = [workspace]
    while not lexists(f"{passed[-1]}/.git"):
        above = passed[-1].rpartition("/")[0] or "/"
        if above == passed[-1]:
            return [workspace]  # it is in no repository
        passed.append(above)
    return passed


def _counts(path: str, name: str) -> bool:
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    try:
        found = os.stat(path)
    except OSError:  # a link to nothing, so far
        return True
    if not stat.S_ISREG(found.st_mode) or found.st_size > _MAX_BYTES:  # opening a device may have effects
        return True
    is_settled = time.time_ns() - found.st_ctime_ns > _COARSE_NS  # else it may change again without any sign
    look = _content_counts if is_settled else _content_counts.__wrapped__
    try:
        return look(path, name, _version(found))
    except _Changed:
        return True


def _version(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


class _Changed(Exception):
    """What was opened is not what was looked at: its folder was exchanged meanwhile, for example."""


@lru_cache(maxsize=1024)
def _content_counts(path: str, name: str, version: tuple[int, ...]) -> bool:
    """`version`: a file that has changed is read again. Raises `_Changed`."""
    try:
        # Not blocking: by now it may be a pipe.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if _version(os.fstat(file.fileno())) != version:
                raise _Changed
            content = json.loads(file.read(_MAX_BYTES).decode())
        return not isinstance(content, dict) or _says_anything(_relevant(name, content))
    except (OSError, ValueError, RecursionError):
        return True


def _relevant(name: str, content: dict[str, Any]) -> list[object]:
    """What starts or allows something, if it is not empty."""
    if name.startswith(".claude/"):
        return [content.get("hooks"), content.get("enabledPlugins")]
    if name == ".cursor/settings.json":
        return [content.get("plugins")]
    rest = {  # a server may have one of these names
        key: value for key, value in content.items() if key not in ("$schema", "version") or isinstance(value, dict)
    }
    if name == ".cursor/cli.json" and isinstance(rest.get("permissions"), dict):
        rest["permissions"] = [value for key, value in rest["permissions"].items() if key != "deny"]
    return list(rest.values())


def _says_anything(value: object) -> bool:
    match value:
        case dict():
            return any(map(_says_anything, value.values()))
        case list():
            return any(map(_says_anything, value))
        case _:
            return bool(value)
