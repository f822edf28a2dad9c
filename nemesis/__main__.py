"""Seeds in; for each a cluster under faults, what was done to it, and whether its laws held, out. `make nemesis`."""

import asyncio
import signal
import sys
from pathlib import Path

import click
from rich.console import Console

from nemesis.cluster import LEASE
from nemesis.faults import KINDS, Kind, plan
from nemesis.history import History
from nemesis.laws import violations
from nemesis.trial import Trial, Verdict, possible, run


@click.group(invoke_without_command=True)
@click.option("--seeds", default="0-9", metavar="FROM-TO", help="Which seeds, such as 0-9 or 3,7.")
@click.option("--seconds", default=20.0, help="How long faults are provoked with each seed.")
@click.option("--at-once", default=3, help="How many seeds run at the same time.")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(KINDS), help="Only this kind of fault; repeatable.")
@click.option("--source", type=click.Path(path_type=Path), help="A folder with another cursor_gateway.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep the histories of seeds that fail here.")
@click.pass_context
def main(
    context: click.Context,
    seeds: str,
    seconds: float,
    at_once: int,
    kinds: tuple[Kind, ...],
    source: Path | None,
    keep: Path | None,
) -> None:
    """Provoke faults in a cluster of real processes, and check what its clients, agents and tables saw."""
    if context.invoked_subcommand is None:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # or the clusters would outlive it
        chosen = kinds or possible()[0]
        trials = [
            Trial(seed=seed, seconds=seconds, source=source, faults=plan(seed, seconds, LEASE, chosen))
            for seed in _numbers(seeds)
        ]
        sys.exit(asyncio.run(_tried(trials, at_once, keep)))


@main.command()
@click.argument("file", type=click.Path(exists=True, path_type=Path))
def check(file: Path) -> None:
    """Check a history that was kept."""
    found = violations(History.read(file))
    for violation in found:
        click.echo(str(violation))
    sys.exit(bool(found))


async def _tried(trials: list[Trial], at_once: int, keep: Path | None) -> int:
    console = Console(width=None if sys.stdout.isatty() else 180, highlight=False)
    for kind, why in possible()[1].items():
        console.print(f"left out: {kind}: {why}", style="yellow")
    room = asyncio.Semaphore(at_once)

    async def one(trial: Trial) -> bool:
        async with room:
            try:
                verdict = await run(trial)
            except Exception:  # noqa: BLE001 -- the other seeds go on
                console.print(f"[bold red]✗[/] seed {trial.seed}: the trial itself failed")
                console.print_exception()
                return False
            _report(console, verdict)
            if keep is not None and not verdict.is_good:
                keep.mkdir(parents=True, exist_ok=True)
                verdict.history.write(keep / f"seed-{trial.seed}.history")
            return verdict.is_good

    found = await asyncio.gather(*map(one, trials))
    bad = [trial.seed for trial, is_good in zip(trials, found, strict=True) if not is_good]
    console.print(f"{len(found) - len(bad)} of {len(found)} seeds: no law broken" + (f"; broken: {bad}" if bad else ""))
    return 1 if bad else 0


def _report(console: Console, verdict: Verdict) -> None:
    style, mark = ("green", "✓") if verdict.is_good else ("bold red", "✗")
    console.print(f"[{style}]{mark}[/] seed {verdict.seed}: {verdict.summary}, {verdict.seconds:.0f} s")
    for fault in verdict.faults:
        console.print(f"    {fault}", style="dim", markup=False)
    for violation in verdict.violations[:20]:
        console.print(f"    {violation}", style="red", markup=False)
    for line in verdict.unexpected[:5]:
        console.print(f"    unexpected: {line}", style="red", markup=False)


def _numbers(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


if __name__ == "__main__":
    main()
