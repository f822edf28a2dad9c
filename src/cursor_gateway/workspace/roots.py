"""The name of a folder in; the folder itself, links resolved, if it is below an allowed root, out."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from cursor_gateway.errors import InvalidRequest, WorkspaceForbidden
from cursor_gateway.wire.surrogates import has_surrogates
from cursor_gateway.workspace.agent_files import AgentFile, agent_files

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
