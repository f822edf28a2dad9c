import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from cursor_gateway.model.costs import Price, cost_of, price_of, priced, total_cost
from cursor_gateway.model.documents import Usage
from tests.laws.strategies import examples

PRICES = {
    "opus": Price(input=5, output=25, cached=0.5),
    "gpt-*": Price(input=1, output=10),
    "gpt-5-*": Price(input=2, output=20),
}


@pytest.mark.parametrize(
    ("model", "name"), [("opus", "opus"), ("gpt-4", "gpt-*"), ("gpt-5-high", "gpt-5-*"), ("gpt-5", "gpt-*")]
)
def test_the_longest_beginning_decides(model: str, name: str) -> None:
    assert price_of(PRICES, model) == PRICES[name]


def test_a_model_without_a_price_has_no_cost() -> None:
    assert price_of(PRICES, "opus-4") is None
    assert cost_of(PRICES, "auto", 1, 1) is None
    assert cost_of({**PRICES, "*": Price(input=0, output=0)}, "auto", 1, 1) == 0


def test_cached_tokens_are_a_part_of_the_prompt() -> None:
    assert cost_of(PRICES, "opus", 1_000_000, 100_000, 800_000) == 1.0 + 0.4 + 2.5
    assert cost_of(PRICES, "opus", 1_000_000, 0, 2_000_000) == 0.5  # never more than all
    assert cost_of(PRICES, "gpt-4", 1_000_000, 0, 800_000) == 1.0  # no price of their own


def test_usage_has_its_cost_if_that_is_known() -> None:
    usage = Usage(prompt_tokens=1000, completion_tokens=100, total_tokens=1100)
    assert priced(usage, PRICES, "opus").cost == 0.0075
    assert priced(usage, PRICES, "auto").cost is UNSET


def test_the_total_is_that_of_known_costs() -> None:
    assert total_cost([0.1, None, 0.2]) == 0.3
    assert total_cost([None]) is None
    assert total_cost([]) is None


_tokens = st.integers(0, 10**9)
_price = st.builds(Price, input=st.floats(0, 1e3), output=st.floats(0, 1e3), cached=st.none() | st.floats(0, 1e3))


@examples(200)
@given(_price, _tokens, _tokens, _tokens)
def test_any_tokens_cost_what_their_parts_cost(price: Price, prompt: int, completion: int, cached: int) -> None:
    prices = {"a*": price}
    cost = cost_of(prices, "a-model", prompt, completion, cached)
    parts = [cost_of(prices, "a", prompt, 0, cached), cost_of(prices, "a", 0, completion)]
    assert cost is not None
    assert total_cost(parts) == pytest.approx(cost, abs=2e-6)
    assert cost >= 0
    assert cost_of(prices, "b", prompt, completion, cached) is None
