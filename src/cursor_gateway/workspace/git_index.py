"""The bytes of a repository's index in; its files, with their sizes, times and hashes as git has noted them, out.

The format is described in git's documentation (gitformat-index). An index that is not understood has no files: those
are then read like any others.
"""

import hashlib
import struct
from collections.abc import Iterator

from msgspec import Struct

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
