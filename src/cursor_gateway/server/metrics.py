"""What happens in, figures for Prometheus out."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from cursor_gateway.runs.run import Run
from cursor_gateway.server.logs import outcome

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_FIRST_EVENT = (0.1, 0.25, 0.5, 1, 2, 3, 5, 8, 13, 20, 30, 60, 120, 300)
_RUN = (1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 4 * 3600)


class Metrics:
    """An observer of runs, with a registry of its own: two gateways in one process do not mix."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        space = "cursor_gateway"

        def counter(name: str, help: str, *labels: str) -> Counter:
            return Counter(name, help, labels, namespace=space, registry=registry)

        runs = counter("runs_total", "Runs that ended, by how they did.", "state")
        tokens = counter("tokens_total", "Tokens of ended runs; `cached` is a part of `prompt`.", "kind")
        # made once, so that they are there from the start, as 0
        self._runs = {state: runs.labels(state) for state in ("completed", "failed", "cancelled")}
        self._tokens = {kind: tokens.labels(kind) for kind in ("prompt", "completion", "cached")}
        self._failures = counter("agent_failures_total", "Runs that the agent failed, by the error's code.", "code")
        self._fallbacks = counter("fallbacks_total", "Runs for which another source was asked after one that failed.")
        self._requests = counter("requests_total", "Answered requests.", "route", "method", "status")
        self._running = Gauge("runs_running", "Runs whose agent is there.", namespace=space, registry=registry)
        self._streams = Gauge("open_streams", "Event streams with a reader.", namespace=space, registry=registry)
        self._first_event = Histogram(
            "first_event_seconds",
            "From a run's start to its first event for readers.",
            namespace=space,
            registry=registry,
            buckets=_FIRST_EVENT,
        )
        self._run = Histogram(
            "run_seconds",
            "From a run's start until its agent is gone.",
            namespace=space,
            registry=registry,
            buckets=_RUN,
        )

    # --- an observer of runs ------------------------------------------------------------------------

    def started(self, run: Run) -> None:
        self._running.inc()

    def first_event(self, run: Run) -> None:
        self._first_event.observe(run.first_event_at - run.started_at)

    def ended(self, run: Run) -> None:
        self._running.dec()
        self._runs[outcome(run)].inc()
        self._run.observe(run.ended_at - run.started_at)
        if run.fell_back_to is not None:
            self._fallbacks.inc()
        if run.done is None:
            return
        usage, failure = run.done.envelope.usage, run.done.failure
        cached = usage.cached_tokens if isinstance(usage.cached_tokens, int) else 0
        counted = {"prompt": usage.prompt_tokens, "completion": usage.completion_tokens, "cached": cached}
        for kind, tokens in counted.items():
            self._tokens[kind].inc(max(0, tokens))  # the agent's own figures; a counter refuses to go down
        if failure is not None and failure.source == "agent" and failure.code != "cancelled":
            self._failures.labels(failure.code).inc()

    def fault(self, run: Run, error: Exception) -> None:
        """Told by `ended`, too."""

    # --- what the server tells ----------------------------------------------------------------------

    def stream_opened(self) -> None:
        self._streams.inc()

    def stream_closed(self) -> None:
        self._streams.dec()

    def request(self, route: str, method: str, status: int) -> None:
        """`route` is the pattern, never the path: each value is a series that is kept for ever."""
        self._requests.labels(route, method if method in _METHODS else "other", str(status)).inc()

    def render(self) -> bytes:
        return generate_latest(self._registry)
