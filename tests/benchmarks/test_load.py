"""The load client counts a reply only when it is whole, and measures what it says; the server here is scripted."""

import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from benchmarks.loading import Summary

OK = b"HTTP/1.1 200 OK\r\n\r\n"
Answer = Callable[[socket.socket], None]


@contextmanager
def serving(answer: Answer) -> Iterator[int]:
    """Each connection in a thread; it is closed when `answer` returns."""

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=one, args=[connection], daemon=True).start()

    def one(connection: socket.socket) -> None:
        with connection:
            connection.recv(65536)
            answer(connection)

    with socket.create_server(("127.0.0.1", 0)) as server:
        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        accepting.join(60)


def sending(*parts: bytes, pause: float = 0.0) -> Answer:
    def answer(connection: socket.socket) -> None:
        for number, part in enumerate(parts):
            if number:
                time.sleep(pause)
            connection.sendall(part)

    return answer


@pytest.fixture
def load(programs: Path, tmp_path: Path) -> Callable[..., Summary]:
    def run(answer: Answer, *words: str) -> Summary:
        request = tmp_path / "request"
        request.write_bytes(b"GET / HTTP/1.1\r\n\r\n")
        with serving(answer) as port:
            command = [str(programs / "load"), "-p", str(port), "-q", str(request), "-f", "FIRST", "-e", "END", *words]
            ran = subprocess.run(command, capture_output=True, check=True, timeout=120, stdin=subprocess.DEVNULL)
        return msgspec.json.decode(ran.stdout, type=Summary)

    return run


def test_whole_replies_are_counted(load: Callable[..., Summary]) -> None:
    result = load(sending(OK + b"FIRST and END\n"), "-c", "3", "-n", "10")
    assert (result.asked, result.finished, result.failed) == (10, 10, 0)
    assert result.total_us is not None
    assert result.total_us.count == 10
    assert result.bytes == 10 * len(OK + b"FIRST and END\n")


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(OK + b"FIRST and then nothing", id="no end"),
        pytest.param(OK + b"nothing and END", id="no content"),
        pytest.param(b"HTTP/1.1 500 Oh\r\n\r\nFIRST and END", id="another status"),
        pytest.param(OK + b"FIRST END" + b"." * 5000, id="the end is not at the end"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_other_replies_have_failed(load: Callable[..., Summary], reply: bytes) -> None:
    result = load(sending(reply), "-n", "2")
    assert (result.finished, result.failed, result.total_us) == (2, 2, None)


def test_stamps_are_measured_once_each(load: Callable[..., Summary]) -> None:
    first, second = time.monotonic_ns() - 5_000_000, time.monotonic_ns() - 1_000_000
    lines = b'FIRST "@%d@"\n"@%d' % (first, second), b'@"\nagain: "@%d@@%d@" END\n' % (first, second)
    result = load(sending(OK + lines[0], lines[1], pause=0.05), "-s")
    assert result.failed == 0
    assert result.delay_us is not None
    assert result.delay_us.count == 2
    assert result.delay_us.p50 >= 1000
