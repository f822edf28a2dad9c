"""Notices are stored with what they are about, claimed by one process at a time, and gone when they are delivered; and
usage is counted once. In a file and in PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest

from cursor_gateway.model.document_events import DocumentEvent, Done, Paused
from cursor_gateway.store.base import DayUsage, HistoryLimits, MakeNotices, Notice, RunNews
from cursor_gateway.store.postgres.store import PostgresStore
from cursor_gateway.store.sql import SqlStore
from cursor_gateway.store.sqlite.opening import FILE
from cursor_gateway.store.sqlite.store import SqliteStore
from tests.postgres import Databases
from tests.store.making import DAY_MS, ME, YOU, deltas, envelope, lease, new_run, run_end

HOOK, MINUTE = "hook", 60_000
PAUSED: Sequence[DocumentEvent] = [*deltas(1, 2), Paused(envelope(status="streaming"))]


def announce(news: RunNews) -> list[Notice]:
    id = f"{news.envelope.id}-{news.number or 'end'}"
    body = f"{news.owner} {news.envelope.status} {news.failure_code}".encode()
    return [Notice(webhook=HOOK, id=id, body=body, number=news.number)]


Open = Callable[[MakeNotices | None], SqlStore]


@pytest.fixture(params=["sqlite", "postgres"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    engine: Literal["sqlite", "postgres"] = request.param
    if engine == "sqlite":
        return lambda make: SqliteStore(tmp_path, make)
    databases: Databases = request.getfixturevalue("postgres")
    url = databases.emptied()
    return lambda make: PostgresStore(url, make)


@asynccontextmanager
async def living(open: Open, make: MakeNotices | None = announce) -> AsyncIterator[SqlStore]:
    store = open(make)
    try:
        yield store
    finally:
        await store.close()


async def claimed(store: SqlStore, lease_ms: int = MINUTE) -> list[tuple[str, str, int]]:
    found = await store.claim_notices(HOOK, 10, lease_ms)
    return sorted((one.id, one.body.decode(), one.attempts) for one in found)


async def test_a_run_that_ends_or_waits_leaves_notices(open_store: Open) -> None:
    async with living(open_store) as store:
        await store.begin_run(new_run("a", "conv-a"), PAUSED)
        await store.append(lease("a"), 4, [*deltas(3), Paused(envelope("a", "streaming"))])
        await store.begin_run(new_run("b", "conv-b", owner=YOU))
        await store.append(lease("b"), 1, [Done(envelope("b"))], run_end("b"))
        await store.begin_run(new_run("c", "conv-c"))
        await store.append(lease("c"), 1, [Done(envelope("c", "error"))], run_end("c", status="error"))
        assert await claimed(store) == [
            ("a-5", "me streaming None", 1),
            ("b-end", "you completed None", 1),
            ("c-end", "me error agent_crashed", 1),
            ("run-3", "me streaming None", 1),
        ]


async def test_without_webhooks_there_are_none(open_store: Open) -> None:
    async with living(open_store, None) as store:
        await store.begin_run(new_run(), PAUSED)
        await store.append(lease(), 4, [Done(envelope())], run_end())
        assert await claimed(store) == []


async def test_what_is_stored_again_is_one_notice(open_store: Open) -> None:
    async with living(open_store) as store:
        await store.begin_run(new_run())
        for _ in range(2):
            await store.append(lease(), 1, PAUSED)
        for _ in range(2):
            await store.append(lease(), 4, [Done(envelope())], run_end())
        assert [id for id, _, _ in await claimed(store)] == ["run-3", "run-end"]


async def test_a_notice_survives_the_process_that_stored_it(open_store: Open) -> None:
    """Nothing is closed in between, as if it had been killed: also of a run whose file nobody has moved yet."""
    killed = open_store(announce)
    await killed.begin_run(new_run(), deltas(1))
    await killed.append(lease(), 2, [Done(envelope())], run_end())
    other = open_store(announce)
    if isinstance(other, SqliteStore):
        await other.open(0)
    assert await claimed(other) == [("run-end", "me completed None", 1)]
    await other.close()
    await killed.close()


async def test_a_notice_is_claimed_by_one_process_until_its_time_is_over(open_store: Open) -> None:
    async with living(open_store) as store:
        for number in range(6):
            await store.begin_run(new_run(f"run{number}", f"conv{number}"))
            await store.append(lease(f"run{number}"), 1, [Done(envelope(f"run{number}"))], run_end(f"run{number}"))
        other = open_store(announce)
        claims = await asyncio.gather(*(one.claim_notices(HOOK, 2, MINUTE) for one in (store, other) * 3))
        notices = [notice for some in claims for notice in some]
        ids = [notice.id for notice in notices]
        assert sorted(ids) == sorted(set(ids)) == [f"run{number}-end" for number in range(6)]
        assert await claimed(other) == []
        await other.put_off_notice(HOOK, notices[0], 0)
        assert await claimed(store, 0) == [(ids[0], "me completed None", 2)]
        assert await claimed(other) == [(ids[0], "me completed None", 3)]  # its time was over
        await store.put_off_notice(HOOK, notices[0], 0)  # claimed by another since
        assert await claimed(store) == []
        for id in ids:
            await other.remove_notice(HOOK, id)
        await other.close()


async def test_a_notice_may_be_due_later_and_is_for_its_webhook_alone(open_store: Open) -> None:
    def later(news: RunNews) -> list[Notice]:
        return [
            Notice(webhook=HOOK, id="later", body=b"", delay_ms=MINUTE),
            Notice(webhook="others", id="now", body=b""),
        ]

    async with living(open_store, later) as store:
        await store.begin_run(new_run())
        await store.append(lease(), 1, [Done(envelope())], run_end())
        assert await claimed(store) == []
        assert [one.id for one in await store.claim_notices("others", 9, MINUTE)] == ["now"]


async def test_what_nobody_wants_is_removed_after_a_week(open_store: Open) -> None:
    async with living(open_store) as store:
        for number in range(2):
            await store.begin_run(new_run(f"run{number}", f"conv{number}"))
            await store.append(lease(f"run{number}"), 1, [Done(envelope(f"run{number}"))], run_end(f"run{number}"))
        (first, _) = await store.claim_notices(HOOK, 2, 0)
        await store.put_off_notice(HOOK, first, -8 * DAY_MS)
        await store.prune(HistoryLimits(), 0)
        assert [id for id, _, _ in await claimed(store)] == [{"run0-end": "run1-end"}.get(first.id, "run0-end")]


async def test_usage_is_summed_by_day_and_model_and_outlives_conversations(open_store: Open) -> None:
    async with living(open_store) as store:
        for number, (owner, at) in enumerate([(ME, 1000), (ME, 2000), (ME, DAY_MS), (YOU, 1000)]):
            id = f"run{number}"
            await store.begin_run(new_run(id, f"conv{number}", owner=owner, at=at))
            await store.append(lease(id), 1, [Done(envelope(id))], run_end(id, at=at))
        assert await store.delete_conversation("conv0", ME)
        one, two = (
            DayUsage(
                day=day,
                model="opus",
                runs=runs,
                prompt_tokens=5 * runs,
                completion_tokens=6 * runs,
                cached_tokens=2 * runs,
            )
            for day, runs in (("1970-01-02", 1), ("1970-01-01", 2))
        )
        assert await store.usage(ME, "1970-01-01") == [one, two]
        assert await store.usage(ME, "1970-01-02") == [one]
        assert await store.usage("nobody", "1970-01-01") == []


async def test_a_damaged_file_keeps_its_usage_and_notices(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path, announce)
    await store.open(0)
    for number in range(40):
        await store.begin_run(new_run(f"run{number}", f"conv{number}", "word " * 400))
        await store.append(lease(f"run{number}"), 1, [Done(envelope(f"run{number}"))], run_end(f"run{number}"))
    await store.close()
    path = tmp_path / FILE
    data = bytearray(path.read_bytes())
    data[:16] = bytes(16)
    path.write_bytes(data)
    mended = SqliteStore(tmp_path, announce)
    assert "recovered" in (await mended.open(0) or "")
    assert [one.runs for one in await mended.usage(ME, "1970-01-01")] == [40]
    assert len(await mended.claim_notices(HOOK, 100, 0)) == 40
    await mended.close()
