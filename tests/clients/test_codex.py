"""Codex in a terminal, as its users start it."""

import json
from contextlib import closing

from tests.clients.programs import Project, launched_client
from tests.clients.terminal import Terminal
from tests.gateways import RunningGateway
from tests.server.conftest import invocations, option, standin, unique


def test_one_question_starts_one_agent_beside_those_for_its_title(gateway: RunningGateway, project: Project) -> None:
    mark = unique()
    codex = launched_client(project, "codex", gateway.url)
    trusted = f'projects={{{json.dumps(str(project.folder))} = {{trust_level = "trusted"}}}}'
    command = [*codex.command, "-c", trusted, f"{mark}\n{standin('text')}"]
    with closing(Terminal(command, project.folder, {**project.environment(), **codex.environment})) as terminal:
        terminal.until("The quick brown fox jumps over the lazy dog, naïve as ever.")
    started = invocations(gateway, mark)
    titles = [agent for agent in started if option(agent["argv"], "--mode") == "ask"]
    assert len(started) - len(titles) == 1
    assert len(titles) <= 2  # the stand-in writes no JSON, so it is asked again
