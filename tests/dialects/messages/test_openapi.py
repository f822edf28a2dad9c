"""The description of Anthropic's Messages API names its routes, and its examples are accepted."""

from cursor_gateway.dialects.messages.dialect import messages_dialect
from tests.dialects.descriptions import described, request_examples

DIALECT = messages_dialect(5, "thinking")


def test_the_examples_of_requests_are_accepted() -> None:
    description = described(DIALECT)
    (route,), (count,) = DIALECT.routes, DIALECT.computed
    for body in request_examples(description, f"POST {route.path}"):
        assert route.read(body, {})
    for body in request_examples(description, f"POST {count.path}"):
        assert count.read(body, {})


def test_errors_have_anthropics_form() -> None:
    for operation in described(DIALECT).operations.values():
        example = operation["responses"]["429"]["content"]["application/json"]["examples"]["rate_limit_exceeded"]
        assert example["value"]["error"]["type"] == "rate_limit_error"
