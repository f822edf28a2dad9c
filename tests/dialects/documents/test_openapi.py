"""The description of the documents dialect names its routes, and its examples are accepted."""

from cursor_gateway.dialects.documents.dialect import documents_dialect
from tests.dialects.descriptions import described, request_examples

DIALECT = documents_dialect(5)


def test_the_examples_of_requests_are_accepted() -> None:
    description = described(DIALECT)
    for route in DIALECT.routes:
        for body in request_examples(description, f"POST {route.path}"):
            assert route.read(body, {})


def test_a_failed_run_has_the_partial_answer_beside_the_error() -> None:
    responses = described(DIALECT).operations["POST /v1/chat"]["responses"]
    schema = responses["502"]["content"]["application/json"]["schema"]
    assert [form["$ref"].rpartition("/")[2] for form in schema["anyOf"]] == ["FailedChatResponse", "ErrorReply"]
