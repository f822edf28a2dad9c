"""Which attempt a request is."""

import pytest

from cursor_gateway.dialects.attempts import numbered_attempt


@pytest.mark.parametrize(("count", "attempt"), [("0", "first"), ("1", "retry"), ("2", "retry"), ("x", "retry")])
def test_sdks_count_their_attempts(count: str, attempt: str) -> None:
    assert numbered_attempt({"x-stainless-retry-count": count}) == attempt


def test_other_clients_do_not_retry_by_themselves() -> None:
    assert numbered_attempt({}) == "only"
