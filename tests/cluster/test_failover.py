"""A streaming standby takes over: with all that was committed, or without the last of it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx2
import psycopg
import pytest

from tests.cluster.conftest import Cluster, cluster
from tests.cluster.test_monitoring import figure
from tests.postgres import Databases
from tests.server.conftest import chat, eventually, growing, http_client, sse, standin, text_of, unique
from tools.postgres import Server, running, standby_of

pytestmark = pytest.mark.slow  # test_failures.py has a database that is restarted, tests/store events that it has lost


@contextmanager
def replicated(folder: Path, settings: Mapping[str, str] = {}) -> Iterator[tuple[Server, Server, Cluster]]:
    """The processes know both servers, and connect to the one that can be written."""
    with running(None, **settings) as primary, standby_of(primary) as standby:
        Databases(primary)
        primary.create_database("gateway", "history")
        hosts = f"host={primary.folder},{standby.folder}&target_session_attrs=read-write"
        eventually(lambda: _has(standby, "gateway"))
        with cluster(folder, f"postgresql://postgres@/gateway?{hosts}", fronts=1, runners=1) as made:
            yield primary, standby, made


def _has(server: Server, database: str) -> bool:
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        found = connection.execute("SELECT FROM pg_database WHERE datname = %s", [database])
        return found.rowcount == 1


def _detach(standby: Server) -> None:
    """From now on it receives nothing more, as when the network to it is slow."""
    standby.execute("postgres", "ALTER SYSTEM SET primary_conninfo = ''")
    standby.execute("postgres", "SELECT pg_reload_conf()")
    eventually(lambda: not _receives(standby))


def _receives(standby: Server) -> bool:
    return standby.has("postgres", "SELECT FROM pg_stat_wal_receiver")


def _fail_over(primary: Server, standby: Server) -> None:
    primary.kill()
    standby.promote()


def _numbers(streamed: bytes) -> list[int]:
    return [int(event.id) for event in sse(streamed)]


def test_a_synchronous_standby_loses_nothing(tmp_path: Path) -> None:
    settings = {"synchronous_standby_names": "*", "synchronous_commit": "remote_apply"}
    with replicated(tmp_path, settings) as (primary, standby, running):
        (client,) = running.clients
        mark = unique()
        done = chat(client, standin("text"))
        with growing(client, "documents", f"{mark} {standin('slow count=60 delay_ms=20')}") as stream:
            stream.until(b"\n\n")
            _fail_over(primary, standby)
            streamed = stream.rest()
            id = stream.response.headers["x-chat-id"]
        assert _numbers(streamed) == list(range(1, len(sse(streamed)) + 1))
        assert client.get(f"/v1/chat/{id}").json()["status"] == "completed"
        assert client.get(f"/v1/chat/{id}/events").content == streamed
        assert text_of(client.get(f"/v1/chat/{done['id']}").json()) == text_of(done)
        assert running.starts(mark) == 1
        with http_client(running.runners[0]) as runner:
            assert figure(runner, "cluster_rewinds_total") == 0
        assert text_of(chat(client, standin("text"), conversationId=done["conversationId"]))


def test_what_a_lagging_standby_lacks_is_sent_again_or_reported(tmp_path: Path) -> None:
    with replicated(tmp_path) as (primary, standby, running):
        (client,) = running.clients
        mark = unique()
        with (
            growing(client, "documents", f"{mark} {standin('slow count=250 delay_ms=20')}") as long,
            growing(client, "documents", standin("slow count=20 delay_ms=20")) as short,
        ):
            short.until(b"\n\n")
            long.until(b"\n\n")
            _detach(standby)
            ended = short.rest()
            lost = chat(client, standin("text"))
            _fail_over(primary, standby)
            streamed = long.rest()
            long_id, short_id = (each.response.headers["x-chat-id"] for each in (long, short))
        # The run that went on: every event once, in order, and all of them are stored.
        assert _numbers(streamed) == list(range(1, len(sse(streamed)) + 1))
        assert client.get(f"/v1/chat/{long_id}").json()["status"] == "completed"
        assert client.get(f"/v1/chat/{long_id}/events").content == streamed
        assert running.starts(mark) == 1
        with http_client(running.runners[0]) as runner:
            eventually(lambda: figure(runner, "cluster_rewinds_total") >= 1)
        # A run that began after the last commit that the standby has: it is gone, and can be asked again.
        assert client.get(f"/v1/chat/{lost['id']}").status_code == 404
        # A run whose end was lost: it is ended, and who has read more is told to read it again.
        eventually(lambda: client.get(f"/v1/chat/{short_id}").json()["status"] == "error")
        refused = resumed(client, short_id, sse(ended)[-1].id)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "log_reset")
        again = client.get(f"/v1/chat/{short_id}/events")
        assert sse(again.content)[-1].event == "done"
        conversation = short.response.headers["x-conversation-id"]
        assert text_of(chat(client, standin("text"), conversationId=conversation))


def resumed(client: httpx2.Client, id: str, last: str) -> httpx2.Response:
    return client.get(f"/v1/chat/{id}/events", headers={"Last-Event-ID": last})
