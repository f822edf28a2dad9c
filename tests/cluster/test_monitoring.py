"""What operators see of a cluster: in its log, its metrics, and its health. Each fault is a real one."""

import json
import re
from pathlib import Path

import httpx2
import psycopg
import pytest

from tests.cluster.conftest import Cluster, cluster
from tests.cluster.test_failures import kill
from tests.gateways import RunningGateway
from tests.server.conftest import Json, chat, eventually, growing, http_client, standin, unique


def figure(client: httpx2.Client, name: str) -> float:
    (found,) = re.findall(rf"^cursor_gateway_{name} (\S+)$", client.get("/metrics").text, re.MULTILINE)
    return float(found)


def _lines(gateway: RunningGateway, event: str) -> list[Json]:
    lines = (json.loads(line) for line in gateway.log.read_text().splitlines() if line.startswith("{"))
    return [line for line in lines if line["event"].startswith(event)]


def test_a_front_logs_its_requests_and_a_runner_its_runs(two_by_two: Cluster) -> None:
    (client, _), (front, _) = two_by_two.clients, two_by_two.fronts
    mark = unique()
    headers = {"X-Request-Id": f"req-{mark}"}
    reply = client.post("/v1/chat", json={"message": f"{mark} {standin('text')}"}, headers=headers)
    (line,) = eventually(
        lambda: [one for one in _lines(front, "request") if one["request_id"] == headers["X-Request-Id"]]
    )
    assert {name: line[name] for name in ("method", "path", "status", "owner", "run_id")} == {
        "method": "POST",
        "path": "/v1/chat",
        "status": 200,
        "owner": "local",
        "run_id": reply.json()["id"],
    }
    assert line["seconds"] > 0
    assert not any(mark in one["path"] for one in _lines(front, "request"))
    ended = eventually(lambda: _lines(two_by_two.runner_of(mark), "run ended"))
    assert reply.json()["id"] in [one["run_id"] for one in ended]


def test_runs_are_counted_once_in_a_cluster(two_by_two: Cluster) -> None:
    """By the runner that drove them, so they can be added up; figures of the whole cluster are the same everywhere."""
    mark = unique()
    gateways = (*two_by_two.fronts, *two_by_two.runners)
    clients = [http_client(gateway) for gateway in gateways]
    before = [figure(client, r'runs_total\{state="completed"\}') for client in clients]
    with growing(two_by_two.clients[0], "documents", f"{mark} {standin('slow count=100 delay_ms=20')}") as stream:
        stream.until(b"\n\n")
        eventually(lambda: {figure(client, "cluster_runs_running") for client in clients} == {1})
        assert sum(figure(client, "runs_running") for client in clients) == 1
        stream.rest()
    eventually(lambda: sum(figure(client, r'runs_total\{state="completed"\}') for client in clients) == sum(before) + 1)
    after = [figure(client, r'runs_total\{state="completed"\}') for client in clients]
    counted = [gateway for gateway, was, now in zip(gateways, before, after, strict=True) if now > was]
    assert counted == [two_by_two.runner_of(mark)]
    assert {figure(client, "cluster_members") for client in clients} == {4}
    for client in clients:
        client.close()


def test_a_dead_listener_is_seen_until_it_is_back(tmp_path: Path, database: str) -> None:
    with cluster(tmp_path, database, fronts=1, runners=1) as running:
        (front,), (client,) = running.fronts, running.clients
        assert figure(client, "cluster_listening") == 1

        def is_seen() -> bool:
            with psycopg.connect(database, autocommit=True) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND query LIKE 'LISTEN%'"
                )
            health = client.get("/health").json()
            return health["status"] == "degraded" and figure(client, "cluster_listening") == 0

        eventually(is_seen)
        assert client.get("/readyz").status_code == 200  # it works, only later
        assert eventually(lambda: _lines(front, "Notifications of other processes were lost"))
        eventually(lambda: client.get("/health").json()["status"] == "ok")
        eventually(lambda: figure(client, "cluster_listen_reconnections_total") >= 1)
        assert eventually(lambda: _lines(front, "Notifications of other processes arrive again"))
        assert chat(client, standin("text"))


def test_a_takeover_is_seen_where_it_was_made(tmp_path: Path, database: str) -> None:
    with cluster(tmp_path, database, fronts=1) as running:
        (client,) = running.clients
        mark = unique()
        with growing(client, "documents", f"{mark} {standin('hang-mid')}") as stream:
            stream.until(b"\n\n")
            dead = running.runner_of(mark)
            kill(dead)
            stream.rest()
        alive = [*running.fronts, *(runner for runner in running.runners if runner is not dead)]
        # Two processes may notice it at the same moment; then both say so.
        line = eventually(lambda: [line for one in alive for line in _lines(one, "process ")])[0]
        assert line["level"] == "warning"
        assert f"-{dead.process.pid}-" in line["event"]
        assert line["event"].endswith("is considered dead; its 1 runs are ended")
        with http_client(alive[1]) as other:
            assert sum(figure(one, "cluster_takeovers_total") for one in (client, other)) >= 1


def test_a_queue_is_seen(tmp_path: Path, database: str) -> None:
    with cluster(tmp_path, database, fronts=1, runners=1, max_runs="1", queue_seconds="60") as running:
        (client,) = running.clients
        with growing(client, "documents", standin("hang-mid")) as stream:
            id = stream.response.headers["x-chat-id"]
            stream.until(b"\n\n")
            with (
                httpx2.Client(base_url=client.base_url, timeout=1, verify=False) as hasty,
                pytest.raises(httpx2.TimeoutException),
            ):
                hasty.post("/v1/chat", json={"message": standin("text")})
            eventually(lambda: figure(client, "cluster_queue_length") == 1)
            assert figure(client, "cluster_queue_age_seconds") > 0
            assert client.post(f"/v1/chat/{id}/cancel", json={}).status_code == 200
        eventually(lambda: figure(client, "cluster_queue_length") == 0)
