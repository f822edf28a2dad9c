"""`cursor-gateway links`: list, create and revoke read-only links."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.cli.processes import finished
from tests.gateways import RunningGateway, running_gateway
from tests.mcp_server.host import environment_of
from tests.server.conftest import chat, http_client, standin, unique


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with running_gateway(tmp_path_factory.mktemp("gateway"), settings={"public_links": "true"}) as running:
        yield running


def links(gateway: RunningGateway, *words: str) -> str:
    ended = finished("links", *words, stdin=b"", **environment_of(gateway))
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.decode()


def test_a_link_is_created_listed_and_revoked(gateway: RunningGateway) -> None:
    mark = unique()
    with http_client(gateway) as http:
        id = chat(http, f"{mark} {standin('text')}")["conversationId"]
        url = links(gateway, "create", "last", "--url", gateway.url).strip()
        assert mark in http.get(httpx2.URL(url).path).text
        (line,) = links(gateway).splitlines()
        assert line.split("\t")[0] == id
        links(gateway, "--url", gateway.url, "revoke", id[:17])
        assert http.get(httpx2.URL(url).path).status_code == 404
    assert links(gateway) == ""


def test_what_goes_wrong_is_said(gateway: RunningGateway, tmp_path: Path) -> None:
    refused = finished("links", "revoke", "conv_none", stdin=b"", **environment_of(gateway))
    assert refused.returncode == 2
    assert b"Unknown conversation" in refused.stderr
    alone = finished("links", HOME=str(tmp_path), CURSOR_GATEWAY_DATA_DIR=str(tmp_path), CURSOR_GATEWAY_PORT="0")
    assert alone.returncode == 2
    assert b"start it with `cursor-gateway serve`" in alone.stderr
