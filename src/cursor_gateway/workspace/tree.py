"""A folder in; its files as they are now, with enough of their content to restore them later, out.

A tree is made when a turn begins and when it ends. Most files are the same as in the tree before, by their size, times
and inode, and are not read again. Of the others, those that git has in its index, unchanged, are not read either: git
has their content. What is left is read and kept, compressed, up to a limit.

The clock of a file system is coarse: a file that was changed shortly before it was read may change again without any
sign. Such an entry is not trusted by the next scan (`is_recent`), as in git's own index.
"""

import os
import stat
import threading
import time
import zlib
from collections.abc import Callable
from contextlib import suppress

import msgspec
from msgspec import Struct

from cursor_gateway.sources.private_files import private_folder, read_private, remove_entry, write_private
from cursor_gateway.workspace.beneath import PathRefused, read_below
from cursor_gateway.workspace.files import Incomplete, repository_of, text_of, walk
from cursor_gateway.workspace.git_objects import IndexEntry, Repository, changes_content
from cursor_gateway.workspace.ignore_rules import IgnoreRules

MOST_FILE_BYTES = 1_000_000  # of a file whose content is kept
_MOST_FILES = 20_000
_MOST_BYTES = 32_000_000  # of all contents that are kept, before compression
_SECONDS = 5.0
COARSE_NS = 20_000_000  # of a file system's clock
_IGNORE_FILES = (b".cursorignore",)
# Files that often contain secrets are left out even where no rule ignores them.
_SECRETS = IgnoreRules(
    b".env\n.env.*\n*.env\n.envrc\n!.env.example\n*.pem\n*.key\n*.p12\n*.pfx\n*.jks\n*.kdbx\n.netrc\n.npmrc\n.pypirc\n"
    b"id_rsa\nid_dsa\nid_ecdsa\nid_ed25519\n.git-credentials\n"
)


class TreeEntry(Struct, frozen=True):
    """A file. Its content is kept here or in git, or is unknown. A symbolic link has the mode `S_IFLNK`."""

    facts: tuple[int, int, int, int]  # size, times of the last change of its content and of its status, inode
    mode: int
    kept: bytes | None = None  # compressed
    in_git: bytes | None = None  # its hash there
    is_recent: bool = False


class Tree(Struct, frozen=True):
    root: str
    entries: dict[str, TreeEntry]
    repository: Repository | None = None
    problem: str = ""  # why there are no entries, as a sentence
    begun_ns: int = 0  # when the scan began, or `at_ns`
    cpu_seconds: float = 0.0  # that the scan took

    def content(self, path: str) -> bytes | None:
        """None: it is unknown."""
        entry = self.entries.get(path)
        if entry is None:
            return None
        if entry.kept is not None:
            return zlib.decompress(entry.kept)
        if entry.in_git is not None and self.repository is not None:
            found = self.repository.blob(entry.in_git)
            return found if found is not None and len(found) == entry.facts[0] else None
        return None


def scan(
    root: str, known: Tree | None = None, at_ns: int | None = None, is_gone: Callable[[], bool] = lambda: False
) -> Tree:
    """A file that has changed since `at_ns`, the time when a turn began or ended, is not what it was then, so its
    content is unknown.
    """
    until, begun_ns, used = time.monotonic() + _SECONDS, at_ns or time.time_ns(), time.thread_time()

    def is_over() -> bool:
        return is_gone() or time.monotonic() > until

    known = known if known is not None and known.root == root else None
    old = known.entries if known is not None else {}
    folder = os.fsencode(root)
    top = repository_of(folder)
    index = _Index(root, top, known)
    entries: dict[str, TreeEntry] = {}
    unread: list[str] = []
    try:
        for name, found in walk(folder, top, is_over, _IGNORE_FILES):
            path = text_of(name)
            if path is None or is_secret(path) or not (found.is_symlink() or found.is_file(follow_symlinks=False)):
                continue
            try:
                status = found.stat(follow_symlinks=False)
            except OSError:  # it is gone
                continue
            facts = status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino
            before = old.get(path)
            if before is not None and before.facts == facts and not before.is_recent:
                entries[path] = before
                continue
            if found.is_symlink():
                entries[path] = TreeEntry(facts, stat.S_IFLNK)
                continue
            hash = index.hash_of(name, facts)
            entries[path] = TreeEntry(facts, stat.S_IMODE(status.st_mode), in_git=hash, is_recent=hash is None)
            unread += [path] if hash is None else []
            if len(entries) > _MOST_FILES:
                return Tree(root, {}, None, f"The folder has more than {_MOST_FILES:,} files.")
    except Incomplete:
        return Tree(root, {}, None, "The folder is too large to be looked at in time.")
    left = _MOST_BYTES - sum(entry.facts[0] for entry in entries.values() if entry.kept is not None)
    for path in unread:
        if is_over():  # the next scan reads them
            break
        entries[path] = _read(root, path, entries[path], at_ns, left)
        left -= entries[path].facts[0] if entries[path].kept is not None else 0
    return Tree(root, entries, index.repository, begun_ns=begun_ns, cpu_seconds=time.thread_time() - used)


def is_secret(path: str) -> bool:
    name = os.fsencode(path.rpartition("/")[2])
    return _SECRETS.verdict(name, name) is True


def _read(root: str, path: str, entry: TreeEntry, at_ns: int | None, left: int) -> TreeEntry:
    """With its content, if that is what it was at the time, and there is room for it."""
    size, _, changed_ns, _ = entry.facts
    is_later = at_ns is not None and changed_ns >= at_ns
    is_recent = is_later or changed_ns > time.time_ns() - COARSE_NS
    if size > min(MOST_FILE_BYTES, left) or is_later:
        return TreeEntry(entry.facts, entry.mode, is_recent=is_recent)
    try:
        file = read_below(root, path, MOST_FILE_BYTES)
    except PathRefused:
        file = None
    if file is None or file.data is None or (file.size, file.changed_ns) != (size, changed_ns):
        return entry  # it has changed since it was listed
    return TreeEntry(entry.facts, entry.mode, zlib.compress(file.data, 1), is_recent=is_recent)


class _Index:
    """The index of the repository that the folder is in, if it is one whose files git has byte for byte."""

    def __init__(self, root: str, top: bytes | None, known: Tree | None) -> None:
        self._files: dict[bytes, IndexEntry] = {}
        self._written_ns = 0
        self.repository: Repository | None = None
        if top is None:
            return
        self.repository = (known.repository if known is not None else None) or Repository(os.fsdecode(top) + "/.git")
        self._base = os.fsencode(root)[len(top.rstrip(b"/")) + 1 :] + b"/" if os.fsencode(root) != top else b""
        files, self._written_ns = self.repository.files()
        attributes = [b".git/info/attributes", *(path for path in files if path.endswith(b".gitattributes"))]
        if not any(changes_content(_text(os.fsdecode(top), path)) for path in attributes):
            self._files = files

    def hash_of(self, path: bytes, facts: tuple[int, int, int, int]) -> bytes | None:
        """If the file is as it was when git noted it, and git noted it after its last change."""
        entry = self._files.get(self._base + path) if self._files else None
        if entry is None or entry.modified_ns >= self._written_ns - COARSE_NS:
            return None
        size, modified_ns, changed_ns, inode = facts
        noted = entry.size, entry.modified_ns, entry.changed_ns, entry.inode
        return entry.hash if noted == (size & 0xFFFFFFFF, modified_ns, changed_ns, inode & 0xFFFFFFFF) else None


def _text(top: str, path: bytes) -> bytes:
    try:
        file = read_below(top, os.fsdecode(path), MOST_FILE_BYTES)
    except PathRefused:
        return b"filter="  # unknown
    return b"" if file is None else file.data or b"filter="


# --- trees from before turns that are under way ---------------------------------------------------
# In files, so that a turn that a crash cuts off can be recorded later. A tree is written once, when the first turn
# that may change files begins with it. Each such turn has a hard link to it, named after the turn, and removes the
# link when its changes are recorded. What is left in the folder of a gateway that is dead was cut off: the next
# gateway to start compares these trees with what the files are then.


_FOLDER = "turns"  # in the data directory
_LARGEST = 64_000_000
_MOST_TREES = 8


class TurnName(Struct, frozen=True):
    conversation_id: str
    chat_id: str


class _StoredTree(Struct, frozen=True):
    root: str
    git: str | None
    entries: dict[str, TreeEntry]


class UnfinishedTurns:
    def __init__(self, data: str, instance: str) -> None:
        """`data` is the gateway's data directory, `instance` the name of this gateway among those that share it."""
        self._data, self._instance = data, instance
        self._all = f"{data}/{_FOLDER}"
        self._folder = f"{self._all}/{instance}"
        self._written: dict[str, tuple[Tree, str]] = {}  # the last tree of each workspace, and its file
        self._count = 0
        self._lock = threading.Lock()  # turns begin in threads

    def note_now(self, turn: TurnName, tree: Tree) -> bool:
        """False: the tree has to be written first, which takes longer."""
        written, file = self._written.get(tree.root, (None, ""))
        if written is None or tree.problem or (written is not tree and written.entries != tree.entries):
            return False
        try:
            os.link(f"{self._folder}/{file}", f"{self._folder}/{_name(turn, tree)}", follow_symlinks=False)
        except OSError:
            return False
        return True

    def note(self, turn: TurnName, tree: Tree) -> None:
        """In a thread. Raises `OSError`."""
        with self._lock:
            if self.note_now(turn, tree):
                return
            git = tree.repository.folder if tree.repository is not None else None
            data = msgspec.msgpack.encode(_StoredTree(tree.root, git, tree.entries))
            if len(data) > _LARGEST:
                return
            self._count += 1
            file = f"tree-{self._count}"
            with private_folder(self._data, self._folder) as folder:
                write_private(folder, name := _name(turn, tree), data)
                with suppress(OSError):  # a file system without links: each turn has a file of its own
                    os.link(name, file, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
                    self._forget(tree.root)
                    self._written[tree.root] = tree, file

    def _forget(self, root: str) -> None:
        """Turns that began with an older tree keep it by their links."""
        roots = [root] if root in self._written else list(self._written)[: len(self._written) + 1 - _MOST_TREES]
        for one in roots:
            _, file = self._written.pop(one)
            with suppress(OSError):
                os.unlink(f"{self._folder}/{file}")

    def has(self, turn: TurnName, tree: Tree) -> bool:
        """Whether its changes are still to be recorded."""
        return os.path.lexists(f"{self._folder}/{_name(turn, tree)}")

    def ended(self, turn: TurnName, tree: Tree) -> None:
        """Its changes are recorded."""
        with suppress(OSError):
            os.unlink(f"{self._folder}/{_name(turn, tree)}")

    def cut_off(self, is_alive: Callable[[str], bool]) -> list[tuple[TurnName, Tree]]:
        """The turns of gateways that are dead, in the order in which they began. They are this one's to record now, and
        nobody else's. Raises `OSError`.
        """
        dead = [name for name in _names(self._all) if name != self._instance and not is_alive(name)]
        found: list[tuple[TurnName, Tree]] = []
        for instance in dead:
            for name in _names(f"{self._all}/{instance}"):
                if (turn := _turn(name)) is not None and (tree := self._taken(instance, name)) is not None:
                    found.append((turn, tree))
            with private_folder(self._data, self._all) as folder:
                remove_entry(folder, instance)
        return sorted(found, key=lambda one: one[1].begun_ns)

    def _taken(self, instance: str, name: str) -> Tree | None:
        """None: another gateway was faster, or the tree was not written completely."""
        with private_folder(self._data, self._folder), suppress(OSError, msgspec.DecodeError):
            os.rename(f"{self._all}/{instance}/{name}", f"{self._folder}/{name}")
            data = read_private(self._data, f"{self._folder}/{name}", _LARGEST)
            stored = msgspec.msgpack.decode(data, type=_StoredTree)
            repository = Repository(stored.git) if stored.git is not None else None
            return Tree(stored.root, stored.entries, repository, begun_ns=int(name.rpartition(".")[2]))
        return None

    def remove_turns_of(self, conversation_id: str) -> None:
        """Raises `OSError`."""
        for instance in _names(self._all):
            for name in _names(f"{self._all}/{instance}"):
                if name.startswith(f"{conversation_id}."):
                    with suppress(FileNotFoundError):
                        os.unlink(f"{self._all}/{instance}/{name}")

    def close(self) -> None:
        """Every turn has ended. Raises `OSError`."""
        if os.path.isdir(self._folder):
            with private_folder(self._data, self._all) as folder:
                remove_entry(folder, self._instance)


def _name(turn: TurnName, tree: Tree) -> str:
    return f"{turn.conversation_id}.{turn.chat_id}.{tree.begun_ns}"


def _turn(name: str) -> TurnName | None:
    """None: it is something else."""
    match name.split("."):
        case [conversation_id, chat_id, begun] if begun.isdecimal() and conversation_id:
            return TurnName(conversation_id, chat_id)
        case _:
            return None


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
