"""An agent that fails, and each client: one question starts one agent, and the person is told why before any retry.

Set `CLIENT_FAILURES` to a file, and each case adds a line with what was counted; docs/reference/failures.md shows them.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from tests.clients.programs import Drivers, Project
from tests.clients.retrying import CLIENTS, Program, Sdk
from tests.failure_table import FAILURES, ClientFailure, Counted
from tests.gateways import RunningGateway, running_gateway


class Gateways:
    """Those that bring a failure about. They are started once."""

    def __init__(self, stack: ExitStack, folder: Path, usual: RunningGateway) -> None:
        self._stack, self._folder, self._usual = stack, folder, usual
        self._started: dict[str, RunningGateway] = {}

    def for_failure(self, failure: ClientFailure) -> RunningGateway:
        if failure.has_agent and not failure.settings:
            return self._usual
        if failure.name not in self._started:
            home = self._folder / str(len(self._started))
            started = self._stack.enter_context(
                running_gateway(home, settings={**failure.settings, "spare_agents": "0"})
            )
            if not failure.has_agent:  # any more: without one from the start, it would play its demo
                for program in ("cursor-agent", "agent"):
                    (home / "bin" / program).unlink()
            self._started[failure.name] = started
        return self._started[failure.name]


@pytest.fixture(scope="session")
def gateways(tmp_path_factory: pytest.TempPathFactory, gateway: RunningGateway) -> Iterator[Gateways]:
    with ExitStack() as stack:
        yield Gateways(stack, tmp_path_factory.mktemp("gateways"), gateway)


def cases() -> list[object]:
    """All clients meet what is common. The rest is slow; what its clients get is the same status or event."""
    found: list[object] = []
    for failure in FAILURES:
        for client in CLIENTS:
            marks = [pytest.mark.xdist_group(client.driver)] if isinstance(client, Sdk) else []
            if not failure.is_common:
                marks.append(pytest.mark.slow)
            found.append(pytest.param(failure, client, id=f"{failure.name}-{client.title}", marks=marks))
    return found


@pytest.mark.parametrize(("failure", "client"), cases())
def test_one_question_starts_one_agent(
    failure: ClientFailure, client: Program | Sdk, gateways: Gateways, drivers: Drivers, project: Project
) -> None:
    place, row = gateways.for_failure(failure), failure.row
    words = "There's an issue with the selected model" if has_own_words(client, row.status) else row.advice
    met, said = client.ask(place, drivers, project, row.prompt, words)
    if (file := os.environ.get("CLIENT_FAILURES")) is not None:
        counted = Counted(failure.name, client.title, met)
        with Path(file).open("ab") as lines:
            lines.write(msgspec.json.encode(counted) + b"\n")
    assert met.agents == (1 if failure.has_agent else 0), (met, said)
    assert met.seconds is not None, (met, said)
    assert met.requests_before <= (2 if client.title == "Claude Code" else 1), (met, said)  # it waits for none of them


def has_own_words(client: Program | Sdk, status: int) -> bool:
    """Claude Code explains a 404 itself, after a second request."""
    return client.title == "Claude Code" and status == 404
