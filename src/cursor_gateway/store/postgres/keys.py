"""API keys in the database: names, hashes and limits. The keys themselves are not stored.

A key that is revoked stays as a row: the name keeps its conversations, and `add` gives it another key.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from cursor_gateway.store.postgres.connections import PostgresConnections

_ADD = """
    INSERT INTO api_keys (name, hash, created_ms, max_runs, runs_per_day, tokens_per_day)
    VALUES (%(name)s, %(hash)s, %(now)s, %(max_runs)s, %(runs_per_day)s, %(tokens_per_day)s)
    ON CONFLICT (name) DO UPDATE SET hash = excluded.hash, created_ms = excluded.created_ms, revoked_ms = NULL,
        max_runs = excluded.max_runs, runs_per_day = excluded.runs_per_day, tokens_per_day = excluded.tokens_per_day
    WHERE api_keys.revoked_ms IS NOT NULL OR api_keys.hash = excluded.hash
"""
_REVOKE = "UPDATE api_keys SET revoked_ms = %s WHERE name = %s AND revoked_ms IS NULL"
_LIST = """
    SELECT api_keys.name, created_ms, revoked_ms, max_runs, runs_per_day, tokens_per_day,
        coalesce(runs, 0) AS runs_today, coalesce(tokens, 0) AS tokens_today
    FROM api_keys LEFT JOIN key_usage ON key_usage.name = api_keys.name AND day = (now() AT TIME ZONE 'UTC')::date
    ORDER BY api_keys.name
"""
_ALL = "SELECT hash, name, revoked_ms FROM api_keys"


class KeyLimits(Struct, frozen=True, kw_only=True):
    """None: as much as the gateway's settings allow."""

    max_runs: int | None = None  # at once
    runs_per_day: int | None = None
    tokens_per_day: int | None = None


class KeyEntry(KeyLimits, frozen=True, kw_only=True):
    name: str
    created_ms: int
    revoked_ms: int | None
    runs_today: int
    tokens_today: int


class StoredKeys(Struct, frozen=True):
    owners: Mapping[str, str]  # by the hashes of their keys
    has_any: bool  # including revoked ones


class KeyTable:
    """Every method may raise `StoreUnavailable`."""

    def __init__(self, url: str) -> None:
        self._connections = PostgresConnections(url)

    async def add(self, name: str, hashed: str, limits: KeyLimits, now_ms: int) -> bool:
        """False: the name has a valid key."""
        values = {"name": name, "hash": hashed, "now": now_ms, **msgspec.structs.asdict(limits)}
        return await self._connections.execute(_ADD, values) > 0

    async def revoke(self, name: str, now_ms: int) -> bool:
        """False: the name has no valid key."""
        return await self._connections.execute(_REVOKE, [now_ms, name]) > 0

    async def list(self) -> list[KeyEntry]:
        return msgspec.convert(await self._connections.select(_LIST), list[KeyEntry])

    async def valid(self) -> StoredKeys:
        found = await self._connections.select(_ALL)
        return StoredKeys({row["hash"]: row["name"] for row in found if row["revoked_ms"] is None}, bool(found))

    async def close(self) -> None:
        await self._connections.close()
