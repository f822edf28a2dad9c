"""The CLI's names of models as ACP's."""

import pytest

from cursor_gateway.sources.acp.models import acp_model

AVAILABLE = [
    "default[]",
    "grok-4.6[effort=high,fast=true]",
    "gpt-5[effort=low,fast=false]",
    "gpt-5-mini[]",
    "composer-2.5",
]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("auto", "default[]"),
        ("default", "default[]"),
        ("default[]", "default[]"),
        ("grok-4.6", "grok-4.6[effort=high,fast=true]"),
        ("grok-4.6-high-fast", "grok-4.6[effort=high,fast=true]"),
        ("grok-4.6-low", None),
        ("gpt-5-low", "gpt-5[effort=low,fast=false]"),
        ("gpt-5-fast", None),
        ("gpt-5-mini", "gpt-5-mini[]"),
        ("composer-2.5", "composer-2.5"),
        ("composer-2.5-fast", None),
        ("opus", None),
    ],
)
def test_a_name_is_translated(wanted: str, expected: str | None) -> None:
    assert acp_model(wanted, AVAILABLE) == expected
