"""Clusters of real processes on a database of their own."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest
from msgspec import Struct

from tests.gateways import RunningGateway, running_gateway
from tests.postgres import Databases
from tests.server.conftest import http_client, invocations

LEASE = 1.5
QUICK = {"beat_seconds": "0.2", "lease_seconds": str(LEASE)}  # a dead process is noticed within some two seconds


class Cluster(Struct, frozen=True):
    database: str  # its URL
    fronts: list[RunningGateway]
    runners: list[RunningGateway]
    clients: list[httpx2.Client]  # of the fronts

    def starts(self, mark: str) -> int:
        """How many agents were started with a prompt that holds this."""
        return sum(len(invocations(runner, mark)) for runner in self.runners)

    def runner_of(self, mark: str) -> RunningGateway:
        (found,) = (runner for runner in self.runners if invocations(runner, mark))
        return found


@contextmanager
def cluster(home: Path, database: str, fronts: int = 2, runners: int = 2, **settings: str) -> Iterator[Cluster]:
    """The runners share a workspace and a data directory, as on one machine."""
    with cluster_in({}, home, database, fronts, runners, settings) as running:
        yield running


@contextmanager
def cluster_in(
    environment: Mapping[str, str], home: Path, database: str, fronts: int, runners: int, settings: Mapping[str, str]
) -> Iterator[Cluster]:
    """The same, with these variables in the environment of each process."""
    for folder in ("data", "work"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    given = {"store": database, "data_dir": str(home / "data"), "workspace": str(home / "work"), **QUICK, **settings}
    with ExitStack() as stack:

        def started(name: str, role: str) -> RunningGateway:
            own = {**given, "role": role}
            return stack.enter_context(running_gateway(home / name, settings=own, environment=environment))

        running = [started(f"runner{number}", "runner") for number in range(runners)]
        serving = [started(f"front{number}", "front") for number in range(fronts)]
        yield Cluster(database, serving, running, [stack.enter_context(http_client(front)) for front in serving])


@pytest.fixture(scope="module")
def two_by_two(tmp_path_factory: pytest.TempPathFactory, postgres: Databases) -> Iterator[Cluster]:
    """Two fronts and two runners, for tests that kill none of them."""
    home = tmp_path_factory.mktemp("cluster")
    with postgres.history() as url, cluster(home, url, reconnect_seconds="0.000001") as running:
        yield running
