"""What an API key has used in; whether it may start another run out.

What a run will take is not known before it ends, so a key that has anything left may start one, and those that run at
the same time may use more than the rest. The usage is in the store, where all processes of a cluster see it.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from math import ceil

from cursor_gateway.errors import KeyQuotaExhausted
from cursor_gateway.model.costs import Budget, Prices, cost_of
from cursor_gateway.store.base import DayUsage, Store

EVERY_KEY = "*"  # that is not named


class Budgets:
    def __init__(self, budgets: Mapping[str, Budget], prices: Prices, store: Store, now_ms: Callable[[], int]) -> None:
        self._budgets, self._prices, self._store, self._now_ms = budgets, prices, store, now_ms

    async def check(self, owner: str) -> None:
        """Raises `KeyQuotaExhausted`, or `StoreUnavailable`: then nobody knows what was used."""
        budget = self._budgets.get(owner) or self._budgets.get(EVERY_KEY)
        if budget is None:
            return
        now_ms = self._now_ms()
        today = datetime.fromtimestamp(now_ms / 1000, UTC).date().isoformat()
        used = await self._store.usage(owner, f"{today[:7]}-01")
        days = [day for day in used if day.day == today]
        limits = [*_reached(budget.usd_per_month, budget.tokens_per_month, used, self._prices)]
        if limits:
            raise used_up(f"This API key may use {limits[0]} a month", month_end(now_ms), now_ms)
        limits = [*_reached(budget.usd_per_day, budget.tokens_per_day, days, self._prices)]
        if limits:
            raise used_up(f"This API key may use {limits[0]} a day", day_end(now_ms), now_ms)


def _reached(usd: float | None, tokens: int | None, used: list[DayUsage], prices: Prices) -> Iterator[str]:
    if usd is not None:
        costs = (
            cost_of(prices, one.model, one.prompt_tokens, one.completion_tokens, one.cached_tokens) for one in used
        )
        if sum(cost for cost in costs if cost is not None) >= usd:
            yield f"{usd:,.2f} US dollars"
    if tokens is not None and sum(one.prompt_tokens + one.completion_tokens for one in used) >= tokens:
        yield f"{tokens:,} tokens"


def day_end(now_ms: int) -> datetime:
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    return now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)


def month_end(now_ms: int) -> datetime:
    first = day_end(now_ms).replace(day=1)
    return first if first.timestamp() * 1000 > now_ms else (first + timedelta(days=32)).replace(day=1)


def used_up(limit: str, until: datetime, now_ms: int) -> KeyQuotaExhausted:
    """Without words that make clients retry."""
    error = KeyQuotaExhausted(f"{limit}, and has used it; it can be used again from {until:%Y-%m-%d %H:%M} UTC on.")
    error.retry_after = max(1, ceil(until.timestamp() - now_ms / 1000))
    return error
