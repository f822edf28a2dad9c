"""Conversations."""

import pytest

from cursor_gateway.errors import InvalidRequest
from cursor_gateway.model import messages


def test_calls_lose_their_ids() -> None:
    others: list[messages.Message] = [messages.Instructions("Be kind."), messages.UserMessage("Hi")]
    called: list[messages.Message] = [
        messages.AssistantMessage("", (messages.ToolCall("call_1", "look", "{}"),)),
        messages.ToolMessage("ok", "call_1", "look"),
    ]
    quoted: list[messages.Message] = [
        messages.AssistantMessage("", (messages.ToolCall("", "look", "{}"),)),
        messages.ToolMessage("ok", "", "look"),
    ]
    assert messages.without_call_ids([*others, *called]) == [*others, *quoted]


def test_a_reply_that_is_only_named_is_quoted() -> None:
    """Of its calls, those whose results are there, and that are not quoted already."""
    look, find, read = (messages.ToolCall(f"call_{name}", name, "{}") for name in ("look", "find", "read"))
    said: list[messages.Message] = [
        messages.UserMessage("Hi"),
        messages.AssistantMessage("", (look,)),
        messages.ToolMessage("a", "call_look", "look"),
        messages.ToolMessage("b", "call_find"),
    ]
    messages.quote_reply(said, 1, "I look.", [look, find, read])
    assert said == [
        messages.UserMessage("Hi"),
        messages.AssistantMessage("I look.", (look, find)),
        messages.ToolMessage("a", "call_look", "look"),
        messages.ToolMessage("b", "call_find", "find"),
    ]


def test_a_message_has_content_if_it_has_text_an_image_or_a_call() -> None:
    full: list[messages.Message] = [
        messages.Instructions("Be kind."),
        messages.UserMessage("", ("a.png",)),
        messages.ToolMessage("", "call_1", "look", ("a.png",)),
        messages.AssistantMessage("", (messages.ToolCall("call_1", "look", "{}"),)),
    ]
    assert all(map(messages.has_content, full))
    empty: list[messages.Message] = [
        messages.Instructions(""),
        messages.UserMessage(" \n"),
        messages.ToolMessage("", "call_1", "look"),
        messages.AssistantMessage(""),
    ]
    assert not any(map(messages.has_content, empty))


def test_a_conversation_says_something_and_has_an_end() -> None:
    messages.check_length(10_000)
    with pytest.raises(InvalidRequest, match="10,000"):
        messages.check_length(10_001)
    messages.check_content([messages.Instructions(""), messages.UserMessage("hello")])
    with pytest.raises(InvalidRequest, match="no text"):
        messages.check_content([messages.UserMessage(" \n")])
