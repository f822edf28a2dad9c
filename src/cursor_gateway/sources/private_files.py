"""Files in the gateway's own directory: readable by its user only, and never written through a symbolic link.

Agents can write to the folders of their conversations, so any of them can plant a link before the gateway writes.
Folders are therefore opened one by one, each relative to its parent, and a link among them is an error. A file is
written under a new name and renamed: that replaces a link instead of following it.

If agents run as another user, the folders that they work in are shared with its group (`SHARED`), and so is everything
that is created in them; see `agent_user`.
"""

import asyncio
import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from secrets import token_bytes, token_hex
from typing import TypeAlias

_BASE = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FOLDER = _BASE | os.O_NOFOLLOW
_EXISTING_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe must not block
_NEW_FILE = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


SHARED = 0o2770  # the mode of a folder that is shared: what is created in it belongs to its group

PathOrText: TypeAlias = Path | str

_SECRET, _SECRET_BYTES = "secret", 32


def data_of(folder: str) -> str:
    """The gateway's data directory, two levels above a conversation's folder."""
    return folder.rsplit("/", 2)[0]


def private_folder(base: PathOrText, path: PathOrText) -> AbstractContextManager[int]:
    """A descriptor of `path`, which is `base` or below it and created if missing, for the length of a `with` block.

    Links are allowed in `base`, but not below it. Raises `OSError`.
    """
    base, path = os.fspath(base), os.fspath(path)
    if path != base and not path.startswith(f"{base}/"):
        raise ValueError(f"{path!r} is not below {base!r}")
    if not os.path.isdir(base):
        os.makedirs(base, mode=0o700, exist_ok=True)
    names = filter(None, path[len(base) + 1 :].split("/"))
    return descended(base, names, lambda folder, name: _open(folder, name, path))


@contextmanager
def descended(base: PathOrText, names: Iterable[str], enter: Callable[[int, str], int]) -> Iterator[int]:
    """A descriptor of the last of these folders, each below the one before. `enter` opens one. Raises `OSError`."""
    folder = os.open(base, _BASE)
    try:
        for name in names:
            below = enter(folder, name)
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)


def write_private(folder: int, name: str, data: bytes, mode: int = 0) -> None:
    """Replaces any entry of this name except a folder; readers see one version or the other. `mode` 0: for its owner
    alone, or with the agents' user. Raises `OSError`.
    """
    temporary = f".{name[:50]}.{token_hex(8)}"
    file = os.open(temporary, _NEW_FILE, 0o600, dir_fd=folder)
    try:
        with open(file, "wb") as opened:
            if mode or _is_shared(folder):
                os.fchmod(file, mode or 0o660)
            opened.write(data)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


def read_private(base: PathOrText, path: PathOrText, largest: int = 4 * 1024 * 1024) -> bytes:
    """A file below `base` that an agent may have put there: it is read only if it is a regular file of at most that
    size, and reached through no link. Raises `OSError`.
    """
    with open(open_below(base, os.fspath(path)[len(os.fspath(base)) + 1 :]), "rb") as opened:
        facts = os.fstat(opened.fileno())
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > largest:
            raise OSError(errno.EINVAL, "Not a regular file, or too large", os.fspath(path))
        return opened.read()


def open_below(base: PathOrText, path: str, *, is_folder: bool = False) -> int:
    """A descriptor of what has this path below `base`, through no link there. Raises `OSError`."""
    *folders, name = path.split("/")
    with descended(base, folders, lambda folder, part: os.open(part, _FOLDER, dir_fd=folder)) as folder:
        return os.open(name, _FOLDER if is_folder else _EXISTING_FILE, dir_fd=folder)


def secret_in(folder: Path) -> bytes:
    """The gateway's own secret: the one that is kept there, or a new one. Raises `OSError`."""
    path = folder / _SECRET
    with suppress(FileNotFoundError):
        if len(kept := _secret(path)) == _SECRET_BYTES:
            return kept
        path.unlink(missing_ok=True)  # cut short: nothing can depend on it
    made = path.with_name(f".{_SECRET}.{token_hex(8)}")
    with os.fdopen(os.open(made, _NEW_FILE, 0o600), "wb") as file:
        file.write(token_bytes(_SECRET_BYTES))
    try:
        os.link(made, path)  # unless another gateway was faster
    except FileExistsError:
        pass
    except OSError:  # some file systems have no links
        made.replace(path)
    finally:
        made.unlink(missing_ok=True)
    return _secret(path)


def _secret(path: Path) -> bytes:
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        return file.read(_SECRET_BYTES + 1)


def remove_entry(folder: int, name: str) -> None:
    """Removes a file, a folder or a link (not its target). Raises `OSError`."""
    with suppress(FileNotFoundError):
        try:
            os.unlink(name, dir_fd=folder)
        except OSError as error:
            if error.errno not in (errno.EISDIR, errno.EPERM):
                raise
            shutil.rmtree(name, dir_fd=folder)


def _open(folder: int, name: str, path: str) -> int:
    try:
        try:
            return os.open(name, _FOLDER, dir_fd=folder)
        except FileNotFoundError:
            return _made(folder, name)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise OSError(errno.ENOTDIR, "Not a directory, or a link to one", path) from error
        raise


def _made(folder: int, name: str) -> int:
    is_new = True
    try:
        os.mkdir(name, 0o700, dir_fd=folder)
    except FileExistsError:
        is_new = False
    made = os.open(name, _FOLDER, dir_fd=folder)
    if is_new and _is_shared(folder):
        os.fchmod(made, SHARED)
    return made


def _is_shared(folder: int) -> bool:
    return stat.S_IMODE(os.fstat(folder).st_mode) == SHARED


def size_of(folder: Path) -> int:
    """The total size of the files in it, at any depth."""
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except OSError:  # deleted meanwhile
                continue
    return total


_FEW, _MANY = 8, 24  # below the first, more are made, up to the second


class FreshFolders:
    def __init__(self, base: Path, place: Path, names: Sequence[str]) -> None:
        """They are made in `place`, which is `base` or below it; `names` are the folders in each of them."""
        self._base, self._place, self._names = str(base), str(place), names
        self._ready: list[str] = []
        self._made = 0
        self._making: asyncio.Future[None] | None = None

    def move_to(self, folder: int, name: str) -> bool:
        """Gives one that name in the folder with this descriptor. False: there is none."""
        if len(self._ready) < _FEW and (self._making is None or self._making.done()):
            self._making = asyncio.get_running_loop().run_in_executor(None, self._make)
        if not self._ready:
            return False
        try:
            os.rename(self._ready.pop(), name, dst_dir_fd=folder)
        except OSError:  # it is gone, or the name is taken
            return False
        return True

    def _make(self) -> None:
        """In a thread: nothing else changes `_made`, and `_ready` only gets shorter meanwhile."""
        # Each call into the system gives the interpreter to the event loop, which this thread then has to take back.
        with suppress(OSError), private_folder(self._base, self._place) as place:  # missing ones are made when needed
            while len(self._ready) < _MANY:
                self._made += 1
                os.mkdir(str(self._made), 0o700, dir_fd=place)
                for name in self._names:
                    os.mkdir(f"{self._made}/{name}", 0o700, dir_fd=place)
                self._ready.append(f"{self._place}/{self._made}")
