"""Schedules in; their requests in the queue, out, each at its time.

The next request of each schedule waits in the queue, with a key that names the schedule and the time. So one of several
processes puts it there, and it starts once, whoever dies: late, if nobody was there at its time. The one after it
follows when that one has ended, or at once if runs of the schedule may overlap; the times in between are skipped.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from cursor_gateway.errors import GatewayError, StoreUnavailable
from cursor_gateway.model.messages import UserMessage
from cursor_gateway.runs.repeats import body_hash
from cursor_gateway.runs.run_service import RunRequest, RunService
from cursor_gateway.schedules import Schedule
from cursor_gateway.store.queue import NamedWork

_KEY = "\x1fschedule "  # not printable, so no `Idempotency-Key` of a caller looks like it
_TIME = "%Y-%m-%dT%H:%MZ"
_MARGIN = timedelta(seconds=5)  # other processes must see a request in the queue before it is due
_FURTHEST = timedelta(days=365)  # a request may wait for about a year
_LOOK_SECONDS, _BUSY_SECONDS = 60.0, 5.0  # between looks, and while a run is active


class Scheduler:
    def __init__(
        self,
        service: RunService,
        schedules: Mapping[str, Schedule],
        owner: str,
        report: Callable[[str, Exception], None],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`owner`: of schedules without a key. `report` gets the name of a schedule whose request cannot be queued."""
        self._service, self._schedules, self._owner = service, schedules, owner
        self._report, self._now = report, now
        self._times = {name: schedule.times() for name, schedule in schedules.items()}

    async def run(self) -> None:
        """Does not return."""
        is_checked = False
        while True:
            seconds = _LOOK_SECONDS
            try:
                if not is_checked:
                    await self.withdraw_others()
                    is_checked = True
                seconds = await self.look()
            except StoreUnavailable:  # which is reported elsewhere
                pass
            except Exception as error:  # noqa: BLE001 -- reported; the next times must not wait for the next start
                self._report("", error)
            await asyncio.sleep(seconds)

    async def withdraw_others(self) -> None:
        """Those that are not due, and not as the settings have them now."""
        for work in await self._service.work.named(_KEY):
            name, due = _read_key(work.key)
            if work.state == "waiting" and due > self._now():
                schedule = self._schedules.get(name)
                asked = None if schedule is None else self._request(name, schedule, due)
                if asked is None or (asked.owner, body_hash(asked)) != (work.owner, work.body_hash):
                    await self._service.work.forget(work.run_id, work.owner)

    async def look(self) -> float:
        """Puts into the queue what is missing there. Returns when to look again, in seconds."""
        seconds, found = _LOOK_SECONDS, await self._service.work.named(_KEY)
        for name, schedule in self._schedules.items():
            owner = schedule.key or self._owner
            works = [work for work in found if work.owner == owner and _read_key(work.key)[0] == name]
            seconds = min(seconds, await self._look_at(name, schedule, works))
        return seconds

    async def _look_at(self, name: str, schedule: Schedule, works: Sequence[NamedWork]) -> float:
        now = self._now()
        dues = [_read_key(work.key)[1] for work in works]
        later = [due for work, due in zip(works, dues, strict=True) if work.state == "waiting" and due > now]
        if not later:
            if not schedule.overlaps and any(work.state != "failed" for work in works):
                return _BUSY_SECONDS
            due = self._times[name].after(max([now + _MARGIN, *dues]))
            if due is None or due - now > _FURTHEST:
                return _LOOK_SECONDS
            try:
                await self._service.take(self._request(name, schedule, due))
            except StoreUnavailable:
                raise
            except GatewayError as error:
                self._report(name, error)
                return _LOOK_SECONDS
            later = [due]
        return max(0.0, (min(later) - now).total_seconds()) + 1

    def _request(self, name: str, schedule: Schedule, due: datetime) -> RunRequest:
        return RunRequest(
            messages=[UserMessage(schedule.message)],
            model=schedule.model,
            mode=schedule.mode,
            workspace=schedule.workspace,
            source=schedule.source,
            needs=schedule.needs,
            priority=schedule.priority,
            when_client_leaves="finish",
            run_at=due.isoformat(),
            queues=True,
            owner=schedule.key or self._owner,
            client=f"schedule {name}",
            idempotency_key=f"{_KEY}{name} {due.strftime(_TIME)}",
            body=msgspec.json.encode(schedule),
        )


def schedule_of(key: str | None) -> str:
    """The name in the key of a request. Empty: it is not of a schedule."""
    return _read_key(key)[0] if key is not None and key.startswith(_KEY) else ""


def _read_key(key: str) -> tuple[str, datetime]:
    """A caller's key may look like one of a schedule."""
    name, _, due = key.removeprefix(_KEY).partition(" ")
    try:
        return name, datetime.strptime(due, _TIME).replace(tzinfo=UTC)
    except ValueError:
        return "", datetime.min.replace(tzinfo=UTC)
