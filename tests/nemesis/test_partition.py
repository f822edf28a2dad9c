"""A partition of a network: nothing arrives, nobody is told, and what was sent arrives when it is over."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from nemesis.partition import DIRECTIONS, Direction, Network, can_partition

pytestmark = [
    pytest.mark.slow,  # tests of a tool
    pytest.mark.skipif(not can_partition(), reason="needs root and `ip`, to make a network namespace"),
]

_ROOT = Path(__file__).resolve().parents[2]
_SECONDS = 60
_QUIET_SECONDS = 0.2  # in which something would arrive
_CLIENT = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as connection:
    lines = connection.makefile("rwb", buffering=0)
    for line in sys.stdin.buffer:
        lines.write(line)
        sys.stdout.buffer.write(lines.readline())
        sys.stdout.flush()
"""


@contextmanager
def _connected(network: Network) -> Iterator[tuple["subprocess.Popen[bytes]", socket.socket]]:
    """A client in the network, and the connection that it has to here."""
    with socket.create_server((network.here, 0)) as server:
        command = (*network.prefix, sys.executable, "-c", _CLIENT, network.here, str(server.getsockname()[1]))
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
            server.settimeout(_SECONDS)
            connection, _ = server.accept()
            with connection:
                yield client, connection
            client.kill()


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_nothing_arrives_until_it_is_over(direction: Direction) -> None:
    network = Network()
    try:
        with _connected(network) as (client, connection):
            assert client.stdin is not None
            assert client.stdout is not None
            network.cut(direction)
            client.stdin.write(b"asked\n")
            client.stdin.flush()
            if direction == "from the database":
                connection.settimeout(_SECONDS)
                assert connection.recv(100) == b"asked\n"
                connection.sendall(b"answered\n")
                os.set_blocking(client.stdout.fileno(), False)
                time.sleep(_QUIET_SECONDS)
                assert client.stdout.read() is None
                os.set_blocking(client.stdout.fileno(), True)
                network.mend()
            else:
                connection.settimeout(_QUIET_SECONDS)
                with pytest.raises(TimeoutError):
                    connection.recv(100)
                network.mend()
                connection.settimeout(_SECONDS)
                assert connection.recv(100) == b"asked\n"
                connection.sendall(b"answered\n")
            assert client.stdout.readline() == b"answered\n"
            network.mend()  # again: nothing is wrong
    finally:
        network.close()
    assert not _is_there(network.name)


def test_nothing_is_left_of_it_when_its_process_is_killed() -> None:
    program = "from nemesis.partition import Network; print(Network().name, flush=True); input()"
    with subprocess.Popen(
        (sys.executable, "-c", program), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_ROOT
    ) as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        assert _is_there(name)
        process.send_signal(signal.SIGKILL)
    until = time.monotonic() + _SECONDS
    while _is_there(name) and time.monotonic() < until:
        time.sleep(0.01)
    assert not _is_there(name)


def _is_there(name: str) -> bool:
    with suppress(OSError):
        return socket.if_nametoindex(name) > 0
    return False
