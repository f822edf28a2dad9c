"""The tables of the database: which version they have, and the migrations that bring them up to date.

Migrations run one at a time, under an advisory lock, each in its own transaction. None waits long for a table: gateways
that use it would wait as well.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
from psycopg import errors

from cursor_gateway.errors import SettingsError
from cursor_gateway.store.cluster import LEVEL
from cursor_gateway.store.postgres.connections import PostgresConnection, connect, why
from cursor_gateway.store.sql import Migration, migrations_of

_LOCK = 0x43_47_48_02  # of migrations; CGH and a number
_VERSIONS = """
    CREATE TABLE IF NOT EXISTS cursor_gateway_migrations (
        number integer PRIMARY KEY, name text NOT NULL, applied timestamptz NOT NULL DEFAULT now()
    )
"""
_OLDEST_SERVER = 15


def newest() -> int:
    """The number of the last migration."""
    return len(migrations_of(__package__))


async def version(connection: PostgresConnection) -> int:
    """0: it has no tables of ours."""
    try:
        found = await connection.execute("SELECT coalesce(max(number), 0) FROM cursor_gateway_migrations")
    except errors.UndefinedTable:
        return 0
    row = await found.fetchone()
    assert row is not None
    return int(row[0])


async def check(connection: PostgresConnection) -> None:
    """Raises `SettingsError` unless this version of the gateway can use the database as it is."""
    check_server(connection)
    found, known = await version(connection), newest()
    if found < known:
        problem = f"has format {found}, and this version needs {known}" if found else "has no history yet"
        raise SettingsError(f"the database {problem}; run `cursor-gateway migrate`.", param="store")
    if found > known and await _level(connection) > LEVEL:
        raise SettingsError(
            f"the database was migrated by a newer cursor-gateway (format {found}, this version supports {known}); "
            "upgrade again.",
            param="store",
        )


async def _level(connection: PostgresConnection) -> int:
    """The oldest protocol whose processes can use the tables: most migrations only add to them."""
    try:
        row = await (await connection.execute("SELECT max(level) FROM cluster")).fetchone()
    except errors.UndefinedTable:
        return LEVEL + 1
    return LEVEL + 1 if row is None or row[0] is None else int(row[0])


async def look(url: str) -> tuple[str, int]:
    """The server and the database, for people, and the version of the tables. Raises as `missing` does."""
    async with connected(url) as connection:
        info = connection.info
        major, minor = divmod(info.server_version, 10_000)
        return f"PostgreSQL {major}.{minor} at {info.host}, database {info.dbname}", await version(connection)


async def missing(url: str) -> list[Migration]:
    """Those that `migrate` would apply. Raises as `check` does for a newer database, or `StoreUnavailable`."""
    async with connected(url) as connection:
        return await _missing(connection)


async def migrate(url: str) -> list[Migration]:
    """Applies what is missing, and returns it."""
    applied = []
    async with connected(url) as connection:
        await connection.execute("SET lock_timeout = '60s'")  # another process may migrate at the same time
        await connection.execute("SELECT pg_advisory_lock(%s)", [_LOCK])
        await connection.execute("SET lock_timeout = '2s'")
        await connection.execute("SET statement_timeout = 0")
        for migration in await _missing(connection):
            async with connection.transaction():
                await connection.execute(_VERSIONS)
                await connection.execute(migration.script)
                await connection.execute(
                    "INSERT INTO cursor_gateway_migrations (number, name) VALUES (%s, %s)",
                    [migration.number, migration.name],
                )
            applied.append(migration)
    return applied


async def _missing(connection: PostgresConnection) -> list[Migration]:
    found = await version(connection)
    if found > newest():
        await check(connection)
    return list(migrations_of(__package__)[found:])


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[PostgresConnection]:
    try:
        connection = await connect(url)
        try:
            check_server(connection)
            yield connection
        finally:
            await connection.close()
    except errors.DuplicateTable as error:
        raise SettingsError(
            "the database has tables of another program with the same names; use a database of its own.",
            param="store",
        ) from error
    except psycopg.Error as error:
        raise why(error) from error


def check_server(connection: PostgresConnection) -> None:
    """Raises `SettingsError` for a server that cannot hold a history."""
    if connection.info.server_version < _OLDEST_SERVER * 10_000:
        raise SettingsError(f"the database server is too old; PostgreSQL {_OLDEST_SERVER} is needed.", param="store")
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise SettingsError(f"the database has the encoding {encoding}; create one with UTF8.", param="store")
