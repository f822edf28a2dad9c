"""A network of one member's own, whose packets can be made to vanish, in one direction or in both.

The member runs in a network namespace, which a pair of virtual interfaces connects with this one. To partition it, the
other side's hardware address is replaced by one that nobody has: packets are sent, and nobody takes them. So the
time-outs and retransmissions of TCP itself are tested. It needs root and `ip`, but no packet filter.

The namespace belongs to a child process that reads a pipe from this one. However this one ends, the pipe is closed;
then the child removes the interfaces, and the kernel the namespace.
"""

import os
import subprocess
from functools import cache
from ipaddress import IPv4Address
from typing import Literal, TypeAlias, get_args

Direction: TypeAlias = Literal["both", "to the database", "from the database"]

DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
_FIRST = IPv4Address("198.18.0.0")  # of the addresses that are for tests of networks (RFC 2544)
_MOST = 1 << 14  # networks of four addresses each
_NOBODY = "02:00:00:00:00:01"
_PEER = "nemesis0"  # the name of the member's interface
_HOLD = f"echo; cat; exec ip link delete {_PEER}"


class Network:
    """Raises `OSError` if this machine refuses it."""

    def __init__(self) -> None:
        self._holder = subprocess.Popen(
            ("unshare", "--net", "sh", "-c", _HOLD),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert self._holder.stdout is not None
            if not self._holder.stdout.readline():
                raise OSError("`unshare --net` is refused")
            number = self._connected()
            self.name = f"nemesis{number}"  # the interface on this side
            self.here, self.there = str(_FIRST + 4 * number + 1), str(_FIRST + 4 * number + 2)
            _ip("address", "add", f"{self.here}/30", "dev", self.name)
            _ip("link", "set", self.name, "up")
            _ip("link", "set", "lo", "up", within=self.prefix)
            _ip("address", "add", f"{self.there}/30", "dev", _PEER, within=self.prefix)
            _ip("link", "set", _PEER, "up", within=self.prefix)
        except BaseException:
            self.close()
            raise

    @property
    def prefix(self) -> tuple[str, ...]:
        """A command that runs another one in it."""
        return "nsenter", f"--target={self._holder.pid}", "--net"

    def cut(self, direction: Direction) -> None:
        """Nothing arrives any more, and nobody is told."""
        if direction != "from the database":
            _ip(*_neighbour("replace", self.here, _PEER), within=self.prefix)
        if direction != "to the database":
            _ip(*_neighbour("replace", self.there, self.name))

    def mend(self) -> None:
        for within, address, interface in (self.prefix, self.here, _PEER), ((), self.there, self.name):
            if _NOBODY in _ip("neighbour", "show", address, "dev", interface, within=within):
                _ip(*_neighbour("delete", address, interface), within=within)

    def close(self) -> None:
        self._holder.communicate()

    def _connected(self) -> int:
        """The kernel gives each name once, so it also tells which addresses are free."""
        for number in ((os.getpid() + one) % _MOST for one in range(_MOST)):
            try:
                ends = (f"nemesis{number}", "type", "veth", "peer", "name", _PEER, "netns", str(self._holder.pid))
                _ip("link", "add", *ends)
            except FileExistsError:
                continue
            return number
        raise OSError("all addresses are in use")


@cache
def can_partition() -> bool:
    try:
        Network().close()
    except OSError:
        return False
    return True


def _neighbour(what: str, address: str, interface: str) -> tuple[str, ...]:
    return "neighbour", what, address, "lladdr", _NOBODY, "dev", interface, "nud", "permanent"


def _ip(*words: str, within: tuple[str, ...] = ()) -> str:
    done = subprocess.run((*within, "ip", *words), capture_output=True, text=True, check=False)
    if done.returncode:
        raise (FileExistsError if "exists" in done.stderr else OSError)(
            f"`ip {' '.join(words)}`: {done.stderr.strip()}"
        )
    return done.stdout
