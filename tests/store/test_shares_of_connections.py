"""The connections of a process: one owner's long searches leave one to the others."""

import asyncio
from collections.abc import Iterator

import pytest

from cursor_gateway.store.base import OWNER
from cursor_gateway.store.postgres.connections import MOST_CONNECTIONS, PostgresConnections
from cursor_gateway.store.postgres.store import PostgresStore
from tests.postgres import Databases
from tests.store.making import deltas, lease, new_run


@pytest.fixture
def database(postgres: Databases) -> Iterator[str]:
    with postgres.history() as url:
        yield url


async def test_one_owners_searches_do_not_delay_another_owner(database: str) -> None:
    async def select(connections: PostgresConnections, owner: str, statement: str) -> object:
        OWNER.set(owner)
        return await connections.select(statement)

    connections = PostgresConnections(database)
    slow = "SELECT pg_sleep(9)"
    busy = [asyncio.create_task(select(connections, "greedy", slow)) for _ in range(3 * MOST_CONNECTIONS)]
    await asyncio.sleep(0.1)  # all of them have begun, or wait
    for owner in ("other", ""):
        await asyncio.create_task(select(connections, owner, "SELECT 1"))
    assert not any(task.done() for task in busy)
    for task in busy:
        task.cancel()
    await asyncio.wait(busy)
    await connections.close()


async def test_one_owners_searches_do_not_delay_what_agents_write(database: str) -> None:
    async def search(store: PostgresStore) -> object:
        OWNER.set("greedy")
        return await store.connections.select("SELECT pg_sleep(9)")

    async def append(store: PostgresStore) -> object:
        OWNER.set("greedy")
        return await store.append(lease("run"), 1, deltas(1))

    store = PostgresStore(database)
    await store.begin_run(new_run())
    busy = [asyncio.create_task(search(store)) for _ in range(3 * MOST_CONNECTIONS)]
    await asyncio.sleep(0.1)  # all of them have begun, or wait
    async with asyncio.timeout(5):
        await asyncio.create_task(append(store))
    for task in busy:
        task.cancel()
    await asyncio.wait(busy)
    await store.close()
