"""The table of faults in; each one provoked, and whether the gateway held, out. `make chaos` calls it."""

import sys
from datetime import date

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from chaos.report import PAGE, line, page, summary, table
from chaos.running import Judged, entries, judged


@click.command()
@click.option("--short", is_flag=True, help="CI's form: smaller counts, same meaning.")
@click.option("--only", default="", metavar="WORD", help="Only faults with this in their name or their group's.")
@click.option("--write", is_flag=True, help="Write docs/reliability.md; needs the full form of all faults.")
@click.option("--list", "lists", is_flag=True, help="Tell what there is, and provoke nothing.")
def main(short: bool, only: str, write: bool, lists: bool) -> None:
    """Provoke every fault of the table, two at a time, and prove that the gateway holds."""
    # A log has no width of its own; a table of five columns needs one.
    console = Console(width=None if sys.stdout.isatty() else 180)
    if not sys.platform.startswith("linux"):
        raise click.ClickException("the faults are provoked and observed with Linux's /proc; run this on Linux.")
    if write and (short or only):
        raise click.UsageError("--write needs all faults in their full form: leave out --short and --only.")
    chosen = entries(only)
    if not chosen:
        raise click.UsageError(f"no fault has {only!r} in its name; see --list.")
    if lists:
        for entry in chosen:
            console.print(f"{entry.group}: {entry.fault.name} ({entry.fault.seconds:g} s)", markup=False)
        return
    with Progress(
        TextColumn("chaos"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    ) as progress:
        task = progress.add_task("", total=len(chosen))

        def told(one: Judged) -> None:
            progress.console.print(line(one))
            progress.advance(task)

        found = judged(chosen, is_short=short, told=told)
    console.print(table(found))
    for one in found:
        if one.verdict.trace:
            console.rule(one.entry.fault.name)
            console.print(one.verdict.trace, markup=False, highlight=False)
    console.print(summary(found))
    if write:
        PAGE.write_text(page(found, date.today()), "utf-8")
        console.print(f"written: {PAGE.relative_to(PAGE.parents[1])}")
    if any(one.verdict.outcome == "red" for one in found):
        sys.exit(1)


if __name__ == "__main__":
    main()
