"""The link to the database: it passes everything on, until it is cut, slow, reset, or loses notifications."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import AsyncConnection

from nemesis.link import Link, Loss
from tests.postgres import Databases

pytestmark = pytest.mark.slow  # tests of a tool

_SECONDS = 60


def _run(test: Awaitable[None]) -> None:
    asyncio.run(asyncio.wait_for(test, _SECONDS))


@asynccontextmanager
async def _linked(postgres: Databases) -> AsyncIterator[tuple[Link, str]]:
    link = Link(Path(postgres.server.folder) / ".s.PGSQL.5432")
    port = await link.start()
    yield link, f"postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=disable&gssencmode=disable"
    await link.close()


async def _value(connection: "AsyncConnection[tuple[object, ...]]") -> object:
    row = await (await connection.execute("SELECT repeat('x', 300000)")).fetchone()
    assert row is not None
    return row[0]


async def test_it_passes_on_and_when_cut_nothing_arrives_until_it_is_mended(postgres: Databases) -> None:
    async with _linked(postgres) as (link, url), await AsyncConnection.connect(url, autocommit=True) as connection:
        assert await _value(connection) == "x" * 300_000
        link.delay = 0.01
        assert await _value(connection) == "x" * 300_000
        link.cut()
        late = asyncio.create_task(_value(connection))
        connecting = asyncio.create_task(AsyncConnection.connect(url))
        await asyncio.sleep(0.2)
        assert not late.done()
        assert not connecting.done()
        link.mend()
        assert await late == "x" * 300_000
        await (await connecting).close()


async def test_notifications_can_be_lost_alone(postgres: Databases) -> None:
    async with _linked(postgres) as (link, url), await AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute("LISTEN hints")
        link.loses_notifications = True
        await connection.execute("NOTIFY hints, 'lost'")
        assert await _value(connection)
        link.loses_notifications = False
        await connection.execute("NOTIFY hints, 'heard'")
        heard = [notify.payload async for notify in connection.notifies(timeout=5, stop_after=1)]
        assert heard == ["heard"]
        assert link.lost == 1


async def test_a_reset_ends_all_connections_and_new_ones_work(postgres: Databases) -> None:
    async with _linked(postgres) as (link, url):
        connection = await AsyncConnection.connect(url, autocommit=True)
        link.reset()
        with pytest.raises(psycopg.OperationalError):
            await _value(connection)
        async with await AsyncConnection.connect(url, autocommit=True) as other:
            assert await _value(other)


def test_a_connection_can_be_lost_before_or_after_a_commit(postgres: Databases) -> None:
    async def count(url: str) -> object:
        async with await AsyncConnection.connect(url, autocommit=True) as connection:
            row = await (await connection.execute("SELECT count(*) FROM losses")).fetchone()
            assert row is not None
            return row[0]

    async def test() -> None:
        postgres.server.execute("postgres", "CREATE TABLE losses (number integer)")
        async with _linked(postgres) as (link, url):
            for expected, loss in enumerate((Loss(0, "before"), Loss(0, "after"), Loss(1, "before"), Loss(1, "after"))):
                connection = await AsyncConnection.connect(url, autocommit=True)
                link.losses.append(loss)
                if loss.skip:
                    await connection.execute("SELECT 1")
                with pytest.raises(psycopg.OperationalError):
                    await connection.execute("INSERT INTO losses VALUES (1)")
                assert await count(url) == (expected + 1) // 2
                assert not link.losses

    _run(test())
