"""Whether the store works: told at once, told again from time to time, and over as soon as a call succeeds."""

import logging

import pytest

from cursor_gateway.errors import StoreUnavailable
from cursor_gateway.store.health import StoreHealth

FULL = StoreUnavailable("The disk is full; free some space.", details="/home/ada/history.db on db.internal:5432")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def health(clock: Clock, caplog: pytest.LogCaptureFixture) -> StoreHealth:
    caplog.set_level(logging.INFO)
    return StoreHealth(clock)


def test_a_store_works_until_a_call_fails(health: StoreHealth, caplog: pytest.LogCaptureFixture) -> None:
    health.worked("read")
    assert (health.problem, health.is_failing, health.errors, caplog.messages) == ("", False, 0, [])


def test_a_failure_is_logged_at_once_with_its_details(health: StoreHealth, caplog: pytest.LogCaptureFixture) -> None:
    health.failed("write", FULL)
    assert (health.problem, health.is_failing, health.errors) == (str(FULL), True, 1)
    assert caplog.messages == [str(FULL)]
    assert vars(caplog.records[0])["facts"] == {"kind": "write", "details": FULL.details}


def test_a_problem_that_stays_is_logged_once_a_minute(
    health: StoreHealth, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(120):
        health.failed("write", FULL)
        clock.now += 1
    assert (health.errors, len(caplog.messages)) == (120, 2)


def test_it_works_again_as_soon_as_a_call_of_the_same_kind_succeeds(
    health: StoreHealth, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    health.failed("write", FULL)
    health.worked("read")
    assert health.problem
    clock.now += 7
    health.worked("write")
    assert (health.problem, health.is_failing, health.errors) == ("", False, 1)
    assert vars(caplog.records[-1])["facts"] == {"kind": "write", "after_seconds": 7.0}
    health.failed("write", FULL)
    assert caplog.messages[-1] == str(FULL)


def test_a_conflict_is_a_problem_only_if_it_lasts(
    health: StoreHealth, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    busy = StoreUnavailable("The history is locked.")
    health.failed("write", busy, is_conflict=True)
    clock.now += 4.9
    health.failed("write", busy, is_conflict=True)
    assert (health.problem, health.is_failing, health.errors) == ("", True, 2)
    health.worked("write")
    health.failed("write", busy, is_conflict=True)
    clock.now += 5
    assert caplog.messages == []
    health.failed("write", busy, is_conflict=True)
    assert (health.problem, caplog.messages) == (str(busy), [str(busy)])


def test_clients_never_get_the_details() -> None:
    assert FULL.failure().details == ""
    assert FULL.details
