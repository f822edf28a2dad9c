"""Figures: each thing that happens is counted once, under names that stay."""

import subprocess
import sys
from typing import Any

import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from cursor_gateway.errors import AgentOverloaded, RunCancelled, ShuttingDown
from cursor_gateway.model.agent_events import AgentEvent, RunFinished, RunStarted, TextDelta, TokenCounts
from cursor_gateway.runs.run import Observer
from cursor_gateway.server.metrics import CONTENT_TYPE, Metrics
from cursor_gateway.sources.base import AgentUse
from tests.runs.scripted import UnstoredLog
from tests.server.observed import observed

TEXT = TextDelta("a")
FINISHED = RunFinished(usage=TokenCounts(prompt=100, completion=20, cached=70), duration_ms=5)


def figures(metrics: Metrics) -> dict[str, float]:
    """`runs_total{state=failed}` and the like, without what only says when a series began."""
    found = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sample.labels.items())
            name = sample.name.removeprefix("cursor_gateway_")
            assert name != sample.name
            if not name.endswith("_created"):
                found[f"{name}{{{labels}}}" if labels else name] = sample.value
    return found


def after(*events: AgentEvent, **more: Any) -> dict[str, float]:
    metrics = Metrics()
    observer: Observer = metrics
    observed(*events, observer=observer, **more)
    return figures(metrics)


def test_all_is_there_from_the_start_as_0() -> None:
    start = figures(Metrics())
    assert start.pop("log_lines_lost_total") >= 0  # the process's
    assert set(start.values()) == {0}
    assert {name for name in start if "_bucket" not in name} == {
        *(f"runs_total{{state={state}}}" for state in ("completed", "failed", "cancelled")),
        *(f"account_errors_repeated_total{{code={code}}}" for code in ("agent_unauthenticated", "insufficient_quota")),
        *(f"tokens_total{{kind={kind}}}" for kind in ("prompt", "completion", "cached")),
        *(f"{name}_seconds_{part}" for name in ("run", "run_cpu", "event_loop_lag") for part in ("count", "sum")),
        *(f"run_memory_bytes_{part}" for part in ("count", "sum")),
        *(f"first_event_seconds_{part}{{start={start}}}" for part in ("count", "sum") for start in ("warm", "cold")),
        "runs_running",
        "open_streams",
        "cost_usd_total",
        "fallbacks_total",
        "runs_not_stored_total",
    }


def test_a_run_that_completed() -> None:
    result = after(TEXT, FINISHED)
    assert result["runs_total{state=completed}"] == 1
    assert result["runs_total{state=failed}"] == result["runs_total{state=cancelled}"] == result["runs_running"] == 0
    assert [result[f"tokens_total{{kind={kind}}}"] for kind in ("prompt", "completion", "cached")] == [100, 20, 70]
    assert result["first_event_seconds_count{start=cold}"] == result["run_seconds_count"] == 1
    assert result["first_event_seconds_count{start=warm}"] == 0
    assert result["first_event_seconds_sum{start=cold}"] <= result["run_seconds_sum"] < 60
    assert not [name for name in result if name.startswith("agent_failures")]


def test_what_the_agents_of_a_run_used() -> None:
    """Their processors add up; they run one after the other, so the memory is that of the largest."""
    result = after(TEXT, FINISHED, uses=[AgentUse(1.5, 300), AgentUse(0.5, 200), AgentUse(1.0)])
    assert (result["run_cpu_seconds_count"], result["run_cpu_seconds_sum"]) == (1, 3.0)
    assert (result["run_memory_bytes_count"], result["run_memory_bytes_sum"]) == (1, 300)
    result = after(TEXT, FINISHED, uses=[AgentUse(1.5)])
    assert (result["run_cpu_seconds_count"], result["run_memory_bytes_count"]) == (1, 0)
    assert after(TEXT, FINISHED)["run_cpu_seconds_count"] == 0  # nobody knows


def test_a_run_that_the_agent_failed() -> None:
    result = after(TEXT, error=AgentOverloaded("full"))
    assert result["runs_total{state=failed}"] == result["agent_failures_total{code=agent_overloaded}"] == 1
    assert result["runs_running"] == 0


def test_a_run_without_any_event_has_no_time_to_the_first() -> None:
    assert after(error=AgentOverloaded("full"))["first_event_seconds_count{start=cold}"] == 0


def test_a_run_whose_agent_was_ready_is_counted_as_warm() -> None:
    result = after(RunStarted("s", "m", is_warm=True), TEXT, FINISHED)
    assert result["first_event_seconds_count{start=warm}"] == 1
    assert result["first_event_seconds_count{start=cold}"] == 0


def test_who_stops_a_run_or_makes_a_mistake_is_not_the_agent() -> None:
    assert after(TEXT, stopped=RunCancelled("stop"))["runs_total{state=cancelled}"] == 1
    for result in (after(TEXT, stopped=ShuttingDown("stop")), after(error=ZeroDivisionError())):
        assert result["runs_total{state=failed}"] == 1
    for result in (after(TEXT, stopped=RunCancelled("stop")), after(error=ZeroDivisionError())):
        assert not [name for name in result if name.startswith("agent_failures")]


def test_a_run_counts_while_it_runs() -> None:
    seen = []

    class Watching(Metrics):
        def first_event(self, run: Any) -> None:
            super().first_event(run)
            seen.append(figures(self)["runs_running"])

    observed(TEXT, FINISHED, observer=Watching())
    assert seen == [1]


def test_figures_of_an_agent_that_miscounts_break_nothing() -> None:
    """They are estimated then, as if it had told none."""
    result = after(TEXT, RunFinished(usage=TokenCounts(prompt=-5, completion=3)))
    assert (result["tokens_total{kind=prompt}"], result["tokens_total{kind=completion}"]) == (0, 1)


def test_a_run_that_is_not_done_is_counted_all_the_same() -> None:
    class Early(Metrics):
        def started(self, run: Any) -> None:
            super().started(run)
            super().ended(run)
            assert figures(self)["runs_total{state=failed}"] == 1

    observed(TEXT, FINISHED, observer=Early())


def test_a_run_that_the_store_did_not_take_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert after(TEXT, FINISHED)["runs_not_stored_total"] == 0

    async def refuse(log: UnstoredLog) -> bool:
        return False

    monkeypatch.setattr(UnstoredLog, "try_again", refuse)
    assert after(TEXT, FINISHED)["runs_not_stored_total"] == 1


def test_streams_are_counted_while_they_are_open() -> None:
    metrics = Metrics()
    metrics.stream_opened()
    metrics.stream_opened()
    metrics.stream_closed()
    assert figures(metrics)["open_streams"] == 1


def test_requests_are_counted_by_route_method_and_status() -> None:
    metrics = Metrics()
    for _ in range(2):
        metrics.request("/v1/chat/{id}", "GET", 200)
    metrics.request("/v1/chat", "POST", 429)
    for made_up in ("BREW", "get", "x" * 1000):
        metrics.request("/v1/chat", made_up, 405)
    result = {name: value for name, value in figures(metrics).items() if name.startswith("requests_total")}
    assert result == {
        "requests_total{method=GET,route=/v1/chat/{id},status=200}": 2,
        "requests_total{method=POST,route=/v1/chat,status=429}": 1,
        "requests_total{method=other,route=/v1/chat,status=405}": 3,
    }


def test_two_gateways_in_one_process_do_not_mix() -> None:
    first, second = Metrics(), Metrics()
    first.stream_opened()
    assert figures(second)["open_streams"] == 0
    assert not [family.name for family in REGISTRY.collect() if family.name.startswith("cursor_gateway")]


def test_the_content_type_is_that_of_the_text_format() -> None:
    assert CONTENT_TYPE == "text/plain; version=0.0.4; charset=utf-8"


def test_help_does_without_it() -> None:
    program = (
        "import sys; from cursor_gateway.cli.main import run; run(['--help']); "
        "sys.exit(bool({'prometheus_client', 'rich'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode == 0
