"""Find, change and restore the configuration files of clients."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkstemp

import msgspec
from msgspec import Struct

from cursor_gateway.cli.clients.base import ConfigFolder, JsonFile, KeptInFile
from cursor_gateway.cli.clients.edits import Edit, JsonChange, NotEditable, is_empty, undo, undone
from cursor_gateway.cli.output import Trouble

_BACKUP = ".cursor-gateway-backup"


def path_of(kept: KeptInFile, environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    folder = _folder(kept.folder, environ, platform)
    path = folder / kept.name
    if isinstance(kept, JsonFile) and not path.exists() and (commented := folder / f"{kept.name}c").exists():
        return commented  # JSON with comments has a name of its own in some clients
    return path


def _folder(folder: ConfigFolder, environ: Mapping[str, str], platform: str) -> Path:
    if folder.variable and (named := environ.get(folder.variable)):
        return Path(named)
    if folder.macos and platform == "darwin":
        return Path(folder.macos).expanduser()
    if folder.below_config and (configurations := environ.get("XDG_CONFIG_HOME")):
        return Path(configurations, folder.below_config)
    return Path(folder.default).expanduser()


class KeptFile:
    """A file of another program. Errors become `Trouble`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> str | None:
        """None: it does not exist."""
        try:
            with self._reported("read"), suppress(FileNotFoundError):
                return self.path.read_bytes().decode()
        except UnicodeDecodeError:
            raise Trouble(f"{self.path} is not UTF-8; change it yourself.") from None
        return None

    def write(self, text: str, *, has_key: bool = False) -> None:
        """All of it or nothing, with its permissions; a link stays one. With a key, only the user may read it."""
        target = self.path.resolve()
        with self._reported("written"):
            target.parent.mkdir(parents=True, exist_ok=True)
            mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
            _replace(target, text, mode & 0o700 if has_key else mode)

    def back_up(self, text: str | None) -> str:
        """Its path; empty: there was nothing to keep."""
        if text is None:
            return ""
        backup = Path(f"{self.path}{_BACKUP}")
        with self._reported("backed up"):
            _replace(backup, text, self.path.stat().st_mode & 0o777)
        return str(backup)

    def remove(self) -> None:
        """What was written: if the path is a link, the link stays."""
        with self._reported("removed"):
            self.path.resolve().unlink(missing_ok=True)

    @contextmanager
    def _reported(self, verb: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise Trouble(f"{self.path} cannot be {verb}: {error.strerror}; check its permissions.") from None


def _replace(path: Path, text: str, mode: int) -> None:
    descriptor, made = mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        os.chmod(made, mode)
        os.replace(made, path)
    except BaseException:
        os.unlink(made)
        raise


# --- what was done --------------------------------------------------------------------------------------


class ClientConnection(Struct, frozen=True, kw_only=True):
    """What `connect --write` did to a file."""

    file: str
    before: str | None  # its text; None: it did not exist
    written: str
    changes: Sequence[JsonChange] = ()  # of JSON
    edits: Sequence[Edit] = ()  # of YAML
    backup: str = ""

    def taken_back(self, current: str) -> str | None:
        """The file without it; None: no file. Raises `NotEditable`."""
        if current == self.written:
            return self.before
        if self.edits:
            return undo(current, self.edits)
        if not self.changes:
            raise NotEditable("was changed since")
        text = undone(current, self.changes)
        return None if self.before is None and is_empty(text, ()) else text


class ClientConnections:
    """One file for each client, in the gateway's data directory."""

    def __init__(self, data: Path) -> None:
        self._folder = data / "connections"

    def read(self, name: str) -> ClientConnection | None:
        try:
            return msgspec.json.decode(self._path(name).read_bytes(), type=ClientConnection)
        except (OSError, msgspec.DecodeError):  # damaged: as if nothing had been written
            return None

    def write(self, name: str, connection: ClientConnection) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            _replace(self._path(name), msgspec.json.encode(connection).decode(), 0o600)
        except OSError as error:
            raise Trouble(f"{self._folder} cannot be written: {error.strerror}; set `data_dir`.") from None

    def remove(self, name: str) -> None:
        self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"
