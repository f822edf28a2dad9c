"""Claude Code, as its users start it: what it retries runs no agent again, and its web search has results."""

import os
from pathlib import Path

import pytest

from tests.clients.programs import Json, Project, call, command_of, program, say
from tests.gateways import RunningGateway
from tests.server.conftest import invocations, standin, unique
from tests.server.test_caller_tools import own_gateway


def asked(project: Project, gateway: RunningGateway, prompt: str, *flags: str) -> str:
    """What it says, also of a failure."""
    claude = " ".join(f'"{word}"' for word in command_of("claude"))
    return project.run(
        *("/bin/sh", "-c", f'{claude} -p "$@" || true', "claude", *flags),
        stdin=prompt,
        environment={
            "PATH": os.pathsep.join(("/usr/bin", "/bin")),
            "ANTHROPIC_BASE_URL": gateway.url,
            "ANTHROPIC_AUTH_TOKEN": "any",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "ENABLE_TOOL_SEARCH": "false",
        },
    )


@pytest.mark.parametrize(
    ("scenario", "advice"),
    [
        ("crash", "Try again"),
        ("crash-early", "Try again"),
        ("fail-quota", "wait for its reset or raise the limit"),
        ("fail-capacity", "try again later"),
        ("fail-auth", "run `cursor-agent login`"),
        ("fail-network-late kind=dns class=T", "check the network"),
    ],
)
def test_a_failure_runs_one_agent_and_is_shown(
    gateway: RunningGateway, project: Project, scenario: str, advice: str
) -> None:
    mark = unique()
    assert advice in asked(project, gateway, f"{mark}\n{standin(scenario)}")
    assert len(_worked(gateway, mark)) == 1


def test_a_web_search_has_what_the_agent_found(tmp_path: Path, project: Project) -> None:
    """The query plays the part of the agent that searches; its text must not look so to the one that asks."""
    mark = unique()
    steps = program([call("WebSearch", query=f"{mark}\nstandin: websearch"), say("Found: $1")], mark)
    prompt = steps.replace("nstandin: websearch", "nstand\\u0069n: websearch")
    with own_gateway(tmp_path / "gateway", settings={"force": "true"}) as (gateway, _):
        said = asked(project, gateway, prompt, "--allowedTools", "WebSearch")
    assert '{"title":"A page","url":"https://example.com"}' in said
    assert "There is one page." in said


def _worked(gateway: RunningGateway, mark: str) -> list[Json]:
    return [started for started in invocations(gateway, mark) if "--mode" not in started["argv"]]
