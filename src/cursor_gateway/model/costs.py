"""Tokens and a price table in; money out. And what an API key may spend."""

from collections.abc import Iterable, Mapping
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct
from msgspec.structs import replace

from cursor_gateway.model.documents import Usage

_Money: TypeAlias = Annotated[float, Meta(ge=0, le=1e9)]
_Tokens: TypeAlias = Annotated[int, Meta(ge=1, le=2**62)]
_MILLION = 1_000_000


class Price(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """In US dollars per million tokens."""

    input: _Money
    output: _Money
    cached: _Money | None = None  # None: like other input


Prices: TypeAlias = Mapping[str, Price]  # by model, or by the beginning of its name and `*`


def price_of(prices: Prices, model: str) -> Price | None:
    """The one of the model itself, else that of the longest beginning."""
    if model in prices:
        return prices[model]
    beginnings = [name for name in prices if name.endswith("*") and model.startswith(name[:-1])]
    return prices[max(beginnings, key=len)] if beginnings else None


def cost_of(prices: Prices, model: str, prompt: int, completion: int, cached: int = 0) -> float | None:
    """In US dollars; None: the model has no price. `prompt` includes cached tokens."""
    price = price_of(prices, model)
    if price is None:
        return None
    cached = min(cached, prompt)
    reading = (prompt - cached) * price.input + cached * (price.input if price.cached is None else price.cached)
    return round((reading + completion * price.output) / _MILLION, 6)


def priced(usage: Usage, prices: Prices, model: str) -> Usage:
    """With its cost, if it is known."""
    cost = cost_of(prices, model, usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens or 0)
    return usage if cost is None else replace(usage, cost=cost)


def total_cost(costs: Iterable[float | None]) -> float | None:
    """Of those that are known; None: none is."""
    known = [cost for cost in costs if cost is not None]
    return round(sum(known), 6) if known else None


class Budget(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one API key may use, by days and months of UTC. None: no limit."""

    usd_per_day: _Money | None = None
    usd_per_month: _Money | None = None
    tokens_per_day: _Tokens | None = None
    tokens_per_month: _Tokens | None = None
