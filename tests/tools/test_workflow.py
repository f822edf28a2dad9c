"""CI on a public site does what the Makefile does, and nothing else: `.ci/run` stays the list of what must hold."""

import re
from pathlib import Path
from typing import Any

import pytest

yaml: Any = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_every_command_is_a_target_of_the_makefile(workflow: Path) -> None:
    commands = [step["run"] for step in steps(workflow) if "run" in step]
    assert commands
    for command in commands:
        name = re.fullmatch(r"make ([a-z-]+)(?: [A-Z]+=\w+)*", command)
        assert name is not None, command
        assert name[1] in TARGETS, command


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_only_read(workflow: Path) -> None:
    whole = yaml.safe_load(workflow.read_text())
    assert whole["permissions"] == {"contents": "read"}
    assert all("permissions" not in job and "timeout-minutes" in job for job in whole["jobs"].values())
    for step in steps(workflow):
        if "uses" in step:  # by commit: a tag can be moved
            assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", step["uses"]), step


def test_what_a_release_needs_is_in_the_whole_list() -> None:
    listed = (ROOT / ".ci" / "run").read_text()
    for target in ("check", "test", "test-slow", "test-clients", "cover", "dist", "docs-site"):
        assert re.search(rf"^phase \d+ make {target}\b", listed, re.MULTILINE), target
