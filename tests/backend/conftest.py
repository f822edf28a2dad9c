"""Gateways whose agent is the unmodified runtime of the installed wheel, with a mock of Cursor's backend."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.backend.schemas import bundle
from tests.backend.server import Backend
from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import NO_TLS, TIMEOUT, standin

PASSED_ON = "CURSOR_BACKEND_URL,CURSOR_WEBSITE_URL"


def program(*steps: Mapping[str, Any]) -> str:
    """A prompt that says what the model does."""
    return standin("program", json.dumps(steps))


@pytest.fixture(scope="session")
def shared_backend() -> Iterator[Backend]:
    if bundle() is None:
        pytest.skip("Cursor's runtime is not installed: it is in the wheel cursor-sdk")
    with Backend() as started:
        yield started


@contextmanager
def runtime_gateway(
    home: Path, backend: Backend, environment: Mapping[str, str] | None = None, **settings: str
) -> Iterator[RunningGateway]:
    """Without cursor-agent, so that nothing can fall back to it."""
    given = {"source": "sdk", "agent_environment": PASSED_ON, "force": "true", **settings}
    known = {**backend.environment, "SHELL": "/bin/sh", **(environment or {})}
    with running_gateway(home, settings=given, environment=known, has_agent=False) as running:
        yield running


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory, shared_backend: Backend) -> Iterator[RunningGateway]:
    """One bridge for all tests of a worker that change nothing about it."""
    with runtime_gateway(tmp_path_factory.mktemp("runtime"), shared_backend, refuse_workspace_hooks="false") as running:
        yield running


@pytest.fixture
def backend(shared_backend: Backend) -> Backend:
    """Without what other tests have sent."""
    shared_backend.forget()
    return shared_backend


@pytest.fixture
def client(gateway: RunningGateway) -> Iterator[httpx2.Client]:
    with client_of(gateway) as made:
        yield made


def client_of(gateway: RunningGateway) -> httpx2.Client:
    return httpx2.Client(base_url=gateway.url, timeout=TIMEOUT, verify=NO_TLS)
