"""The packages in; each way to install them, tried in an empty environment, and what it took, out."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from tools import newcomer
from tools.distribution.building import Built
from tools.distribution.programs import REQUIREMENTS, ROOT, new_environment, run, uv

_RELEASE = ROOT / ".venv-release" / "bin"
_EXTRAS = "acp,sdk,postgres"
_STARTS = 7


class Tried(Struct, frozen=True):
    way: str
    seconds: float  # to install
    result: str


def try_installations(built: Built, folder: Path) -> Iterator[Tried]:
    yield _wheel_alone(built, folder / "wheel")
    yield _sdist(built, folder / "sdist")
    yield _uv_tool(built, folder / "uv-tool")
    yield _uvx(built, folder / "uvx")
    yield _pipx(built, folder / "pipx")
    yield _pip_with_extras(built, folder / "pip")


def _wheel_alone(built: Built, folder: Path) -> Tried:
    """With the dependencies as pinned: what is measured is this package."""
    began = time.monotonic()
    python = new_environment(folder, REQUIREMENTS / "extras.txt")
    uv("pip", "install", "-q", "--python", python, "--no-deps", built.wheel)
    took = time.monotonic() - began
    program = python.with_name("cursor-gateway")
    newcomer.walk([str(program), "serve"], program, folder)
    return Tried("the wheel, dependencies as pinned", took, "the newcomer's path works")


def _sdist(built: Built, folder: Path) -> Tried:
    began = time.monotonic()
    python = new_environment(folder)
    constraints: list[str | Path] = ["--build-constraints", REQUIREMENTS / "build.txt", "--require-build-hashes"]
    uv("pip", "install", "-q", "--python", python, *constraints, built.sdist)
    took = time.monotonic() - began
    program = python.with_name("cursor-gateway")
    newcomer.walk([str(program), "serve"], program, folder)
    return Tried("the sdist", took, f"the newcomer's path works, {_same_commit(program, built)}")


def _uv_tool(built: Built, folder: Path) -> Tried:
    tools = {"UV_TOOL_DIR": str(folder / "tools"), "UV_TOOL_BIN_DIR": str(folder / "bin")}
    began = time.monotonic()
    uv("tool", "install", "-q", "--python", sys.executable, built.wheel, env=tools)
    took = time.monotonic() - began
    return Tried("`uv tool install`", took, _chats(folder / "bin" / "cursor-gateway", folder, built))


def _uvx(built: Built, folder: Path) -> Tried:
    folder.mkdir()
    began = time.monotonic()
    words: list[str | Path] = [
        "tool",
        "run",
        "-q",
        "--python",
        sys.executable,
        "--from",
        built.wheel,
        "cursor-gateway",
        "--version",
    ]
    printed = uv(*words, env={"UV_TOOL_DIR": str(folder)}, cwd=folder)
    _check_commit(printed, built)
    return Tried("`uvx cursor-gateway`", time.monotonic() - began, "shows its version")


def _pipx(built: Built, folder: Path) -> Tried:
    places = {name: str(folder / name) for name in ("PIPX_HOME", "PIPX_BIN_DIR", "PIPX_MAN_DIR")}
    began = time.monotonic()
    run([_RELEASE / "pipx", "install", "-q", "--python", sys.executable, built.wheel], env=places)
    took = time.monotonic() - began
    if not (folder / "PIPX_MAN_DIR" / "man1" / "cursor-gateway.1").exists():
        raise SystemExit("pipx did not install the manual page")
    chatted = _chats(folder / "PIPX_BIN_DIR" / "cursor-gateway", folder, built)
    return Tried("`pipx install`", took, f"{chatted}, manual page installed")


def _pip_with_extras(built: Built, folder: Path) -> Tried:
    run([sys.executable, "-m", "venv", folder])
    python = folder / "bin" / "python"
    began = time.monotonic()
    run(
        [python, "-m", "pip", "install", "-q", "--prefer-binary", f"cursor-gateway[{_EXTRAS}] @ {built.wheel.as_uri()}"]
    )
    took = time.monotonic() - began
    modules = "cursor_gateway.sources.acp.connection, cursor_gateway.store.postgres.store, cursor_sdk"
    run([python, "-c", f"import {modules}"], cwd=folder)
    return Tried(
        f"`pip install 'cursor-gateway[{_EXTRAS}]'`", took, _chats(folder / "bin" / "cursor-gateway", folder, built)
    )


def _chats(program: Path, folder: Path, built: Built) -> str:
    home = folder / "home"
    home.mkdir()
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "CURSOR_GATEWAY_PORT": "0"}
    printed = run([program, "chat", "--text", "hello"], cwd=home, env=environment)
    if "Hello" not in printed:
        raise SystemExit(f"{program} chat printed {printed!r}")
    return f"`chat` works, {_same_commit(program, built)}"


def _same_commit(program: Path, built: Built) -> str:
    _check_commit(run([program, "--version"], cwd=program.parent), built)
    return "`--version` shows the commit"


def _check_commit(printed: str, built: Built) -> None:
    if f"({built.commit[:12]})" not in printed:
        raise SystemExit(f"--version printed {printed!r}, not the commit {built.commit}")


class Start(Struct, frozen=True):
    help_ms: float
    serve_ms: float
    installed_bytes: int  # this package without its dependencies
    environment_bytes: int  # with them, and with the extras


def measure_start(folder: Path) -> Start:
    """Of the environment that `_wheel_alone` made. Medians: the machine may do something else, too."""
    program = folder / "wheel" / "bin" / "cursor-gateway"
    helps = [_seconds([str(program), "--help"]) for _ in range(_STARTS)]
    serves = [_seconds_until_ready(program, folder) for _ in range(_STARTS)]
    packages = next((folder / "wheel" / "lib").glob("python*")) / "site-packages"
    return Start(
        statistics.median(helps) * 1000,
        statistics.median(serves) * 1000,
        _size(packages / "cursor_gateway"),
        _size(folder / "wheel"),
    )


def _seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return time.perf_counter() - began


def _seconds_until_ready(program: Path, folder: Path) -> float:
    home = folder / "start"
    home.mkdir(exist_ok=True)
    with newcomer.started([str(program), "serve"], newcomer.environment_of(home), home) as (server, began):
        newcomer.until_ready(server)
        return time.perf_counter() - began


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
