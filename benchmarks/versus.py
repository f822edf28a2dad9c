"""This checkout and another one in; what a short run and an event of many streams cost in each, out.

Both gateways are up at the same time, the rounds alternate, and each ratio is taken within its round:
`python -m benchmarks.versus ../other` compares with a git work tree of another version.
"""

import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import click

from benchmarks.contenders import OPENAI, Contender
from benchmarks.field import Field
from benchmarks.processes import cpu_seconds

_MAIN = "event loop"


@click.command()
@click.argument("other", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--rounds", default=5, show_default=True)
@click.option("--runs", default=400, show_default=True, help="Short runs in each round, 16 at once.")
@click.option("--streams", default=200, show_default=True, help="Of 20 events a second; 0 leaves them out.")
@click.option("--sustained", default=0, show_default=True, help="Short runs without a pause, 16 at once.")
def main(other: Path, rounds: int, runs: int, streams: int, sustained: int) -> None:
    """Compare this checkout with OTHER in alternating rounds."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        field = Field(Path(folder), stack)
        settings = {"max_runs": str(max(64, streams))}
        here = Contender(field.new_gateway("here", settings=settings), OPENAI)
        there = Contender(field.new_gateway("other", settings=_known(settings, other), checkout=other), OPENAI)
        everybody = {"here": here, "other": there, "relay": field.relay}
        found: dict[str, dict[str, list[float]]] = {}
        for turn in range(rounds + 1):
            names = list(everybody) if turn % 2 else list(reversed(everybody))
            for name in names:
                figures = _short_runs(field, everybody[name], runs) | _first(field, everybody[name])
                if streams and name != "relay":
                    figures |= _streams(field, everybody[name], streams)
                if sustained:
                    figures["sustained, runs/s"] = field.ask(
                        everybody[name], "100", concurrency=16, count=sustained
                    ).rate
                for row, value in figures.items():
                    if turn:  # the first round loads what is loaded on first use
                        found.setdefault(row, {}).setdefault(name, []).append(value)
        for row, values in found.items():
            click.echo(_line(row, values))


def _known(settings: dict[str, str], checkout: Path) -> dict[str, str | None]:
    """Without what that version does not have."""
    has_spares = "spare_agents" in (checkout / "src" / "cursor_gateway" / "settings.py").read_text()
    return {**settings} if has_spares else {**settings, "spare_agents": None}


def _short_runs(field: Field, one: Contender, count: int) -> dict[str, float]:
    before, times = _threads(one.server.pid), _times(one.server.pid)
    rate = field.ask(one, "100", concurrency=16, count=count).rate
    used = {thread: seconds - before.get(thread, 0.0) for thread, seconds in _threads(one.server.pid).items()}
    after = _times(one.server.pid)
    total = sum(used.values())
    return {
        "short runs/s": rate,
        "CPU of a short run, ms": total / count * 1e3,
        "  of this, event loop": used[one.server.pid] / count * 1e3,
        "  of this, in the kernel": (after[1] - times[1]) / count * 1e3,
    }


def _first(field: Field, one: Contender) -> dict[str, float]:
    return {"first content, ms": field.ask(one, "100", count=60).first * 1e3}


def _streams(field: Field, one: Contender, streams: int) -> dict[str, float]:
    before = cpu_seconds(one.server.pid)
    events = 100
    summary, _ = field.load.ask(one, f"paced {events} 20", concurrency=streams, count=streams, stamps=streams * events)
    used = cpu_seconds(one.server.pid) - before
    assert summary.delay_us is not None
    return {
        f"{streams} streams: CPU of an event, µs": used / (streams * events) * 1e6,
        f"{streams} streams: delay p50, ms": summary.delay_us.p50 / 1e3,
        f"{streams} streams: delay p99, ms": summary.delay_us.p99 / 1e3,
    }


def _threads(pid: int) -> dict[int, float]:
    found = {}
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            found[int(thread.name)] = int((thread / "schedstat").read_text().split()[0]) / 1e9
        except OSError:
            continue
    return found


def _times(pid: int) -> tuple[float, float]:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) / 100, int(fields[12]) / 100


def _line(row: str, values: dict[str, list[float]]) -> str:
    parts = [
        f"{name} {statistics.median(times):,.2f} ({min(times):,.2f}–{max(times):,.2f})"
        for name, times in values.items()
    ]
    ratio = statistics.median(here / other for here, other in zip(values["here"], values["other"], strict=True))
    return f"{row:34} {'; '.join(parts)}; here / other {ratio:.2f}"


if __name__ == "__main__":
    sys.exit(main())
