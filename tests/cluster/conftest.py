"""Clusters of real processes on a database of their own."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
from msgspec import Struct

from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import http_client

QUICK = {"beat_seconds": "0.2", "lease_seconds": "1"}  # a dead process is noticed within two seconds


class Cluster(Struct, frozen=True):
    fronts: list[RunningGateway]
    runners: list[RunningGateway]
    clients: list[httpx2.Client]  # of the fronts


@contextmanager
def cluster(home: Path, database: str, fronts: int = 2, runners: int = 2, **settings: str) -> Iterator[Cluster]:
    """The runners share a workspace and a data directory, as on one machine."""
    given = {"store": database, **QUICK, **settings}
    with ExitStack() as stack:

        def started(name: str, role: str) -> RunningGateway:
            own = {**given, "role": role, "data_dir": str(home / "data"), "workspace": str(home / "work")}
            (home / "data").mkdir(parents=True, exist_ok=True)
            (home / "work").mkdir(parents=True, exist_ok=True)
            return stack.enter_context(running_gateway(home / name, settings=own))

        running = [started(f"runner{number}", "runner") for number in range(runners)]
        serving = [started(f"front{number}", "front") for number in range(fronts)]
        yield Cluster(serving, running, [stack.enter_context(http_client(front)) for front in serving])
