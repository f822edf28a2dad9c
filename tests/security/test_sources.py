"""What the operator decides holds whichever source a request names, or the source is refused with a reason."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.agent.bridge_install import install_bridge
from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import http_client, invocations, standin, unique

SOURCES = ("cli", "acp", "sdk")
PERSISTENT = ("acp", "sdk")


@contextmanager
def gateway_of(home: Path, **settings: str) -> Iterator[tuple[RunningGateway, httpx2.Client]]:
    """All three sources can be chosen."""
    given = {"sdk_bridge": ",".join(install_bridge(home / "bridge")), **settings}
    environment = {"CURSOR_API_KEY": "key", "LISTED": "yes", "UNLISTED": "no"}
    with running_gateway(home, settings=given, environment=environment) as gateway, http_client(gateway) as client:
        yield gateway, client


def ask(client: httpx2.Client, source: str, message: str, **more: Any) -> httpx2.Response:
    return client.post("/v1/chat", json={"message": message, "source": source, **more})


def every_way(client: httpx2.Client, source: str, message: str) -> list[httpx2.Response]:
    """How a request can name a source."""
    result = {"model": "auto", "messages": [{"role": "user", "content": message}]}
    return [
        ask(client, source, message),
        ask(client, source, message, stream=True),
        client.post("/v1/chat/completions", json={**result, "cursor": {"source": source}}),
        client.post("/v1/chat/completions", json=result, headers={"x-cursor-source": source}),
    ]


# --- settings that a source cannot keep to ----------------------------------------------------------------------


REFUSING = [
    ("record_dir", "recordings", PERSISTENT, "only CLI runs can be recorded"),
    ("trust", "false", PERSISTENT, "only the CLI checks whether a workspace is trusted"),
    ("agent_headers", "X-Team=a", ("sdk",), "the SDK does not support headers"),
]


@pytest.mark.parametrize(("setting", "value", "refused", "reason"), REFUSING, ids=[row[0] for row in REFUSING])
def test_a_source_that_cannot_keep_to_a_setting_is_refused(
    tmp_path: Path, setting: str, value: str, refused: tuple[str, ...], reason: str
) -> None:
    given = str(tmp_path / value) if setting == "record_dir" else value
    with gateway_of(tmp_path, **{setting: given}) as (gateway, client):
        offered = client.get("/health").json()["sources"]
        assert set(offered) == set(SOURCES) - set(refused)
        for source in refused:
            mark = unique()
            for reply in every_way(client, source, f"{standin('text')} {mark}"):
                assert reply.status_code == 400
                error = reply.json()["error"]
                assert error["param"] == "source"
                assert f"`{source}` cannot be used" in error["message"]
                assert f"`{setting}`" in error["message"]
                assert reason in error["message"]
            assert invocations(gateway, mark) == []


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("source", PERSISTENT)
def test_nor_can_the_operator_choose_it(tmp_path: Path, source: str) -> None:
    """A recording that is silently missing is worse than a gateway that does not start."""
    with pytest.raises(AssertionError), gateway_of(tmp_path, source=source, record_dir=str(tmp_path / "recordings")):
        pass
    result = (tmp_path / "gateway.log").read_text()
    assert "record_dir" in result
    assert f"source = {source}" in result


def test_every_run_that_the_operator_wants_recorded_is(tmp_path: Path) -> None:
    folder = tmp_path / "recordings"
    with gateway_of(tmp_path, record_dir=str(folder)) as (_, client):
        assert ask(client, "cli", standin("text")).status_code == 200
        assert client.post("/v1/chat", json={"message": standin("text")}).status_code == 200
        for source in PERSISTENT:
            ask(client, source, standin("text"))
    assert len(list(folder.glob("*.ndjson"))) == 2


def test_an_untrusted_workspace_stays_untrusted(tmp_path: Path) -> None:
    with gateway_of(tmp_path, trust="false") as (_, client):
        result = {source: ask(client, source, standin("text")).status_code for source in SOURCES}
    assert result == {"cli": 403, "acp": 400, "sdk": 400}


# --- settings that every source keeps to ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningGateway, httpx2.Client]]:
    settings = {"max_output_bytes": "20000", "agent_environment": "LISTED"}
    with ExitStack() as stack:
        yield stack.enter_context(gateway_of(tmp_path_factory.mktemp("strict"), **settings))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("source", SOURCES)
def test_no_source_writes_more_than_it_may(strict: tuple[RunningGateway, httpx2.Client], source: str) -> None:
    reply = ask(strict[1], source, standin("text chunks=50 length=100000"))
    assert "more than 20000 bytes" in reply.text


def test_no_source_runs_longer_than_it_may(tmp_path: Path) -> None:
    with gateway_of(tmp_path, run_seconds="1") as (_, client):
        assert [ask(client, source, standin("hang")).status_code for source in SOURCES] == [504] * 3


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_has_the_environment_that_the_operator_lists(
    strict: tuple[RunningGateway, httpx2.Client], source: str
) -> None:
    result = ask(strict[1], source, standin("echo-env")).json()
    names = json.loads("".join(document["content"] for document in result["documents"]))["names"]
    assert "LISTED" in names
    assert not {"UNLISTED", "CURSOR_GATEWAY_DATA_DIR"} & set(names)


@pytest.mark.parametrize("source", SOURCES)
def test_no_source_works_elsewhere(strict: tuple[RunningGateway, httpx2.Client], source: str) -> None:
    gateway, client = strict
    for place in ("/", "..", str(gateway.home)):
        assert ask(client, source, standin("text"), workspace=place).status_code == 403


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("force", ["true", "false"])
def test_every_source_is_forced_where_the_operator_says_so(tmp_path: Path, force: str) -> None:
    with gateway_of(tmp_path, force=force) as (gateway, client):
        for source in SOURCES:
            reply = ask(client, source, standin(f'shell command="touch {source}"'))
            assert reply.status_code == 200
            assert (gateway.workspace / source).exists() is (force == "true"), source
