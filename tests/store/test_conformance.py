"""The history in a file, and the one in a PostgreSQL database, obey the laws of every store."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from cursor_gateway.store.postgres.store import PostgresStore
from cursor_gateway.store.sql import SqlStore
from cursor_gateway.store.sqlite.store import SqliteStore
from tests.store.conformance import LAWS


def _obey(name: str, make: Callable[[], SqlStore]) -> None:
    async def live() -> None:
        async with AsyncExitStack() as opened:

            async def open() -> SqlStore:
                store = make()
                opened.push_async_callback(store.close)
                return store

            await LAWS[name](open)

    asyncio.run(live())


@pytest.mark.parametrize("name", LAWS)
def test_a_local_store_obeys_the_law_that(name: str, tmp_path: Path) -> None:
    _obey(name, lambda: SqliteStore(tmp_path))


@pytest.mark.parametrize("name", LAWS)
def test_a_store_in_postgresql_obeys_the_law_that(name: str, database: str) -> None:
    _obey(name, lambda: PostgresStore(database))
