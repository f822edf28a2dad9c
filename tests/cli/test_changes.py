"""`cursor-gateway conversations changes`: the same review as on the page, at a gateway and without one."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import Finished, command
from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import http_client


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with running_gateway(tmp_path_factory.mktemp("changes"), settings={"force": "true"}) as running:
        yield running
