"""A folder and part of a path in; the files below it that match, without those that git ignores, out."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from cursor_gateway.wire.surrogates import has_surrogates

_MOST_FILES = 20_000  # that are looked at
_SECONDS = 5
_SKIPPED = frozenset({"node_modules", "__pycache__", "venv", "target", "dist", "build"})  # where there is no git


def find_files(folder: str, query: str, limit: int) -> list[str]:
    """Best first: the name begins with the query, contains it, the path contains it; then by depth and name.

    Names that are not UTF-8 are left out: neither JSON nor a prompt can contain them.
    """
    words = query.lower()
    ranked = []
    for path in _listed(folder):
        low = path.lower()
        name = low.rpartition("/")[2]
        if words not in low:
            continue
        rank = 0 if name.startswith(words) else 1 if words in name else 2
        ranked.append((rank, path.count("/"), path))
    return [path for _, _, path in sorted(ranked)[:limit]]


def _listed(folder: str) -> list[str]:
    try:
        return _known_to_git(folder)
    except (OSError, subprocess.SubprocessError):
        return list(_walked(Path(folder)))


def _known_to_git(folder: str) -> list[str]:
    """Tracked files, and new ones that are not ignored. Nothing in the repository's configuration is run."""
    command = ["git", "-c", "core.fsmonitor=false", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    listed = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=_SECONDS, check=True)
    names = dict.fromkeys(listed.stdout.decode("utf-8", "replace").split("\0")[:_MOST_FILES])
    return [name for name in names if name and os.path.exists(os.path.join(folder, name))]


def _walked(folder: Path) -> Iterator[str]:
    count = 0
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED)
        for name in sorted(names):
            count += 1
            if count > _MOST_FILES:
                return
            path = (Path(parent) / name).relative_to(folder).as_posix()
            if not has_surrogates(path):
                yield path
