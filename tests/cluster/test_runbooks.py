"""docs/runbooks.md: each fault is caused, and each command of its section is run. The backups are restored."""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import httpx2
import psycopg
import pytest

from tests.cluster.conftest import LEASE, Cluster, cluster
from tests.cluster.test_failover import replicated, resumed
from tests.cluster.test_failures import kill
from tests.cluster.test_monitoring import figure
from tests.gateways import running_gateway
from tests.postgres import Databases
from tests.server.conftest import TIMEOUT, chat, eventually, growing, http_client, sse, standin, text_of, unique
from tools.postgres import running

PAGE = Path(__file__).parents[2] / "docs" / "runbooks.md"
_SECTION = re.compile(r"^##+ ([^\n]+)$(.*?)(?=^##+ |\Z)", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = {title: _BLOCK.findall(text) for title, text in _SECTION.findall(PAGE.read_text())}
TRIED = {
    "A runner is lost",
    "The queue grows",
    "The disk of the database is full",
    "A standby takes over",
    "A backup, and its restoration",
    "A history in a file",
}
_FRONT, _MEMBER = "localhost:8787", "worker1-4242-77120-9f3a1c02"


class Shell:
    """Of an operator, with the gateway's command and those of PostgreSQL."""

    def __init__(self, home: Path, programs: Path, store: str, front: httpx2.Client) -> None:
        bin = home / "operator"
        bin.mkdir(parents=True)
        (bin / "cursor-gateway").write_text(f'#!/bin/sh\nexec {sys.executable} -m cursor_gateway "$@"\n')
        (bin / "cursor-gateway").chmod(0o755)
        path = os.pathsep.join(map(str, (bin, programs, "/usr/bin", "/bin")))
        self._environment = {"PATH": path, "HOME": str(home), "COLUMNS": "300", "CURSOR_GATEWAY_STORE": store}
        self._folder, self.names = bin, {_FRONT: str(front.base_url).rstrip("/")}

    def run(self, title: str, number: int) -> str:
        """What the commands of a block print."""
        command = COMMANDS[title][number]
        for name, real in self.names.items():
            command = command.replace(name, real)
        words = ["bash", "-euo", "pipefail", "-c", command]
        ran = subprocess.run(
            words, cwd=self._folder, env=self._environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout


def _shell(tmp_path: Path, postgres: Databases, running: Cluster) -> Shell:
    return Shell(tmp_path / "shell", postgres.server.programs, running.database, running.clients[0])


def test_every_command_of_the_page_is_run() -> None:
    assert {title for title, blocks in COMMANDS.items() if blocks} == TRIED


def test_a_runner_is_lost(tmp_path: Path, database: str, postgres: Databases) -> None:
    with cluster(tmp_path, database, fronts=1) as running:
        shell, (client,) = _shell(tmp_path, postgres, running), running.clients
        mark = unique()
        with growing(client, "documents", f"{mark} {standin('hang-mid')}") as stream:
            stream.until(b"\n\n")
            dead = running.runner_of(mark)
            kill(dead)
            stream.rest()
            id = stream.response.headers["x-chat-id"]
        printed = shell.run("A runner is lost", 0)
        assert id in printed
        assert f"-{dead.process.pid}-" not in printed
        (left,) = (runner for runner in running.runners if runner is not dead)
        (member,) = re.findall(rf"\S*-{left.process.pid}-\S+", printed)
        shell.names[_MEMBER] = member
        assert re.search(rf"{member}.*drain", shell.run("A runner is lost", 1))


def test_the_queue_grows(tmp_path: Path, database: str, postgres: Databases) -> None:
    with cluster(tmp_path, database, fronts=1, runners=1, max_runs="1", queue_seconds="60") as running:
        shell, (client,) = _shell(tmp_path, postgres, running), running.clients
        with growing(client, "documents", standin("hang-mid")) as stream:
            stream.until(b"\n\n")
            impatient = httpx2.Timeout(TIMEOUT, read=1)
            with pytest.raises(httpx2.ReadTimeout):
                client.post("/v1/chat", json={"message": standin("text")}, timeout=impatient)
            assert re.search(r"local +\| +1", shell.run("The queue grows", 0))
            assert re.search(r"\| +1\n", shell.run("The queue grows", 2))
        with psycopg.connect(database) as connection:
            connection.execute("INSERT INTO api_keys (name, hash, created_ms) VALUES ('bot', 'hash', 0)")
        assert shell.run("The queue grows", 1) == "UPDATE 1\n"


@contextmanager
def _small_disk(megabytes: int) -> Iterator[Path]:
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a small disk")
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()


def _fill(file: Path) -> None:
    with suppress(OSError), file.open("wb", buffering=0) as ballast:
        while True:
            ballast.write(bytes(1 << 20))


def test_the_disk_of_the_database_is_full(tmp_path: Path) -> None:
    """Small changes, such as heartbeats, may still find room: so it is the runner, which stores events, that reports
    it."""
    with _small_disk(220) as disk, running(disk) as server:
        postgres = Databases(server)
        with postgres.history() as url, cluster(tmp_path, url, fronts=1, runners=1) as made:
            shell, (client,), (runner,) = _shell(tmp_path, postgres, made), made.clients, made.runners
            mark = unique()
            with growing(client, "documents", f"{mark} {standin('slow count=150 delay_ms=20')}") as stream:
                stream.until(b"\n\n")
                ballast = disk / "ballast"
                _fill(ballast)
                eventually(lambda: "The disk of the database is full" in runner.log.read_text())
                assert "(5 rows)" in shell.run("The disk of the database is full", 0)
                with http_client(runner) as behind:
                    assert figure(behind, "store_errors_total") > 0
                time.sleep(2 * LEASE)
                ballast.unlink()
                if not server.is_running:  # it ends if its write-ahead log has no room
                    server.start_again()
                streamed = stream.rest()
            assert [int(event.id) for event in sse(streamed)] == list(range(1, len(sse(streamed)) + 1))
            assert client.get(f"/v1/chat/{stream.response.headers['x-chat-id']}").json()["status"] == "completed"
            assert made.starts(mark) == 1
            eventually(lambda: shell.run("The disk of the database is full", 1) == "ok\n")
            assert text_of(chat(client, standin("text")))


@pytest.mark.slow  # test_failover.py has what clients see of it
def test_a_standby_takes_over(tmp_path: Path) -> None:
    with replicated(tmp_path) as (primary, standby, made):
        shell = Shell(tmp_path / "shell", primary.programs, made.database, made.clients[0])
        shell.names["postgresql://postgres@db2.example/postgres"] = f"'{standby.url('postgres')}'"
        assert "async" in shell.run("A standby takes over", 0)
        primary.kill()
        assert "pg_promote" in shell.run("A standby takes over", 1)
        eventually(lambda: made.clients[0].get("/readyz").status_code == 200)
        assert text_of(chat(made.clients[0], standin("text")))


def test_a_backup_of_the_database_is_restored(tmp_path: Path, postgres: Databases, database: str) -> None:
    with cluster(tmp_path, database, fronts=1, runners=1) as before:
        shell, (client,) = _shell(tmp_path, postgres, before), before.clients
        kept = chat(client, standin("text"))
        with growing(client, "documents", standin("slow count=100 delay_ms=20")) as stream:
            active = stream.response.headers["x-chat-id"]
            stream.until(b"\n\n")
            shell.run("A backup, and its restoration", 0)
            streamed = stream.rest()
        lost = chat(client, standin("text"))
        said = chat(client, standin("text"), conversationId=kept["conversationId"])
    with postgres.empty() as restored:
        shell = Shell(tmp_path / "restoring", postgres.server.programs, restored, client)
        shutil.copy(tmp_path / "shell/operator/gateway.dump", tmp_path / "restoring/operator/gateway.dump")
        assert "up to date" in shell.run("A backup, and its restoration", 1)
        with cluster(tmp_path, restored, fronts=1, runners=1) as after:
            (client,) = after.clients
            assert text_of(client.get(f"/v1/chat/{kept['id']}").json()) == text_of(kept)
            assert [client.get(f"/v1/chat/{gone['id']}").status_code for gone in (lost, said)] == [404, 404]
            eventually(lambda: client.get(f"/v1/chat/{active}").json()["status"] == "error")
            again = resumed(client, active, sse(streamed)[-1].id)
            assert (again.status_code, again.json()["error"]["code"]) == (409, "log_reset")
            assert sse(client.get(f"/v1/chat/{active}/events").content)[-1].event == "done"
            assert text_of(chat(client, standin("text"), conversationId=kept["conversationId"]))


def _is_in_database(file: Path, run_id: str) -> bool:
    """A run that has ended is moved into it within a second."""
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        return bool(connection.execute("SELECT 1 FROM runs WHERE id = ? AND state = 'completed'", [run_id]).fetchone())


def test_a_backup_of_a_file_is_restored(tmp_path: Path, postgres: Databases) -> None:
    home = tmp_path / "home"
    data = home / ".local/share/cursor-gateway"
    settings = {"data_dir": str(data)}
    with running_gateway(home, settings=settings) as gateway, http_client(gateway) as client:
        kept = chat(client, standin("text"))
        eventually(lambda: _is_in_database(data / "history.db", kept["id"]))
        shell = Shell(home, postgres.server.programs, "", client)
        shell.run("A history in a file", 0)
        lost = chat(client, standin("text"))
        said = chat(client, standin("text"), conversationId=kept["conversationId"])
    shell.run("A history in a file", 1)
    with running_gateway(home, settings=settings) as gateway, http_client(gateway) as client:
        assert text_of(client.get(f"/v1/chat/{kept['id']}").json()) == text_of(kept)
        assert [client.get(f"/v1/chat/{gone['id']}").status_code for gone in (lost, said)] == [404, 404]
        beyond = resumed(client, kept["id"], "1000")
        assert (beyond.status_code, beyond.json()["error"]["code"]) == (409, "log_reset")
        assert text_of(chat(client, standin("text"), conversationId=kept["conversationId"]))
