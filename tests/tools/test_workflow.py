"""CI on a public site does what the Makefile does, and nothing else: `.ci/run` stays the list of what must hold."""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

yaml: Any = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ALL_SUCCEEDED = 'for result in $RESULTS; do test "$result" = success; done'
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_every_command_is_a_target_of_the_makefile(workflow: Path) -> None:
    commands = [step["run"] for step in steps(workflow) if "run" in step and step["run"] != ALL_SUCCEEDED]
    assert commands
    for command in commands:
        name = re.fullmatch(r"make ([a-z-]+)(?: [A-Z]+=\w+)*", command)
        assert name is not None, command
        assert name[1] in TARGETS, command


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_only_read(workflow: Path) -> None:
    whole = yaml.safe_load(workflow.read_text())
    assert whole["permissions"] == {}
    for job in whole["jobs"].values():
        assert job["permissions"] in ({}, {"contents": "read"})
        assert "timeout-minutes" in job
    for step in steps(workflow):
        if "uses" in step:  # by commit: a tag can be moved
            assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", step["uses"]), step


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_one_job_depends_on_all_others_and_fails_with_them(workflow: Path) -> None:
    jobs = yaml.safe_load(workflow.read_text())["jobs"]
    required = jobs["required"]
    assert set(required["needs"]) == set(jobs) - {"required"}
    assert required["if"] == "always()"
    (step,) = required["steps"]
    assert step["run"] == ALL_SUCCEEDED
    for results, status in (("success success", 0), ("success skipped", 1), ("failure success", 1)):
        ran = subprocess.run(["bash", "-e", "-c", ALL_SUCCEEDED], env={"RESULTS": results}, check=False)
        assert ran.returncode == status


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((ROOT / "deploy" / "helm" / "cursor-gateway" / "Chart.yaml").read_text())
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (str(chart["version"]), str(chart["appVersion"]), str(cited["version"])) == (project,) * 3
    assert re.search(
        rf"^## {re.escape(project)} - \d{{4}}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )


def test_what_a_release_needs_is_in_the_whole_list() -> None:
    listed = (ROOT / ".ci" / "run").read_text()
    for target in ("check", "test", "test-slow", "test-clients", "cover", "dist", "docs-site"):
        assert re.search(rf"^ *phase \d+ make {target}\b", listed, re.MULTILINE), target


def test_what_runs_beside_a_build_that_fails_ends_with_it(tmp_path: Path) -> None:
    """Else it keeps the pipe of the build's output open."""
    listed = (ROOT / ".ci" / "run").read_text()
    beside = re.search(r"^beside\(\) .*?^trap [^\n]+", listed, re.MULTILINE | re.DOTALL)
    assert beside is not None
    work = f"work() {{ .ci/phase 5 sh -c 'touch {tmp_path}/begun; sleep 200'; }}"
    build = f"{beside[0]}\n{work}\nbeside work\nuntil [ -e {tmp_path}/begun ]; do sleep 0.02; done; exit 3"
    ran = subprocess.run(["bash", "-ec", build], cwd=ROOT, capture_output=True, check=False, timeout=60)
    assert ran.returncode == 3
