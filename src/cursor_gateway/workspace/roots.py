"""The name of a folder in; the folder itself, links resolved, if it is below an allowed root, out."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from cursor_gateway.errors import InvalidRequest, WorkspaceForbidden
from cursor_gateway.wire.surrogates import has_surrogates

_ECHOED = 1000  # characters of a path
_BROUGHT = ("hooks.json", "mcp.json", "cli.json")  # in `.cursor`


class Workspaces:
    def __init__(
        self,
        default: Path,
        roots: Sequence[Path],
        *,
        refuse_hooks: bool = False,
        host: str = "",
        volumes: Mapping[str, Path] | None = None,
    ) -> None:
        """In a cluster, `host` names the disk of this machine, and `volumes` are folders that machines may share; a
        request may name a folder as `VOLUME/PATH`."""
        self.default = default.resolve()
        self._refuse_hooks, self._host = refuse_hooks, host
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
        found = brought_by(Path(workspace)) if self._refuse_hooks else None
        if found is not None:
            raise WorkspaceForbidden(
                f"This workspace contains programs or permissions for the agent ({found}), which the operator does "
                "not allow (`refuse_workspace_hooks`); remove the file, or choose another workspace.",
                param="workspace",
            )

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


def brought_by(workspace: Path) -> Path | None:
    """A file in a workspace that configures what the agent starts or may do.

    The agent may look for them where the repository begins, so every folder up to there counts.
    """
    folders = [workspace, *workspace.parents]
    top = next((depth for depth, folder in enumerate(folders) if os.path.lexists(folder / ".git")), 0)
    found = (folder / ".cursor" / name for folder in folders[: top + 1] for name in _BROUGHT)
    return next((path for path in found if os.path.lexists(path)), None)
