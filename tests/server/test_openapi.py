"""The OpenAPI document is one, describes every route and every error, and says what the readers and writers do."""

import gc
import json
from collections.abc import Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from cursor_gateway import ChunkEncoder, CompletionFold, errors, read_events
from cursor_gateway.cli.assembly.serving import dialects_of
from cursor_gateway.dialects.chat.dialect import read_request
from cursor_gateway.dialects.documents.request import offer_of, read_answer, read_chat_request, results_of
from cursor_gateway.dialects.errors import OPENAI_ERRORS, OWN_ERRORS, Errors
from cursor_gateway.dialects.messages.dialect import read_request as read_messages_request
from cursor_gateway.dialects.messages.shapes import ANTHROPIC_ERRORS
from cursor_gateway.dialects.responses.request import read_request as read_responses_request
from cursor_gateway.dialects.responses.shapes import RESPONSES_ERRORS
from cursor_gateway.errors import (
    AgentError,
    AnswerUnfit,
    FileChanged,
    GatewayError,
    IdempotencyMismatch,
    InvalidRequest,
    LogReset,
    SettingsError,
    UnusableInput,
    WebSocketRefused,
)
from cursor_gateway.model.messages import read_image
from cursor_gateway.runs.run_service import RunService
from cursor_gateway.schema import openapi_components
from cursor_gateway.server.app import Routes, build_app
from cursor_gateway.server.links import LoginEndpoints, Sharing
from cursor_gateway.server.metrics import Metrics
from cursor_gateway.server.openapi import openapi_document
from cursor_gateway.settings import Settings
from cursor_gateway.sources.base import SourceState
from cursor_gateway.wire.sse import SseDecoder, SseEvent
from tests.anthropic_shapes import events_of, fold, read_message
from tests.openai_shapes import validate_stream
from tests.responses_shapes import read_response as read_whole_response
from tests.responses_shapes import read_stream as read_response_stream
from tests.scenarios.golden import HEAD, Scenario, scenarios
from tests.strategies import examples as so_many

Json = dict[str, Any]

DIALECTS = dialects_of(Settings())
DOCUMENT = openapi_document("1.2.3", DIALECTS)
SCHEMAS: dict[str, Json] = DOCUMENT["components"]["schemas"]
OPERATIONS: dict[str, Json] = {
    f"{method.upper()} {path}": operation
    for path, item in DOCUMENT["paths"].items()
    for method, operation in item.items()
}
RUNNING = (
    "POST /v1/chat",
    "POST /v1/chat/{id}/answer",
    "POST /v1/chat/completions",
    "POST /v1/responses",
    "POST /v1/messages",
)
FOR_BROWSERS = {("GET", "/"), ("GET", "/page/{name}"), ("GET", "/docs.css")}  # pages, and their parts


def validator(schema: Json) -> Draft202012Validator:
    return Draft202012Validator({**schema, "components": DOCUMENT["components"]})


def complaints(value: Any, schema: Json) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in validator(schema).iter_errors(value)]


def ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def resolved(value: Json) -> Json:
    found: Any = DOCUMENT
    if "$ref" not in value:
        return value
    for part in value["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return cast(Json, found)


def references(value: Any) -> Iterator[str]:
    match value:
        case dict():
            for key, item in value.items():
                if key == "$ref" and isinstance(item, str):
                    yield item
                elif key == "mapping":
                    yield from item.values()
                elif key not in ("example", "examples"):
                    yield from references(item)
        case list():
            for item in value:
                yield from references(item)
        case _:
            pass


# --- the document --------------------------------------------------------------------------------------


def test_it_is_an_openapi_document() -> None:
    from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR

    assert [error.message for error in OPENAPI_31_VALIDATOR.iter_errors(DOCUMENT)] == []
    assert DOCUMENT["info"]["version"] == "1.2.3"
    assert len(list(api().get_all_operations())) == len(OPERATIONS)


def test_it_is_json_as_it_stands() -> None:
    assert msgspec.json.decode(msgspec.json.encode(DOCUMENT)) == DOCUMENT


def test_making_it_changes_nothing() -> None:
    assert openapi_document("1.2.3", DIALECTS) == DOCUMENT


def test_every_reference_leads_somewhere() -> None:
    for found in set(references(DOCUMENT)):
        assert resolved({"$ref": found})


def test_every_schema_is_one_and_has_its_name() -> None:
    for name, schema in SCHEMAS.items():
        Draft202012Validator.check_schema(schema)
        assert schema["title"] == name


def test_the_documents_are_those_of_the_schema_command() -> None:
    for name, schema in openapi_components()["schemas"].items():
        assert SCHEMAS[name] == schema


def test_every_schema_is_used_or_a_name_of_the_documents() -> None:
    used = {found.rpartition("/")[2] for found in references(DOCUMENT)}
    assert set(SCHEMAS) - used <= set(openapi_components()["schemas"])


def test_every_schema_and_every_field_has_a_sentence() -> None:
    documents = openapi_components()["schemas"]  # have their own test
    for name, schema in SCHEMAS.items():
        assert schema["description"].endswith("."), name
        for field, its in schema.get("properties", {}).items():
            assert name in documents or its["description"].endswith("."), f"{name}.{field}"


# --- operations ------------------------------------------------------------------------------------------


def test_every_route_is_described() -> None:
    state = SourceState(name="demo", detail="", is_demo=True)
    service = cast(RunService, SimpleNamespace(state=lambda: SimpleNamespace(source=state)))
    logins = LoginEndpoints(cast(Sharing, None), Settings())
    more = {**logins.for_devices, **logins.for_operator}
    guard: Any = build_app(service, Settings(), Metrics(), DIALECTS, more=more)
    routes: Routes = guard._app
    served = {(method, path.replace(":path", "")) for path, methods in routes.endpoints.items() for method in methods}
    assert {f"{method} {path}" for method, path in served - FOR_BROWSERS} == set(OPERATIONS)


def test_operations_have_ids_tags_and_words() -> None:
    ids = [operation["operationId"] for operation in OPERATIONS.values()]
    tags = {tag["name"] for tag in DOCUMENT["tags"]}
    assert len(ids) == len(set(ids))
    assert {tag for operation in OPERATIONS.values() for tag in operation["tags"]} == tags
    for operation in OPERATIONS.values():
        assert operation["summary"]
        assert operation["description"].endswith(".")


def test_a_key_may_be_needed_everywhere_but_where_nothing_is_disclosed() -> None:
    is_open = {name for name, operation in OPERATIONS.items() if operation.get("security") == []}
    monitoring = {"GET /health", "GET /livez", "GET /readyz", "GET /openapi.json", "GET /docs"}
    assert is_open == monitoring | {"POST /v1/login", "GET /shared/{token}"}  # which need a code, a token
    assert {} in DOCUMENT["security"]
    for name, operation in OPERATIONS.items():
        assert ("401" in operation["responses"]) == (name not in is_open)


def test_every_reply_has_the_headers_that_all_have() -> None:
    for operation in OPERATIONS.values():
        for reply in operation["responses"].values():
            assert {"X-Request-Id", "X-Cursor-Gateway-Source"} <= set(reply["headers"])


def test_runs_tell_their_ids() -> None:
    for name in RUNNING:
        assert {"X-Chat-Id", "X-Conversation-Id"} <= set(OPERATIONS[name]["responses"]["200"]["headers"])


def test_the_replies_of_runs_come_in_all_their_forms() -> None:
    forms = {name: set(OPERATIONS[name]["responses"]["200"]["content"]) for name in RUNNING}
    assert forms == {
        "POST /v1/chat": {"application/json", "text/event-stream", "application/x-ndjson"},
        "POST /v1/chat/{id}/answer": {"application/json", "text/event-stream", "application/x-ndjson"},
        "POST /v1/chat/completions": {"application/json", "text/event-stream"},
        "POST /v1/messages": {"application/json", "text/event-stream"},
        "POST /v1/responses": {"application/json", "text/event-stream"},
    }


# --- errors ----------------------------------------------------------------------------------------------


def raised(error: type[GatewayError] = GatewayError) -> set[type[GatewayError]]:
    below = {found for child in error.__subclasses__() for found in raised(child)}
    return {error, *below} if "code" in vars(error) else below


def codes(operation: Json) -> set[tuple[str, str]]:
    return {
        (status, code)
        for status, reply in operation["responses"].items()
        if not status.startswith("2")
        for code in reply["content"]["application/json"]["examples"]
    }


def of(found: set[type[GatewayError]], errors: Errors = OWN_ERRORS) -> set[tuple[str, str]]:
    shown = [errors.shown(error("").failure()) for error in found]
    return {(str(failure.status), failure.code) for failure in shown}


def test_a_run_may_fail_in_every_way() -> None:
    served = raised() - {FileChanged, LogReset, SettingsError, UnusableInput, WebSocketRefused}
    assert codes(OPERATIONS["POST /v1/chat/completions"]) == of(served, OPENAI_ERRORS)
    assert codes(OPERATIONS["POST /v1/messages"]) == of(served, ANTHROPIC_ERRORS)
    assert codes(OPERATIONS["POST /v1/responses"]) == of(served, RESPONSES_ERRORS)
    assert codes(OPERATIONS["POST /v1/chat"]) == of(served - {AnswerUnfit})
    assert codes(OPERATIONS["POST /v1/chat/{id}/answer"]) == of(served - {AnswerUnfit, IdempotencyMismatch})
    refused = ["400", "401", "403", "404", "405", "408", "409", "410", "413", "415"]
    own = [*refused, "429", "431", "499", "500", "502", "503", "504"]
    shown = [*refused[:2], "402", *refused[2:], "424", "429", "431", "499", "500", "503"]
    for name in RUNNING:
        statuses = [status for status in OPERATIONS[name]["responses"] if not status.startswith("2")]
        assert statuses == (own if name in ("POST /v1/chat", "POST /v1/chat/{id}/answer") else shown)


def test_a_new_error_appears_by_itself() -> None:
    class Teapot(AgentError):
        code, status, retry_after = "teapot", 418, 7

    Teapot.__module__ = errors.__name__
    responses = openapi_document("1", DIALECTS)["paths"]["/v1/chat"]["post"]["responses"]
    del Teapot
    gc.collect()  # or later tests meet it
    assert responses["418"]["description"] == "`teapot`: Teapot. `Retry-After` says when to retry."
    assert "Retry-After" in responses["418"]["headers"]
    assert all(error.__name__ != "Teapot" for error in raised())


def test_every_error_has_a_sentence_of_its_own() -> None:
    sentences = [error.__doc__ or "" for error in raised()]
    assert all(sentence.endswith(".") and "\n" not in sentence for sentence in sentences)
    assert len(set(sentences)) == len(sentences)


def test_errors_that_say_when_to_come_back_have_the_header() -> None:
    patient = {str(error.status) for error in raised() if error.retry_after is not None}
    assert {"429", "503"} <= patient
    for name in RUNNING:
        found = {status for status, reply in OPERATIONS[name]["responses"].items() if "Retry-After" in reply["headers"]}
        assert found == patient


def test_an_errors_envelope_has_four_fields_and_perhaps_the_agents_words() -> None:
    error = {"message": "No.", "type": "api_error", "param": None, "code": "x"}
    assert not complaints({"error": error}, ref("ErrorReply"))
    assert not complaints({"error": {**error, "param": "messages[0]"}}, ref("ErrorReply"))
    for field in error:
        assert complaints({"error": {key: error[key] for key in error if key != field}}, ref("ErrorReply"))
    assert not complaints({"error": {**error, "details": "Error: usage limit"}}, ref("ErrorReply"))


# --- examples --------------------------------------------------------------------------------------------


def contents() -> Iterator[tuple[str, str, Json]]:
    for name, operation in OPERATIONS.items():
        for place in [operation.get("requestBody", {}), *operation["responses"].values()]:
            for media_type, content in place.get("content", {}).items():
                yield name, media_type, content


def examples(content: Json) -> list[Any]:
    found = [example["value"] for example in content.get("examples", {}).values()]
    return [*found, content["example"]] if "example" in content else found


def test_every_example_is_valid() -> None:
    tried = 0
    for name, _, content in contents():
        for example in examples(content):
            assert complaints(example, content.get("schema", {})) == [], name
            tried += 1
    assert tried > 60


def test_the_examples_of_responses() -> None:
    def content(name: str) -> Json:
        body: Json = OPERATIONS[name]["requestBody"]["content"]["application/json"]
        return body

    for body in examples(content("POST /v1/responses")):
        read_responses_request(msgspec.json.encode(body), {})
    (dialect,) = [found for found in DIALECTS if any("responses" in r.path for r in found.routes)]
    for route in dialect.computed:
        if route.method == "POST":
            for body in examples(content(f"POST {route.path}")):
                found = msgspec.json.decode(route.read(msgspec.json.encode(body), {}))
                replies = OPERATIONS[f"POST {route.path}"]["responses"]["200"]["content"]["application/json"]
                assert not complaints(found, replies["schema"])
                assert not complaints(replies["example"], replies["schema"])
    result = OPERATIONS["POST /v1/responses"]["responses"]["200"]["content"]
    whole, stream = result["application/json"], result["text/event-stream"]
    assert not complaints(whole["example"], whole["schema"])
    assert read_response_stream(stream["example"].encode()) == read_whole_response(
        msgspec.json.encode(whole["example"])
    )
    for event in SseDecoder().push(stream["example"].encode()):
        assert not event_complaints(event, stream["x-itemSchema"])


def event_complaints(event: SseEvent, schema: Json) -> list[str]:
    result = {"event": event.event, "id": event.id, "data": event.data}
    content = schema["properties"]["data"]["contentSchema"]
    return complaints(result, schema) + complaints(json.loads(event.data), content)


def test_the_examples_of_streams_are_streams() -> None:
    chat = OPERATIONS["POST /v1/chat"]["responses"]["200"]["content"]
    lines = [json.loads(line) for line in chat["application/x-ndjson"]["example"].splitlines()]
    events = SseDecoder().push(chat["text/event-stream"]["example"].encode())
    assert [(event.event, json.loads(event.data)) for event in events] == [
        (line["type"], line["data"]) for line in lines
    ]
    assert [complaints(line, chat["application/x-ndjson"]["x-itemSchema"]) for line in lines] == [[]] * len(lines)
    assert [event_complaints(event, chat["text/event-stream"]["x-itemSchema"]) for event in events] == [[]] * len(lines)
    completion = OPERATIONS["POST /v1/chat/completions"]["responses"]["200"]["content"]["text/event-stream"]
    assert len(validate_stream(completion["example"].encode(), include_usage=True)) == 5
    *chunks, _ = SseDecoder().push(completion["example"].encode())
    assert [event_complaints(chunk, completion["x-itemSchema"]) for chunk in chunks] == [[]] * 5
    messages = OPERATIONS["POST /v1/messages"]["responses"]["200"]["content"]
    events = SseDecoder().push(messages["text/event-stream"]["example"].encode())
    result = [event_complaints(event, messages["text/event-stream"]["x-itemSchema"]) for event in events]
    assert result == [[]] * len(events)
    whole = read_message(msgspec.json.encode(messages["application/json"]["example"]))
    assert fold(events_of(messages["text/event-stream"]["example"].encode())) == whole


def test_an_event_may_have_every_payload() -> None:
    stream = OPERATIONS["POST /v1/chat"]["responses"]["200"]["content"]["text/event-stream"]["x-itemSchema"]
    payloads = stream["properties"]["data"]["contentSchema"]["anyOf"]
    events = [resolved(event) for event in SCHEMAS["StreamEvent"]["oneOf"]]
    assert payloads == [{"$ref": event["properties"]["data"]["$ref"]} for event in events]


# --- what is asked ---------------------------------------------------------------------------------------


@cache
def api() -> Any:
    """As a library reads it that takes long to import, in each worker: when the first test needs it."""
    import schemathesis

    return schemathesis.openapi.from_dict(DOCUMENT)


def posted(path: str) -> st.SearchStrategy[Any]:
    return st.deferred(lambda: api()[path]["POST"].as_strategy())


PNG = "data:image/png;base64,iVBORw0KGgo="
quickly = settings(so_many(40), deadline=None, suppress_health_check=list(HealthCheck))


@given(case=posted("/v1/chat"))
@quickly
def test_what_the_schema_of_a_chat_allows_is_taken_or_refused_for_what_it_cannot_say(case: Any) -> None:
    try:
        request = read_chat_request(msgspec.json.encode(case.body))
        for image in request.images:
            read_image(image, "images")
        offer_of(request)
    except InvalidRequest as error:
        if not (error.param or "").startswith(CANNOT_SAY):
            raise


@given(case=posted("/v1/chat/{id}/answer"))
@quickly
def test_what_the_schema_of_an_answer_allows_is_taken_or_refused_for_what_it_cannot_say(case: Any) -> None:
    try:
        results_of(read_answer(msgspec.json.encode(case.body)).tool_results or ())
    except InvalidRequest as error:
        if error.param != "text" and not (error.param or "").endswith("].content"):
            raise


def whole_numbers(value: Any) -> Any:
    """To JSON Schema 1.0 is an integer; to the reader it is not, and no client writes one so."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {key: whole_numbers(item) for key, item in value.items()}
        case list():
            return [whole_numbers(item) for item in value]
        case _:
            return value


# What a schema cannot say: names that differ, one of them, something in some message, a JSON Schema that is one.
CANNOT_SAY = ("follows", "tools", "tool_choice", "toolChoice", "messages", "response_format")


@given(case=posted("/v1/chat/completions"))
@quickly
def test_what_the_schema_of_a_completion_allows_is_taken_or_refused_for_what_it_cannot_say(case: Any) -> None:
    try:
        read_request(msgspec.json.encode(whole_numbers(case.body)))
    except InvalidRequest as error:
        if not (error.param or "").startswith(CANNOT_SAY):
            raise


@given(case=posted("/v1/messages"))
@quickly
def test_what_the_schema_of_a_message_allows_is_taken_or_refused_for_what_it_cannot_say(case: Any) -> None:
    try:
        read_messages_request(msgspec.json.encode(whole_numbers(case.body)))
    except InvalidRequest as error:
        if not (error.param or "").startswith((*CANNOT_SAY, "output_config", "output_format", "cursor")):
            raise


ASKED: Json = {"messages": [{"role": "user", "content": "Hi"}]}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"message": ""},
        {"message": " \n"},
        {"message": 1},
        {"message": "Hi", "mode": "think"},
        {"message": "Hi", "model": ""},
        {"message": "Hi", "include": ["everything"]},
        {"message": "Hi", "stream": "yes"},
        {"message": "Hi", "conversation_id": "conv_1"},
        {"message": "Hi", "tools": [{}]},
        {"message": "Hi", "tools": [{"name": None}]},
        {"message": "Hi", "tools": [{"name": ""}]},
        {"message": "Hi", "tools": [{"name": "a", "parameters": {"type": "string"}}]},
        {"message": "Hi", "tools": [{"function": {"name": "a", "parameters": {"type": "string"}}}]},
        {"message": "Hi", "toolChoice": "maybe"},
        {"message": "Hi", "toolChoice": {"name": ""}},
        {"message": "Hi", "tool_choice": "auto"},
    ],
)
def test_what_the_reader_of_a_chat_refuses_the_schema_does_not_allow(body: Json) -> None:
    assert complaints(body, ref("ChatRequest"))
    with pytest.raises(InvalidRequest):
        offer_of(read_chat_request(msgspec.json.encode(body)))


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"stream": True},
        {"toolResults": []},
        {"toolResults": None},
        {"toolResults": [{"toolCallId": "k"}]},
        {"toolResults": [{"toolCallId": "", "content": ""}]},
        {"toolResults": [{"toolCallId": "k", "content": ""}], "plan": "accept"},
        {"answers": [{}]},
        {"answers": [{"questionId": "q"}], "plan": "accept"},
        {"plan": "perhaps"},
    ],
)
def test_what_the_reader_of_an_answer_refuses_the_schema_does_not_allow(body: Json) -> None:
    assert complaints(body, ref("AnswerRequest"))
    with pytest.raises(InvalidRequest):
        read_answer(msgspec.json.encode(body))


@pytest.mark.parametrize(
    "body",
    [
        {"toolResults": [{"toolCallId": "k", "content": content}], "answers": None, "plan": None}
        for content in ("x", None, 1, {"a": 1}, [1], [{"type": "text", "text": "x"}])
    ],
)
def test_any_result_is_allowed_and_taken(body: Json) -> None:
    assert complaints(body, ref("AnswerRequest")) == []
    assert len(results_of(read_answer(msgspec.json.encode(body)).tool_results or ())) == 1


@pytest.mark.parametrize("image", ["x", "https://example.org/x.png", "data:text/html;base64,aGk=", "data:image/png,x"])
def test_what_is_no_image_is_refused_by_both(image: str) -> None:
    assert complaints({"message": "Hi", "images": [image]}, ref("ChatRequest"))
    with pytest.raises(InvalidRequest):
        read_image(image, "images[0]")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": []},
        {"messages": [{"role": "wizard", "content": "Hi"}]},
        {"messages": [{"role": "user"}]},
        {"messages": [{"role": "tool", "content": "Hi"}]},
        {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "https://example.org/x.png"}]}]},
        {"messages": [{"role": "system", "content": [{"type": "image_url", "image_url": PNG}]}]},
        {**ASKED, "model": ""},
        {**ASKED, "n": 2},
        {**ASKED, "logprobs": True},
        {**ASKED, "top_logprobs": 1},
        {**ASKED, "modalities": ["text", "audio"]},
        {**ASKED, "max_tokens": 0},
        {**ASKED, "stop": ["a", "b", "c", "d", "e"]},
        {**ASKED, "response_format": {"type": "xml"}},
        {**ASKED, "tools": [{"type": "retrieval"}]},
        {**ASKED, "tools": [{"function": {"name": "ls", "parameters": {"type": "string"}}}]},
        {**ASKED, "tool_choice": "maybe"},
        {**ASKED, "functions": [{"name": "ls"}]},
        {**ASKED, "temperature": "hot"},
        {**ASKED, "cursor": {"workspce": "/tmp"}},
        {**ASKED, "cursor": {"mode": "think"}},
    ],
)
def test_what_the_reader_of_a_completion_refuses_the_schema_does_not_allow(body: Json) -> None:
    assert complaints(body, ref("ChatCompletionRequest"))
    with pytest.raises(InvalidRequest):
        read_request(msgspec.json.encode(body))


@pytest.mark.parametrize(
    "body",
    [
        ASKED,
        {**ASKED, "model": None, "stream": None, "stop": None, "tools": None, "n": None, "unheard_of": {}},
        {**ASKED, "n": 1, "logprobs": False, "top_logprobs": 0, "modalities": ["text"], "stop": "END"},
        {**ASKED, "max_tokens": 5, "max_completion_tokens": 5, "temperature": 0, "reasoning_effort": "low"},
        {**ASKED, "tools": [{"type": "function", "function": {"name": "ls", "strict": False}}], "tool_choice": "auto"},
        *(
            {**ASKED, "tools": [{"type": "function", "function": {"name": "ls"}}], "tool_choice": choice}
            for choice in ("none", "required", {"type": "function", "function": {"name": "ls"}}, None)
        ),
        {**ASKED, "functions": [], "function_call": "auto"},
        {**ASKED, "cursor": {"mode": "plan", "conversationId": "conv_1", "include": ["thinking"]}},
        {
            "messages": [
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "image_url", "image_url": PNG}]},
                {
                    "role": "assistant",
                    "content": None,
                    "reasoning_content": "Hm.",
                    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}],
                },
                {
                    "role": "tool",
                    "tool_call_id": "c1",
                    "content": [{"type": "image_url", "image_url": {"url": PNG, "detail": "high"}}],
                },
                {"role": "function", "name": "ls", "content": None},
            ]
        },
    ],
)
def test_what_real_clients_send_is_allowed_and_taken(body: Json) -> None:
    assert complaints(body, ref("ChatCompletionRequest")) == []
    read_request(msgspec.json.encode(body))


# --- what is told ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("found", scenarios(), ids=lambda found: found.name)
def test_what_openais_dialect_says_of_a_scenario_is_valid(found: Scenario) -> None:
    events = list(read_events(found.lines, found.run))
    chunk, completion = validator(ref("ChatCompletionChunk")), validator(ref("ChatCompletion"))
    encoder, fold = ChunkEncoder(HEAD, include_usage=True, agent_tools="tool_calls"), CompletionFold(HEAD)
    for result in SseDecoder().push(b"".join(map(encoder.push, events))):
        if result.data != "[DONE]" and not result.data.startswith('{"error"'):
            chunk.validate(json.loads(result.data))
    for event in events:
        fold.push(event)
    completion.validate(msgspec.to_builtins(fold.completion()))
