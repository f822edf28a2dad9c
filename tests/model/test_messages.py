"""Conversations."""

from cursor_gateway.model.messages import (
    AssistantMessage,
    Call,
    Instructions,
    Message,
    ToolMessage,
    UserMessage,
    without_call_ids,
)


def test_calls_lose_their_ids() -> None:
    others: list[Message] = [Instructions("Be kind."), UserMessage("Hi")]
    called: list[Message] = [AssistantMessage("", (Call("call_1", "look", "{}"),)), ToolMessage("ok", "call_1", "look")]
    quoted: list[Message] = [AssistantMessage("", (Call("", "look", "{}"),)), ToolMessage("ok", "", "look")]
    assert without_call_ids([*others, *called]) == [*others, *quoted]
