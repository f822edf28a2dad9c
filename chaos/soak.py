"""Minutes of mixed traffic in; what the gateway holds before, during and after it, and whether it grows, out.

`make soak` calls it. A leak grows with every request, a cache does not: so the second half decides, by the median of
all slopes between its samples (Theil and Sen), which a single peak does not move.
"""

import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from statistics import median

import click
import httpx2
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from chaos.place import Place, agents_of, fds, rss_kb, threads, wait_until
from chaos.plots import Curve, plot, sparkline
from chaos.report import machine
from chaos.traffic import Traffic
from tests.gateways import RunningGateway

_ROOT = Path(__file__).resolve().parents[1]
_PART = _ROOT / "docs" / "parts" / "soak.md"
_PICTURE = _ROOT / "docs" / "images" / "soak.svg"
_SAMPLES, _SECONDS = 300, 0.25  # the most of them, and the least between two


class Sample(Struct, frozen=True):
    seconds: float
    memory_mb: float
    descriptors: int
    threads: int
    runs: int
    streams: int
    agents: int
    database_mb: float
    log_mb: float
    folders: int
    temporary: int


class Measure(Struct, frozen=True):
    name: str
    unit: str
    of: Callable[[Sample], float]
    growth: float | None  # the most by which it may rise in the second half; None: it goes up and down with the work
    more: float  # the most by which it may be more, at rest, than before


# What is kept on purpose: memory that Python does not give back, connections to the history, and the history itself,
# which is deleted as fast as it is written but in steps.
_MEASURES = [
    Measure("memory (RSS)", "MB", lambda sample: sample.memory_mb, 4, 25),
    Measure("descriptors", "", lambda sample: sample.descriptors, None, 4),
    Measure("threads", "", lambda sample: sample.threads, 0, 2),
    Measure("open runs", "", lambda sample: sample.runs, None, 0),
    Measure("open streams", "", lambda sample: sample.streams, None, 0),
    Measure("agents", "", lambda sample: sample.agents, None, 0),
    Measure("database", "MB", lambda sample: sample.database_mb, 4, 40),
    Measure("its log (WAL)", "MB", lambda sample: sample.log_mb, None, 20),
    Measure("conversations' folders", "", lambda sample: sample.folders, None, 250),
    Measure("temporary files", "", lambda sample: sample.temporary, 0, 0),
]


class Soak(Struct, frozen=True):
    minutes: float
    before: Sample
    during: list[Sample]
    after: Sample
    done: dict[str, int]
    mistakes: list[str]

    def growth(self, measure: Measure) -> float:
        """In the second half, by the median of all slopes."""
        half = self.during[len(self.during) // 2 :]
        points = [(sample.seconds, measure.of(sample)) for sample in half[:: max(1, len(half) // 120)]]
        slopes = [
            (later[1] - earlier[1]) / (later[0] - earlier[0])
            for number, earlier in enumerate(points)
            for later in points[number + 1 :]
        ]
        return median(slopes) * (points[-1][0] - points[0][0]) if slopes else 0.0

    def faults(self) -> list[str]:
        """In words; none is green."""
        found = [f"{measure.name} grew by {self.growth(measure):.2f} {measure.unit}" for measure in self._grown()]
        for measure in _MEASURES:
            more = measure.of(self.after) - measure.of(self.before)
            if more > measure.more:
                amount = f"{_number(round(more, 1))} {measure.unit}".strip()
                found.append(f"{amount} more {measure.name} at rest, allowed are {measure.more:g}")
        if self.mistakes:
            found.append(f"{len(self.mistakes)} replies were wrong, for example {self.mistakes[0][:200]}")
        return found

    def _grown(self) -> list[Measure]:
        return [
            measure for measure in _MEASURES if measure.growth is not None and self.growth(measure) > measure.growth
        ]


def soak(folder: Path, minutes: float, a_second: float, told: Callable[[Sample], None]) -> Soak:
    temporary = folder / "tmp"
    temporary.mkdir()
    with Place(folder, is_short=False).gateway(
        settings={"max_runs": "32"}, environment={"TMPDIR": str(temporary)}
    ) as gateway:
        began = time.monotonic()

        def sample() -> Sample:
            return _sample(gateway, temporary, time.monotonic() - began)

        warm = Traffic(gateway, a_second)  # imports, caches, connections
        warm.start()
        time.sleep(min(15.0, minutes * 60 / 4))
        warm.stop()
        before, began = _at_rest(gateway, sample), time.monotonic()
        traffic, during = Traffic(gateway, a_second), []
        traffic.start()
        try:
            pause = max(_SECONDS, minutes * 60 / _SAMPLES)
            for number in range(int(minutes * 60 / pause)):
                time.sleep(max(0.0, began + (number + 1) * pause - time.monotonic()))
                during.append(sample())
                told(during[-1])
        finally:
            traffic.stop()
        after = _at_rest(gateway, sample)
        mistakes = [line for line in gateway.log.read_text().splitlines() if '"level": "error"' in line]
    return Soak(minutes, before, during, after, dict(traffic.done), [*warm.mistakes, *traffic.mistakes, *mistakes])


def _at_rest(gateway: RunningGateway, sample: Callable[[], Sample]) -> Sample:
    wait_until(lambda: not agents_of(gateway), what="no agents")
    time.sleep(1)
    return sample()


def _sample(gateway: RunningGateway, temporary: Path, seconds: float) -> Sample:
    with httpx2.Client(base_url=gateway.url, timeout=60) as http:
        runs = http.get("/health").json()["runs"]["running"]
        streams = re.search(r"^cursor_gateway_open_streams (\S+)", http.get("/metrics").text, re.MULTILINE)
    assert streams
    pid = gateway.process.pid
    return Sample(
        seconds=seconds,
        memory_mb=rss_kb(pid) / 1024,
        descriptors=fds(pid),
        threads=threads(pid),
        runs=runs,
        streams=int(float(streams[1])),
        agents=len(agents_of(gateway)),
        database_mb=_size(gateway.data / "history.db"),
        log_mb=_size(gateway.data / "history.db-wal"),
        folders=len(list((gateway.data / "conversations").glob("conv_*"))),
        temporary=len(list(temporary.iterdir())),
    )


def _size(path: Path) -> float:
    return path.stat().st_size / 1e6 if path.exists() else 0.0


# --- telling ------------------------------------------------------------------------------------------


def _figures(measure: Measure, found: Soak) -> tuple[str, ...]:
    values = [measure.of(sample) for sample in found.during]
    growth = "" if measure.growth is None else f"{found.growth(measure):+.2f} (≤ {measure.growth:g})"
    before, after = measure.of(found.before), measure.of(found.after)
    name = f"{measure.name}{f' ({measure.unit})' if measure.unit else ''}"
    return (name, *map(_number, (before, min(values), max(values), after)), growth)


def _number(value: float) -> str:
    return f"{value:.1f}" if value != int(value) else str(int(value))


_HEADS = ("", "before, idle", "min", "max", "after, idle", "growth in the second half")


def terminal_table(found: Soak) -> Table:
    table = Table(*_HEADS, "over time")
    for measure in _MEASURES:
        table.add_row(*_figures(measure, found), sparkline([measure.of(sample) for sample in found.during], 40))
    return table


def markdown(found: Soak, today: date) -> str:
    faults = found.faults()
    verdict = "No growth beyond caches." if not faults else f"Red: {'; '.join(faults)}."
    rows = [f"| {' | '.join(_HEADS)} |", f"|---|{'---:|' * 5}"]
    rows += [f"| {' | '.join(_figures(measure, found))} |" for measure in _MEASURES]
    kinds = ", ".join(f"{number:,} {name}" for name, number in sorted(found.done.items(), key=lambda one: -one[1]))
    return f"""## Soak test

{verdict} {found.minutes:g} minutes of mixed traffic on {today.day} {today:%B %Y}, on {machine()}: {kinds}.
{len(found.mistakes)} replies were wrong. Each worker deletes its oldest conversations, to bound the history.

![Resource usage over time](../images/soak.svg)

{chr(10).join(rows)}

Growth is the median of all slopes between the samples of the second half, over its length. Values that vary with the
load are only compared while idle. `python -m chaos.soak --short` takes 20 s and does not update this page.
"""


def curves(found: Soak) -> Sequence[Curve]:
    return [
        Curve(
            measure.name,
            measure.unit,
            [(sample.seconds / 60, measure.of(sample)) for sample in found.during],
        )
        for measure in _MEASURES
    ]


@click.command()
@click.option("--minutes", default=10.0, show_default=True, help="How long.")
@click.option("--short", is_flag=True, help="CI's form: 20 s.")
@click.option("--rate", default=8.0, show_default=True, help="Clients a second.")
@click.option("--keep", metavar="DIR", help="Leave the gateway's files there, for whoever looks for the reason.")
@click.option("--write", is_flag=True, help="Write the part of docs/reliability.md, and its picture.")
def main(minutes: float, short: bool, rate: float, keep: str | None, write: bool) -> None:
    """Mixed traffic for some minutes, and whether anything grows."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    if not sys.platform.startswith("linux"):
        raise click.ClickException("the gateway is observed with Linux's /proc; run this on Linux.")
    if write and short:
        raise click.UsageError("--write needs the full form: leave out --short.")
    minutes = 1 / 3 if short else minutes

    def told(sample: Sample) -> None:
        if console.is_terminal:
            line = f"{sample.seconds:.0f} s  {sample.memory_mb:.1f} MB  {sample.descriptors} descriptors"
            console.print(f"{line}  {sample.runs} runs  {sample.database_mb:.1f} MB of history", end="\r")

    with tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as folder:
        if keep is not None:
            Path(keep).mkdir(parents=True)
        found = soak(Path(keep or folder).resolve(), minutes, rate, told)
    console.print(terminal_table(found))
    console.print(", ".join(f"{number} {name}" for name, number in sorted(found.done.items())))
    if write:
        _PART.parent.mkdir(exist_ok=True)
        _PART.write_text(markdown(found, date.today()), "utf-8")
        _PICTURE.write_text(plot(curves(found), "What the gateway held over the time"), "utf-8")
        console.print(f"written: {_PART.relative_to(_ROOT)}, {_PICTURE.relative_to(_ROOT)}")
    for told_of, number in Counter(found.mistakes).most_common(10):
        console.print(f"{number} × {told_of}", markup=False)
    faults = found.faults()
    console.print(*(faults or ["no growth beyond caches"]), sep="\n", markup=False)
    if faults:
        sys.exit(1)


if __name__ == "__main__":
    main()
