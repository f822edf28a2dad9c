"""A folder and part of a path in; the files below it that match, without those that git ignores, out.

The folder may be somebody else's work, so no program is started in it, and what is read is limited. See
docs/decisions for what the list contains.
"""

import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from msgspec import Struct

from cursor_gateway.workspace.ignore_rules import IgnoreRules

_MOST_ENTRIES = 100_000  # that are looked at
_MOST_DEPTH = 64
_MOST_BYTES = 64_000  # of an ignore file
_SECONDS = 5.0
_SKIPPED = frozenset({b"node_modules", b"__pycache__", b"venv", b"target", b"dist", b"build"})  # outside repositories
_FILE = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Incomplete(Exception):
    """There are more files than may be looked at, or there is no time left."""


class _Rules(Struct, frozen=True):
    """Of an ignore file: they are about paths below its folder."""

    base: bytes  # ends with a slash
    rules: IgnoreRules


class _Folder(Struct, frozen=True):
    path: bytes  # from the folder that is searched; ends with a slash, unless it is that folder itself
    depth: int
    rules: tuple[_Rules, ...]  # the nearest first
    is_in_repository: bool


def find_files(
    folder: str, query: str, limit: int, *, seconds: float = _SECONDS, is_gone: Callable[[], bool] = lambda: False
) -> list[str]:
    """Best first: the name begins with the query, contains it, the path contains it; then by depth and name.

    Names that are not UTF-8 are left out: neither JSON nor a prompt can contain them. After `seconds`, or when nobody
    waits for them any more, it is those that were found so far.
    """
    words = query.lower()
    ranked = []
    until = time.monotonic() + seconds
    with suppress(Incomplete):
        root = os.fsencode(folder)
        for found, entry in walk(root, repository_of(root), lambda: is_gone() or time.monotonic() > until):
            if not _is_file(entry) or (path := text_of(found)) is None:
                continue
            low = path.lower()
            name = low.rpartition("/")[2]
            if words not in low:
                continue
            rank = 0 if name.startswith(words) else 1 if words in name else 2
            ranked.append((rank, path.count("/"), path))
    return [path for _, _, path in sorted(ranked)[:limit]]


def text_of(path: bytes) -> str | None:
    """None if it is not UTF-8."""
    try:
        return path.decode()
    except UnicodeDecodeError:
        return None


def walk(
    root: bytes, top: bytes | None, is_over: Callable[[], bool], also: Sequence[bytes] = ()
) -> Iterator[tuple[bytes, "os.DirEntry[bytes]"]]:
    """Everything below the folder that is no folder, the nearest first, without what git ignores. `top` is that of the
    repository that it is in; `also` are names of other files with such rules, which count outside of repositories too.
    Raises `Incomplete`.
    """
    waiting = deque([_first(root, top)])
    left = _MOST_ENTRIES
    while waiting:
        folder = _entered(root, waiting.popleft(), also)
        for entry in _entries(b"%b/%b" % (root, folder.path)):
            left -= 1
            if left < 0 or is_over():
                raise Incomplete
            path = folder.path + entry.name
            if entry.name == b".git" or _is_skipped(root, folder, entry):
                continue
            if entry.is_dir(follow_symlinks=False):
                if folder.depth < _MOST_DEPTH:
                    below = _Folder(path + b"/", folder.depth + 1, folder.rules, folder.is_in_repository)
                    waiting.append(below)
            else:
                yield path, entry


def repository_of(folder: bytes) -> bytes | None:
    """The top of the repository that the folder, an absolute path, is in."""
    while not _is_repository(folder):
        if folder in (b"", b"/"):
            return None
        folder = folder.rpartition(b"/")[0]
    return folder or b"/"


def _first(root: bytes, top: bytes | None) -> _Folder:
    """It may be inside of a repository: then the rules of the folders above it count as well."""
    if top is None:
        return _Folder(b"", 0, (), False)
    above = [root]
    while above[-1] != top:
        above.append(os.path.dirname(above[-1]))
    rules = _rules_of_repository(top)
    for folder in above[:0:-1]:
        rules = _rules_in(folder, b".gitignore") + rules
    return _Folder(b"", 0, rules, True)


def _entered(root: bytes, folder: _Folder, also: Sequence[bytes]) -> _Folder:
    """With the rules in it. A repository inside of another folder has its own."""
    path = b"%b/%b" % (root, folder.path.rstrip(b"/")) if folder.path else root
    rules, is_in_repository = folder.rules, folder.is_in_repository
    if folder.path and _is_repository(path):
        rules, is_in_repository = _rules_of_repository(path), True
    if is_in_repository:
        rules = _rules_in(path, b".gitignore") + rules
    for name in also:
        rules = _rules_in(path, name) + rules
    return _Folder(folder.path, folder.depth, rules, is_in_repository)


def _is_repository(folder: bytes) -> bool:
    try:
        os.lstat(folder + b"/.git")
    except OSError:
        return False
    return True


def _rules_of_repository(top: bytes) -> tuple[_Rules, ...]:
    """Besides its `.gitignore` files: the user's own rules come last."""
    home = os.path.join(os.fsencode(os.path.expanduser("~")), b".config")
    users = os.path.join(os.fsencode(os.environ.get("XDG_CONFIG_HOME", "")) or home, b"git/ignore")
    return _rules_in(top, b".git/info/exclude") + _rules_in(top, users)


def _rules_in(folder: bytes, name: bytes) -> tuple[_Rules, ...]:
    if not (text := _read(os.path.join(folder, name))):  # the user's own are elsewhere
        return ()
    rules = IgnoreRules(text)
    return (_Rules(os.path.join(folder, b""), rules),) if rules else ()


def _read(path: bytes) -> bytes:
    """A regular file, and no link: as git has it. Nothing otherwise."""
    try:
        with open(os.open(path, _FILE), "rb") as file:
            is_regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            return file.read(_MOST_BYTES) if is_regular else b""
    except OSError:
        return b""


def _entries(folder: bytes) -> Iterator["os.DirEntry[bytes]"]:
    with suppress(OSError), os.scandir(folder) as entries:  # it may be gone, or not for us to see
        yield from entries


def _is_skipped(root: bytes, folder: _Folder, entry: "os.DirEntry[bytes]") -> bool:
    is_folder = entry.is_dir(follow_symlinks=False)
    if not folder.is_in_repository and is_folder and (entry.name.startswith(b".") or entry.name in _SKIPPED):
        return True
    mark = b"/" if is_folder else b""
    path = os.path.join(root, folder.path, entry.name)
    for one in folder.rules:
        verdict = one.rules.verdict(mark + path[len(one.base) :], mark + entry.name)
        if verdict is not None:
            return verdict
    return False


def _is_file(entry: "os.DirEntry[bytes]") -> bool:
    try:
        return entry.is_file()
    except OSError:  # a loop of links
        return False
