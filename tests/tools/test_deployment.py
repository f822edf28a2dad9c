"""The templates of the chart are rendered as Helm renders them; the settings in deploy/ exist."""

import re

import pytest

from cursor_gateway.settings import Settings
from tools.deployment import DEPLOY, Unsupported, instructions, render

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
    assert 10 < int(drains[0][1]) <= int(ends[0][1]) - 15
    assert 10 < int(drains[1][1]) <= 60 * int(ends[1][1]) - 15
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
    assert '"--reuid=gateway"' in runner["ENTRYPOINT"]
    unit = (DEPLOY / "systemd" / "cursor-gateway-runner.service").read_text()
    assert "User=cursor-runner" in unit
    assert "CURSOR_GATEWAY_AGENT_USER=cursor-agent" in unit
