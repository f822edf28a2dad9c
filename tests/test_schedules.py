"""Cron expressions against a clock that is looked at every minute."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from cursor_gateway.schedules import Cron, read_cron

MINUTE = timedelta(minutes=1)
NAMES = {"jan": 1, "dec": 12, "sun": 0, "fri": 5}


def matches(field: str, value: int, least: int, most: int) -> bool:
    """As crontab(5) says it."""
    for part in field.split(","):
        span, _, step = part.partition("/")
        low, _, high = span.partition("-")
        first = least if low == "*" else NAMES.get(low, -1) if low.isalpha() else int(low)
        last = int(high) if high else most if low == "*" or step else first
        if first <= value <= last and (value - first) % int(step or 1) == 0:
            return True
    return False


def is_shown(text: str, wall: datetime) -> bool:
    minute, hour, day, month, weekday = text.split()
    is_day = matches(day, wall.day, 1, 31)
    number = wall.isoweekday() % 7
    is_weekday = matches(weekday, number, 0, 7) or (number == 0 and matches(weekday, 7, 0, 7))
    is_either = not (day.startswith("*") or weekday.startswith("*"))
    return (
        matches(minute, wall.minute, 0, 59)
        and matches(hour, wall.hour, 0, 23)
        and matches(month, wall.month, 1, 12)
        and ((is_day or is_weekday) if is_either else (is_day and is_weekday))
    )


def slowly_due(text: str, cron: Cron, since: datetime, until: datetime) -> Iterator[datetime]:
    """Each minute, the clock on the wall is looked at, and what it has skipped within the last hours."""
    moment, is_any_hour = since.replace(second=0, microsecond=0), text.split()[1].startswith("*")
    while (moment := moment + MINUTE) <= until:
        local = moment.astimezone(cron.zone)
        wall = local.replace(tzinfo=None, fold=0)
        shifted = (local.utcoffset() or timedelta()) - (
            (moment - timedelta(hours=2)).astimezone(cron.zone).utcoffset() or timedelta()
        )
        if is_shown(text, wall) and (not local.fold or is_any_hour):
            yield moment
        elif shifted > timedelta():  # the clock was put forward
            earlier = wall - shifted
            is_skipped = (
                earlier.replace(tzinfo=cron.zone).astimezone(UTC).astimezone(cron.zone).replace(tzinfo=None) != earlier
            )
            if is_skipped and is_shown(text, earlier):
                yield moment


def numbers(least: int, most: int) -> st.SearchStrategy[str]:
    one = st.integers(least, most)
    ranges = st.tuples(one, one).map(lambda pair: f"{min(pair)}-{max(pair)}")
    spans = st.one_of(st.just("*"), ranges, one.map(str))
    stepped = st.tuples(spans, st.integers(1, 40)).map(lambda pair: f"{pair[0]}/{pair[1]}")
    return st.one_of(st.just("*"), st.lists(st.one_of(spans, stepped), min_size=1, max_size=3).map(",".join))


EXPRESSIONS = st.tuples(
    numbers(0, 59),
    numbers(0, 23),
    st.one_of(st.just("*"), numbers(1, 31)),
    st.one_of(st.just("*"), numbers(1, 12), st.sampled_from(["jan", "dec"])),
    st.one_of(st.just("*"), numbers(0, 7), st.sampled_from(["sun", "fri"])),
).map(" ".join)
# Shortly before a clock is put forward, or back: by half an hour, and over midnight, too.
CHANGES = [
    ("Europe/Berlin", "2026-03-29T00:20Z"),
    ("Europe/Berlin", "2026-10-25T00:05Z"),
    ("America/New_York", "2026-03-08T06:20Z"),
    ("America/New_York", "2026-11-01T05:20Z"),
    ("Australia/Lord_Howe", "2026-04-04T14:20Z"),
    ("Australia/Lord_Howe", "2026-10-03T15:10Z"),
    ("America/Asuncion", "2023-10-01T03:20Z"),
    ("America/Asuncion", "2023-03-26T02:20Z"),
]


@given(
    EXPRESSIONS, st.sampled_from(["UTC", "Asia/Kathmandu"]), st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1))
)
def test_the_next_time_is_the_one_that_a_clock_shows_next(text: str, zone: str, since: datetime) -> None:
    try:
        cron = read_cron(text, zone)
    except ValueError:
        reject()  # such as 30 February
    check(text, cron, since.replace(tzinfo=UTC))


@given(st.tuples(numbers(0, 59), st.one_of(numbers(0, 4), numbers(20, 23))), st.sampled_from(CHANGES))
def test_clocks_may_be_put_forward_and_back(minute_and_hour: tuple[str, str], change: tuple[str, str]) -> None:
    text, (zone, since) = f"{' '.join(minute_and_hour)} * * *", change
    check(text, read_cron(text, zone), datetime.fromisoformat(since))


def check(text: str, cron: Cron, since: datetime) -> None:
    until = since + timedelta(hours=3)
    found, moment = list[datetime](), since
    while (due := cron.after(moment)) is not None and due <= until:
        assert due > moment
        found.append(due)
        moment = due
    assert found == list(slowly_due(text, cron, since, until))


@pytest.mark.parametrize(
    ("text", "zone", "since", "expected"),
    [
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00Z", ["2026-03-29T01:30Z", "2026-03-30T00:30Z"]),  # 03:30
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00Z", ["2026-10-25T00:30Z", "2026-10-26T01:30Z"]),  # once
        ("30 * * * *", "Europe/Berlin", "2026-10-25T00:00Z", ["2026-10-25T00:30Z", "2026-10-25T01:30Z"]),  # each hour
        ("30 * * * *", "Europe/Berlin", "2026-03-29T00:00Z", ["2026-03-29T00:30Z", "2026-03-29T01:30Z"]),
        ("0 12 29 2 *", "UTC", "2026-01-01T00:00Z", ["2028-02-29T12:00Z", "2032-02-29T12:00Z"]),
        ("0 12 29 feb *", "UTC", "2096-03-01T00:00Z", ["2104-02-29T12:00Z"]),
        ("0 9 13 * fri", "UTC", "2026-02-12T00:00Z", ["2026-02-13T09:00Z", "2026-02-20T09:00Z"]),  # either day
        ("0 9 */13 * fri", "UTC", "2026-02-01T00:00Z", ["2026-02-27T09:00Z", "2026-03-27T09:00Z"]),  # both
        ("5 4 * * 7", "UTC", "2026-11-19T00:00Z", ["2026-11-22T04:05Z"]),
        ("0 0 31 12 *", "UTC", "2026-12-31T00:00Z", ["2027-12-31T00:00Z"]),  # after, not at
    ],
)
def test_times_that_are_easily_mistaken(text: str, zone: str, since: str, expected: list[str]) -> None:
    cron, moment = read_cron(text, zone), datetime.fromisoformat(since)
    for due in expected:
        found = cron.after(moment)
        assert found == datetime.fromisoformat(due)
        moment = found


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("* * * *", "must have five fields"),
        ("@daily", "must have five fields"),
        ("60 * * * *", "within 0 and 59"),
        ("* 24 * * *", "within 0 and 23"),
        ("* * 0 * *", "within 1 and 31"),
        ("* * * 13 *", "within 1 and 12"),
        ("* * * * 8", "within 0 and 7"),
        ("5-1 * * * *", "ends before it begins"),
        ("*/0 * * * *", "within 0 and 59"),
        ("1/ * * * *", "is not a minute"),
        ("+1 * * * *", "is not a minute"),
        ("1,,2 * * * *", "is not a minute"),
        ("*-3 * * * *", "is not a minute"),
        ("* * * fri *", "is not a month"),
        ("0 0 30 2 *", "not due within eight years"),
    ],
)
def test_what_is_wrong_is_named(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_cron(text, "UTC")


def test_an_unknown_time_zone_is_named() -> None:
    for zone in ("Europe/Nowhere", "", "../etc/passwd"):
        with pytest.raises(ValueError, match="is not a time zone"):
            read_cron("* * * * *", zone)
