"""The templates of the chart are rendered as Helm renders them; the settings in deploy/ exist."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from cursor_gateway.settings import Settings
from tools.deployment import CHART, DEPLOY, Unsupported, instructions, render

VALUES = {"image": "a b", "count": 2, "is_on": True, "is_off": "", "sizes": {"cpu": "1"}, "more": {"B": 2, "A": "x"}}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("n: {{ .Values.count }}\n", "n: 2\n"),
        ("n: {{ .Values.image | quote }} {{ .Release.Name }}", 'n: "a b" gateway'),
        ("n: {{ add .Values.count 30 }}", "n: 32"),
        ("n: {{ .Values.sizes | toJson }}", 'n: {"cpu": "1"}'),
        ("a:\n  {{- if .Values.is_on }}\n  b: 1\n  {{- end }}\nc: 2", "a:\n  b: 1\nc: 2"),
        ("a:\n  {{- if .Values.is_off }}\n  b: {{ .Values.count }}\n  {{- end }}\nc: 2", "a:\nc: 2"),
        ("a: {{ if .Values.is_on }}1{{ else }}2{{ end }}\n", "a: 1\n"),
        ("a:\n  {{- if .Values.is_off }}\n  b: 1\n  {{- else }}\n  c: 2\n  {{- end }}\nd: 3", "a:\n  c: 2\nd: 3"),
        (
            "a:\n  {{- range $name, $value := .Values.more }}\n  {{ $name }}: {{ $value | quote }}\n  {{- end }}\nc: 2",
            'a:\n  A: "x"\n  B: "2"\nc: 2',
        ),
    ],
)
def test_the_part_of_helms_language_that_the_chart_uses(template: str, expected: str) -> None:
    assert render(template, VALUES) == expected


@pytest.mark.parametrize("template", ["{{ .Values.nothing }}", "{{ .Values.count | upper }}", "a {{ end }} b"])
def test_what_is_not_understood_is_refused(template: str) -> None:
    with pytest.raises(Unsupported):
        render(template, VALUES)


def test_the_instructions_of_a_stage() -> None:
    dockerfile = "FROM a AS build\nRUN x \\\n    && y\n# not this\nCOPY p q ./\nFROM b AS other\nRUN z\n"
    assert list(instructions(dockerfile, "build")) == [("RUN", "x && y"), ("COPY", "p q ./")]


def test_every_setting_in_the_files_exists() -> None:
    names = {f"CURSOR_GATEWAY_{name.upper()}" for name in Settings.__struct_fields__}
    for file in DEPLOY.rglob("*"):
        if file.is_file():
            used = set(re.findall(r"CURSOR_GATEWAY_[A-Z_]+", file.read_text(encoding="utf-8")))
            assert used <= names, file.name


@pytest.mark.parametrize("role", ["front", "runner"])
def test_who_is_stopped_has_as_long_as_it_was_promised(role: str) -> None:
    """The grace period covers the notice, the drain and the end of the agents."""
    unit = (DEPLOY / "systemd" / f"cursor-gateway-{role}.service").read_text()
    chart = (DEPLOY / "helm" / "cursor-gateway" / "templates" / f"{role}.yaml").read_text()
    service = (DEPLOY / "compose.yaml").read_text().partition(f"\n  {role}:\n")[2]
    drains = re.search(r"DRAIN_SECONDS=(\d+)", unit), re.search(r'DRAIN_SECONDS: "(\d+)"', service)
    ends = re.search(r"TimeoutStopSec=(\d+)", unit), re.search(r"stop_grace_period: (\d+)m", service)
    assert drains[0] is not None
    assert drains[1] is not None
    assert ends[0] is not None
    assert ends[1] is not None
    notices = (
        re.search(r"NOTICE_SECONDS=(\d+)", unit),
        re.search(r'NOTICE_SECONDS: "(\d+)"', service.partition("balancer")[0]),
    )
    assert (notices[0] is not None) == (role == "front")
    notice = [0 if found is None or role == "runner" else int(found[1]) for found in notices]
    assert 10 < int(drains[0][1]) + notice[0] <= int(ends[0][1]) - 15
    assert 10 < int(drains[1][1]) + notice[1] <= 60 * int(ends[1][1]) - 15
    assert f"terminationGracePeriodSeconds: {{{{ add .Values.{role}.drainSeconds 30 }}}}" in chart
    assert f"DRAIN_SECONDS\n              value: {{{{ .Values.{role}.drainSeconds | quote }}}}" in chart


def test_no_secret_is_an_argument() -> None:
    for file in DEPLOY.rglob("*"):
        if file.is_file():
            for line in file.read_text(encoding="utf-8").splitlines():
                if re.search(r"(ExecStart|command|args|CMD|ENTRYPOINT)[=:\[ ]", line):
                    line = line.replace("/sql/passwords.sql", "")  # which reads them from the environment
                    assert not re.search(r"(?i)postgresql://|password|api_key", line), line


def test_agents_are_not_the_runners_user() -> None:
    runner = dict(instructions((DEPLOY / "Dockerfile").read_text(), "runner"))
    assert "CURSOR_GATEWAY_AGENT_USER=agent" in runner["ENV"]
    assert runner["ENTRYPOINT"] == '["tini", "--", "start-runner"]'
    assert "exec setpriv --reuid=gateway" in (DEPLOY / "start-runner.sh").read_text()
    unit = (DEPLOY / "systemd" / "cursor-gateway-runner.service").read_text()
    assert "User=cursor-runner" in unit
    assert "CURSOR_GATEWAY_AGENT_USER=cursor-agent" in unit


def chart(**runner: object) -> str:
    """All of it, with these values of runners."""
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    values["runner"] |= runner
    templates = sorted((CHART / "templates").glob("*.yaml"))
    return "\n---\n".join(render(template.read_text(encoding="utf-8"), values) for template in templates)


def objects(kind: str, **runner: object) -> dict[str, Any]:
    found = [one for one in yaml.safe_load_all(chart(**runner)) if one is not None and one["kind"] == kind]
    return {one["metadata"]["name"]: one["spec"] for one in found}


def test_a_shared_volume_is_one_disk_for_all_runners() -> None:
    assert not objects("PersistentVolumeClaim")
    own = objects("StatefulSet")["gateway-runner"]["volumeClaimTemplates"]
    assert [one["metadata"]["name"] for one in own] == ["workspaces", "data"]
    (claim,) = objects("PersistentVolumeClaim", volume="shared", storageClass="nfs").values()
    assert (claim["accessModes"], claim["storageClassName"]) == (["ReadWriteMany"], "nfs")
    runner = objects("StatefulSet", volume="shared")["gateway-runner"]
    assert [one["metadata"]["name"] for one in runner["volumeClaimTemplates"]] == ["data"]
    assert runner["template"]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] == "gateway-workspaces"


def test_every_pod_has_probes_and_is_spread_and_only_one_at_a_time_is_taken_away() -> None:
    pods = {**objects("Deployment"), **objects("StatefulSet")}
    assert pods.keys() == {"gateway-front", "gateway-runner"} == objects("PodDisruptionBudget").keys()
    for pod in pods.values():
        spec = pod["template"]["spec"]
        (container,) = spec["containers"]
        paths = [container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")]
        assert paths == ["/livez", "/livez", "/readyz"]
        keys = [one["topologyKey"] for one in spec["topologySpreadConstraints"]]
        assert keys == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
        wanted = pod["selector"]["matchLabels"]
        assert all(one["labelSelector"]["matchLabels"] == wanted for one in spec["topologySpreadConstraints"])


def test_runners_are_added_while_requests_wait() -> None:
    assert objects("HorizontalPodAutoscaler").keys() == {"gateway-front"}
    scaled = objects("HorizontalPodAutoscaler", maxReplicas=9)["gateway-runner"]
    assert (scaled["minReplicas"], scaled["maxReplicas"]) == (2, 9)
    # An upgrade leaves the number to the autoscaler: it would take away runners, and end their runs.
    assert "replicas" not in objects("StatefulSet", maxReplicas=9)["gateway-runner"]
    assert objects("StatefulSet")["gateway-runner"]["replicas"] == 2
    assert "replicas" not in objects("Deployment")["gateway-front"]
    (metric,) = scaled["metrics"]
    name = metric["external"]["metric"]["name"]
    page = (DEPLOY.parent / "docs" / "cluster.md").read_text(encoding="utf-8")
    assert f"`{name.removeprefix('cursor_gateway_cluster_')}`" in page


def test_prometheus_reads_the_metrics_of_runners_and_agents_do_not_reach_the_database() -> None:
    (rule,) = objects("NetworkPolicy")["gateway-runner"]["ingress"]
    assert rule["from"][0]["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "monitoring"}
    first = objects("StatefulSet")["gateway-runner"]["template"]["spec"]["initContainers"][0]
    assert "meta skuid 10002 tcp dport 5432 reject" in first["command"][1]
    assert "--uid 10002" in (DEPLOY / "Dockerfile").read_text()
    runner = objects("StatefulSet", firewall=False)["gateway-runner"]["template"]["spec"]
    assert [one["name"] for one in runner["initContainers"]] == ["owners"]


def test_the_runner_owns_its_cgroup_where_it_is_writable(tmp_path: Path) -> None:
    """With programs in place of those that need root."""
    files = [tmp_path / name for name in ("cgroup.procs", "cgroup.subtree_control")]
    for program in ("chown", "setpriv"):
        (tmp_path / program).write_text(f'#!/bin/sh\necho {program} "$@"\n')
        (tmp_path / program).chmod(0o755)
    command = ["sh", str(DEPLOY / "start-runner.sh"), "serve"]
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "CGROUP": str(tmp_path)}
    (without,) = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert without.startswith("setpriv --reuid=gateway ")
    assert without.endswith("cursor-gateway serve")
    for file in files:
        file.touch()
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert printed.splitlines()[0] == f"chown gateway {tmp_path} {files[0]} {files[1]}"
    unit = (DEPLOY / "systemd" / "cursor-gateway-runner.service").read_text()
    assert "\nDelegate=yes\n" in unit
    assert "\nProtectControlGroups=" not in unit


def test_units_are_started_again_however_often() -> None:
    for unit in (DEPLOY / "systemd").glob("*.service"):
        before, _, _ = unit.read_text().partition("[Service]")
        assert "StartLimitIntervalSec=0" in before
        assert "Restart=always" in unit.read_text()
