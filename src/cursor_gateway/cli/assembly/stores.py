"""The store of the history and of API keys that the settings name."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Protocol

from cursor_gateway.errors import SettingsError, StoreUnavailable
from cursor_gateway.keys import KeyRing
from cursor_gateway.settings import Settings, is_loopback
from cursor_gateway.store.base import Outbox, Store, StoreUpkeep

if TYPE_CHECKING:
    from cursor_gateway.store.postgres.keys import KeyTable

_SCHEMES = ("postgresql://", "postgres://")


class OpenableStore(Store, StoreUpkeep, Outbox, Protocol):
    async def open(self, now_ms: int) -> str | None:
        """Optional, for processes that write. Returns a warning, if any.

        Raises `SettingsError` for what only the operator can fix, `StoreUnavailable` for what may be temporary.
        """
        ...


def store_of(settings: Settings, directory: Path) -> OpenableStore:
    """In this folder, unless the settings name a database. Raises `SettingsError`."""
    make_notices = None
    if settings.webhooks:
        from cursor_gateway.webhooks.messages import Announcer

        make_notices = Announcer(settings.webhooks, settings.page_url, lambda: time_ns() // 1_000_000)
    if url := database_url(settings):
        from cursor_gateway.store.postgres.store import PostgresStore

        return PostgresStore(url, make_notices)
    from cursor_gateway.store.sqlite.store import SqliteStore

    return SqliteStore(directory, make_notices)


def database_url(settings: Settings) -> str:
    """Empty: the history is in a file. It may contain a password. Raises `SettingsError`."""
    if not settings.store or not settings.history:
        return ""
    if not settings.store.startswith(_SCHEMES):
        raise SettingsError(
            "the setting `store` is not the URL of a PostgreSQL database; "
            "write `postgresql://user@host/database`, or remove it to keep the history in a file.",
            param="store",
        )
    if _at_signs(settings.store) > 1:  # PostgreSQL would take a part of the password for the host, and report it
        raise SettingsError(
            "the setting `store` has a character in its user name or password that must be percent-encoded, "
            "such as `%40` for `@` and `%2F` for `/`.",
            param="store",
        )
    if find_spec("psycopg") is None:
        raise SettingsError(
            "`store` needs the package psycopg; run `pipx install --force '.[postgres]'` in cursor-gateway's folder.",
            param="store",
        )
    return settings.store


def _at_signs(url: str) -> int:
    """One after the beginning, where it ends the password, counts twice."""
    authority, *rest = re.split("[/?#]", url.partition("://")[2], maxsplit=1)
    return authority.count("@") + 2 * "".join(rest).count("@")


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
    await _refresh_keys(ring, table)
    task = asyncio.get_running_loop().create_task(_keep_keys(ring, table))
    try:
        yield ring
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await table.close()


async def _keep_keys(ring: KeyRing, table: "KeyTable") -> None:
    while True:
        await asyncio.sleep(_REFRESH_SECONDS)
        await _refresh_keys(ring, table)


async def _refresh_keys(ring: KeyRing, table: "KeyTable") -> None:
    with suppress(StoreUnavailable):  # then nothing else can be read or started either
        found = await table.valid()
        ring.replace_stored(found.owners, has_any=found.has_any)
