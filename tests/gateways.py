"""A real gateway for tests: `cursor-gateway serve` as a process of its own, with the stand-in agent, on a free port."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec import Struct

from tests.agent.install import install
from tests.cli.processes import TIMEOUT, read_until
from tests.preloaded import Process, start

_READY = re.compile(rb"(http://[\w.\[\]:]+:\d+)/(?:v1|livez)\b")


class RunningGateway(Struct, frozen=True):
    url: str
    process: Process
    home: Path  # everything that the gateway and the agent may write lies below it
    agent_log: Path  # one line of JSON for each start of the stand-in
    log: Path  # what the gateway writes to its standard error
    banner: str = ""  # what it writes to its standard output

    @property
    def workspace(self) -> Path:
        return self.home / "work"

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def openai_url(self) -> str:
        return f"{self.url}/v1"


@contextmanager
def running_gateway(
    home: Path,
    *flags: str,
    settings: Mapping[str, str] | None = None,
    knobs: Mapping[str, object] | None = None,
    has_agent: bool = True,
    environment: Mapping[str, str] | None = None,
    before: Sequence[str] = (),
) -> Iterator[RunningGateway]:
    """`settings` by their names; `knobs` are the stand-in's. On leaving it is told to stop, and must.

    `before` are words that start the command that follows them, in another way.
    """
    for folder in ("work", "data", ".cursor", "bin"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    agent_log, log = home / "agent.log", home / "gateway.log"
    if has_agent:
        install(home / "bin", knobs={"log": str(agent_log), **(knobs or {})})
    given = {"data_dir": str(home / "data"), "workspace": str(home / "work"), "grace_seconds": "1"}
    given |= {"runtime_dir": str(home / "runtime"), **(settings or {})}
    # The prompt decides whether the stand-in is logged in: an error of one test is none of the next one's.
    given.setdefault("account_error_seconds", "0")
    env = {
        "PATH": f"{home / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin",
        "HOME": str(home),
        "PYTHONUNBUFFERED": "1",
        **{f"CURSOR_GATEWAY_{name.upper()}": value for name, value in given.items()},
        **(environment or {}),
    }
    command = ["serve", "--port", "0", *flags]
    with ExitStack() as stack:
        errors = stack.enter_context(log.open("wb"))
        process: Process
        if before:
            words = [*before, sys.executable, "-m", "cursor_gateway", *command]
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=env, cwd=home
            )
        else:
            process = start(command, env, home, stderr=errors)
        stack.enter_context(process)
        try:
            assert process.stdout is not None
            said = read_until(process.stdout.fileno(), b"Ctrl-C")
            found = _READY.search(said)
            assert found, said
            yield RunningGateway(found[1].decode(), process, home, agent_log, log, said.decode())
            process.send_signal(signal.SIGTERM)
            process.wait(TIMEOUT)
        finally:
            if process.poll() is None:
                process.kill()
