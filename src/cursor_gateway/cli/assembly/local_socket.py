"""A gateway's Unix socket, by which the commands of the same user find and recognize their own gateway.

Any user of this machine can bind a port on loopback first. The socket is in a folder that only its user can write to,
so nobody else can put one there or replace it. A command checks the owners of both when it starts.

Beside each socket, a file of the same name says what its gateway is for, so that a command can choose among several
without asking them.
"""

import errno
import os
import socket
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

_FOLDER = "sockets"
_LONGEST = 100  # bytes of a path; macOS takes 103, Linux 107
_BACKLOG = 2048


class GatewayDescription(Struct, frozen=True):
    """What a gateway says about itself beside its socket."""

    url: str = ""
    folders: Sequence[str] = ()  # where it may work, and below; absolute, without links
    is_temporary: bool = False  # it stops with the command that started it


class LocalGateway(Struct, frozen=True):
    """A gateway of this user, on this machine."""

    port: int
    socket: Path
    description: GatewayDescription

    @property
    def url(self) -> str:
        return self.description.url or f"http://127.0.0.1:{self.port}"


@contextmanager
def listening(data: Path, port: int, description: GatewayDescription | None = None) -> Iterator[socket.socket]:
    """The socket of the gateway on that port, for as long as it serves. Raises `OSError`."""
    path = _path(data, port)
    for folder in (data, path.parent):  # parents get the umask's mode, so one by one
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not _is_private(path.parent):
        raise OSError(errno.EPERM, "others may write to it", str(path.parent))
    if _accepts(path):
        raise OSError(errno.EADDRINUSE, "another gateway listens on it", str(path))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as bound:
        made = path.with_suffix(f".{os.getpid()}")
        made.unlink(missing_ok=True)
        with short_path(made) as name:
            bound.bind(name)
        bound.listen(_BACKLOG)
        _describe(path, description or GatewayDescription())
        made.rename(path)  # only now: under its own name it always listens, or is what a dead gateway left
        try:
            yield bound
        finally:
            bound.close()
            if not _accepts(path):  # otherwise it belongs to the next gateway
                path.unlink(missing_ok=True)
                path.with_suffix(".json").unlink(missing_ok=True)


def find_gateway(data: Path, port: int) -> LocalGateway | None:
    """None: no gateway of this user listens there, with this data directory."""
    path = _path(data, port)
    if not (_is_private(path.parent) and stat.S_ISSOCK(_own_mode(path)) and _accepts(path)):
        return None
    try:
        description = msgspec.json.decode(path.with_suffix(".json").read_bytes(), type=GatewayDescription)
    except (OSError, msgspec.DecodeError):  # that of an earlier version has none
        description = GatewayDescription()
    return LocalGateway(port, path, description)


def find_gateways(data: Path) -> list[LocalGateway]:
    """All of this user's with this data directory, by port."""
    ports = [int(path.stem) for path in (data / _FOLDER).glob("*.sock") if path.stem.isdigit()]
    return [found for port in sorted(ports) if (found := find_gateway(data, port)) is not None]


def nearest(gateways: Sequence[LocalGateway], folder: Path | None, port: int) -> LocalGateway | None:
    """The one for this folder: the one whose own folder is innermost; then the one on the usual port; then any."""

    def rank(gateway: LocalGateway) -> tuple[int, bool, int]:
        inside = 0 if folder is None else depth(gateway.description.folders, folder)
        return inside, gateway.port == port, -gateway.port

    return max((one for one in gateways if not one.description.is_temporary), key=rank, default=None)


def depth(roots: Sequence[str], folder: Path) -> int:
    """The length of the longest of these paths that contains the folder; 0: none does."""
    return max((len(Path(root).parts) for root in roots if folder.is_relative_to(root)), default=0)


def _describe(socket: Path, description: GatewayDescription) -> None:
    made = socket.with_suffix(f".{os.getpid()}.json")
    made.write_bytes(msgspec.json.encode(description))
    made.rename(socket.with_suffix(".json"))


@contextmanager
def short_path(path: Path) -> Iterator[str]:
    """A name that fits into a socket's address: of a long path, a link in a temporary folder."""
    if len(os.fsencode(path)) <= _LONGEST:
        yield str(path)
        return
    from tempfile import TemporaryDirectory  # most paths are short

    with TemporaryDirectory(prefix="cursor-gateway-") as folder:
        link = Path(folder, "s")
        link.symlink_to(path.parent)
        yield str(link / path.name)


def _path(data: Path, port: int) -> Path:
    return data / _FOLDER / f"{port}.sock"


def _is_private(folder: Path) -> bool:
    mode = _own_mode(folder)
    return stat.S_ISDIR(mode) and not mode & 0o022


def _own_mode(path: Path) -> int:
    """0: there is nothing, or it belongs to another user."""
    try:
        found = path.lstat()
    except OSError:
        return 0
    return found.st_mode if found.st_uid == os.geteuid() else 0


def _accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe, short_path(path) as name:
        probe.setblocking(False)
        try:
            probe.connect(name)
        except BlockingIOError:  # it listens, and is busy
            return True
        except OSError:
            return False
    return True


# --- addresses ------------------------------------------------------------------------------------------

WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def url_of(host: str, port: int) -> str:
    """For people: a wildcard address cannot be opened in a browser."""
    shown = WILDCARDS.get(host, host)
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"


# --- the port ----------------------------------------------------------------------------------------


def bound_socket(host: str, port: int) -> socket.socket:
    """Raises `OSError`."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(2048)  # at once: two processes may bind the same address, but only one can listen
    except OSError:
        bound.close()
        raise
    return bound
