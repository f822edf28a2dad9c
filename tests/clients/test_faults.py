"""A reply that breaks: the real client asks again, and the agent has run once."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from cursor_gateway.sources.processes import members
from tests.clients.faulty_proxy import Fault, FaultyProxy, faulty_proxy
from tests.clients.programs import Json, Project, ask_launched, call, program, say
from tests.clients.test_launch import SHELLS, Shell
from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import eventually, invocations, unique

PATHS = {"claude": "/v1/messages", "codex": "/v1/responses"}


each_client = pytest.mark.parametrize(
    "shell", [one for one in SHELLS if one.name in PATHS], ids=lambda shell: shell.name
)


def ask(shell: Shell, proxy: FaultyProxy, project: Project, prompt: str, *, fails: bool = False) -> str:
    return ask_launched(project, shell.name, proxy.url, *shell.arguments, prompt, fails=fails)


def worked(gateway: RunningGateway, mark: str) -> list[Json]:
    """Each start of an agent with this prompt, but for titles, which only read."""
    return [agent for agent in invocations(gateway, mark) if "--mode" not in agent["argv"]]


@pytest.mark.parametrize("fault", ["cut", "lost", "500"])
@each_client
def test_the_agent_runs_once_though_a_reply_breaks(
    shell: Shell, fault: Fault, gateway: RunningGateway, project: Project
) -> None:
    mark = unique()
    prompt = program([say("I count. "), call(shell.tool, **shell.given), say("It is $1")], mark)
    with faulty_proxy(gateway.url, PATHS[shell.name], fault) as proxy:
        said = ask(shell, proxy, project, prompt)
        assert proxy.requests > 2
    assert "It is " in said
    assert "forty-1" in said  # Codex reports more than the output
    assert project.lines("marker.txt") == ["ran"]
    (agent,) = worked(gateway, mark)
    eventually(lambda: not members(agent["pgid"]))


@pytest.mark.parametrize("moment", ["before the call", "after the result"])
@each_client
def test_another_agent_continues_when_the_gateway_is_killed(
    shell: Shell, moment: str, tmp_path: Path, project: Project
) -> None:
    """The tool runs once, and its result is not lost."""
    mark, home = unique(), tmp_path / "gateway"
    begins = [say(f"{'I begin, and this takes a while. ' * 30}\n\n"), {"pause_ms": 3_000}]
    counts = call(shell.tool, **shell.given)
    steps = [*begins, counts] if moment == "before the call" else [counts, *begins]
    with (
        ExitStack() as later,
        running_gateway(home) as gateway,
        faulty_proxy(gateway.url, PATHS[shell.name], "cut", after=b"takes a while") as proxy,
    ):

        def restart() -> None:
            gateway.process.kill()
            gateway.process.wait()
            again = later.enter_context(running_gateway(home))
            proxy.port = int(again.url.rpartition(":")[2])

        proxy.broke = restart
        said = ask(shell, proxy, project, program([*steps, say("It is $1")], mark))
        assert proxy.has_broken
    assert "It is " in said
    assert "forty-1" in said
    assert project.lines("marker.txt") == ["ran"]
    assert len(worked(gateway, mark)) == 2
