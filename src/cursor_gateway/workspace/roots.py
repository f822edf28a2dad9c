"""The name of a folder in; the folder itself, links resolved, if it is below an allowed root, out."""

import json
import os
import stat
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from os.path import lexists
from pathlib import Path
from typing import Any, NamedTuple

from cursor_gateway.errors import InvalidRequest, WorkspaceForbidden
from cursor_gateway.wire.surrogates import has_surrogates

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


# --- files of a workspace that start programs with the agent, or allow it more --------------------


_ECHOED = 1000  # characters of a path


class Workspaces:
    def __init__(
        self,
        default: Path,
        roots: Sequence[Path],
        *,
        refuse_hooks: bool = True,
        allow_hooks: Sequence[Path] = (),
        host: str = "",
        volumes: Mapping[str, Path] | None = None,
    ) -> None:
        """In a cluster, `host` names the disk of this machine, and `volumes` are folders that machines may share; a
        request may name a folder as `VOLUME/PATH`. `allow_hooks` are exceptions from `refuse_hooks`."""
        self.default = default.resolve()
        self._refuse_hooks, self._host = refuse_hooks, host
        self._allow_hooks = [folder.resolve() for folder in allow_hooks]
        self._volumes = {name: folder.resolve() for name, folder in (volumes or {}).items()}
        self._roots = [root.resolve() for root in roots] or [self.default]
        self._roots += [folder for folder in self._volumes.values() if folder not in self._roots]

    @property
    def summary(self) -> str:
        """For people."""
        others = [str(root) for root in self._roots if root != self.default]
        return f"{self.default}{'; requests may name folders below ' + ', '.join(others) if others else ''}"

    def find(self, name: str | None) -> str:
        """Raises `WorkspaceForbidden`, even for folders that do not exist: callers must not probe the file system."""
        if name is None:
            return str(self.default)
        if not name or "\0" in name:
            raise InvalidRequest(
                "`workspace` must be the path of a folder; omit it to use the default.", param="workspace"
            )
        folder = self._allowed(name)
        if folder is None:
            roots = [*map(str, self._roots), str(self.default / name[:_ECHOED])]
            raise WorkspaceForbidden(
                "The gateway is not allowed to work in this folder. Its operator can allow it with the line "
                f"`workspace_roots = {json.dumps(roots, ensure_ascii=False)}` in `config.toml`, and a restart.",
                param="workspace",
            )
        if not _is_folder(folder):
            raise InvalidRequest(f"The folder {name!r} does not exist; use one that does.", param="workspace")
        if has_surrogates(str(folder)):
            raise InvalidRequest(f"The path of {name!r} is not valid UTF-8; use another folder.", param="workspace")
        return str(folder)

    def volume_of(self, workspace: str) -> str:
        """Empty: there is no cluster."""
        inside = [name for name, folder in self._volumes.items() if Path(workspace).is_relative_to(folder)]
        return inside[0] if inside else self._host

    def allowed(self, name: str) -> str | None:
        """This folder if the gateway may work in it; for one that a client mentions without asking for it."""
        folder = self._allowed(name) if name and "\0" not in name else None
        return str(folder) if folder is not None and _is_folder(folder) and not has_surrogates(str(folder)) else None

    def folders(self, query: str, limit: int) -> list[str]:
        """Folders below the roots that begin with this path; without one, the roots and what is directly in them."""
        found = self._beginning_with(query.strip()) if query.strip() else self._first_folders()
        names = (name for name in map(str, dict.fromkeys(found)) if not has_surrogates(name))
        return [name for name in names if self.allowed(name) is not None][:limit]

    def _first_folders(self) -> list[Path]:
        return [folder for root in self._roots for folder in (root, *_subfolders(root))]

    def _beginning_with(self, query: str) -> list[Path]:
        try:
            typed = self.default / Path(query).expanduser()
        except RuntimeError:  # a home directory that does not exist
            return []
        parent, start = (typed, "") if query.endswith("/") else (typed.parent, typed.name)
        inside = _subfolders(parent) if self._allowed(str(parent)) is not None else []
        above = [root for root in self._roots if str(root).startswith(str(typed))]
        return [*above, *(folder for folder in inside if folder.name.startswith(start))]

    def check(self, workspace: str) -> None:
        """Before each run in it: an agent may have written the files. Raises `WorkspaceForbidden`."""
        found = [file for file in agent_files(workspace) if not self._may_bring(file)] if self._refuse_hooks else []
        if found:
            allowed = [*map(str, self._allow_hooks), str(found[-1].folder)]
            raise WorkspaceForbidden(
                f"This workspace brings hooks, MCP servers or permissions for the agent: {found[0].path}. If you trust "
                "them, the operator can allow them with the line "
                f"`allow_workspace_hooks = {json.dumps(allowed, ensure_ascii=False)}` in `config.toml`, and a restart. "
                "Otherwise remove them, or use another workspace.",
                param="workspace",
            )

    def _may_bring(self, file: AgentFile) -> bool:
        """Its folder was allowed, not the one that a link in it leads to."""
        return any(file.folder.is_relative_to(folder) for folder in self._allow_hooks)

    def _path(self, name: str) -> Path:
        volume, _, rest = name.partition("/")
        base = self.default if volume == self._host else self._volumes.get(volume)
        return self.default / Path(name).expanduser() if base is None or not volume else base / rest.lstrip("/")

    def _allowed(self, name: str) -> Path | None:
        try:
            folder = self._path(name).resolve()
        except (OSError, RuntimeError, ValueError):  # a symlink loop, or a home directory that does not exist
            return None
        return folder if any(folder.is_relative_to(root) for root in self._roots) else None


def _subfolders(folder: Path) -> list[Path]:
    """Without hidden ones."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir()]
    except (OSError, ValueError):
        return []
    return [folder / name for name in sorted(names)]


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name that is too long, or below a folder that may not be looked into
        return False
