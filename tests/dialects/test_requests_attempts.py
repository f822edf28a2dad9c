"""Which attempt a request is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.dialects.requests import numbered_attempt

COUNT = "x-stainless-retry-count"


@pytest.mark.parametrize(("count", "attempt"), [("0", "first"), ("1", "retry"), ("2", "retry"), ("x", "retry")])
def test_sdks_count_their_attempts(count: str, attempt: str) -> None:
    assert numbered_attempt({COUNT: count}) == attempt


def test_other_clients_do_not_retry_by_themselves() -> None:
    assert numbered_attempt({}) == "only"


@given(st.dictionaries(st.sampled_from([COUNT, "x-other"]), st.text(max_size=5)))
def test_any_headers_have_an_attempt(headers: dict[str, str]) -> None:
    assert (numbered_attempt(headers) == "only") is (COUNT not in headers)
