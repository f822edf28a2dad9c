"""A request that is sent again and again, as the operator sets it; and cron expressions: the times at which it is due.

The five fields are minute, hour, day of the month, month and day of the week, with names, lists, ranges and steps. If
both days are restricted, either is enough, as in Vixie's cron. Times are those of a clock on the wall. One that the
clock skips is due as much later as the clock skips. One that it shows twice is due the first time, or both times if the
hour begins with `*`.
"""

from collections.abc import Iterator, Sequence, Set
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from cursor_gateway.model.documents import Mode
from cursor_gateway.model.requests import Labels, NonEmpty, Priority

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FURTHEST = timedelta(days=8 * 366)  # the century may skip a 29 February
_MOST_SHIFTED = timedelta(hours=3)  # by which clocks are put forward or back


class Cron(Struct, frozen=True, kw_only=True):
    """Made by `read_cron`."""

    minutes: Sequence[int]
    hours: Sequence[int]
    days: Set[int]
    months: Set[int]
    weekdays: Set[int]  # from 0, Sunday
    is_any_hour: bool  # the field begins with `*`
    needs_both: bool  # days: one of the fields, at least, begins with `*`
    zone: "ZoneInfo"

    def after(self, moment: datetime) -> datetime | None:
        """The first time after this one, in UTC. None: none in eight years."""
        first, least = None, moment.astimezone(self.zone).replace(tzinfo=None) - _MOST_SHIFTED
        for wall in self._walls(least):
            if first is not None and wall - first[0] > _MOST_SHIFTED:
                break  # what a clock shows earlier may come later, but not by more
            for due in self._moments(wall):
                if due > moment and (first is None or due < first[1]):
                    first = wall, due
        return first[1] if first is not None else None

    def _walls(self, least: datetime) -> Iterator[datetime]:
        """What the clock on the wall shows."""
        day = least.replace(hour=0, minute=0, second=0, microsecond=0)
        until = day + _FURTHEST
        while day < until:
            if self._has_day(day):
                for hour in self.hours:
                    walls = (day.replace(hour=hour, minute=minute) for minute in self.minutes)
                    yield from (wall for wall in walls if wall >= least)
            day += timedelta(days=1)

    def _moments(self, wall: datetime) -> Iterator[datetime]:
        yield wall.replace(tzinfo=self.zone).astimezone(UTC)  # of one that is skipped: later by what is skipped
        if self.is_any_hour:
            again = wall.replace(tzinfo=self.zone, fold=1).astimezone(UTC)
            if again.astimezone(self.zone).replace(tzinfo=None, fold=0) == wall:
                yield again

    def _has_day(self, day: datetime) -> bool:
        is_day, is_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return day.month in self.months and ((is_day and is_weekday) if self.needs_both else (is_day or is_weekday))


def read_cron(text: str, zone: str) -> Cron:
    """Raises `ValueError` for what is wrong, or not due within eight years."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # most gateways have no schedules

    fields = text.lower().split()
    if len(fields) != 5:
        raise ValueError(f"{text!r} must have five fields: minute, hour, day of the month, month, day of the week")
    minute, hour, day, month, weekday = fields
    try:
        known = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{zone!r} is not a time zone of this machine, such as `Europe/Berlin`") from None
    cron = Cron(
        minutes=sorted(_field("minute", minute, 0, 59)),
        hours=sorted(_field("hour", hour, 0, 23)),
        days=_field("day of the month", day, 1, 31),
        months=_field("month", month, 1, 12, _MONTHS),
        weekdays={number % 7 for number in _field("day of the week", weekday, 0, 7, _DAYS)},
        is_any_hour=hour.startswith("*"),
        needs_both=day.startswith("*") or weekday.startswith("*"),
        zone=known,
    )
    if cron.after(datetime(2096, 1, 1, tzinfo=UTC)) is None:  # the longest time without a 29 February is after it
        raise ValueError(f"{text!r} is not due within eight years")
    return cron


def _field(what: str, text: str, least: int, most: int, names: Sequence[str] = ()) -> set[int]:
    found = set[int]()
    for part in text.split(","):
        span, _, step = part.partition("/")
        first, dash, last = span.partition("-")
        try:
            low = least if span == "*" else _number(first, least, names)
            ends_open = span == "*" or (bool(step) and not dash)
            high = most if ends_open else _number(last, least, names) if dash else low
            every = _number(step, 1, ()) if "/" in part else 1
        except ValueError:
            raise ValueError(f"{part!r} is not a {what}, a range, or one of them with a step") from None
        if not (least <= low <= high <= most and every >= 1):
            raise ValueError(f"{part!r} is not within {least} and {most}, or ends before it begins, in the {what}")
        found.update(range(low, high + 1, every))
    return found


def _number(text: str, least: int, names: Sequence[str]) -> int:
    if text in names:
        return least + names.index(text)
    if not (text.isascii() and text.isdigit()):
        raise ValueError(text)
    return int(text)


class Schedule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The text in each annotation describes the field for people."""

    cron: Annotated[str, "When: minute, hour, day of the month, month and day of the week, such as `0 2 * * mon-fri`."]
    time_zone: Annotated[str, "Of these times, such as `Europe/Berlin`."] = "UTC"
    message: Annotated[str, Meta(pattern=r"\S"), "The prompt."]
    key: Annotated[str, "The name of the API key whose runs they are; needed if there are API keys."] = ""
    overlaps: Annotated[
        bool, "Whether a run starts while the one before it is active. If not, its time is skipped."
    ] = False
    model: NonEmpty | None = None
    mode: Mode | None = None
    workspace: NonEmpty | None = None
    source: NonEmpty | None = None
    needs: Labels | None = None
    priority: Priority | None = None

    def __post_init__(self) -> None:
        """Raises `ValueError`; msgspec makes it an error of the setting."""
        self.times()

    def times(self) -> Cron:
        return read_cron(self.cron, self.time_zone)
