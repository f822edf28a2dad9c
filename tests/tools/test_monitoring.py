"""The dashboard and the alerts in deploy/ use metrics and labels that exist; Prometheus accepts what they ask for."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped] # its types are another package
from prometheus_client.parser import text_string_to_metric_families

from cursor_gateway.server.metrics import Metrics
from tests.cluster.conftest import cluster
from tests.postgres import Databases
from tests.server.conftest import eventually

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "alerts.yaml"
_PROMETHEUS = {"job", "instance", "le"}  # labels that it adds, and the one of buckets
_SELECTOR = re.compile(r"\b(cursor_gateway_\w+)(?:\{([^}]*)\})?")
_GROUPED = re.compile(r"\bby \(([^)]*)\)")
_MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"')
needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")


def _promtool(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)


def alerts() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((DEPLOY / "grafana" / "cursor-gateway.json").read_text())["panels"]
    return [panel for panel in found if panel["type"] != "row"]


def expressions() -> dict[str, str]:
    """By what they are for, as Prometheus would get them."""
    asked = {f"alert {rule['alert']}": rule["expr"] for rule in alerts()}
    for panel in panels():
        asked |= {f"panel {panel['title']} {target['refId']}": target["expr"] for target in panel["targets"]}
    given = {"$__rate_interval": "5m", "$__range": "6h", "$job": ".*"}
    for variable, value in given.items():
        asked = {name: expression.replace(variable, value) for name, expression in asked.items()}
    return asked


def labels() -> dict[str, set[str]]:
    """Of each metric that has some, by the names of its samples."""
    found: dict[str, set[str]] = {}
    for family in Metrics().collect():
        for suffix in ("_total", "_bucket", "_count", "_sum", ""):
            found[f"{family.name}{suffix}"] = set(getattr(family, "_labelnames", ()))
    return found


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, postgres: Databases) -> set[str]:
    """The names of all samples that a front and a runner have, and a gateway alone."""
    with postgres.history() as url, cluster(tmp_path_factory.mktemp("monitored"), url, 1, 1) as running:
        client = running.clients[0]

        def text() -> str:
            """The figures of the database come a moment later."""
            front = client.get("/metrics").text
            return front if "cluster_queue_length" in front else ""

        found = eventually(text) + Metrics().render().decode()
    names = set()
    for family in text_string_to_metric_families(found):
        kinds = {"histogram": ["_bucket", "_count", "_sum"], "counter": ["_total"]}
        names |= {f"{family.name}{suffix}" for suffix in kinds.get(family.type, [""])}
    return names


def test_each_expression_uses_metrics_that_exist(exported: set[str]) -> None:
    for name, expression in expressions().items():
        used = {found[1] for found in _SELECTOR.finditer(expression)}
        assert used or "up{" in expression, name
        assert used <= exported, name


def test_each_expression_uses_labels_that_its_metrics_have() -> None:
    known = labels()
    for name, expression in expressions().items():
        selected = list(_SELECTOR.finditer(expression))
        for found in selected:
            assert set(_MATCHER.findall(found[2] or "")) <= known.get(found[1], set()) | _PROMETHEUS, name
        all_known = set().union(*(known.get(found[1], set()) for found in selected)) | _PROMETHEUS
        for grouped in _GROUPED.findall(expression):
            assert {label.strip() for label in grouped.split(",")} <= all_known, name


def test_every_metric_is_on_the_dashboard(exported: set[str]) -> None:
    shown = {
        found[1]
        for name, text in expressions().items()
        if name.startswith("panel")
        for found in _SELECTOR.finditer(text)
    }
    families = {re.sub(r"_(bucket|count|sum)$", "", name) for name in exported}
    shown_families = {re.sub(r"_(bucket|count|sum)$", "", name) for name in shown}
    rare = {
        "level",
        "batches_total",
        "listen_reconnections_total",
        "hints_skipped_total",
    }  # for those who look for a cause
    assert families - shown_families == {f"cursor_gateway_cluster_{name}" for name in rare}


def test_each_alert_says_what_to_do() -> None:
    for rule in alerts():
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"].keys() == {"summary", "description"}
        assert rule["annotations"]["description"].endswith(".")


@needs_promtool
def test_prometheus_accepts_every_expression(tmp_path: Path) -> None:
    checked = _promtool("check", "rules", RULES)
    assert checked.returncode == 0, checked.stderr
    rules = [{"record": f"r{number}", "expr": text} for number, text in enumerate(expressions().values())]
    (tmp_path / "all.yaml").write_text(json.dumps({"groups": [{"name": "all", "rules": rules}]}))
    checked = _promtool("check", "rules", tmp_path / "all.yaml")
    assert checked.returncode == 0, checked.stderr


@needs_promtool
def test_alerts_fire(tmp_path: Path) -> None:
    """The first failure of a kind, too, whose series has just begun."""
    series = {
        'cursor_gateway_runs_total{job="g",state="failed"}': "0+6x60",
        'cursor_gateway_runs_total{job="g",state="completed"}': "0+6x60",
        'cursor_gateway_agent_failures_total{job="g",code="agent_unauthenticated"}': "_x20 1x40",
        'cursor_gateway_store_available{job="g",instance="i"}': "1x20 0x40",
        'cursor_gateway_cluster_queue_age_seconds{job="g"}': "20x60",
        'cursor_gateway_event_loop_lag_seconds_bucket{job="g",instance="i",le="1.0"}': "0+1x60",
        'cursor_gateway_event_loop_lag_seconds_bucket{job="g",instance="i",le="+Inf"}': "0+9x60",
        'up{job="cursor-gateway",instance="i"}': "0x60",
    }
    fires = {
        "CursorGatewayRunsFail": "30m",
        "CursorGatewayAgentNotLoggedIn": "25m",
        "CursorGatewayHistoryUnavailable": "25m",
        "CursorGatewayQueueIsLong": "10m",
        "CursorGatewayEventLoopLag": "30m",
        "CursorGatewayDown": "5m",
    }
    expected = [{"eval_time": at, "alertname": name, "exp_alerts": []} for name, at in fires.items()]
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": expected,
    }
    (tmp_path / "test.yaml").write_text(json.dumps({"rule_files": [str(RULES)], "tests": [test]}))
    tried = _promtool("test", "rules", tmp_path / "test.yaml")
    said = tried.stdout + tried.stderr
    for name in fires:  # it says what it got in place of nothing
        assert re.search(rf"alertname:\s*{name}\b", said), said


def shown() -> str:
    """The configuration of Prometheus in the page about it."""
    (block,) = re.findall(
        r"^```yaml\n(.*?)^```$", (DEPLOY.parent / "docs/telemetry.md").read_text(), re.MULTILINE | re.DOTALL
    )
    return str(block)


def test_the_page_shows_the_job_that_the_alerts_expect() -> None:
    (job,) = yaml.safe_load(shown())["scrape_configs"]
    (up,) = re.findall(r'up\{job=~"([^"]*)"\}', RULES.read_text())
    assert re.fullmatch(up, job["job_name"])
    assert yaml.safe_load(shown())["rule_files"] == [RULES.name]


@needs_promtool
def test_prometheus_accepts_the_configuration_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "prometheus.yml").write_text(shown())
    checked = _promtool("check", "config", "--syntax-only", tmp_path / "prometheus.yml")
    assert checked.returncode == 0, checked.stderr
