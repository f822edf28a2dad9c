import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from cursor_gateway.errors import StoreUnavailable
from cursor_gateway.model.document_events import Done, Paused
from cursor_gateway.store.base import ClaimedNotice
from cursor_gateway.store.sqlite.store import SqliteStore
from cursor_gateway.webhooks import delivery, messages
from cursor_gateway.webhooks.delivery import ATTEMPTS, Delivered, deliver, pause_after
from cursor_gateway.webhooks.messages import Announcer
from cursor_gateway.webhooks.webhook import Webhook
from tests.store.making import deltas, envelope, lease, new_run, run_end
from tests.webhooks.receiver import SECRET, receiving

NAME = "hook"


@asynccontextmanager
async def delivering(
    folder: Path, url: str, count: int, *, allow_private: bool = True
) -> AsyncIterator[tuple[SqliteStore, list[Delivered], Callable[[], Awaitable[None]]]]:
    """A store, what became of its notices, and a call that waits for so many attempts."""
    webhook = Webhook(url=url, secret=SECRET, allow_private=allow_private)
    store = SqliteStore(folder, Announcer({NAME: webhook}, "", lambda: 0))
    done, reports = asyncio.Event(), list[Delivered]()

    def report(one: Delivered) -> None:
        reports.append(one)
        if len(reports) >= count:
            done.set()

    async def attempted() -> None:
        await asyncio.wait_for(done.wait(), 60)

    task = asyncio.ensure_future(deliver(store, NAME, webhook, report, look_seconds=0.01))
    try:
        yield store, reports, attempted
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await store.close()


async def finish(store: SqliteStore, run: str = "run") -> None:
    await store.begin_run(new_run(run, f"conv-{run}"))
    await store.append(lease(run), 1, [*deltas(1), Done(envelope(run))], run_end(run))


async def wait(store: SqliteStore, *, goes_on: bool = False) -> None:
    await store.begin_run(new_run())
    await store.append(lease(), 1, [Paused(envelope(status="streaming"), goes_on=goes_on)])


async def test_a_message_is_delivered_once_and_signed(tmp_path: Path) -> None:
    with receiving() as receiver:
        async with delivering(tmp_path, receiver.url, 2) as (store, reports, attempted):
            await finish(store, "a")
            await finish(store, "b")
            await attempted()
            assert await store.claim_notices(NAME, 9, 1) == []
    assert {(one.result, one.attempts, one.run) for one in reports} == {("delivered", 1, "a"), ("delivered", 1, "b")}
    assert {one.id for one in receiver.received} == {"msg_a_end", "msg_b_end"}
    assert all(one.verified()["type"] == "run.finished" for one in receiver.received)


async def test_what_was_not_accepted_is_sent_again_with_the_same_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "_FIRST_SECONDS", 0.0)
    with receiving("500", "302", "404", "200") as receiver:
        async with delivering(tmp_path, receiver.url, 4) as (store, reports, attempted):
            await finish(store)
            await attempted()
    assert [(one.result, one.attempts, one.reason) for one in reports] == [
        ("failed", 1, "status 500"),
        ("failed", 2, "status 302"),
        ("failed", 3, "status 404"),
        ("delivered", 4, ""),
    ]
    assert [one.id for one in receiver.received] == ["msg_run_end"] * 4
    assert len({one.body for one in receiver.received}) == 1


async def test_a_message_is_given_up_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "_FIRST_SECONDS", 0.0)
    with receiving() as receiver:
        async with delivering(tmp_path, receiver.url, ATTEMPTS, allow_private=False) as (store, reports, attempted):
            await finish(store)
            await attempted()
            assert await store.claim_notices(NAME, 9, 1) == []
    assert [one.result for one in reports] == ["failed"] * (ATTEMPTS - 1) + ["dead"]
    assert "private" in reports[-1].reason
    assert not receiver.received


async def test_a_receiver_that_is_gone_is_not_asked_again(tmp_path: Path) -> None:
    with receiving("410") as receiver:
        async with delivering(tmp_path, receiver.url, 1) as (store, reports, attempted):
            await finish(store)
            await attempted()
    (report,) = reports
    assert (report.result, report.reason) == ("dead", "status 410")


async def test_a_receiver_may_ask_for_a_longer_pause(tmp_path: Path) -> None:
    with receiving("429 retry-after: 3600", "503 retry-after: 99999999") as receiver:
        async with delivering(tmp_path, receiver.url, 2) as (store, reports, attempted):
            await finish(store, "a")
            await finish(store, "b")
            await attempted()
            assert await store.claim_notices(NAME, 9, 1) == []  # not due yet
    assert sorted(one.next_seconds for one in reports) == [3600, 24 * 3600]


def test_pauses_grow_up_to_a_limit() -> None:
    pauses = [pause_after(attempt, 1.0) for attempt in range(1, ATTEMPTS)]
    assert pauses[:4] == [5, 20, 80, 320]
    assert pauses == sorted(pauses)
    assert 12 * 3600 < sum(pauses) < 48 * 3600
    assert pause_after(1, 0.75) == 3.75


@pytest.mark.parametrize("goes_on", [False, True])
async def test_a_run_that_waits_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goes_on: bool) -> None:
    monkeypatch.setattr(messages, "WAITING_MS", 0)
    with receiving() as receiver:
        async with delivering(tmp_path, receiver.url, 1) as (store, reports, attempted):
            await wait(store, goes_on=goes_on)
            await attempted()
    (report,) = reports
    assert report.result == "delivered"
    assert [one.verified()["type"] for one in receiver.received] == ["run.waiting"]


@pytest.mark.parametrize(("goes_on", "result"), [(False, "outdated"), (True, "delivered")])
def test_only_a_run_that_stands_still_is_outdated_by_its_next_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goes_on: bool, result: str
) -> None:
    monkeypatch.setattr(messages, "WAITING_MS", 0)

    async def live(url: str) -> str:
        store = SqliteStore(tmp_path, Announcer({NAME: Webhook(url=url, allow_private=True)}, "", lambda: 0))
        await wait(store, goes_on=goes_on)
        await store.append(lease(), 2, deltas(1))
        await store.close()
        async with delivering(tmp_path, url, 1) as (_, reports, attempted):
            await attempted()
            return reports[0].result

    with receiving() as receiver:
        assert asyncio.run(live(receiver.url)) == result


def test_a_run_that_has_ended_waits_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "WAITING_MS", 0)

    async def live(url: str) -> set[tuple[str, str]]:
        store = SqliteStore(tmp_path, Announcer({NAME: Webhook(url=url, allow_private=True)}, "", lambda: 0))
        await wait(store, goes_on=True)
        await store.append(lease(), 2, [Done(envelope())], run_end())
        await store.close()
        async with delivering(tmp_path, url, 2) as (_, reports, attempted):
            await attempted()
            return {(one.id, one.result) for one in reports}

    with receiving() as receiver:
        assert asyncio.run(live(receiver.url)) == {("msg_run_1", "outdated"), ("msg_run_end", "delivered")}


async def test_a_store_that_fails_delays_what_is_to_be_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what it did not note is sent again."""
    claims, removals = list[str](), list[str]()
    claim, remove = SqliteStore.claim_notices, SqliteStore.remove_notice

    async def claiming(self: SqliteStore, webhook: str, limit: int, lease_ms: int) -> list[ClaimedNotice]:
        claims.append(webhook)
        if len(claims) < 3:
            raise StoreUnavailable("down")
        return await claim(self, webhook, limit, 0)

    async def removing(self: SqliteStore, webhook: str, id: str) -> None:
        removals.append(id)
        if len(removals) < 2:
            raise StoreUnavailable("down")
        await remove(self, webhook, id)

    monkeypatch.setattr(SqliteStore, "claim_notices", claiming)
    monkeypatch.setattr(SqliteStore, "remove_notice", removing)
    with receiving() as receiver:
        async with delivering(tmp_path, receiver.url, 2) as (store, reports, attempted):
            await finish(store)
            await attempted()
    assert [(one.result, one.attempts) for one in reports] == [("delivered", 1), ("delivered", 2)]
    assert [one.id for one in receiver.received] == ["msg_run_end"] * 2
