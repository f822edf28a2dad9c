"""Qwen Code in a terminal, as its users start it."""

from contextlib import closing

from tests.clients.programs import Project, launched_client, program, say
from tests.clients.terminal import Terminal
from tests.gateways import RunningGateway
from tests.server.conftest import invocations, unique

SAYS = "\N{BLACK DIAMOND}\N{VARIATION SELECTOR-15}"  # before an answer; questions are shown, too


def test_a_question_starts_one_agent_and_the_next_one_continues_it(gateway: RunningGateway, project: Project) -> None:
    """It would ask for suggestions of the next message, and for memories, after each answer."""
    marks = [unique(), unique()]
    qwen = launched_client(project, "qwen", gateway.url)
    command = [*qwen.command, "-y", "-i", program([say("Number one.")], marks[0])]
    with closing(Terminal(command, project.folder, {**project.environment(), **qwen.environment})) as terminal:
        terminal.until(f"{SAYS} Number one.")
        terminal.paste(program([say("Number two.")], marks[1]))
        terminal.until(f"{SAYS} Number two.")
        agents = [agent for mark in marks for agent in invocations(gateway, mark)]
        assert len(agents) == 2
        assert len({agent["session"] for agent in agents}) == 1
