"""API keys in a database: made, listed, limited, revoked."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import psycopg
import pytest
from click.testing import CliRunner, Result

from cursor_gateway.cli.commands.operations import key
from cursor_gateway.cli.output import Trouble
from cursor_gateway.errors import SettingsError
from cursor_gateway.keys import hash_key
from cursor_gateway.store.base import KeyLimit, Refused, Stored, Written
from cursor_gateway.store.postgres.keys import KeyLimits, KeyTable
from cursor_gateway.store.postgres.store import PostgresStore
from tests.store.making import ME, YOU, deltas, lease, new_run, run_end

_Result = TypeVar("_Result")


def _run(database: str, *arguments: str) -> Result:
    runner = CliRunner(env={"CURSOR_GATEWAY_STORE": database})
    result = runner.invoke(key, arguments, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result


def _live(database: str, work: Callable[[KeyTable, PostgresStore], Awaitable[_Result]]) -> _Result:
    async def live() -> _Result:
        table, store = KeyTable(database), PostgresStore(database)
        try:
            return await work(table, store)
        finally:
            await table.close()
            await store.close()

    return asyncio.run(live())


def _valid(database: str) -> dict[str, str]:
    return dict(_live(database, lambda table, _: table.valid()).owners)


def test_a_key_is_made_listed_revoked_and_made_again(database: str) -> None:
    first = _run(database, "alice", "--max-runs", "2", "--tokens-per-day", "5000000").stdout.strip()
    _run(database, "bob")
    assert _valid(database)[hash_key(first)] == "alice"
    rows = [line.split("\t") for line in _run(database, "--list").stdout.splitlines()]
    assert [(row[0], row[1], *row[3:]) for row in rows] == [
        ("alice", "valid", "2", "0", "0 of 5,000,000"),
        ("bob", "valid", "", "0", "0"),
    ]
    with pytest.raises(Trouble, match="revoke it first"):
        _run(database, "alice")
    assert _run(database, "alice", "--revoke").return_value == 0
    assert _run(database, "alice", "--revoke").return_value == 1
    assert sorted(_valid(database).values()) == ["bob"]
    second = _run(database, "alice").stdout.strip()
    assert second != first
    assert _valid(database)[hash_key(second)] == "alice"
    assert hash_key(first) not in _valid(database)
    with psycopg.connect(database) as connection:
        everything = str(connection.execute("SELECT * FROM api_keys").fetchall())
    assert first not in everything
    assert second not in everything


def test_there_were_keys_even_if_all_are_revoked(database: str) -> None:
    assert not _live(database, lambda table, _: table.valid()).has_any
    _run(database, "alice")
    _run(database, "alice", "--revoke")
    found = _live(database, lambda table, _: table.valid())
    assert (found.owners, found.has_any) == ({}, True)


def test_without_a_database_there_are_no_limits_to_set() -> None:
    for arguments in (["--list"], ["alice", "--revoke"], ["alice", "--max-runs", "1"]):
        result = CliRunner(env={"CURSOR_GATEWAY_STORE": ""}).invoke(key, arguments, standalone_mode=False)
        assert isinstance(result.exception, SettingsError)


def test_a_key_has_only_so_many_runs_at_once_and_a_day(database: str) -> None:
    async def work(table: KeyTable, store: PostgresStore) -> list[Refused | Written]:
        await table.add(ME, "hash", KeyLimits(max_runs=2, runs_per_day=4), 1)
        begun: list[Refused | Written] = []

        async def begin(id: str, owner: str = ME) -> None:
            begun.append(await store.begin_run(new_run(id, id, owner=owner)))

        async def end(id: str) -> None:
            assert isinstance(await store.append(lease(id), 1, deltas(1), run_end(id)), Stored)

        for id in ("a", "b", "too-many"):
            await begin(id)
        await begin("yours", YOU)  # another key is not counted
        await begin("b")  # the same again is not another one
        await end("a")
        await begin("c")
        await end("b")
        await begin("d")
        await end("c")
        await begin("too-late")
        await end("d")
        await begin("too-late")
        return begun

    assert _live(database, work) == [
        *(Stored(0), Stored(0), KeyLimit("max_runs", 2), Stored(0), Stored(0)),
        *(Stored(0), Stored(0), KeyLimit("runs_per_day", 4), KeyLimit("runs_per_day", 4)),
    ]


def test_two_processes_cannot_both_have_the_last_place(database: str) -> None:
    async def work(table: KeyTable, store: PostgresStore) -> int:
        await table.add(ME, "hash", KeyLimits(max_runs=3), 1)
        begun = await asyncio.gather(*(store.begin_run(new_run(f"r{number}", f"c{number}")) for number in range(8)))
        return sum(isinstance(one, Stored) for one in begun)

    assert _live(database, work) == 3


def test_tokens_of_a_day_are_counted_when_runs_end(database: str) -> None:
    async def work(table: KeyTable, store: PostgresStore) -> tuple[list[Refused | Written], int]:
        await table.add(ME, "hash", KeyLimits(tokens_per_day=20), 1)
        begun = []
        for number in range(3):  # eleven tokens each
            begun.append(await store.begin_run(new_run(f"r{number}", f"c{number}")))
            if isinstance(begun[-1], Stored):
                for _ in range(2):  # a repeated end counts once
                    await store.append(lease(f"r{number}"), 1, deltas(1), run_end(f"r{number}"))
        return begun, (await table.list())[0].tokens_today

    assert _live(database, work) == ([Stored(0), Stored(0), KeyLimit("tokens_per_day", 20)], 22)
