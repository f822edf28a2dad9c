"""Requests for responses."""

import json
from typing import Any

import pytest

from cursor_gateway.dialects.responses.conversation import SUMMARY_REQUEST
from cursor_gateway.dialects.responses.request import IGNORED, ResponsesRequest, read_request
from cursor_gateway.dialects.responses.shapes import ConversationReference, item_id
from cursor_gateway.errors import InvalidRequest
from cursor_gateway.model.messages import Instructions, UserMessage
from cursor_gateway.prompting.structured import JsonObject, JsonSchema

CODEX = {"originator": "codex_exec"}
TOOL = {"type": "function", "name": "f"}


def read(headers: dict[str, str] | None = None, **fields: Any) -> ResponsesRequest:
    return read_request(json.dumps({"input": "Hi", **fields}).encode(), headers or {})


def refused(**fields: Any) -> str | None:
    with pytest.raises(InvalidRequest) as raised:
        read(**fields)
    return raised.value.param


def test_the_least() -> None:
    request = read()
    assert request.conversation.messages == (UserMessage("Hi"),)
    assert (request.model, request.stream, request.background, request.store) == (None, False, False, True)
    assert (request.follows, request.conversation_id, request.format, request.codex) == (None, None, None, None)
    assert request.toolbox.offer is None
    assert request.asked.input == [{"type": "message", "role": "user", "content": "Hi"}]


def test_everything_is_echoed() -> None:
    fields: dict[str, Any] = {
        "frequency_penalty": 0.5,
        "instructions": "Be brief.",
        "max_output_tokens": 100,
        "max_tool_calls": 3,
        "metadata": {"a": "b"},
        "parallel_tool_calls": False,
        "presence_penalty": 0.5,
        "prompt_cache_key": "k",
        "reasoning": {"effort": "low", "summary": "auto"},
        "safety_identifier": "s",
        "service_tier": "flex",
        "store": False,
        "temperature": 0.0,
        "text": {"verbosity": "low", "format": {"type": "json_object"}},
        "tool_choice": "none",
        "tools": [{"type": "web_search"}],
        "top_logprobs": 2,
        "top_p": 0.5,
        "truncation": "auto",
    }
    request = read(**fields, model="auto", previous_response_id="resp_1")
    echo = request.asked.echo
    assert {name: getattr(echo, name) for name in fields} == fields
    assert echo.previous_response_id == "resp_1"
    assert request.asked.max_tokens == 100
    assert read(background=True).asked.echo.background


def test_functions_are_echoed_with_all_their_fields() -> None:
    full = {"type": "function", "name": "f", "description": None, "parameters": None, "strict": False}
    assert read(tools=[TOOL]).asked.echo.tools == [full]
    assert read().asked.echo.text == {"format": {"type": "text"}}
    assert read(text={"format": None}).asked.echo.text == {"format": {"type": "text"}}
    assert read().asked.echo.reasoning == {"effort": None, "summary": None}


def test_known_fields_that_change_nothing_and_unknown_ones_are_accepted() -> None:
    assert set(IGNORED) >= {"temperature", "truncation", "user"}
    read(user="me", prompt_cache_retention="24h", context_management=[{}], stream_options={}, brand_new={"a": 1})


def test_instructions_are_part_of_a_whole_conversation_but_not_of_one_that_goes_on() -> None:
    whole = read(instructions="Be brief.")
    assert whole.conversation.messages[0] == Instructions("Be brief.")
    assert whole.instructions == ""
    for going_on in (
        read(instructions="Be brief.", previous_response_id="resp_1"),
        read(instructions="Be brief.", conversation="conv_1"),
    ):
        assert going_on.conversation.messages == (UserMessage("Hi"),)
        assert going_on.instructions == "Be brief."


def test_instructions_may_be_items() -> None:
    assert read(instructions=[{"role": "developer", "content": "Be brief."}]).conversation.messages[0] == Instructions(
        "Be brief."
    )
    assert refused(instructions=[]) == "instructions"


def test_conversations() -> None:
    assert read(conversation="conv_1").conversation_id == "conv_1"
    request = read(conversation={"id": "conv_1"})
    assert request.conversation_id == "conv_1"
    assert request.asked.echo.conversation == ConversationReference("conv_1")
    assert read(previous_response_id="resp_1").follows == "resp_1"


def test_what_is_refused() -> None:
    assert refused(input=7) == "input"
    assert refused(input=None) == "input"
    assert refused(prompt={"id": "pmpt_1"}) == "prompt"
    assert refused(background=True, store=False) == "background"
    assert refused(conversation="conv_1", previous_response_id="resp_1") == "conversation"
    assert refused(max_output_tokens=0) == "max_output_tokens"
    assert refused(cursor={"mode": "fast"}) == "cursor.mode"
    assert refused(text={"format": {"type": "xml"}}) == "text.format.type"


def test_formats() -> None:
    schema = {"type": "object"}
    assert read(text={"format": {"type": "text"}}).format is None
    assert read(text={"format": {"type": "json_object"}}).format == JsonObject()
    named = {"type": "json_schema", "name": "n", "description": "d", "schema": schema, "strict": True}
    request = read(text={"format": named})
    assert request.format == JsonSchema(schema, "n", "d", strict=True)
    assert request.asked.is_json
    assert read(text={"format": {"type": "json_schema", "name": "n"}}).format == JsonSchema({}, "n")
    assert refused(text={"format": {"type": "json_schema", "schema": {"type": "x"}}}) == "text.format.schema"
    huge = {"description": "x" * 200_000}
    assert refused(text={"format": {"type": "json_schema", "schema": huge}}) == "text.format.schema"


def test_options_of_ours() -> None:
    assert read(cursor={"mode": "plan"}).cursor.mode == "plan"
    assert read({"x-cursor-mode": "ask"}).cursor.mode == "ask"


def test_reasoning_is_encrypted_when_it_is_asked_for() -> None:
    assert read(include=["reasoning.encrypted_content"]).asked.has_encrypted_content
    assert not read(include=[]).asked.has_encrypted_content


def test_tools_come_from_the_request_and_its_items() -> None:
    items = [
        {"type": "additional_tools", "tools": [{"type": "custom", "name": "g"}]},
        {"role": "user", "content": "Hi"},
    ]
    offer = read(tools=[TOOL], input=items, parallel_tool_calls=False).toolbox.offer
    assert offer is not None
    assert [tool.name for tool in offer.tools] == ["f", "g"]
    assert not offer.parallel


def test_searches_are_known_to_a_client_that_declares_them() -> None:
    assert read(tools=[{"type": "web_search_preview"}]).asked.knows_searches
    assert not read(tools=[TOOL]).asked.knows_searches


def test_codex_that_retries_asks_the_same_as_before() -> None:
    answer = {"type": "message", "id": item_id("msg", f"chat_{'0' * 32}", 0, 0), "role": "assistant", "content": "x"}
    items = [{"role": "user", "content": "Hi"}]
    again = read(CODEX, input=[*items, answer])
    assert again.conversation == read(CODEX, input=items).conversation
    assert again.known == {answer["id"]}
    other = read(input=[*items, answer])
    assert (len(other.conversation.messages), other.known) == (2, frozenset())


def test_codex_gets_no_echo_of_what_is_large() -> None:
    echo = read(CODEX, tools=[TOOL], instructions="Be brief.", metadata={"a": "b"}).asked.echo
    assert (echo.tools, echo.instructions, echo.metadata) == ([], None, {"a": "b"})


def test_a_summary_is_made_without_tools() -> None:
    items = [{"role": "user", "content": "Hi"}, {"type": "compaction_trigger"}]
    request = read(CODEX, input=items, tools=[TOOL], text={"format": {"type": "json_object"}})
    assert request.asked.is_compaction
    assert request.conversation.messages == (UserMessage("Hi"), UserMessage(SUMMARY_REQUEST))
    assert request.toolbox.offer is None
    assert request.format is None
    turn = {**CODEX, "x-codex-turn-metadata": '{"request_kind": "compaction"}'}
    plain = read(turn, tools=[TOOL])
    assert not plain.asked.is_compaction
    assert plain.toolbox.offer is None
