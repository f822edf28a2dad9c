"""The packages in; nothing out if they hold exactly the files that they should, else what is missing or too much."""

import re
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

from tools.distribution.programs import ROOT, run

COMMIT = "cursor_gateway/commit.txt"
_MANUAL = "docs/reference/cursor-gateway.1"
# Without these, a gateway starts and then fails: each must be there, however the others are counted.
_NEEDED = [
    r"cursor_gateway/py\.typed",
    r"cursor_gateway/server/page/index\.html",
    r"cursor_gateway/server/page/.+\.js",
    r"cursor_gateway/server/page/.+\.css",
    r"cursor_gateway/demo/.+\.ndjson",
    r"cursor_gateway/store/sqlite/migrations/0001_.+\.sql",
    r"cursor_gateway/store/postgres/migrations/0001_.+\.sql",
]
_OF_SDIST = {"pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md", _MANUAL}
_ADDED_TO_SDIST = {"PKG-INFO", ".gitignore"}  # by the build backend


def check_contents(wheel: Path, sdist: Path) -> None:
    tracked = run(["git", "ls-tree", "-r", "--name-only", "HEAD", "src/cursor_gateway"], cwd=ROOT).splitlines()
    package = {name.removeprefix("src/") for name in tracked} | {COMMIT}
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = set(archive.namelist())
    info = {name for name in in_wheel if re.match(r"cursor_gateway-[^/]+\.dist-info/", name)}
    manual = {name for name in in_wheel if name.endswith(".data/data/share/man/man1/cursor-gateway.1")}
    _compare(wheel, in_wheel - info - manual, package)
    if not manual or not any(name.endswith("/licenses/LICENSE") for name in info):
        raise SystemExit(f"{wheel.name} has no manual page, or no licence")
    for pattern in _NEEDED:
        if not any(re.fullmatch(pattern, name) for name in in_wheel):
            raise SystemExit(f"{wheel.name} has no {pattern}")
    with tarfile.open(sdist) as tar:
        in_sdist = {name.partition("/")[2] for name in tar.getnames()}
    _compare(sdist, in_sdist - _ADDED_TO_SDIST, _OF_SDIST | {f"src/{name}" for name in package})


def _compare(package: Path, found: Iterable[str], expected: Iterable[str]) -> None:
    missing, more = sorted(set(expected) - set(found)), sorted(set(found) - set(expected))
    if missing or more:
        raise SystemExit(f"{package.name}: missing {missing}, unexpected {more}")
