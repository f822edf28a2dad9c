"""A repository's folder and the hash of a file in; the content that git stores for it out. Git is not started.

Git stores an object as a file of its own, or in a pack, often as a difference from another object (see git's
documentation, gitformat-pack). Whatever is found must have the hash that was asked for, so a damaged or hostile
repository can only make an object unknown.
"""

import hashlib
import os
import stat
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress

from msgspec import Struct

from cursor_gateway.sources.private_files import open_below

_HEADER = struct.Struct(">4sII")
_ENTRY = struct.Struct(">10I20sH")
_CHECKSUM = 20
_MODES = (0o100644, 0o100755)
_IS_UNUSUAL = 0x8000 | 0x3000  # assumed to be unchanged, or in conflict
_IS_EXTENDED = 0x4000
_MOST_PATHS = 256 * 1024 * 1024  # bytes of all paths: where each shares a part with the one before, few become many
_LARGEST_NUMBER = 1 << 32


class IndexEntry(Struct, frozen=True, gc=False):
    hash: bytes
    size: int  # its lower 32 bits
    modified_ns: int
    changed_ns: int  # the time of the file's status, not only of its content
    inode: int  # its lower 32 bits


def read_index(data: bytes) -> dict[bytes, IndexEntry]:
    """By path, from the top of the repository: regular files that git compares with what it has."""
    if len(data) < _HEADER.size + _CHECKSUM or hashlib.sha1(data[:-20], usedforsecurity=False).digest() != data[-20:]:
        return {}
    try:
        return dict(_entries(data[:-_CHECKSUM]))
    except (struct.error, ValueError, IndexError):
        return {}


def _entries(data: bytes) -> Iterator[tuple[bytes, IndexEntry]]:
    magic, version, count = _HEADER.unpack_from(data)
    if magic != b"DIRC" or version not in (2, 3, 4):
        return
    at, path, left = _HEADER.size, b"", _MOST_PATHS
    for _ in range(count):
        begin = at
        seconds, nanos, modified, modified_nanos, _, inode, mode, _, _, size, hash, flags = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        is_unusual = bool(flags & _IS_UNUSUAL)
        if flags & _IS_EXTENDED:
            is_unusual = is_unusual or bool(struct.unpack_from(">H", data, at)[0])
            at += 2
        if version == 4:
            dropped, at = _number(data, at)
            end = data.index(b"\0", at)
            path = path[: len(path) - dropped] + data[at:end]
            at = end + 1
        else:
            end = data.index(b"\0", at)
            path = data[at:end]
            at = begin + (end - begin + 8) // 8 * 8  # at least one NUL, up to a multiple of eight bytes
        left -= len(path)
        if left < 0:
            raise ValueError("the paths are too long")
        if mode in _MODES and not is_unusual:
            yield path, IndexEntry(hash, size, modified * 10**9 + modified_nanos, seconds * 10**9 + nanos, inode)


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Of variable length, as in packs: seven bits a byte, and one is added for each byte that follows."""
    value = data[at] & 0x7F
    while data[at] & 0x80:
        at += 1
        value = ((value + 1) << 7) | (data[at] & 0x7F)
        if value > _LARGEST_NUMBER:
            raise ValueError("the number is too large")
    return value, at + 1


# --- the index ------------------------------------------------------------------------------------
# Its files, with their sizes, times and hashes as git has noted them. The format is described in git's documentation
# (gitformat-index). An index that is not understood has no files: those are then read like any others.


_MOST_INDEX = 64 * 1024 * 1024  # bytes
_MOST_PACKS = 200
_MOST_DEPTH = 100  # of differences; git makes at most 50, or 250 when asked to
_MOST_BYTES = 16 * 1024 * 1024  # of an object that another one is a difference from
_BLOB, _BY_OFFSET, _BY_HASH = 3, 6, 7
_FILTERS = (b"filter=", b"ident", b"working-tree-encoding")  # line ends are noticed by a file's size


class Repository:
    """The `.git` folder of a repository. A worktree or submodule, where `.git` is a file, has none of its own."""

    def __init__(self, git: str) -> None:
        self.folder = git
        self._index: tuple[tuple[int, int, int], dict[bytes, IndexEntry], int] | None = None

    def files(self) -> tuple[dict[bytes, IndexEntry], int]:
        """The index, and when it was written. Empty if its files cannot be had from git, byte for byte."""
        try:
            with open(self._opened("index"), "rb") as file:
                facts = os.fstat(file.fileno())
                version = facts.st_mtime_ns, facts.st_size, facts.st_ino
                if self._index is None or self._index[0] != version:
                    is_usable = stat.S_ISREG(facts.st_mode) and facts.st_size <= _MOST_INDEX and self._is_complete()
                    self._index = version, read_index(file.read()) if is_usable else {}, facts.st_mtime_ns
        except OSError:
            return {}, 0
        return self._index[1:]

    def blob(self, hash: bytes) -> bytes | None:
        """None: it is unknown here, or damaged."""
        with suppress(OSError, ValueError, IndexError, struct.error, zlib.error, RecursionError):
            found = self._loose(hash) or self._packed(hash, _MOST_DEPTH)
            if found is not None and found[0] == _BLOB and _hash_of(found[1]) == hash:
                return found[1]
        return None

    def _is_complete(self) -> bool:
        """No object is elsewhere: at another repository, or at the server that it was cloned from."""
        with suppress(FileNotFoundError):
            os.close(self._opened("objects/info/alternates"))
            return False
        return not any(name.endswith(".promisor") for name in self._packs())

    def _packs(self) -> list[str]:
        with suppress(FileNotFoundError):
            folder = self._opened("objects/pack", is_folder=True)
            try:
                return sorted(os.listdir(folder))
            finally:
                os.close(folder)
        return []

    def _loose(self, hash: bytes) -> tuple[int, bytes] | None:
        name = hash.hex()
        with suppress(FileNotFoundError), open(self._opened(f"objects/{name[:2]}/{name[2:]}"), "rb") as file:
            head, _, body = zlib.decompressobj().decompress(file.read(_MOST_BYTES), _MOST_BYTES).partition(b"\0")
            return (_BLOB if head.startswith(b"blob ") else 0), body
        return None

    def _packed(self, hash: bytes, depth: int) -> tuple[int, bytes] | None:
        for name in [name for name in self._packs() if name.endswith(".idx")][:_MOST_PACKS]:
            with open(self._opened(f"objects/pack/{name}"), "rb") as file:
                offset = _offset(file.fileno(), hash)
            if offset is not None:
                with open(self._opened(f"objects/pack/{name[:-4]}.pack"), "rb") as file:
                    return self._object(file.fileno(), offset, depth)
        return None

    def _object(self, pack: int, offset: int, depth: int) -> tuple[int, bytes]:
        """Its type and content; of a difference, those of the object that it leads to."""
        if depth == 0:
            raise ValueError("too many differences")
        head = os.pread(pack, 64, offset)
        kind, at = head[0] >> 4 & 7, 1
        while head[at - 1] & 0x80:
            at += 1
        if kind == _BY_OFFSET:
            back = head[at] & 0x7F
            while head[at] & 0x80:
                at += 1
                back = ((back + 1) << 7) | (head[at] & 0x7F)
            at += 1
            base: tuple[int, bytes] | None = self._object(pack, offset - back, depth - 1)
        elif kind == _BY_HASH:
            base = self._packed(head[at : at + 20], depth - 1)
            at += 20
        else:
            return kind, _inflated(pack, offset + at)
        if base is None:
            raise ValueError("the object that it differs from is missing")
        return base[0], _patched(base[1], _inflated(pack, offset + at))

    def _opened(self, path: str, *, is_folder: bool = False) -> int:
        """Not even the repository's folder may be a link."""
        top, name = os.path.split(self.folder)
        return open_below(top, f"{name}/{path}", is_folder=is_folder)


def changes_content(attributes: bytes) -> bool:
    """Whether files differ from what git stores of them, by the text of a `.gitattributes` file."""
    return any(word in attributes for word in _FILTERS)


def _hash_of(data: bytes) -> bytes:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).digest()


def _offset(index: int, hash: bytes) -> int | None:
    """Where the pack of this index has the object."""
    head = os.pread(index, 8 + 256 * 4, 0)
    if head[:8] != b"\xfftOc\0\0\0\2":
        return None
    fan = struct.unpack_from(">256I", head, 8)
    low, high, count = (fan[hash[0] - 1] if hash[0] else 0), fan[hash[0]], fan[255]
    names = len(head)
    while low < high:
        middle = (low + high) // 2
        found = os.pread(index, 20, names + middle * 20)
        if found == hash:
            offsets = names + count * 24  # after the names and the checksums
            (offset,) = struct.unpack(">I", os.pread(index, 4, offsets + middle * 4))
            if offset & 0x80000000:
                (offset,) = struct.unpack(">Q", os.pread(index, 8, offsets + count * 4 + (offset & 0x7FFFFFFF) * 8))
            return int(offset)
        low, high = (middle + 1, high) if found < hash else (low, middle)
    return None


def _inflated(pack: int, offset: int) -> bytes:
    stream, parts, size = zlib.decompressobj(), list[bytes](), 0
    while not stream.eof:
        data = os.pread(pack, 65536, offset)
        if not data:
            raise ValueError("the pack ends too early")
        offset += len(data)
        parts.append(stream.decompress(data, _MOST_BYTES - size + 1))
        size += len(parts[-1])
        if size > _MOST_BYTES:
            raise ValueError("the object is too large")
    return b"".join(parts)


def _patched(base: bytes, delta: bytes) -> bytes:
    """Copies of parts of the base, and new parts."""
    at = _after_number(delta, _after_number(delta, 0))
    parts: list[bytes] = []
    size = 0
    while at < len(delta):
        command, at = delta[at], at + 1
        if command & 0x80:
            numbers = []
            for bit in range(7):
                is_there = command >> bit & 1
                numbers.append(delta[at] if is_there else 0)
                at += is_there
            start = int.from_bytes(bytes(numbers[:4]), "little")
            length = int.from_bytes(bytes(numbers[4:]), "little") or 0x10000
            if start + length > len(base):
                raise ValueError("the copied part is not in the base")
            parts.append(base[start : start + length])
        elif command == 0:
            raise ValueError("the command is not known")
        else:
            parts.append(delta[at : at + command])
            at += command
        size += len(parts[-1])
        if size > _MOST_BYTES:
            raise ValueError("the object is too large")
    return b"".join(parts)


def _after_number(delta: bytes, at: int) -> int:
    while delta[at] & 0x80:
        at += 1
    return at + 1
