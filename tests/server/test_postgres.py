"""A whole gateway with its history in PostgreSQL: streams, restarts, kills, search, deletion; a server that is away."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import psycopg
import pytest

from cursor_gateway.store.postgres.schema import newest
from tests.gateways import RunningGateway, running_gateway
from tests.postgres import Databases, databases
from tests.preloaded import run_text
from tests.server.conftest import Json, chat, eventually, growing, http_client, standin, unique


@contextmanager
def _gateway(home: Path, database: str, **settings: str) -> Iterator[tuple[RunningGateway, httpx2.Client]]:
    with running_gateway(home, settings={"store": database, **settings}) as running, http_client(running) as http:
        yield running, http


def _command(home: Path, database: str, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    given = {
        "HOME": str(home),
        "PATH": "/usr/bin:/bin",
        "CURSOR_GATEWAY_STORE": database,
        "CURSOR_GATEWAY_DATA_DIR": str(home / "data"),
        **environment,
    }
    return run_text(arguments, given, home)


def _events(http: httpx2.Client, id: str, **headers: str) -> bytes:
    return http.get(f"/v1/chat/{id}/events", headers=headers).content


def _entries(http: httpx2.Client, **query: str) -> list[str]:
    found: Json = http.get("/v1/conversations", params=query).json()
    return [entry["id"] for entry in found["conversations"]]


def test_what_was_streamed_is_resumed_after_a_restart_found_continued_and_deleted(
    tmp_path: Path, database: str
) -> None:
    word = unique()
    with _gateway(tmp_path, database) as (_, http):
        with growing(http, "documents", f"{word} {standin('slow count=20 delay_ms=5')}") as stream:
            streamed = stream.rest()
            id, conversation = (stream.response.headers[name] for name in ("x-chat-id", "x-conversation-id"))
        assert not (tmp_path / "data" / "history.db").exists()
    with _gateway(tmp_path, database) as (_, http):
        assert _events(http, id) == streamed
        numbers = re.findall(rb"id: (\S+)", streamed)
        rest = _events(http, id, **{"Last-Event-ID": numbers[len(numbers) // 2].decode()})
        assert 0 < len(rest) < len(streamed)
        assert streamed.endswith(rest)
        assert _entries(http) == _entries(http, q=word) == [conversation]
        assert _entries(http, q=unique()) == []
        again = chat(http, standin("text"), conversationId=conversation)
        detail = http.get(f"/v1/conversations/{conversation}").json()
        assert [run["id"] for run in detail["runs"]] == [id, again["id"]]
        assert http.delete(f"/v1/conversations/{conversation}").status_code in (200, 204)
        assert (_entries(http), _entries(http, q=word)) == ([], [])
        assert http.get(f"/v1/chat/{id}").status_code == 404
    with psycopg.connect(database) as connection:
        for table in ("conversations", "runs", "events", "messages", "search"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table


def test_without_tables_it_does_not_start_and_says_what_to_do(tmp_path: Path, postgres: Databases) -> None:
    with postgres.empty() as url:
        refused = _command(tmp_path, url, "serve", "--port", "0", "--source", "replay")
        assert refused.returncode == 2
        assert "run `cursor-gateway migrate`" in refused.stderr
        planned = _command(tmp_path, url, "migrate", "--dry-run")
        assert (planned.returncode, planned.stdout.splitlines()[0]) == (0, "would apply 0001 initial")
        done = _command(tmp_path, url, "migrate")
        assert (done.returncode, done.stdout.splitlines()[0]) == (0, "applied 0001 initial")
        again = _command(tmp_path, url, "migrate")
        assert (again.returncode, again.stdout) == (0, f"The database is up to date (format {newest()}).\n")
        with _gateway(tmp_path / "home", url) as (_, http):
            assert chat(http, standin("text"))
        with psycopg.connect(url) as connection:
            connection.execute("INSERT INTO cursor_gateway_migrations (number, name) VALUES (99, 'from the future')")
            connection.execute("UPDATE cluster SET level = 99")  # this version cannot use the tables any more
        for command in (("serve", "--port", "0", "--source", "replay"), ("migrate",)):
            newer = _command(tmp_path, url, *command)
            assert newer.returncode == 2
            assert f"migrated by a newer cursor-gateway (format 99, this version supports {newest()})" in newer.stderr


def test_it_goes_on_when_the_server_was_away(tmp_path: Path) -> None:
    with databases() as own, own.history() as url, _gateway(tmp_path, url) as (_, http):
        before = chat(http, standin("text"))
        own.server.kill()
        away = http.get(f"/v1/chat/{before['id']}")
        assert away.status_code in (200, 503)
        assert http.get("/v1/conversations").status_code == 503
        own.server.start()
        eventually(lambda: http.get("/v1/conversations").status_code == 200)
        after = chat(http, standin("text"), conversationId=before["conversationId"])
        assert [run["id"] for run in http.get(f"/v1/conversations/{before['conversationId']}").json()["runs"]] == [
            before["id"],
            after["id"],
        ]


@pytest.mark.quick_cases(1)
@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:s3cretpass@127.0.0.1:1/none",
        "postgresql://me:s3cret@s3cretpass@127.0.0.1:1/none",
        "postgresql://me:s3cretpass/s3cret@127.0.0.1:1/none",
        "postgresql://me:s3cretpass?s3cret@127.0.0.1:1/none",
        "postgresql://me@127.0.0.1:1/none?password=s3cretpass&nonsense=s3cret",
        "postgresql://me:s3cretpass%zz@127.0.0.1:1/none",
        "me:s3cretpass@127.0.0.1:1/none",
    ],
)
def test_no_command_shows_the_password(tmp_path: Path, url: str) -> None:
    for command in (("migrate",), ("doctor",), ("settings",), ("conversations", "--direct")):
        ended = _command(tmp_path, url, *command)
        assert "s3cret" not in ended.stdout + ended.stderr
        assert "Traceback" not in ended.stderr
        assert ended.stdout + ended.stderr


def test_doctor_looks_at_the_database(tmp_path: Path, postgres: Databases) -> None:
    def finding(url: str) -> str:
        ended = _command(tmp_path, url, "doctor", "--json")
        found = [line for line in ended.stdout.splitlines() if "store" in line]
        assert found, ended.stdout
        return ended.stdout

    with postgres.empty() as url:
        assert "without tables" in finding(url)
    with postgres.history() as url:
        assert f"format {newest()}" in finding(url)
    assert "cannot be reached" in finding("postgresql://me@127.0.0.1:1/none")


def test_keys_in_the_database_are_required_limited_and_revoked_within_seconds(tmp_path: Path, database: str) -> None:
    with _gateway(tmp_path, database) as (_, http):
        assert chat(http, standin("text"))
        key = _command(tmp_path, database, "key", "alice", "--runs-per-day", "1").stdout.strip()
        eventually(lambda: http.get("/v1/models").status_code == 401)
        http.headers["authorization"] = f"Bearer {key}"
        assert chat(http, standin("text"))["status"] == "completed"
        assert _entries(http, q="") != []
        refused = http.post("/v1/chat", json={"message": standin("text")})
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "key_quota_exhausted")
        assert refused.headers["x-should-retry"] == "false"
        assert "1 runs a day" in refused.json()["error"]["message"]
        assert http.get("/health").json().get("workspace") is None
        assert "alice\tvalid" in _command(tmp_path, database, "key", "--list").stdout
        assert _command(tmp_path, database, "key", "alice", "--revoke").returncode == 0
        eventually(lambda: http.get("/v1/models").status_code == 401)
