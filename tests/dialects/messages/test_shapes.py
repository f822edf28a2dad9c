"""Usage as Anthropic counts it: cached tokens are apart from the others."""

import msgspec

from cursor_gateway.dialects.messages.shapes import MessageUsage, message_usage
from cursor_gateway.model.documents import Usage


def test_input_tokens_exclude_those_from_the_cache() -> None:
    usage = Usage(prompt_tokens=100, completion_tokens=5, total_tokens=105, cached_tokens=80)
    assert message_usage(usage) == MessageUsage(input_tokens=20, cache_read_input_tokens=80, output_tokens=5)
    without = msgspec.structs.replace(usage, cached_tokens=msgspec.UNSET)
    assert message_usage(without) == MessageUsage(input_tokens=100, output_tokens=5)


def test_more_cached_tokens_than_there_are_make_no_negative_number() -> None:
    usage = Usage(prompt_tokens=10, completion_tokens=5, total_tokens=15, cached_tokens=80)
    assert message_usage(usage) == MessageUsage(input_tokens=0, cache_read_input_tokens=10, output_tokens=5)
