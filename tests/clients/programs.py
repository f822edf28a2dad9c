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
        self,
        *command: str | Path,
        stdin: str = "",
        environment: Mapping[str, str] | None = None,
        fails: bool = False,
    ) -> str:
        """What it wrote to stdout, or, if it is to fail, what it wrote at all. Nothing that it started is left."""
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env={**self._environment(), **(environment or {})},
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

    def _environment(self) -> dict[str, str]:
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


class Driven(Struct, frozen=True):
    """A driver's answer, and the cities that its tool was asked for."""

    answer: str
    cities: Sequence[str]


def drive(driver: str, way: str, gateway: RunningGateway, project: Project, prompt: str, *, weather: Json) -> Driven:
    """What the tool finds out stands only in the client's folder."""
    (project.folder / "weather.json").write_text(json.dumps(weather), encoding="utf-8")
    question = json.dumps({"url": gateway.openai_url, "prompt": prompt, "way": way})
    if driver.endswith(".mjs"):  # it finds its packages beside it, as in any project
        program = node()
        (project.folder / "node_modules").symlink_to(PACKAGES)
        shutil.copy(DRIVERS / driver, project.folder)
        said = project.run(program, driver, stdin=question)
    else:
        environment = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        said = project.run(python(), "-m", f"tests.clients.drivers.{driver}", stdin=question, environment=environment)
    return Driven(json.loads(said), project.lines("calls.txt"))


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
