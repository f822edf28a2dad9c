"""The shared volumes of a runner in; an error out if one of them is not the disk that other runners call so.

A conversation is continued by any runner that has its volume. If two runners gave one name to two disks, an agent would
work on the wrong files, and nobody would notice. So the first runner writes a random mark to the volume, and to the
database; every other one must find it there.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from cursor_gateway.errors import SettingsError

MARK = ".cursor-gateway-volume"
_LONGEST = 100  # bytes


class VolumeMarks(Protocol):
    async def volume_mark(self, name: str, mark: str) -> str:
        """The mark of this volume. If it has none yet, it is this one, unless that is empty."""
        ...


async def check_volumes(volumes: Mapping[str, Path], known: VolumeMarks, warn: Callable[[str], None]) -> None:
    """Raises `SettingsError`, `StoreUnavailable`."""
    for name, folder in volumes.items():
        found = _read(folder)
        expected = await known.volume_mark(name, found)
        if not expected:
            found = _write(folder, warn)
            expected = await known.volume_mark(name, found)
        if expected != found:  # another runner may have written it since: the volume has it before the database
            found = _read(folder)
        if expected != found and not (found or _can_write(folder)):
            warn(f"{folder} is read-only, so nobody can check that it is the shared volume {name!r}.")
        elif expected != found:
            why = f"it has the mark {found}" if found else "it has no mark"
            raise SettingsError(
                f"{folder} is not the volume {name!r} of the other runners: {why}, and the cluster expects {expected}; "
                f"mount the shared one (in Kubernetes, a ReadWriteMany claim). If it was replaced on purpose, write "
                f"{expected} to {folder / MARK}.",
                param="volumes",
            )


def _read(folder: Path) -> str:
    """Empty if there is none. No link is followed: agents write to the volume, too."""
    try:
        file = os.open(folder / MARK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        text = os.read(file, _LONGEST).decode("ascii", "replace").strip()
    except OSError:
        return ""
    finally:
        os.close(file)
    return text if text.isprintable() else ""


def _write(folder: Path, warn: Callable[[str], None]) -> str:
    """The mark that the volume has now: another runner may have been first."""
    try:
        file = os.open(folder / MARK, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)
    except FileExistsError:
        return _read(folder)
    except OSError as error:
        warn(f"the shared volume {folder} cannot be marked, so nobody can check that it is shared: {error.strerror}.")
        return ""
    mark = str(uuid4())
    try:
        os.write(file, f"{mark}\n".encode())
    finally:
        os.close(file)
    return mark


def _can_write(folder: Path) -> bool:
    return os.access(folder, os.W_OK)
