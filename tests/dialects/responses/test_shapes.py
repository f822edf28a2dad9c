"""The shapes of OpenAI's Responses API, as far as they are more than fields."""

from cursor_gateway.dialects.responses.shapes import estimated_input


def test_a_request_that_no_model_has_read_has_estimated_tokens() -> None:
    usage = estimated_input(7)
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens, usage.estimated) == (7, 0, 7, True)
    assert usage.input_tokens_details.cached_tokens == 0
