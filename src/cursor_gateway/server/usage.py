"""Usage over HTTP: what the caller's API key has used, by day and model, and what it may use."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from time import time
from typing import Any

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from cursor_gateway.errors import InvalidRequest
from cursor_gateway.model.costs import Budget, Prices, cost_of, total_cost
from cursor_gateway.model.history import UsageReport, UsedByModel, UsedInPeriod, UsedOnDay
from cursor_gateway.runs.admission import EVERY_KEY, day_end, month_end
from cursor_gateway.runs.run_service import RunService
from cursor_gateway.server.bodies import json_response
from cursor_gateway.settings import Settings
from cursor_gateway.store.base import DayUsage

_MOST_DAYS = 366


class UsageEndpoints:
    def __init__(self, service: RunService, settings: Settings, now: Callable[[], float] = time) -> None:
        self._service, self._settings, self._now = service, settings, now

    async def usage(self, request: Request) -> Response:
        """Of the last `days`, with today."""
        owner, now_ms = request.state.owner, int(self._now() * 1000)
        now, days = datetime.fromtimestamp(now_ms / 1000, UTC), _days(request)
        today, first = now.date().isoformat(), (now - timedelta(days=days - 1)).date().isoformat()
        month = f"{today[:7]}-01"
        found = await self._service.store.usage(owner, min(first, month))
        budgets, prices = self._settings.budgets, self._settings.prices
        budget = budgets.get(owner) or budgets.get(EVERY_KEY) or Budget()
        report = UsageReport(
            key=owner,
            today=UsedInPeriod(
                **_sums([one for one in found if one.day == today], prices),
                resets=_time(day_end(now_ms)),
                max_cost=UNSET if budget.usd_per_day is None else budget.usd_per_day,
                max_tokens=UNSET if budget.tokens_per_day is None else budget.tokens_per_day,
            ),
            month=UsedInPeriod(
                **_sums([one for one in found if one.day >= month], prices),
                resets=_time(month_end(now_ms)),
                max_cost=UNSET if budget.usd_per_month is None else budget.usd_per_month,
                max_tokens=UNSET if budget.tokens_per_month is None else budget.tokens_per_month,
            ),
            days=[
                UsedOnDay(**_sums(models, prices), day=day, models=[_of_model(one, prices) for one in models])
                for day, models in _by_day(one for one in found if one.day >= first)
            ],
        )
        return json_response(report)


def _days(request: Request) -> int:
    days = request.query_params.get("days") or "30"
    if not (days.isascii() and days.isdigit() and len(days) < 4 and 1 <= int(days) <= _MOST_DAYS):
        raise InvalidRequest(f"`days` must be a number from 1 to {_MOST_DAYS}.", param="days")
    return int(days)


def _by_day(found: Iterable[DayUsage]) -> Iterable[tuple[str, list[DayUsage]]]:
    return ((day, list(models)) for day, models in groupby(found, key=lambda one: one.day))


def _of_model(one: DayUsage, prices: Prices) -> UsedByModel:
    return UsedByModel(**_sums([one], prices), model=one.model)


def _sums(used: Sequence[DayUsage], prices: Prices) -> dict[str, Any]:
    prompt, completion = sum(one.prompt_tokens for one in used), sum(one.completion_tokens for one in used)
    cost = total_cost(
        cost_of(prices, one.model, one.prompt_tokens, one.completion_tokens, one.cached_tokens) for one in used
    )
    return {
        "runs": sum(one.runs for one in used),
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "cached_tokens": sum(one.cached_tokens for one in used),
        "cost": UNSET if cost is None else cost,
    }


def _time(when: datetime) -> str:
    return when.isoformat().replace("+00:00", "Z")
