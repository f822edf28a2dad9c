"""The newest commit in; its wheel and sdist out, built twice in different folders with the same bytes.

A clone is built, not the working tree: what is not committed is not released. The build requirements are installed by
hash, and the time of the commit is the time of every file.
"""

import tempfile
from pathlib import Path

from msgspec import Struct

from tools.distribution.programs import REQUIREMENTS, ROOT, run, uv


class Built(Struct, frozen=True):
    wheel: Path
    sdist: Path
    commit: str
    has_uncommitted: bool  # files that are not in the packages


def build(target: Path) -> Built:
    commit = run(["git", "rev-parse", "HEAD"], cwd=ROOT).strip()
    epoch = run(["git", "log", "-1", "--format=%ct"], cwd=ROOT).strip()
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        one = _built(Path(first, "a"), commit, epoch)
        other = _built(Path(second, "another folder"), commit, epoch)
        for name, data in one.items():
            if other.get(name) != data:
                raise SystemExit(f"{name} differs when it is built again in another folder")
        target.mkdir(exist_ok=True)
        for stale in target.iterdir():
            stale.unlink()
        for name, data in one.items():
            (target / name).write_bytes(data)
    (wheel,) = target.glob("*.whl")
    (sdist,) = target.glob("*.tar.gz")
    return Built(wheel, sdist, commit, bool(run(["git", "status", "--porcelain"], cwd=ROOT).strip()))


def _built(folder: Path, commit: str, epoch: str) -> dict[str, bytes]:
    """The wheel is built from the sdist, as an installer would."""
    run(["git", "clone", "-q", "--no-checkout", ROOT, folder])
    run(["git", "checkout", "-q", "--detach", commit], cwd=folder)
    out = folder.with_name("out")
    uv(
        "build", "-q", "--out-dir", out, "--build-constraints", REQUIREMENTS / "build.txt", "--require-build-hashes",
        folder, env={"SOURCE_DATE_EPOCH": epoch},
    )  # fmt: skip
    return {path.name: path.read_bytes() for path in sorted(out.iterdir()) if not path.name.startswith(".")}
