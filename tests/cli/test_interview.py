"""`cursor-gateway chat` with an agent that waits: whoever sits at the terminal is asked, and the same run goes on."""

import os
import pty
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.agent.install import install
from tests.cli.processes import TIMEOUT, arguments_of, read_until
from tests.gateways import running_gateway
from tests.server.test_leaks import ended_agents


class Terminal:
    def __init__(self, file: int) -> None:
        self._file = file
        self.seen = b""
        self._place = 0  # up to which it was looked at

    def until(self, expected: bytes) -> None:
        if (found := self.seen.find(expected, self._place)) < 0:
            rest = self.seen[self._place :]
            self.seen = self.seen[: self._place] + read_until(self._file, expected, rest)
            found = self.seen.find(expected, self._place)
        self._place = found + len(expected)

    def type(self, text: str) -> None:
        os.write(self._file, text.encode() + b"\n")

    def rest(self) -> bytes:
        with suppress(OSError):  # how Linux says that the other end is closed
            while piece := os.read(self._file, 65536):
                self.seen += piece
        return self.seen


@contextmanager
def chatting(home: Path, *arguments: str) -> Iterator[tuple[Terminal, "subprocess.Popen[bytes]"]]:
    ours, theirs = pty.openpty()
    environment = {
        "HOME": str(home),
        "PATH": f"{home / 'bin'}:/usr/bin:/bin",
        "TERM": "xterm-256color",
        "CURSOR_GATEWAY_DATA_DIR": str(home / "data"),
        "CURSOR_GATEWAY_SOURCE": "acp",
    }
    with subprocess.Popen(
        arguments_of("chat", *arguments),
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env=environment,
        cwd=home,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        try:
            yield Terminal(ours), process
            process.wait(TIMEOUT)
        finally:
            if process.poll() is None:
                process.kill()
            os.close(ours)


@pytest.fixture(params=["gateway", "direct"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], list[str]]]:
    """The arguments that reach an agent which waits."""
    with ended_agents(tmp_path):
        if request.param == "direct":
            install(tmp_path / "bin", knobs={"log": str(tmp_path / "agent.log")})
            (tmp_path / "data").mkdir()
            yield lambda: ["--direct"]
        else:
            with running_gateway(tmp_path, settings={"source": "acp"}) as gateway:
                yield lambda: ["--url", gateway.url]


def test_a_question_is_asked_and_answered(tmp_path: Path, where: Callable[[], list[str]]) -> None:
    with chatting(tmp_path, *where(), "standin: question") as (terminal, process):
        terminal.until(b"Which file is meant?")
        terminal.until(b"(Enter skips): ")
        terminal.type("7")
        terminal.until(b"one of 1 to 2")
        terminal.until(b"(Enter skips): ")
        terminal.type("2")
        seen = terminal.rest()
    assert process.returncode == 0
    assert b"other.txt" in seen


def test_a_plan_is_shown_and_decided(tmp_path: Path, where: Callable[[], list[str]]) -> None:
    with chatting(tmp_path, *where(), "--mode", "plan", "standin: plan") as (terminal, process):
        terminal.until(b"Accept it? [y/N] ")
        assert b"Dump, load, switch" in terminal.seen
        terminal.type("y")
        terminal.rest()
    assert process.returncode == 0


def test_nobody_is_asked_where_nobody_sits(tmp_path: Path) -> None:
    with ended_agents(tmp_path), running_gateway(tmp_path, settings={"source": "acp"}) as gateway:
        done = subprocess.run(
            arguments_of("chat", "--url", gateway.url, "--json", "standin: question"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT,
            env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "CURSOR_GATEWAY_DATA_DIR": str(gateway.data)},
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert b'"status":"completed"' in done.stdout
