"""A gateway with the stand-in agent, and both clients."""

from collections.abc import Iterator
from typing import Any, Protocol

import pytest

from cursor_gateway import Client
from tests.client.faces import AnyClient, Awaited
from tests.gateways import RunningGateway, running_gateway


class Connect(Protocol):
    def __call__(self, url: str, api_key: str | None = None, **options: Any) -> AnyClient: ...


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """With the default settings. Whoever changes something about it starts one of their own."""
    with running_gateway(tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture(params=[Client, Awaited], ids=["sync", "async"])
def connect(request: pytest.FixtureRequest) -> Connect:
    """Makes a client of either kind."""
    made: Connect = request.param
    return made


@pytest.fixture
def client(gateway: RunningGateway, connect: Connect) -> Iterator[AnyClient]:
    with connect(gateway.url) as client:
        yield client
