"""One gateway for all clients; when it has stopped, no agent is left."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.agent.records import left_of
from tests.clients.programs import Drivers, Project, project_in
from tests.gateways import RunningGateway, running_gateway
from tests.server.test_leaks import ended_agents


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with ended_agents(tmp_path_factory.mktemp("gateway")) as home:
        with running_gateway(home, settings={"spare_agents": "0"}) as running:  # tests count those that are asked
            yield running
        assert left_of(running.agent_log) == []


@pytest.fixture(scope="session")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    with closing(Drivers(project_in(tmp_path_factory.mktemp("drivers")))) as running:
        yield running


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return project_in(tmp_path)
