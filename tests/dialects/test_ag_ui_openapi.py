"""The description names the dialect's routes, and its examples are accepted."""

from cursor_gateway.dialects.ag_ui import ag_ui_dialect
from tests.dialects.descriptions import described, request_examples

DIALECT = ag_ui_dialect(5)


def test_the_examples_of_requests_are_accepted() -> None:
    description = described(DIALECT)
    (route,) = DIALECT.routes
    for body in request_examples(description, f"POST {route.path}"):
        assert route.read(body, {})
