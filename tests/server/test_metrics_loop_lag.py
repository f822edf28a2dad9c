"""How late the loop is: a figure each time, and a line of the log that says what to do, seldom."""

import asyncio
import time
from contextlib import suppress

import pytest

from cursor_gateway.server.logs import StructuredLog
from cursor_gateway.server.metrics import LoopLag, Metrics


class Kept(StructuredLog):
    """Its lines, in place of a stream that takes them."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, object]] = []

    def warning(self, event: str, **facts: object) -> None:
        self.lines.append({"event": event, **facts})


class Clocks:
    """Time passes when it is told to."""

    def __init__(self) -> None:
        self.now, self.cpu, self.metrics, self.log = 1000.0, 5.0, Metrics(), Kept()
        self.lag = LoopLag(self.metrics, self.log, lambda: self.now, lambda: self.cpu)

    def tick(self, late: float, cpu: float = 0.0) -> None:
        self.lag.sleeps()
        self.now += 0.1 + late
        self.cpu += cpu
        self.lag.woke()

    def buckets(self) -> dict[str, float]:
        (lag,) = [family for family in self.metrics.collect() if family.name.endswith("event_loop_lag_seconds")]
        return {sample.labels["le"]: sample.value for sample in lag.samples if sample.name.endswith("_bucket")}


def test_every_lag_is_counted() -> None:
    clocks = Clocks()
    for late in (0.0, -0.001, 0.02, 0.3, 20.0):
        clocks.tick(late)
    found = clocks.buckets()
    assert (found["0.005"], found["0.025"], found["0.25"], found["0.5"], found["+Inf"]) == (2, 3, 3, 4, 5)


def test_a_short_lag_is_no_line_of_the_log() -> None:
    clocks = Clocks()
    clocks.tick(0.099)
    assert clocks.log.lines == []


@pytest.mark.parametrize(("cpu", "advice"), [(0.19, "report"), (0.01, "max_runs")])
def test_a_long_lag_says_who_was_busy_and_what_to_do(cpu: float, advice: str) -> None:
    clocks = Clocks()
    clocks.tick(0.2, cpu)
    (line,) = clocks.log.lines
    assert (line["event"], line["seconds"], line["cpu_seconds"]) == ("loop_lag", 0.2, cpu)
    assert advice in str(line["advice"])


def test_one_line_a_minute_tells_the_worst() -> None:
    clocks = Clocks()
    for late in (0.2, 0.5, 3.0, 0.4):
        clocks.tick(late)
    clocks.now += 60
    clocks.tick(0.0)
    clocks.now += 60
    clocks.tick(0.0)
    assert [line["seconds"] for line in clocks.log.lines] == [0.2, 3.0]


async def test_a_loop_that_is_held_up_is_noticed() -> None:
    metrics = Metrics()
    watch = asyncio.ensure_future(LoopLag(metrics, StructuredLog()).watch())
    await asyncio.sleep(0.01)
    time.sleep(0.5)
    await asyncio.sleep(0.2)
    watch.cancel()
    with suppress(asyncio.CancelledError):
        await watch
    clocks = Clocks()
    clocks.metrics = metrics
    assert clocks.buckets()["+Inf"] > clocks.buckets()["0.25"]
