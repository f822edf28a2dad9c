"""The trees from before turns that are under way, in files, so that a turn that a crash cuts off can be recorded later.

A tree is written once, when the first turn that may change files begins with it. Each such turn has a hard link to it,
named after the turn, and removes the link when its changes are recorded. What is left in the folder of a gateway that
is dead was cut off: the next gateway to start compares these trees with what the files are then.
"""

import os
import threading
from collections.abc import Callable
from contextlib import suppress

import msgspec
from msgspec import Struct

from cursor_gateway.sources.private_files import private_folder, read_private, remove_entry, write_private
from cursor_gateway.workspace.git_objects import Repository
from cursor_gateway.workspace.tree import Tree, TreeEntry

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
