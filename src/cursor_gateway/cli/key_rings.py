"""Keep the valid API keys up to date with the database."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from cursor_gateway.cli.stores import database_url
from cursor_gateway.errors import StoreUnavailable
from cursor_gateway.keys import KeyRing
from cursor_gateway.settings import Settings, is_loopback

if TYPE_CHECKING:
    from cursor_gateway.store.postgres.keys import KeyTable

_REFRESH_SECONDS = 2.0  # how long a revoked key may still be used


@asynccontextmanager
async def key_ring(settings: Settings) -> AsyncIterator[KeyRing]:
    url = database_url(settings)
    ring = KeyRing(settings.api_keys, is_exposed=not is_loopback(settings.host), has_database=bool(url))
    if not url:
        yield ring
        return
    from cursor_gateway.store.postgres.keys import KeyTable

    table = KeyTable(url)
    await _refresh(ring, table)
    task = asyncio.get_running_loop().create_task(_keep(ring, table))
    try:
        yield ring
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await table.close()


async def _keep(ring: KeyRing, table: "KeyTable") -> None:
    while True:
        await asyncio.sleep(_REFRESH_SECONDS)
        await _refresh(ring, table)


async def _refresh(ring: KeyRing, table: "KeyTable") -> None:
    with suppress(StoreUnavailable):  # then nothing else can be read or started either
        found = await table.valid()
        ring.replace_stored(found.owners, has_any=found.has_any)
