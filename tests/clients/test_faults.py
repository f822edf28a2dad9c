"""A reply that breaks: the real client asks again, and the agent has run once."""

import os
import sys

import pytest

from cursor_gateway.sources.process_groups import members
from tests.clients.faulty_proxy import Fault, faulty_proxy
from tests.clients.programs import Project, call, on_path, program, say
from tests.clients.test_launch import SHELLS, Shell
from tests.gateways import RunningGateway
from tests.server.conftest import eventually, invocations, unique

PATHS = {"claude": "/v1/messages", "codex": "/v1/responses"}


@pytest.mark.parametrize("fault", ["cut", "lost", "500"])
@pytest.mark.parametrize("shell", [one for one in SHELLS if one.name in PATHS], ids=lambda shell: shell.name)
def test_the_agent_runs_once_though_a_reply_breaks(
    shell: Shell, fault: Fault, gateway: RunningGateway, project: Project
) -> None:
    mark = unique()
    prompt = program([say("I count. "), call(shell.tool, **shell.given), say("It is $1")], mark)
    with faulty_proxy(gateway.url, PATHS[shell.name], fault) as proxy:
        said = project.run(
            *(sys.executable, "-m", "cursor_gateway", "launch", "--url", proxy.url, shell.name),
            *("--", *shell.arguments, prompt),
            environment={
                "PATH": os.pathsep.join([str(on_path(project.home / "clients", shell.name)), "/usr/bin", "/bin"]),
                "CURSOR_GATEWAY_DATA_DIR": str(project.home / "gateway"),
                "CURSOR_GATEWAY_VERIFY_GATEWAY": "false",  # it is a proxy
            },
        )
        assert proxy.requests > 2
    assert "It is " in said
    assert "forty-1" in said  # Codex reports more than the output
    assert project.lines("marker.txt") == ["ran"]
    worked = [agent for agent in invocations(gateway, mark) if "--mode" not in agent["argv"]]
    assert len(worked) == 1
    eventually(lambda: not members(worked[0]["pgid"]))
