"""Cursor's own runtime behind a company's proxy, whose certificates come from a CA of its own."""

from pathlib import Path

import pytest

from tests.backend.conftest import client_of, program, runtime_gateway
from tests.backend.proxy import HOST, CompanyNetwork
from tests.backend.server import Backend

SAY = program({"say": "Hello through the proxy."})


def test_it_works_through_the_proxy_and_not_around_it(tmp_path: Path, backend: Backend) -> None:
    with CompanyNetwork(backend.url, tmp_path) as network:
        environment = {
            "CURSOR_BACKEND_URL": network.https_url,
            "CURSOR_WEBSITE_URL": network.https_url,
            "HTTPS_PROXY": network.proxy,
            "NODE_EXTRA_CA_CERTS": str(network.ca),
        }
        home = tmp_path / "home"
        home.mkdir()
        with runtime_gateway(home, backend, environment) as gateway, client_of(gateway) as client:
            reply = client.post("/v1/chat", json={"message": SAY})
            assert reply.json()["documents"][0]["content"] == "Hello through the proxy.", reply.text
        assert set(network.connected) == {f"CONNECT {HOST}:443"}
        assert set(network.protocols) <= {"http/1.1", None}


@pytest.mark.parametrize("missing", ["HTTPS_PROXY", "NODE_EXTRA_CA_CERTS"])
def test_without_the_proxy_or_its_certificates_there_is_no_way(tmp_path: Path, backend: Backend, missing: str) -> None:
    """So that the other test proves something."""
    with CompanyNetwork(backend.url, tmp_path) as network:
        environment = {
            "CURSOR_BACKEND_URL": network.https_url,
            "CURSOR_WEBSITE_URL": network.https_url,
            "HTTPS_PROXY": network.proxy,
            "NODE_EXTRA_CA_CERTS": str(network.ca),
            missing: "",
        }
        home = tmp_path / "home"
        home.mkdir()
        with runtime_gateway(home, backend, environment, http1="true") as gateway, client_of(gateway) as client:
            reply = client.post("/v1/chat", json={"message": SAY})
            assert reply.json()["error"]["code"] == "agent_unreachable", reply.text
    assert not backend.requests


def test_http_1_without_a_proxy(tmp_path: Path, backend: Backend) -> None:
    with runtime_gateway(tmp_path, backend, http1="true") as gateway, client_of(gateway) as client:
        assert client.post("/v1/chat", json={"message": SAY}).json()["status"] == "completed"


def test_a_sandbox_that_this_machine_does_not_have_is_an_error(tmp_path: Path, backend: Backend) -> None:
    """Or it has one: no command runs without the sandbox that is asked for."""
    with runtime_gateway(tmp_path, backend, sandbox="enabled") as gateway, client_of(gateway) as client:
        reply = client.post("/v1/chat", json={"message": SAY}).json()
        assert reply.get("status") == "completed" or "sandbox" in str(reply["error"]).lower(), reply
