"""A checkout or an unpacked sdist in; the commit that a package is built from, as a file of the package, out."""

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_FILE = "cursor_gateway/commit.txt"


class CommitHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":  # its commit changes while it is installed
            return
        root = Path(self.root)
        source = _from_git(root) if (root / ".git").exists() else root / "src" / _FILE  # the latter in an sdist
        if source.exists():
            prefix = "src/" if self.target_name == "sdist" else ""
            build_data["force_include"][str(source)] = f"{prefix}{_FILE}"


def _from_git(root: Path) -> Path:
    commit = _git(root, "rev-parse", "HEAD")
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    file = Path(tempfile.mkdtemp(), "commit.txt")
    file.write_text(f"{commit}{' with changes' if changed else ''}\n")
    return file


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout.strip()
