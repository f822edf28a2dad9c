"""The description of chat completions names its routes, and its examples are accepted."""

from cursor_gateway.dialects.chat.dialect import chat_dialect
from tests.dialects.descriptions import described, request_examples

DIALECT = chat_dialect(5, "reasoning")


def test_the_examples_of_requests_are_accepted() -> None:
    description = described(DIALECT)
    (route,) = DIALECT.routes
    for body in request_examples(description, f"POST {route.path}"):
        assert route.read(body, {})


def test_ignored_fields_are_described() -> None:
    schemas = described(DIALECT).schemas
    assert schemas["ChatCompletionRequest"]["properties"]["seed"]["description"].startswith("Ignored.")
    thinking = schemas["ChatCompletionAssistantMessage"]["properties"]["reasoning_content"]
    assert thinking["description"].startswith("Ignored.")


def test_a_headers_name_and_values_follow_from_the_option() -> None:
    (operation,) = described(DIALECT).operations.values()
    headers = {parameter.get("name"): parameter.get("schema") for parameter in operation["parameters"]}
    assert headers["X-Cursor-Fences"] == {"enum": ["inline", "split"]}
    assert headers["X-Cursor-Source"] == {"type": "string", "minLength": 1}
    assert headers["X-Cursor-Include"]["pattern"] == "^(context|raw|thinking)( *, *(context|raw|thinking))*$"
