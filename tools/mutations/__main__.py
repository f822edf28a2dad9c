"""Apply each mutation in a copy of the sources, run the tests of its rule, and expect them to fail.

`python -m tools.mutations [WORD…]` tries those with a word in their file or rule; `--write` keeps the figure.
It takes several minutes, so CI does not run it; `tests/tools/test_mutations.py` keeps the table applicable.
"""

import os
import re
import subprocess
import sys
import tempfile
import venv
from collections import Counter
from datetime import date
from pathlib import Path
from shutil import copytree, ignore_patterns

import click

from tools.mutations.table import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "security.md"
COPIED = ("src", "tests", "tools", "docs", "chaos", "benchmarks", "fuzz", "nemesis", "pyproject.toml", "README.md")
_SECTION = re.compile(r"(<!-- mutations -->\n).*?(<!-- /mutations -->)", re.DOTALL)
_QUICK = ("--hypothesis-profile=quick",)  # a rule that only many generated examples guard wants a test of its own
_FAILED = 1  # pytest's exit status when tests ran and some failed


class Copy:
    """The sources in a folder of their own, with an environment that finds these before any others."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                copytree(source, folder / name, ignore=ignore_patterns("__pycache__"))
            else:
                (folder / name).write_bytes(source.read_bytes())
        venv.create(folder / ".venv", symlinks=True)
        self._python = folder / ".venv" / "bin" / "python"
        (here,) = (folder / ".venv" / "lib").glob("python*/site-packages")
        installed = Path(click.__file__).parents[1]
        # Paths named in a .pth file are added as they are: the installed package's own .pth is not read.
        (here / "mutations.pth").write_text(f"{folder / 'src'}\n{installed}\n")
        self._time = int((folder / "pyproject.toml").stat().st_mtime)

    def status(self, *tests: str) -> int:
        """Pytest's exit status."""
        command = [
            str(self._python),
            "-m",
            "pytest",
            "-q",
            "-x",
            "--no-header",
            "-p",
            "no:cacheprovider",
            *_QUICK,
            *tests,
        ]
        ran = subprocess.run(command, cwd=self._folder, capture_output=True, text=True, check=False)
        self.output = ran.stdout + ran.stderr
        return ran.returncode

    def write(self, file: str, text: str) -> None:
        """With a time of its own: Python takes a compiled file for current by seconds and size."""
        path = self._folder / "src" / "cursor_gateway" / file
        path.write_text(text)
        self._time += 2
        os.utime(path, (self._time, self._time))


def mutated(mutation: Mutation) -> tuple[str, str]:
    """The file as it is, and as it is changed. Raises `ValueError` for a row that is out of date."""
    text = (ROOT / "src" / "cursor_gateway" / mutation.file).read_text()
    if (count := text.count(mutation.old)) != 1:
        raise ValueError(f"{mutation.file}: {mutation.rule}: {mutation.old!r} occurs {count} times; update the table.")
    return text, text.replace(mutation.old, mutation.new)


@click.command()
@click.argument("words", nargs=-1)
@click.option("--write", is_flag=True, help="Write the figure into docs/security.md; needs all mutations.")
def main(words: tuple[str, ...], write: bool) -> None:
    """Break one rule at a time; its tests must notice."""
    chosen = [one for one in MUTATIONS if all(word.lower() in f"{one.file} {one.rule}".lower() for word in words)]
    if not chosen:
        raise click.UsageError("no mutation has these words in its file or rule.")
    if write and words:
        raise click.UsageError("--write needs all mutations: leave the words out.")
    try:
        changes = [(one, *mutated(one)) for one in chosen]
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        copy = Copy(Path(folder))
        if copy.status(*sorted({test for one in chosen for test in one.tests})):
            raise click.ClickException(f"the tests fail without any change:\n{copy.output[-3000:]}")
        missed = []
        for one, text, changed in changes:
            copy.write(one.file, changed)
            status = copy.status(*one.tests)
            copy.write(one.file, text)
            if status not in (0, _FAILED):
                raise click.ClickException(f"{one.file}: {one.rule}: the tests do not run:\n{copy.output[-3000:]}")
            click.echo(f"{'caught' if status else 'MISSED'}  {one.file}: {one.rule}")
            if not status:
                missed.append(one)
    click.echo(f"{len(chosen) - len(missed)} of {len(chosen)} caught")
    if missed:
        sys.exit(1)
    if write:
        PAGE.write_text(_SECTION.sub(lambda found: found[1] + section() + found[2], PAGE.read_text()))


def section() -> str:
    rows = "".join(f"| `{file}` | {count} |\n" for file, count in Counter(one.file for one in MUTATIONS).items())
    return (
        f"On {date.today()}, all {len(MUTATIONS)} of {len(MUTATIONS)} mutations were caught.\n\n"
        f"| file | mutations |\n|---|---|\n{rows}"
    )


if __name__ == "__main__":
    main()
