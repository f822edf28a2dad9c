"""Conversations."""

import pytest

from cursor_gateway.errors import InvalidRequest
from cursor_gateway.model.messages import (
    AssistantMessage,
    Instructions,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
    check_content,
    check_length,
    has_content,
    without_call_ids,
)


def test_calls_lose_their_ids() -> None:
    others: list[Message] = [Instructions("Be kind."), UserMessage("Hi")]
    called: list[Message] = [
        AssistantMessage("", (ToolCall("call_1", "look", "{}"),)),
        ToolMessage("ok", "call_1", "look"),
    ]
    quoted: list[Message] = [AssistantMessage("", (ToolCall("", "look", "{}"),)), ToolMessage("ok", "", "look")]
    assert without_call_ids([*others, *called]) == [*others, *quoted]


def test_a_message_has_content_if_it_has_text_an_image_or_a_call() -> None:
    full: list[Message] = [
        Instructions("Be kind."),
        UserMessage("", ("a.png",)),
        ToolMessage("", "call_1", "look", ("a.png",)),
        AssistantMessage("", (ToolCall("call_1", "look", "{}"),)),
    ]
    assert all(map(has_content, full))
    empty: list[Message] = [
        Instructions(""),
        UserMessage(" \n"),
        ToolMessage("", "call_1", "look"),
        AssistantMessage(""),
    ]
    assert not any(map(has_content, empty))


def test_a_conversation_says_something_and_has_an_end() -> None:
    check_length(10_000)
    with pytest.raises(InvalidRequest, match="10,000"):
        check_length(10_001)
    check_content([Instructions(""), UserMessage("hello")])
    with pytest.raises(InvalidRequest, match="no text"):
        check_content([UserMessage(" \n")])
