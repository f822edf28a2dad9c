"""Pythons, or versions of the dependencies, in; whether the tests pass with them, as a table, out.

Only the tests that can tell: those of the parts that use Python's own modules and the dependencies (processes, sockets,
databases, rendering, the client). The rest of the program is pure and uses msgspec alone; `--all` runs that, too.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from msgspec import Struct

from tools.distribution.programs import REQUIREMENTS, ROOT, uv
from tools.reference.markdown import table

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
_FOLDERS = ("client", "http1", "render", "runs", "schema", "sources", "store", "wire")
_FILES = ("cli/test_main.py", "cli/test_start_up.py", "cli/test_service.py", "server/test_rendering.py")
_PART = [*(f"tests/{name}" for name in (*_FOLDERS, *_FILES))]
_ALL = ["tests", *(f"--ignore=tests/{name}" for name in ("benchmarks", "chaos", "clients", "fuzz", "page", "tools"))]


class Tried(Struct, frozen=True):
    name: str
    python: str
    result: str
    passed: bool


@click.group()
def main() -> None:
    """Run the tests with other versions of Python or of the dependencies."""


_all = click.option("--all", "everything", is_flag=True, help="All tests of the program that need no browser.")


@main.command()
@_all
@click.argument("versions", nargs=-1)
def pythons(everything: bool, versions: Sequence[str]) -> None:
    """With each Python that is found here. $PYTHONS may name programs that are not on PATH."""
    tried = []
    for version in versions or PYTHONS:
        python = _find(version)
        if python is None:
            tried.append(Tried(f"Python {version}", "", "not found here", passed=True))
        else:
            tried.append(
                _try(f"Python {version}", python, ["--require-hashes", "-r", REQUIREMENTS / "dev.txt"], everything)
            )
    _report(tried)


@main.command()
@_all
def oldest(everything: bool) -> None:
    """With the oldest versions of the direct dependencies that pyproject.toml allows."""
    _report([_try("oldest", Path(sys.executable), ["--require-hashes", "-r", REQUIREMENTS / "oldest.txt"], everything)])


@main.command()
@_all
def newest(everything: bool) -> None:
    """With the newest versions that the index has, whatever is pinned."""
    words: list[str | Path] = ["--upgrade", "-r", ROOT / "pyproject.toml", "--all-extras", "--group", "dev"]
    _report([_try("newest", Path(sys.executable), words, everything)])


def _find(version: str) -> Path | None:
    named = [Path(word) for word in os.environ.get("PYTHONS", "").split()]
    installed = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python"))
    for python in [*named, *installed, *_found_by_uv(version)]:
        if _version(python).startswith(f"{version}."):
            return python
    return None


def _found_by_uv(version: str) -> Iterator[Path]:
    try:
        yield Path(uv("python", "find", "--no-python-downloads", version).strip())
    except SystemExit:  # there is none
        return


def _version(python: Path) -> str:
    command = [str(python), "-c", "import platform; print(platform.python_version())"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout.strip()


def _try(name: str, python: Path, requirements: Sequence[str | Path], everything: bool) -> Tried:
    folder = ROOT / "build" / "versions" / name.replace(" ", "-").lower()
    click.echo(f"== {name}: {_version(python)}")
    uv("venv", "-q", "--clear", "--python", python, folder)
    own = folder / "bin" / "python"
    uv("pip", "install", "-q", "--python", own, *requirements, cwd=ROOT)
    uv("pip", "install", "-q", "--python", own, "--no-deps", "--no-build-isolation", "-e", ROOT)
    command = [str(own), "-m", "pytest", "-q", "-n", "2", "-m", "not slow", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    with subprocess.Popen(
        [*command, *(_ALL if everything else _PART)], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as tests:
        assert tests.stdout is not None
        last = ""
        for line in tests.stdout:
            click.echo(line, nl=False)
            last = line.strip() or last
    result = re.sub(r" in [\d.]+s.*", "", last.strip("= "))
    return Tried(name, _version(own), result, passed=tests.returncode == 0)


def _report(tried: Sequence[Tried]) -> None:
    click.echo("\n" + table(["", "Python", "tests"], [(one.name, one.python, one.result) for one in tried]))
    raise SystemExit(0 if all(one.passed for one in tried) else 1)


if __name__ == "__main__":
    main()
