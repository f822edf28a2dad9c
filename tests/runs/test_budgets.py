import asyncio
from datetime import UTC, datetime
from typing import cast

import pytest

from cursor_gateway.errors import KeyQuotaExhausted
from cursor_gateway.model.costs import Budget, Price
from cursor_gateway.runs.admission import check_budget, day_end, month_end
from cursor_gateway.store.base import DayUsage, Store

NOW = datetime(2026, 11, 18, 13, 30, tzinfo=UTC)
PRICES = {"opus": Price(input=1, output=1)}


class Used:
    """A store that knows only this."""

    def __init__(self, *days: tuple[str, str, int]) -> None:
        self._days, self.asked = days, list[str]()

    async def usage(self, owner: str, since: str) -> list[DayUsage]:
        self.asked.append(f"{owner} {since}")
        return [
            DayUsage(day=day, model=model, runs=1, prompt_tokens=used, completion_tokens=0, cached_tokens=0)
            for day, model, used in self._days
            if day >= since
        ]


def check(used: Used, budgets: dict[str, Budget], owner: str = "alice") -> KeyQuotaExhausted | None:
    try:
        asyncio.run(check_budget(owner, budgets, PRICES, cast(Store, used), int(NOW.timestamp() * 1000)))
    except KeyQuotaExhausted as error:
        return error
    return None


TODAY, YESTERDAY, OCTOBER = "2026-11-18", "2026-11-17", "2026-10-31"


def test_a_key_with_something_left_may_start() -> None:
    used = Used((TODAY, "opus", 999), (YESTERDAY, "opus", 1000), (OCTOBER, "opus", 10**9))
    assert check(used, {"alice": Budget(tokens_per_day=1000, tokens_per_month=2000)}) is None
    assert used.asked == ["alice 2026-11-01"]


@pytest.mark.parametrize(
    ("budget", "said", "seconds"),
    [
        (Budget(tokens_per_day=1000), "1,000 tokens a day", 10.5 * 3600),
        (Budget(tokens_per_month=2000), "2,000 tokens a month", 10.5 * 3600 + 12 * 86400),
        (Budget(usd_per_day=0.001), "0.00 US dollars a day", 10.5 * 3600),
        (Budget(usd_per_month=0.002), "0.00 US dollars a month", 10.5 * 3600 + 12 * 86400),
        (Budget(usd_per_day=0), "0.00 US dollars a day", 10.5 * 3600),
        (Budget(tokens_per_day=1, tokens_per_month=1), "a month", 10.5 * 3600 + 12 * 86400),
    ],
)
def test_a_key_that_has_used_its_budget_is_refused_until_the_next_period(
    budget: Budget, said: str, seconds: float
) -> None:
    error = check(Used((TODAY, "opus", 1000), (YESTERDAY, "opus", 1000)), {"alice": budget})
    assert error is not None
    assert said in str(error)
    assert error.failure().retry_after == seconds
    assert not error.failure().retryable


def test_the_reset_time_is_in_the_message_without_words_that_make_clients_retry() -> None:
    error = check(Used((TODAY, "opus", 5)), {"alice": Budget(tokens_per_day=5)})
    assert str(error) == (
        "This API key may use 5 tokens a day, and has used it; it can be used again from 2026-11-19 00:00 UTC on."
    )


def test_a_model_without_a_price_costs_nothing() -> None:
    assert check(Used((TODAY, "auto", 10**9)), {"alice": Budget(usd_per_day=1)}) is None


def test_every_other_key_has_the_budget_of_the_star() -> None:
    used = Used((TODAY, "opus", 10))
    budgets = {"alice": Budget(tokens_per_day=100), "*": Budget(tokens_per_day=10)}
    assert check(used, budgets, "alice") is None
    assert check(used, budgets, "bob") is not None
    assert check(Used(), {"alice": Budget(tokens_per_day=1)}, "bob") is None


@pytest.mark.parametrize(
    ("now", "day", "month"),
    [
        (NOW, "2026-11-19", "2026-12-01"),
        (datetime(2026, 12, 31, 23, 59, tzinfo=UTC), "2027-01-01", "2027-01-01"),
        (datetime(2028, 2, 1, tzinfo=UTC), "2028-02-02", "2028-03-01"),
        (datetime(2026, 1, 30, tzinfo=UTC), "2026-01-31", "2026-02-01"),
    ],
)
def test_periods_end_at_midnight_of_utc(now: datetime, day: str, month: str) -> None:
    ms = int(now.timestamp() * 1000)
    assert (f"{day_end(ms):%Y-%m-%d}", f"{month_end(ms):%Y-%m-%d}") == (day, month)
    assert {day_end(ms).hour, month_end(ms).hour} == {0}
