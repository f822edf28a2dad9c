"""Two real gateways for attackers: one as a newcomer has it, one with two keys on all addresses."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from cursor_gateway.keys import hash_key, new_key
from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import http_client

ALICE, BOB = new_key(), new_key()
CURSOR_KEY = "key_of_the_cursor_account_0123456789"  # what the agent logs in with
OPERATORS = "hunter2-of-the-operator"  # in the gateway's environment, and nobody else's business


@pytest.fixture(scope="package")
def open_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """Without keys, on loopback."""
    with running_gateway(tmp_path_factory.mktemp("open"), settings={"log_level": "debug"}) as running:
        yield running


@pytest.fixture(scope="package")
def keyed_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keyed")


@pytest.fixture(scope="package")
def keyed_gateway(keyed_home: Path) -> Iterator[RunningGateway]:
    """Everything that can be kept is kept."""
    settings = {
        "host": "0.0.0.0",
        "api_keys": f"alice={hash_key(ALICE)},bob={hash_key(BOB)}",
        "log_level": "debug",
        "public_links": "true",
        "record_dir": str(keyed_home / "recordings"),
        "data_dir": str(keyed_home / "new" / "data"),
    }
    environment = {"CURSOR_API_KEY": CURSOR_KEY, "OPERATORS_SECRET": OPERATORS}
    with running_gateway(keyed_home, settings=settings, environment=environment) as running:
        yield running


@pytest.fixture
def anybody(open_gateway: RunningGateway) -> Iterator[httpx2.Client]:
    with http_client(open_gateway) as made:
        yield made


@pytest.fixture
def alice(keyed_gateway: RunningGateway) -> Iterator[httpx2.Client]:
    with with_key(keyed_gateway, ALICE) as made:
        yield made


@pytest.fixture
def bob(keyed_gateway: RunningGateway) -> Iterator[httpx2.Client]:
    with with_key(keyed_gateway, BOB) as made:
        yield made


def with_key(gateway: RunningGateway, key: str) -> httpx2.Client:
    made = http_client(gateway)
    made.headers["authorization"] = f"Bearer {key}"
    return made
