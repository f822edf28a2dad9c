"""`python -m benchmarks`: everything is measured and compared with its goals. `make bench` runs it.

python -m benchmarks                  all of it
python -m benchmarks long many        some parts
python -m benchmarks --short          fewer rounds
python -m benchmarks --write          all of it, and docs/performance.md with its picture written anew
"""

import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import date
from pathlib import Path

import click
from msgspec.structs import replace
from rich.console import Console

from benchmarks import served
from benchmarks.cluster import cluster
from benchmarks.failing import BenchmarkFailed
from benchmarks.fairness import shared_places
from benchmarks.field import Field
from benchmarks.found import Found, Part
from benchmarks.goals import GOALS, Verdict
from benchmarks.history import filled, questions_asked
from benchmarks.machine import busy, kind
from benchmarks.page import write as write_page
from benchmarks.persistence import kept_alive
from benchmarks.report import report
from benchmarks.run import pipeline
from benchmarks.starting import starts
from benchmarks.warm import warm_starts

ROUNDS, FEWER = 5, 3
TRIES = 3  # of a part that has a red row


def _history(field: Field, rounds: int) -> Part:
    folder = Path(tempfile.mkdtemp(dir=field.folder))
    large, small = filled(folder)
    yield from questions_asked(large, small)
    large.close()
    small.close()
    full = field.new_gateway("full", data=folder / "large")
    yield from served.history_cost(field, rounds, full, field.new_gateway("empty"))


PARTS: Mapping[str, Callable[[Field, int], Part]] = {
    "long": served.long_replies,
    "many": served.many_replies,
    "dialects": served.other_dialects,
    "first": served.first_content,
    "delay": served.event_delays,
    "idle": served.idle_streams,
    "start": starts,
    "growth": served.growth,
    "history": _history,
    "two": served.two_gateways,
    "fair": shared_places,
    "leave": served.leaving,
    "pipeline": lambda field, rounds: pipeline(field.sessions["50k"]),
    "cluster": cluster,
    "kept": lambda field, rounds: kept_alive(),
    "warm": lambda field, rounds: warm_starts(),
}


@click.command()
@click.argument("parts", nargs=-1, type=click.Choice(list(PARTS)))
@click.option("--short", is_flag=True, help="Fewer rounds.")
@click.option("--write", is_flag=True, help="Write docs/performance.md and its picture anew.")
def main(parts: tuple[str, ...], short: bool, write: bool) -> None:
    """Measure, and compare with the goals. The exit status is 1 when a row is red."""
    if write and parts:
        raise click.UsageError("--write needs all parts.")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # or the servers would outlive it
    console = Console()
    _raise_file_limit()
    if warning := busy():
        console.print(f"[yellow]{warning}[/]", highlight=False)
    try:
        found = measured(parts or tuple(PARTS), FEWER if short else ROUNDS, console)
        if not parts and (missing := GOALS.keys() - found.keys()):
            raise BenchmarkFailed(f"There are no figures for {', '.join(sorted(missing))}.")
    except BenchmarkFailed as failure:
        console.print(f"[bold red]red[/]: {failure}", highlight=False)
        sys.exit(1)
    if write:
        write_page(found, date.today(), kind(), warning)
    sys.exit(report(found, console))


def measured(parts: tuple[str, ...], rounds: int, console: Console) -> dict[str, Found]:
    """A part with a red row is measured again: a busy machine makes it red once, a mistake always."""
    found: dict[str, Found] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        field = Field(Path(folder), stack)
        for name in parts:
            for tried in range(TRIES):
                began = time.perf_counter()
                rows = {row: _better(row, found.get(row), one, tried) for row, one in PARTS[name](field, rounds)}
                found.update(rows)
                took, red = time.perf_counter() - began, [row for row in rows if is_red(row, found[row])]
                reds = f"; red: {', '.join(red)}" if red else ""
                console.print(f"{name}: measured in {took:.0f} s{reds}", style="dim", highlight=False)
                if not red:
                    break
    return found


def is_red(row: str, found: Found) -> bool:
    return GOALS[row].verdict(found.value) is Verdict.RED


def _better(row: str, before: Found | None, now: Found, tried: int) -> Found:
    """Of a row that was red; the others keep what they had."""
    if before is None:
        return now
    return (
        replace(now, details=f"{now.details}; red {tried} times before".lstrip("; ")) if is_red(row, before) else before
    )


def _raise_file_limit() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    main()
