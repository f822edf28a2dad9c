"""What happened to the files of a conversation, in order, and their contents: stored in the gateway's own folder.

A log has three kinds of entries: what a turn of the agent changed, what a revert wrote, and which version of a file a
person has kept. What is known of a file is the fold of its entries. Contents are stored once each, by their hash, up to
a limit; all of it is deleted with the conversation.
"""

import hashlib
import os
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TypeAlias

import msgspec
from msgspec import Struct

from cursor_gateway.sources.private_files import private_folder, read_private, remove_entry, write_private

FOLDER = "changes"  # in the data directory
_LOG = "log.jsonl"
_MOST_LOG = 64_000_000
_MOST_CONTENT = 100_000_000  # bytes of one conversation's contents, compressed


class FileVersion(Struct, frozen=True, omit_defaults=True):
    hash: str  # empty: its content is unknown
    size: int
    mode: int = 0o644


class FileStep(Struct, frozen=True, omit_defaults=True):
    """None is a file that does not exist."""

    path: str
    before: FileVersion | None
    after: FileVersion | None
    is_edit: bool = False  # an edit of the agent names it


class TurnStep(Struct, frozen=True, tag="turn", omit_defaults=True):
    chat_id: str
    files: list[FileStep]
    problem: str = ""  # why it is not known what changed
    unread: list[str] = []  # files that the agent edited and the gateway does not read, as the agent named them


class RevertStep(Struct, frozen=True, tag="revert"):
    id: str
    files: list[FileStep]


class KeepStep(Struct, frozen=True, tag="keep"):
    files: dict[str, FileVersion | None]


ChangeStep: TypeAlias = TurnStep | RevertStep | KeepStep


class KnownFile(Struct):
    """What the steps of a file come to."""

    path: str
    first: FileVersion | None  # before the conversation
    base: FileVersion | None  # the same, or what was kept since
    last: FileVersion | None  # as the agent, or a revert, left it
    is_edit: bool = False


def version_of(data: bytes | None, size: int, mode: int) -> FileVersion:
    return FileVersion(hashlib.sha256(data).hexdigest() if data is not None else "", size, mode)


def is_same(one: FileVersion | None, other: FileVersion | None) -> bool:
    """Whether both are known, and equal in what counts: content, and whether it is a program."""
    if one is None or other is None:
        return one is other
    return one.hash != "" and one.hash == other.hash and (one.mode ^ other.mode) & 0o100 == 0


class ChangeLog:
    def __init__(self, data: str, conversation_id: str) -> None:
        self._data = data
        self._folder = f"{data}/{FOLDER}/{conversation_id}"

    def steps(self) -> list[ChangeStep]:
        """A last line that was cut off by a crash does not count."""
        steps: list[ChangeStep] = []
        with suppress(FileNotFoundError):
            for line in read_private(self._data, f"{self._folder}/{_LOG}", _MOST_LOG).split(b"\n"):
                with suppress(msgspec.DecodeError):
                    steps += [msgspec.json.decode(line, type=ChangeStep)] if line else []
        return steps

    def append(self, step: ChangeStep) -> None:
        """Raises `OSError`."""
        with private_folder(self._data, self._folder) as folder:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(_LOG, flags, 0o600, dir_fd=folder), "ab") as file:
                file.write(msgspec.json.encode(step) + b"\n")

    def keep(self, contents: Iterable[bytes]) -> None:
        """As long as there is room; what is not kept is unknown later. Raises `OSError`."""
        with private_folder(self._data, self._folder) as folder:
            used = sum(entry.stat().st_size for entry in os.scandir(folder))
            for data in contents:
                name = hashlib.sha256(data).hexdigest()
                with suppress(FileNotFoundError):
                    os.stat(name, dir_fd=folder, follow_symlinks=False)
                    continue
                packed = zlib.compress(data, 6)
                used += len(packed)
                if used > _MOST_CONTENT:
                    return
                write_private(folder, name, packed)

    def remove(self) -> None:
        """Raises `OSError`."""
        with suppress(FileNotFoundError), private_folder(self._data, f"{self._data}/{FOLDER}") as folder:
            remove_entry(folder, self._folder.rpartition("/")[2])

    def content(self, version: FileVersion) -> bytes | None:
        """None: it is unknown, or was not kept."""
        if not version.hash:
            return None
        try:
            packed = read_private(self._data, f"{self._folder}/{version.hash}", _MOST_CONTENT)
            data = zlib.decompressobj().decompress(packed, version.size + 1)
        except (OSError, zlib.error):
            return None
        return data if hashlib.sha256(data).hexdigest() == version.hash else None


def known_files(steps: Sequence[ChangeStep]) -> list[KnownFile]:
    """In the order in which they were first changed."""
    files: dict[str, KnownFile] = {}
    for step in steps:
        match step:
            case TurnStep(files=changed) | RevertStep(files=changed):
                for one in changed:
                    known = files.setdefault(one.path, KnownFile(one.path, one.before, one.before, one.before))
                    if not is_same(known.last, one.before) and is_same(known.base, known.last):
                        known.first = known.base = one.before  # others changed it in between, and nothing was open
                    known.last = one.after
                    known.is_edit = known.is_edit or one.is_edit
            case KeepStep(files=kept):
                for path, version in kept.items():
                    if path in files:
                        files[path].base = version
    return list(files.values())


def files_of(steps: Sequence[ChangeStep], chat_id: str) -> list[FileStep] | None:
    """Those of one turn; None if nothing is recorded of it. A turn may have several steps."""
    turns = [step for step in steps if isinstance(step, TurnStep) and step.chat_id == chat_id]
    return merged(turns) if turns else None


def merged(steps: Iterable[ChangeStep]) -> list[FileStep]:
    """From before the first of them to after the last."""
    files: dict[str, FileStep] = {}
    for step in steps:
        if isinstance(step, KeepStep):
            continue
        for one in step.files:
            before = files[one.path].before if one.path in files else one.before
            is_edit = one.is_edit or (one.path in files and files[one.path].is_edit)
            files[one.path] = FileStep(one.path, before, one.after, is_edit)
    return [one for one in files.values() if not is_same(one.before, one.after)]
