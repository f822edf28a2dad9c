"""The description of OpenAI's Responses API names its routes, and its examples are accepted."""

from cursor_gateway.dialects.responses.dialect import responses_dialect
from tests.dialects.descriptions import described, request_examples

DIALECT = responses_dialect(5, lambda: 0.0)


def test_the_examples_of_requests_are_accepted() -> None:
    description = described(DIALECT)
    (route,) = DIALECT.routes
    for body in request_examples(description, f"POST {route.path}"):
        assert route.read(body, {})
    for computed in DIALECT.computed:
        if computed.method == "POST":
            for body in request_examples(description, f"POST {computed.path}"):
                assert computed.read(body, {})
