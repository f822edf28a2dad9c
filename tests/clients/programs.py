"""Real clients as processes of their own: a question in; what was answered, and what ran on the client's side, out."""

import json
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from msgspec import Struct

from cursor_gateway.cli.clients.base import GatewayAddress
from cursor_gateway.cli.clients.table import CLIENTS
from tests.gateways import RunningGateway

Json: TypeAlias = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = ROOT / ".venv-clients"
PACKAGES = INSTALLED / "node_modules"
DRIVERS = Path(__file__).parent / "drivers"
TIMEOUT = 300  # for a red build only: a loaded machine must not come near it


# --- what is installed ----------------------------------------------------------------------------------


def needed(*paths: Path) -> Path:
    """The first that is there. Where all must be, as in continuous integration, its absence is a failure."""
    for path in paths:
        if path.exists():
            return path
    names = " or ".join(str(path.relative_to(ROOT)) for path in paths) or f"nothing for {sys.platform}"
    reason = f"a client is not installed ({names}): run `make test-clients`, which needs npm and the network"
    if os.environ.get("TEST_CLIENTS") == "all":
        pytest.fail(reason)
    pytest.skip(reason)


def python() -> Path:
    needed(INSTALLED / ".python")
    return INSTALLED / "bin" / "python"


def node() -> Path:
    needed(INSTALLED / ".node")
    return needed(*PACKAGES.glob("node-*/bin/node"))


_BINARIES = {
    "claude": "@anthropic-ai/claude-code-linux-x64/claude",
    "cline": "@cline/cli-linux-x64/bin/cline",
    "codex": "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex",
    "kilo": "@kilocode/cli-linux-x64/bin/kilo",
    "opencode": "opencode-linux-x64-baseline/bin/opencode",
}
_SCRIPTS = {
    "cn": "@continuedev/cli/dist/cn.js",
    "pi": "@mariozechner/pi-coding-agent/dist/cli.js",
    "qwen": "@qwen-code/qwen-code/cli-entry.js",
}


def command_of(name: str) -> list[str | Path]:
    """What starts this client. Of binaries only the build for Linux on x86 is locked, where CI runs."""
    if name in _SCRIPTS:
        return [node(), needed(PACKAGES / _SCRIPTS[name])]
    if name in _BINARIES:
        if (sys.platform, platform.machine()) != ("linux", "x86_64"):
            pytest.skip(f"{name} is locked for Linux on x86 only")
        needed(INSTALLED / ".node")
        return [needed(PACKAGES / _BINARIES[name])]
    folder = INSTALLED / "aider" if name == "aider" else INSTALLED
    needed(folder / ".python")
    return [needed(folder / "bin" / name)]


def on_path(folder: Path, name: str) -> Path:
    """A folder in which this client is installed under its own name."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    program.write_text(f'#!/bin/sh\nexec {shlex.join(str(word) for word in command_of(name))} "$@"\n')
    program.chmod(0o755)
    return folder


# --- a client's side ------------------------------------------------------------------------------------


class Project(Struct, frozen=True):
    """A folder that a client is started in, with a home of its own beside it."""

    folder: Path
    home: Path

    def run(
        self, *command: str | Path, stdin: str = "", environment: Mapping[str, str] | None = None, fails: bool = False
    ) -> str:
        """What it wrote to stdout, or, if it is to fail, what it wrote at all. Nothing that it started is left."""
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env={**self.environment(), **(environment or {})},
            start_new_session=True,
            text=True,
            encoding="utf-8",
        ) as process:
            try:
                said, result = process.communicate(stdin, TIMEOUT)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        assert (process.returncode != 0) == fails, f"{said}\n{result}"
        return f"{said}\n{result}" if fails else said

    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.pathsep.join(("/usr/bin", "/bin")),
            "HOME": str(self.home),
            **{f"XDG_{name}_HOME": str(self.home / name.lower()) for name in ("CACHE", "CONFIG", "DATA", "STATE")},
            "TMPDIR": str(self.home),
            "LANG": "C.UTF-8",
            "NO_PROXY": "*",
        }

    def lines(self, name: str) -> list[str]:
        """What the tool wrote, a line for each time that it ran."""
        file = self.folder / name
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def project_in(folder: Path) -> Project:
    project = Project(folder / "project", folder / "home")
    project.folder.mkdir(parents=True)
    project.home.mkdir()
    return project


class LaunchedClient(Struct, frozen=True):
    """A client as `cursor-gateway launch` starts it."""

    command: Sequence[str | Path]
    environment: Mapping[str, str]


def launched_client(project: Project, name: str, url: str) -> LaunchedClient:
    launch, folder = CLIENTS[name].launch, project.home / "launched"
    assert launch is not None
    folder.mkdir()
    start = launch.start(GatewayAddress(url=url), str(folder))
    for file, text in start.files.items():
        (folder / file).write_text(text, encoding="utf-8")
    environment = {variable: value for variable, value in start.environment.items() if value is not None}
    return LaunchedClient([*command_of(name), *start.arguments], environment)


def ask_launched(project: Project, name: str, url: str, *arguments: str, fails: bool = False) -> str:
    """What it prints."""
    client = launched_client(project, name, url)
    return project.run(*client.command, *arguments, environment=client.environment, fails=fails)


# --- SDKs -----------------------------------------------------------------------------------------------


class Driven(Struct, frozen=True):
    """A driver's answer, and the cities that its tool was asked for."""

    answer: str
    cities: Sequence[str]


class Drivers:
    """Programs that use one SDK each. They are started once: loading an SDK takes longer than asking it."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._running: dict[str, subprocess.Popen[str]] = {}

    def drive(
        self, driver: str, way: str, gateway: RunningGateway, project: Project, prompt: str, *, weather: Json
    ) -> Driven:
        """What the tool finds out stands only in the client's folder."""
        (project.folder / "weather.json").write_text(json.dumps(weather), encoding="utf-8")
        reply = self.ask(driver, way, gateway.url, project, prompt)
        assert "answer" in reply, reply
        return Driven(reply["answer"], project.lines("calls.txt"))

    def ask(self, driver: str, way: str, url: str, project: Project, prompt: str) -> Json:
        """The answer, or the error."""
        question = {"url": f"{url}/v1", "prompt": prompt, "way": way, "folder": str(project.folder)}
        process = self._running.get(driver) or self._start(driver)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{json.dumps(question)}\n")
        process.stdin.flush()
        said = process.stdout.readline()
        assert said, f"{driver} has ended: {self._errors(driver).read_text()}"
        reply: Json = json.loads(said)
        return reply

    def _start(self, driver: str) -> subprocess.Popen[str]:
        environment, folder = self._project.environment(), self._project.folder
        command: list[str | Path]
        if driver.endswith(".mjs"):  # it finds its packages beside it, as in any project
            command = [node(), driver]
            shutil.copytree(DRIVERS, folder, dirs_exist_ok=True)
            if not (folder / "node_modules").exists():
                (folder / "node_modules").symlink_to(PACKAGES)
        else:
            command = [python(), "-m", f"tests.clients.drivers.{driver}"]
            environment |= {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        with self._errors(driver).open("w") as errors:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=folder,
                env=environment,
                text=True,
                encoding="utf-8",
            )
        self._running[driver] = process
        return process

    def _errors(self, driver: str) -> Path:
        return self._project.home / f"{driver}.log"

    def close(self) -> None:
        for process in self._running.values():
            with process:
                process.kill()  # it has nothing left to do, and takes long to end by itself


# --- what the agent shall do ----------------------------------------------------------------------------


def say(text: str) -> Json:
    """`$1` is the result of the first call, and so on."""
    return {"say": text}


def call(tool: str, **arguments: object) -> Json:
    return {"call": tool, "args": arguments}


def at_once(*calls: Json) -> Json:
    return {"parallel": list(calls)}


def program(steps: Iterable[Json], mark: str, figures: str = "") -> str:
    """A prompt that makes the stand-in do this, and report these figures."""
    return f"{mark}\nstandin: program {figures}\n---\n{json.dumps(list(steps))}\n--- end"


def ten_calls(mark: str, **arguments: str) -> str:
    """A prompt for nine uses of a shell and an answer: the agent reports what all ten model calls read."""
    shell = call("bash", command="echo ran >> marker.txt", **arguments)
    return program([*[shell] * 9, say("all done")], mark, "input=24000 cache_read=216000 output=900")
