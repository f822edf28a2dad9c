"""A workspace and a path below it in; the file there, read or written, out.

Others may write to the workspace at the same time, and paths come from agents. So a file is opened folder by folder,
each relative to its parent, and a link among them is refused.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from msgspec import Struct

from cursor_gateway.sources.private_files import descended, write_private

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe must not block
_NEW_FILE = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class PathRefused(Exception):
    """Why the file is neither read nor written."""


class OnDisk(Struct, frozen=True):
    """A regular file; without its data if that is larger than the limit."""

    data: bytes | None
    size: int
    mode: int
    changed_ns: int = 0  # the time of its last change, as it was after the data was read


def path_below(workspace: str, path: str) -> str:
    """Relative to the workspace; the path may be absolute. Raises `PathRefused`."""
    whole = PurePosixPath(workspace) / path
    for root in (PurePosixPath(workspace), PurePosixPath(Path(workspace).resolve())):
        if whole.is_relative_to(root):
            parts = whole.relative_to(root).parts
            if parts and ".." not in parts and "\0" not in path:
                return "/".join(parts)
    raise PathRefused("it is not in the conversation's folder")


def read_below(workspace: str, path: str, largest: int) -> OnDisk | None:
    """None: there is no such file. Raises `PathRefused`."""
    try:
        with _folder_of(workspace, path) as (folder, name):
            file = os.open(name, _FILE, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PathRefused("it is a link, or cannot be read") from error
    try:
        facts = os.fstat(file)
        if stat.S_ISDIR(facts.st_mode):
            return None
        if not stat.S_ISREG(facts.st_mode):
            raise PathRefused("it is not a regular file")
        with open(file, "rb", closefd=False) as opened:
            data = opened.read(largest + 1)
        facts = os.fstat(file)
    except OSError as error:
        raise PathRefused(f"it cannot be read ({error.strerror})") from error
    finally:
        os.close(file)
    is_whole = len(data) <= largest
    size = len(data) if is_whole else facts.st_size
    return OnDisk(data if is_whole else None, size, stat.S_IMODE(facts.st_mode), facts.st_ctime_ns)


def is_there(workspace: str, path: str) -> bool:
    """Whether there is such a regular file, or that cannot be known, as in a folder that may not be read."""
    try:
        with _folder_of(workspace, path) as (folder, name):
            return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError as error:
        return error.errno not in _ABSENT
    except PathRefused as refused:
        return isinstance(refused.__cause__, OSError) and refused.__cause__.errno not in _ABSENT


def write_below(workspace: str, path: str, data: bytes, mode: int) -> None:
    """An empty folder in its place is removed. Raises `PathRefused`."""
    try:
        with _folder_of(workspace, path, makes=True) as (folder, name):
            with suppress(OSError):
                os.rmdir(name, dir_fd=folder)
            write_private(folder, name, data, mode & 0o777)
    except OSError as error:
        raise PathRefused(f"it cannot be written ({error.strerror})") from error


def make_below(workspace: str, path: str) -> None:
    """An empty file. Raises `PathRefused`, also if something is there."""
    try:
        with _folder_of(workspace, path, makes=True) as (folder, name):
            os.close(os.open(name, _NEW_FILE, 0o600, dir_fd=folder))
    except OSError as error:
        raise PathRefused(f"`{path}` cannot be made ({error.strerror})") from error


def remove_below(workspace: str, path: str) -> None:
    """Raises `PathRefused`."""
    try:
        with _folder_of(workspace, path) as (folder, name):
            os.unlink(name, dir_fd=folder)
    except OSError as error:
        raise PathRefused(f"it cannot be deleted ({error.strerror})") from error


@contextmanager
def _folder_of(workspace: str, path: str, *, makes: bool = False) -> Iterator[tuple[int, str]]:
    """A descriptor of the folder that the file is in, and the file's name. Raises `OSError`."""
    *folders, name = path_below(workspace, path).split("/")

    def enter(folder: int, part: str) -> int:
        if makes:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=folder)
        try:
            return os.open(part, _FOLDER, dir_fd=folder)
        except FileNotFoundError:
            raise
        except OSError as error:
            if stat.S_ISREG(os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode):
                raise FileNotFoundError(errno.ENOENT, "a folder on its path is a file") from error
            raise PathRefused("a folder on its path is a link, or cannot be read") from error

    with descended(workspace, folders, enter) as folder:
        yield folder, name
