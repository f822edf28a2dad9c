"""Two gateways for all examples: one with the stand-in agent, and a demo."""

from collections.abc import Iterator

import pytest

from tests.gateways import RunningGateway, running_gateway


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with running_gateway(tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    home = tmp_path_factory.mktemp("demo")
    with running_gateway(home, has_agent=False, settings={"replay_speed": "0"}) as running:
        yield running
