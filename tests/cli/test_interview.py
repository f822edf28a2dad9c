"""`cursor-gateway chat` with an agent that waits: whoever sits at the terminal is asked, and the same run goes on."""

import json
import os
import pty
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.agent.install import install
from tests.cli.processes import TIMEOUT, finished, read_until
from tests.gateways import running_gateway
from tests.preloaded import Process, run, start
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
def chatting(home: Path, *arguments: str, source: str = "acp") -> Iterator[tuple[Terminal, Process]]:
    ours, theirs = pty.openpty()
    environment = {
        "HOME": str(home),
        "PATH": f"{home / 'bin'}:/usr/bin:/bin",
        "TERM": "xterm-256color",
        "CURSOR_GATEWAY_DATA_DIR": str(home / "data"),
        "CURSOR_GATEWAY_SOURCE": source,
    }
    streams = {"stdin": theirs, "stdout": theirs, "stderr": subprocess.DEVNULL}
    with start(["chat", *arguments], environment, home, **streams, start_new_session=True) as process:
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


@pytest.mark.quick_cases(1)
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


@pytest.mark.quick_cases(1)
def test_a_plan_is_shown_and_decided(tmp_path: Path, where: Callable[[], list[str]]) -> None:
    with chatting(tmp_path, *where(), "--mode", "plan", "standin: plan") as (terminal, process):
        terminal.until(b"Accept it? [y/N] ")
        assert b"Dump, load, switch" in terminal.seen
        terminal.type("y")
        terminal.rest()
    assert process.returncode == 0


def test_nobody_is_asked_where_nobody_sits(tmp_path: Path) -> None:
    with ended_agents(tmp_path), running_gateway(tmp_path, settings={"source": "acp"}) as gateway:
        environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "CURSOR_GATEWAY_DATA_DIR": str(gateway.data)}
        done = run(["chat", "--url", gateway.url, "--json", "standin: question"], environment, tmp_path)
    assert done.returncode == 0, done.stderr
    assert b'"status":"completed"' in done.stdout


# --- commands that need permission ----------------------------------------------------------------------


@pytest.fixture(params=["acp", "cli"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["gateway", "direct"])
def place(request: pytest.FixtureRequest, backend: str, tmp_path: Path) -> Iterator[list[str]]:
    """The arguments that reach an agent by this backend."""
    with ended_agents(tmp_path):
        if request.param == "direct":
            install(tmp_path / "bin", knobs={"log": str(tmp_path / "agent.log")})
            (tmp_path / "data").mkdir()
            (tmp_path / "work").mkdir()
            yield ["--direct", "--workspace", str(tmp_path / "work")]
        else:
            with running_gateway(tmp_path, settings={"source": backend}) as gateway:
                yield ["--url", gateway.url]


def counting(home: Path) -> str:
    """A prompt for a command that leaves a line each time it runs."""
    (home / "count.py").write_text(f"open({str(home / 'ran')!r}, 'a').write('ran\\n')\n")
    return f'standin: shell command="python3 {home / "count.py"}"'


def runs_in(home: Path) -> int:
    return len((home / "ran").read_text().splitlines()) if (home / "ran").exists() else 0


@pytest.mark.quick_cases(1)
@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("key", ["o", "c", "w"])
def test_a_command_is_allowed_by_a_key(tmp_path: Path, place: list[str], backend: str, key: str) -> None:
    with chatting(tmp_path, *place, counting(tmp_path), source=backend) as (terminal, process):
        terminal.until(b"The agent wants to run: " if backend == "acp" else b"The agent was not allowed to run: ")
        terminal.until(b"always allow in this workspace (Shell(python3))")
        terminal.until(b"o, c, w, d")
        terminal.type("maybe")
        terminal.until(b"Type one of o, c, w, d.")
        assert runs_in(tmp_path) == 0
        terminal.type(key)
        seen = terminal.rest()
    assert process.returncode == 0, seen
    assert b"It ended with 0" in seen
    assert runs_in(tmp_path) == 1


@pytest.mark.quick_cases(1)
@pytest.mark.quick_cases(1)
def test_a_command_is_denied_with_a_reason(tmp_path: Path, place: list[str], backend: str) -> None:
    with chatting(tmp_path, *place, counting(tmp_path), source=backend) as (terminal, process):
        terminal.until(b"o, c, w, d")
        terminal.type("d")
        terminal.until(b"Why not?")
        terminal.type("Use pnpm here.")
        terminal.until(b"Continue without it. Use pnpm here.")  # which the stand-in says back
        terminal.rest()
    assert process.returncode == 0
    assert runs_in(tmp_path) == 0


def test_what_was_rejected_can_be_left(tmp_path: Path) -> None:
    with (
        running_gateway(tmp_path, settings={"source": "cli"}) as gateway,
        chatting(tmp_path, "--url", gateway.url, counting(tmp_path)) as (terminal, process),
    ):
        terminal.until(b"Enter to leave it: ")
        terminal.type("")
        terminal.rest()
    assert process.returncode == 0
    assert runs_in(tmp_path) == 0


def test_a_decision_that_the_operator_forbids_does_not_spoil_the_answer(tmp_path: Path) -> None:
    settings = {"source": "cli", "permissions": "deny"}
    with (
        running_gateway(tmp_path, settings=settings) as gateway,
        chatting(tmp_path, "--url", gateway.url, counting(tmp_path)) as (terminal, process),
    ):
        terminal.until(b"Enter to leave it: ")
        terminal.type("o")
        terminal.rest()
    assert process.returncode == 0
    assert runs_in(tmp_path) == 0


def test_a_question_that_the_agent_went_on_without_is_answered_in_the_next_turn(tmp_path: Path) -> None:
    with (
        running_gateway(tmp_path, settings={"source": "cli"}) as gateway,
        chatting(tmp_path, "--url", gateway.url, "standin: question") as (terminal, process),
    ):
        terminal.until(b"(Enter skips): ")
        terminal.type("2")
        terminal.until(b"You said: Which file is meant?")
        terminal.rest()
    assert process.returncode == 0


# --- and afterwards -------------------------------------------------------------------------------------


def permissions(home: Path, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", "CURSOR_GATEWAY_DATA_DIR": str(home / "data")}
    return finished("permissions", *arguments, stdin=b"", **environment)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("direct", [True, False])
def test_what_was_allowed_is_listed_and_revoked(tmp_path: Path, direct: bool) -> None:
    with running_gateway(tmp_path, "--allow", "Shell(git)", "--allow", "Shell(npm test)") as gateway:
        where = ["--direct"] if direct else ["--url", gateway.url]
        assert permissions(tmp_path, *where).stdout == b""
        with chatting(tmp_path, "--url", gateway.url, counting(tmp_path), source="cli") as (terminal, _):
            terminal.until(b"o, c, w, d")
            terminal.type("w")
            terminal.rest()
        (line,) = permissions(tmp_path, *where).stdout.decode().splitlines()
        id, decision, rules, workspace, subject = line.split("\t")
        assert (decision, rules, workspace) == ("workspace", "Shell(python3)", str(gateway.workspace))
        assert subject == f"python3 {tmp_path / 'count.py'}"
        result = json.loads(permissions(tmp_path, *where, "--json").stdout)
        assert result["settings"] == ([] if direct else ["Shell(git)", "Shell(npm test)"])
        assert [entry["id"] for entry in result["permissions"]] == [id]
        assert permissions(tmp_path, "revoke", *where).returncode == 2
        unknown = permissions(tmp_path, "revoke", *where, "perm_x")
        assert (unknown.returncode, b"no permission begins with 'perm_x'" in unknown.stderr) == (2, True)
        revoked = permissions(tmp_path, "revoke", *where, id[:12])
        assert (revoked.returncode, revoked.stderr) == (0, b"Revoked 1 permission.\n")
        assert permissions(tmp_path, *where).stdout == b""
        assert permissions(tmp_path, "revoke", *where, "--all").returncode == 1
        with chatting(tmp_path, "--url", gateway.url, counting(tmp_path), source="cli") as (terminal, _):
            terminal.until(b"o, c, w, d")  # it is asked for again
            terminal.type("d")
            terminal.until(b"Why not?")
            terminal.type("")
            terminal.rest()
        assert runs_in(tmp_path) == 1
