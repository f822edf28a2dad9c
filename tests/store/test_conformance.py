"""The history in a file obeys the laws of every store."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from cursor_gateway.store.base import Store
from cursor_gateway.store.sqlite.store import SqliteStore
from tests.store.conformance import LAWS


@pytest.mark.parametrize("name", LAWS)
def test_a_local_store_obeys_the_law_that(name: str, tmp_path: Path) -> None:
    async def live() -> None:
        async with AsyncExitStack() as opened:

            async def open() -> Store:
                store = SqliteStore(tmp_path)
                opened.push_async_callback(store.close)
                return store

            await LAWS[name](open)

    asyncio.run(live())
