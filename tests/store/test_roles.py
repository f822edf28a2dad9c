"""The roles of `deploy/postgres/roles.sql` can do what fronts and runners do, and no more."""

import asyncio
import os
import re
import shutil
import subprocess
from contextlib import AsyncExitStack
from pathlib import Path

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege

from cursor_gateway.store.postgres.keys import KeyLimits, KeyTable
from cursor_gateway.store.postgres.store import PostgresStore
from cursor_gateway.store.sql import SqlStore
from tests.store.conformance import LAWS

DEPLOY = Path(__file__).parents[2] / "deploy"
ROLES = DEPLOY / "postgres" / "roles.sql"
FRONT, RUNNER = "cursor_gateway_front", "cursor_gateway_runner"


@pytest.fixture
def restricted(database: str) -> str:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(1)")  # roles belong to all databases of the server
        connection.execute(ROLES.read_text(encoding="utf-8").encode())
    return database


def _as(role: str, url: str) -> str:
    return url.replace("//postgres@", f"//{role}@")


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(
    ("role", "law"), [*((FRONT, law) for law in list(LAWS)[::5]), *((RUNNER, law) for law in list(LAWS)[::7])]
)
def test_a_restricted_role_is_enough_for_a_history(role: str, law: str, restricted: str) -> None:
    async def obey() -> None:
        async with AsyncExitStack() as opened:

            async def open() -> SqlStore:
                store = PostgresStore(_as(role, restricted))
                opened.push_async_callback(store.close)
                return store

            await LAWS[law](open)

    asyncio.run(obey())


def test_a_front_reads_keys_and_a_runner_only_their_limits(restricted: str) -> None:
    async def live() -> None:
        owner, front, runner = (KeyTable(url) for url in (restricted, _as(FRONT, restricted), _as(RUNNER, restricted)))
        try:
            assert await owner.add("alice", "hash", KeyLimits(max_runs=1), 1)
            assert (await front.valid()).owners == {"hash": "alice"}
        finally:
            for table in (owner, front, runner):
                await table.close()

    asyncio.run(live())
    with psycopg.connect(_as(RUNNER, restricted), autocommit=True) as connection:
        assert connection.execute("SELECT name, revoked_ms, max_runs FROM api_keys").fetchall() == [("alice", None, 1)]


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("role", [FRONT, RUNNER])
@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO api_keys (name, hash, created_ms) VALUES ('eve', 'h', 1)",
        "UPDATE api_keys SET revoked_ms = NULL",
        "DELETE FROM api_keys",
        "CREATE TABLE mine (a integer)",
        "DROP TABLE runs",
        "ALTER TABLE runs ADD COLUMN a integer",
        "DELETE FROM cursor_gateway_migrations",
        "CREATE ROLE eve",
    ],
)
def test_neither_can(role: str, statement: str, restricted: str) -> None:
    with (
        psycopg.connect(_as(role, restricted), autocommit=True) as connection,
        pytest.raises(InsufficientPrivilege),
    ):
        connection.execute(statement.encode())


def test_a_runner_cannot_see_hashes(restricted: str) -> None:
    with (
        psycopg.connect(_as(RUNNER, restricted), autocommit=True) as connection,
        pytest.raises(InsufficientPrivilege),
    ):
        connection.execute("SELECT hash FROM api_keys")


def test_only_migrations_connect_as_the_owner_in_the_cluster_of_containers() -> None:
    services = re.split(r"(?m)^  (\w+):.*$", (DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    users = {
        name: found[1]
        for name, text in zip(services[1::2], services[2::2], strict=True)
        if (found := re.search(r"CURSOR_GATEWAY_STORE: postgresql://(\w+):", text)) is not None
    }
    assert users == {"migrate": "cursor_gateway", "front": FRONT, "runner": RUNNER}


@pytest.mark.skipif(shutil.which("psql") is None, reason="needs psql")
def test_the_roles_get_their_passwords_from_the_environment(restricted: str) -> None:
    command = ["psql", "--set=ON_ERROR_STOP=1", f"--file={ROLES.with_name('passwords.sql')}", restricted]
    passwords = {"FRONT_PASSWORD": "front's", "RUNNER_PASSWORD": "runner's"}
    assert subprocess.run(command, env=os.environ, capture_output=True, check=False).returncode != 0
    subprocess.run(command, env={**os.environ, **passwords}, capture_output=True, check=True)
    with psycopg.connect(restricted, autocommit=True) as connection:
        found = connection.execute("SELECT rolname FROM pg_authid WHERE rolpassword LIKE 'SCRAM%'").fetchall()
        assert {(FRONT,), (RUNNER,)} <= set(found)
