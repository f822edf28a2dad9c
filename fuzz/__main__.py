"""`python -m fuzz`: each target for so many seconds in; a table of what was tried and found out."""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from importlib.util import find_spec
from pathlib import Path

from fuzz import corpus
from fuzz.cases import Breach, breach_of, keep, reduced
from fuzz.report import PART, part
from fuzz.rows import HEADING, Row
from fuzz.sweep import swept
from fuzz.target import FOUND, HERE, Target
from fuzz.targets import NAMES, target_named

_START = 120  # seconds that a process may need besides
_FINAL = re.compile(r"cov: (\d+) ft: (\d+) corp: (\d+)/")
_DONE = re.compile(r"Done (\d+) runs in (\d+) second")
_BREACH = re.compile(r"^BREACH (\S+)", re.MULTILINE)


def fuzzed(target: Target, seconds: int, folder: Path) -> Row:
    folder.mkdir(parents=True, exist_ok=True)
    before = len(list(folder.iterdir()))
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        seeds = Path(scratch) / "seeds"
        seeds.mkdir()
        for number, data in enumerate(target.seeds()):
            (seeds / str(number)).write_bytes(data)
        done = subprocess.run(
            [sys.executable, "-m", "fuzz.one", target.name, str(seconds), str(folder), str(seeds)],
            cwd=HERE.parent,
            env={**os.environ, "TMPDIR": scratch},  # it ends without tidying up
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds * 2 + _START,
            check=False,
        )
    result = done.stderr
    breaches = _BREACH.findall(result)
    for left in sorted(folder.glob("ended-*")):  # no answer in time, or too much memory
        kept = FOUND / target.name / left.name
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(left.read_bytes())
        left.unlink()
        breaches.append(kept.name)
    if done.returncode != 0 and not breaches:
        sys.stderr.write(
            "\n".join([line for line in result.splitlines() if not line.startswith("INFO: ")][-30:]) + "\n"
        )
        breaches.append(f"the fuzzer ended with {done.returncode}")
    ended, final = _DONE.search(result), _FINAL.findall(result)
    return Row(
        target.name,
        runs=int(ended[1]) if ended else 0,
        seconds=int(ended[2]) if ended else 0,
        edges=int(final[-1][0]) if final else 0,
        new=len(list(folder.iterdir())) - before,
        breaches=breaches,
    )


def sweep(target: Target, seconds: int) -> Row:
    start, runs, known = time.monotonic(), 0, dict[Breach, None]()
    for data in swept(target.seeds()):
        if time.monotonic() - start > seconds:
            break
        runs += 1
        breach = breach_of(target, data)
        if breach is not None and breach not in known:
            known[breach] = None
            keep(target, reduced(target, data, breach), breach)
    return Row(target.name, runs, time.monotonic() - start, 0, 0, [breach.name for breach in known])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(NAMES))
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--jobs", type=int, default=1, help="targets at a time")
    parser.add_argument("--sweep", action="store_true", help="put nasty values into every field of the seeds instead")
    parser.add_argument("--write", action="store_true", help=f"write docs/parts/{PART.name}; needs all targets")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where what reaches something new is kept")
    parser.add_argument(
        "--corpus", type=Path, metavar="FOLDER", help="choose fuzz/corpus anew, also from what was kept"
    )
    asked = parser.parse_args()
    if unknown := set(asked.targets) - set(NAMES):
        parser.error(f"there is no target {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    if asked.write and (asked.targets or asked.sweep):
        parser.error("--write needs all targets, fuzzed: leave out their names and --sweep")
    chosen = [target_named(name) for name in asked.targets or NAMES]
    if asked.corpus is not None:
        for target in chosen:
            sys.stdout.write(f"{corpus.write(target, asked.corpus / target.name)}\n")
        return 0
    if not asked.sweep and find_spec("atheris") is None:
        sys.stderr.write("There is no atheris for this Python on this system; --sweep and the tests need none.\n")
        return 2
    rows = _rows(chosen, asked.seconds, asked.jobs, asked.keep, is_sweep=asked.sweep)
    if asked.write:
        PART.parent.mkdir(parents=True, exist_ok=True)
        PART.write_text(part(rows, chosen, asked.seconds, date.today()), "utf-8")
    return 1 if any(row.breaches for row in rows) else 0


def _rows(targets: Sequence[Target], seconds: int, jobs: int, kept: Path | None, *, is_sweep: bool) -> list[Row]:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder, ThreadPoolExecutor(1 if is_sweep else jobs) as pool:
        sys.stdout.write(f"{HEADING}\n")
        for row in pool.map(
            lambda target: (
                sweep(target, seconds) if is_sweep else fuzzed(target, seconds, (kept or Path(folder)) / target.name)
            ),
            targets,
        ):
            rows.append(row)
            sys.stdout.write(f"{row.line}\n")
            sys.stdout.flush()
    return rows


if __name__ == "__main__":
    sys.exit(main())
