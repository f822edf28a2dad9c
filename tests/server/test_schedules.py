"""Requests of schedules: in the queue before their time, once for each time, and not two at once."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from cursor_gateway.schedules import Schedule
from cursor_gateway.server.schedules import Scheduler, schedule_of
from cursor_gateway.store.queue import NamedWork
from tests.cluster.nodes import until
from tests.runs.gateways import Gateway, gateway
from tests.runs.scripted import FINISHED, STARTED, ScriptedSource, forever, say

ME = "me"
HOURLY = Schedule(cron="0 * * * *", message="Tidy up.")
# Long ago: what the scheduler thinks is due soon is due for the queue, whose clock is right.
PAST = datetime(2026, 1, 1, 10, 30, tzinfo=UTC)
# Far ahead: it waits.
AHEAD = datetime.now(UTC).replace(minute=30) + timedelta(days=2)


class Clock:
    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now


class Scheduled:
    """A gateway and its schedules."""

    def __init__(self, gateway: Gateway) -> None:
        self.service = gateway.service
        self.reported: list[tuple[str, str]] = []

    def scheduler(self, clock: Clock, **schedules: Schedule) -> Scheduler:
        def report(name: str, error: Exception) -> None:
            self.reported.append((name, type(error).__name__))

        return Scheduler(self.service, schedules, ME, report, clock)

    async def named(self) -> Sequence[NamedWork]:
        return sorted(await self.service.work.named("\x1fschedule "), key=lambda work: work.key)

    async def states(self) -> list[tuple[str, str]]:
        return [(work.key.removeprefix("\x1fschedule "), work.state) for work in await self.named()]


@asynccontextmanager
async def scheduled(folder: Path, source: ScriptedSource, name: str = "one") -> AsyncIterator[Scheduled]:
    async with gateway(folder, source, name) as made:
        yield Scheduled(made)


def answering() -> ScriptedSource:
    return ScriptedSource([[STARTED, *say("done"), FINISHED]])


def key(name: str, due: datetime) -> str:
    return f"{name} {due:%Y-%m-%dT%H:00Z}"


async def test_the_next_request_waits_in_the_queue(tmp_path: Path) -> None:
    async with scheduled(tmp_path, answering()) as one:
        scheduler, hour = one.scheduler(Clock(AHEAD), tidy=HOURLY), AHEAD.replace(minute=0) + timedelta(hours=1)
        seconds = await scheduler.look()
        await scheduler.look()
        assert await one.states() == [(key("tidy", hour), "waiting")]
        assert 0 < seconds <= 60
        (entry,) = await one.service.work.entries(ME, 9)
        assert (schedule_of(entry.key), entry.is_scheduled, entry.about.prompt) == ("tidy", True, "Tidy up.")
        assert datetime.fromtimestamp(entry.due_ms / 1000, UTC) == hour.replace(second=0, microsecond=0)


async def test_it_starts_once_whoever_schedules_it(tmp_path: Path) -> None:
    source, clock = answering(), Clock(PAST)
    async with scheduled(tmp_path, source, "one") as one, scheduled(tmp_path, source, "two") as two:
        schedulers = [each.scheduler(clock, tidy=HOURLY) for each in (one, two, one, two)]
        for hours in range(3):
            clock.now = PAST + timedelta(hours=hours)
            await asyncio.gather(*(scheduler.look() for scheduler in schedulers))
            while await one.named():
                await asyncio.sleep(0.01)
        assert len(source.turns) == 3
        assert not one.reported
        assert not two.reported


async def test_times_at_which_a_run_is_active_are_skipped(tmp_path: Path) -> None:
    source, clock = ScriptedSource([[STARTED, *say("partial")], forever()]), Clock(PAST)
    async with scheduled(tmp_path, source) as one:
        scheduler = one.scheduler(clock, tidy=HOURLY)
        await scheduler.look()
        await until(lambda: len(source.turns) == 1)
        clock.now = PAST + timedelta(hours=3)
        assert await scheduler.look() < 60  # it looks for the end
        ((_, state),) = await one.states()
        assert state == "running"
        restarted = one.scheduler(clock, tidy=HOURLY)
        await restarted.look()
        assert len(await one.named()) == 1
        (work,) = await one.named()
        await one.service.cancel(work.run_id, ME)
        while await one.named():
            await asyncio.sleep(0.01)
        await scheduler.look()
        await until(lambda: len(source.turns) == 2)
        ((which, _),) = await one.states()
        assert which == key("tidy", PAST + timedelta(hours=4))


async def test_runs_overlap_if_that_is_wanted(tmp_path: Path) -> None:
    source, clock = ScriptedSource([[STARTED], forever()]), Clock(PAST)
    async with scheduled(tmp_path, source) as one:
        scheduler = one.scheduler(clock, tidy=replace(HOURLY, overlaps=True))
        for hours in range(2):
            clock.now = PAST + timedelta(hours=hours)
            await scheduler.look()
        await until(lambda: len(source.turns) == 2)
        assert [state for _, state in await one.states()] == ["running", "running"]


async def test_a_time_that_was_cancelled_is_not_put_back(tmp_path: Path) -> None:
    async with scheduled(tmp_path, answering()) as one:
        scheduler = one.scheduler(Clock(AHEAD), tidy=HOURLY)
        await scheduler.look()
        (work,) = await one.named()
        await one.service.cancel(work.run_id, ME)
        await one.scheduler(Clock(AHEAD), tidy=HOURLY).look()
        hour = AHEAD.replace(minute=0)
        assert await one.states() == [
            (key("tidy", hour + timedelta(hours=1)), "failed"),
            (key("tidy", hour + timedelta(hours=2)), "waiting"),
        ]


async def test_what_the_settings_no_longer_have_is_withdrawn(tmp_path: Path) -> None:
    async with scheduled(tmp_path, answering()) as one:
        clock = Clock(AHEAD)
        await one.scheduler(clock, gone=HOURLY, same=HOURLY, changed=HOURLY).look()
        before = {schedule_of(work.key): work.run_id for work in await one.named()}
        restarted = one.scheduler(clock, same=HOURLY, changed=replace(HOURLY, message="Tidy more."))
        await restarted.withdraw_others()
        await restarted.look()
        after = {schedule_of(work.key): work.run_id for work in await one.named()}
        assert set(after) == {"same", "changed"}
        assert after["same"] == before["same"]
        assert after["changed"] != before["changed"]


async def test_a_request_that_cannot_be_queued_is_reported_and_tried_again(tmp_path: Path) -> None:
    async with scheduled(tmp_path, answering()) as one:
        names = ["a", "b", "c", "d", "elsewhere"]
        schedules = dict.fromkeys(names, HOURLY) | {"elsewhere": replace(HOURLY, workspace="/nowhere")}
        scheduler = one.scheduler(Clock(AHEAD), **schedules)
        await scheduler.look()
        assert one.reported == [("d", "QueueFull"), ("elsewhere", "WorkspaceForbidden")]
        (first, *_) = await one.named()
        await one.service.work.forget(first.run_id, ME)
        await scheduler.look()
        assert [schedule_of(work.key) for work in await one.named()] == ["a", "b", "c"]


async def test_a_time_years_ahead_is_not_in_the_queue_yet(tmp_path: Path) -> None:
    async with scheduled(tmp_path, answering()) as one:
        leap = Schedule(cron="0 0 29 2 *", message="Leap.")
        assert await one.scheduler(Clock(datetime(2097, 1, 1, tzinfo=UTC)), leap=leap).look() == 60
        assert not await one.named()
        assert not one.reported


async def test_one_key_has_nothing_of_anothers(tmp_path: Path) -> None:
    """A caller may choose a key that looks like one of a schedule."""
    async with scheduled(tmp_path, answering()) as one:
        clock = Clock(AHEAD)
        await one.scheduler(clock, tidy=replace(HOURLY, key="other")).look()
        await one.scheduler(clock, tidy=HOURLY).look()
        assert {work.owner for work in await one.named()} == {ME, "other"}


@pytest.mark.parametrize(
    "key",
    [None, "", "mine", "\x1fschedule ", "\x1fschedule x", "\x1fschedule x yesterday", "schedule x 2027-01-01T00:00Z"],
)
def test_other_keys_are_of_no_schedule(key: str | None) -> None:
    assert schedule_of(key) == ""
