"""Observes runs and requests; renders metrics for Prometheus."""

import asyncio
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from types import SimpleNamespace
from typing import TYPE_CHECKING, TypeAlias

from cursor_gateway.errors import Failure
from cursor_gateway.model.requests import TraceContext
from cursor_gateway.runs.run import Run
from cursor_gateway.server.logs import StructuredLog, lost_lines, outcome
from cursor_gateway.store.health import Figure

if TYPE_CHECKING:
    from prometheus_client import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SPACE = "cursor_gateway_"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_FIRST_EVENT = (0.1, 0.25, 0.5, 1, 2, 3, 5, 8, 13, 20, 30, 60, 120, 300)
_LAG = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_MIB = 2**20
_CPU = (0.5, 1, 2, 5, 10, 20, 60, 120, 300, 900, 3600)
_MEMORY = tuple(_MIB * count for count in (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384))
_RUN = (1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 4 * 3600)

_Labels: TypeAlias = tuple[str, ...]


class Metrics:
    """An observer of runs. Each gateway has its own, so that two in one process do not mix."""

    def __init__(self) -> None:
        # by the values of their labels; known ones start at 0
        self._runs = Counter[_Labels]({("completed",): 0, ("failed",): 0, ("cancelled",): 0})
        self._tokens = Counter[_Labels]({("prompt",): 0, ("completion",): 0, ("cached",): 0})
        self._fallbacks, self._not_stored = Counter[_Labels]({(): 0}), Counter[_Labels]({(): 0})
        self._failures, self._requests = Counter[_Labels](), Counter[_Labels]()
        self._repeated = Counter[_Labels]({(code,): 0 for code in ("agent_unauthenticated", "insufficient_quota")})
        self._cost, self._webhooks = 0.0, Counter[_Labels]()
        self._running = self._streams = 0
        self._first_event = {start: _Times(_FIRST_EVENT) for start in ("warm", "cold")}
        self._run, self._loop_lag = _Times(_RUN), _Times(_LAG)
        self._cpu, self._memory = _Times(_CPU), _Times(_MEMORY)

    # --- an observer of runs ------------------------------------------------------------------------

    def started(self, run: Run) -> None:
        self._running += 1

    def first_event(self, run: Run) -> None:
        self._first_event["warm" if run.is_warm else "cold"].add(run.first_event_seconds or 0.0)

    def ended(self, run: Run) -> None:
        self._running -= 1
        self._runs[(outcome(run),)] += 1
        self._run.add(run.seconds)
        if (use := run.use) is not None:
            self._cpu.add(use.cpu_seconds)
            if use.memory_bytes is not None:
                self._memory.add(use.memory_bytes)
        if run.fallback is not None:
            self._fallbacks[()] += 1
        if not run.log.is_stored:
            self._not_stored[()] += 1
        if (done := run.done) is None:
            return
        usage, failure = done.envelope.usage, done.failure
        cached = usage.cached_tokens if isinstance(usage.cached_tokens, int) else 0
        counted = {"prompt": usage.prompt_tokens, "completion": usage.completion_tokens, "cached": cached}
        for kind, tokens in counted.items():
            self._tokens[(kind,)] += max(0, tokens)  # the agent's own figures; a counter never goes down
        if isinstance(usage.cost, float):
            self._cost += usage.cost
        if failure is not None and failure.source == "agent" and failure.code != "cancelled":
            self._failures[(failure.code,)] += 1

    def fault(self, run: Run, error: Exception) -> None:
        """Also called by `ended`."""

    def repeated(self, failure: Failure, owner: str, request_id: str) -> None:
        self._repeated[(failure.code,)] += 1

    def asked(self, run_id: str, trace: TraceContext) -> None:
        """Requests are counted by the server."""

    # --- recorded by the server ----------------------------------------------------------------------

    def stream_opened(self) -> None:
        self._streams += 1

    def stream_closed(self) -> None:
        self._streams -= 1

    def request(self, route: str, method: str, status: int) -> None:
        """`route` is the pattern, never the path: each value is a series that is kept forever."""
        self._requests[route, method if method in _METHODS else "other", str(status)] += 1

    def webhook(self, name: str, result: str) -> None:
        """An attempt to deliver a message."""
        self._webhooks[name, result] += 1

    def loop_lag(self, seconds: float) -> None:
        self._loop_lag.add(seconds)

    # --- exported -------------------------------------------------------------------------------

    def render(self, more: Sequence[Figure] = ()) -> bytes:
        from prometheus_client import generate_latest  # it imports a web server, so only when needed

        return generate_latest(SimpleNamespace(collect=lambda: self.collect(more)))

    def collect(self, more: Sequence[Figure] = ()) -> "Iterator[Metric]":
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        def counters(name: str, help: str, counted: Mapping[_Labels, float], *labels: str) -> CounterMetricFamily:
            family = CounterMetricFamily(_SPACE + name, help, labels=labels)
            for values, count in counted.items():
                family.add_metric(values, count)
            return family

        def histogram(name: str, help: str, times: Mapping[_Labels, _Times], *labels: str) -> HistogramMetricFamily:
            family = HistogramMetricFamily(_SPACE + name, help, labels=labels)
            for values, counted in times.items():
                family.add_metric(values, counted.buckets(), counted.sum)
            return family

        yield counters("runs", "Ended runs by state.", self._runs, "state")
        yield counters("tokens", "Tokens of ended runs; `cached` is part of `prompt`.", self._tokens, "kind")
        yield counters("cost_usd", "Cost of ended runs in US dollars (setting `prices`).", {(): self._cost})
        yield counters(
            "webhook_attempts",
            "Attempts to deliver messages: `delivered`, `failed` (retried), `dead` (given up), `outdated` (not sent).",
            self._webhooks,
            "webhook",
            "result",
        )
        yield counters("agent_failures", "Runs in which the agent failed, by error code.", self._failures, "code")
        yield counters(
            "account_errors_repeated",
            "Requests answered with a remembered failure of the agent.",
            self._repeated,
            "code",
        )
        yield counters("fallbacks", "Runs retried with the fallback backend.", self._fallbacks)
        yield counters("runs_not_stored", "Runs that were not completely stored when they ended.", self._not_stored)
        yield counters("requests", "Answered requests.", self._requests, "route", "method", "status")
        yield counters("log_lines_lost", "Log lines that were dropped.", Counter({(): lost_lines()}))
        yield GaugeMetricFamily(f"{_SPACE}runs_running", "Runs with a running agent.", self._running)
        yield GaugeMetricFamily(f"{_SPACE}open_streams", "Event streams with a reader.", self._streams)
        yield histogram(
            "first_event_seconds",
            "Time from the start of a run to its first event; `warm`: its agent was ready before.",
            {(start,): times for start, times in self._first_event.items()},
            "start",
        )
        yield histogram("event_loop_lag_seconds", "Delay of the event loop's timer.", {(): self._loop_lag})
        yield histogram("run_seconds", "Time from the start of a run until its agent has ended.", {(): self._run})
        yield histogram("run_cpu_seconds", "CPU time of a run's agent and its commands.", {(): self._cpu})
        yield histogram("run_memory_bytes", "Memory of a run's agent and its commands at its peak.", {(): self._memory})
        for figure in more:
            family = CounterMetricFamily if figure.is_total else GaugeMetricFamily
            yield family(_SPACE + figure.name, figure.help, figure.value)


class _Times:
    """Durations, counted by how long they took; or other amounts."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.sum = 0.0
        self._bounds, self._counts = bounds, [0] * (len(bounds) + 1)

    def add(self, seconds: float) -> None:
        self.sum += seconds
        self._counts[bisect_left(self._bounds, seconds)] += 1

    def buckets(self) -> list[tuple[str, float]]:
        """Each bound, with how many took no longer."""
        bounds = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        return [(bound, count) for bound, count in zip(bounds, accumulate(self._counts), strict=True)]


# --- the event loop ---------------------------------------------------------------------------------


_EVERY_SECONDS = 0.1
_LONG_SECONDS = 0.1
_LOG_SECONDS = 60.0

_BUSY_GATEWAY = "A request or an answer took too long to process. If it happens again, please report the request."
_BUSY_MACHINE = "Other programs used the machine, or it has too little CPU: give the gateway more, or lower `max_runs`."


class LoopLag:
    def __init__(
        self,
        metrics: Metrics,
        log: StructuredLog,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._metrics, self._log, self._clock, self._cpu = metrics, log, clock, cpu
        self._slept_at, self._cpu_at = clock(), cpu()
        self._worst, self._worst_cpu = 0.0, 0.0
        self._logged_at = -_LOG_SECONDS

    async def watch(self) -> None:
        while True:
            self.sleeps()
            await asyncio.sleep(_EVERY_SECONDS)
            self.woke()

    def sleeps(self) -> None:
        self._slept_at, self._cpu_at = self._clock(), self._cpu()

    def woke(self) -> None:
        now = self._clock()
        lag, used = max(0.0, now - self._slept_at - _EVERY_SECONDS), self._cpu() - self._cpu_at
        self._metrics.loop_lag(lag)
        if lag > self._worst:
            self._worst, self._worst_cpu = lag, used
        if self._worst > _LONG_SECONDS and now >= self._logged_at + _LOG_SECONDS:
            advice = _BUSY_GATEWAY if self._worst_cpu > self._worst / 2 else _BUSY_MACHINE
            self._log.warning(
                "loop_lag", seconds=round(self._worst, 3), cpu_seconds=round(self._worst_cpu, 3), advice=advice
            )
            self._worst, self._logged_at = 0.0, now
