"""The agent's own text in each event."""

import pytest

from cursor_gateway.model.document_events import (
    ContentDelta,
    DocumentEnded,
    DocumentEvent,
    DocumentStarted,
    Done,
    Paused,
    Reasoning,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
    ends_reply,
    is_tool,
    reply_usage,
    says_something,
    source_text,
)
from cursor_gateway.model.documents import (
    Envelope,
    ResponseMetadata,
    TextMetadata,
    ToolCallResult,
    Usage,
    make_document,
)

DOCUMENT = make_document("doc_001", 1, "Hi", TextMetadata())
ENVELOPE = Envelope(
    id="chat_1",
    conversation_id="conv_1",
    model="auto",
    mode="agent",
    created="2026-02-23T10:30:00Z",
    status="completed",
    usage=Usage(prompt_tokens=1, completion_tokens=1, total_tokens=2),
    metadata=ResponseMetadata(duration_ms=0, tool_call_count=0, turn_count=1),
)


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (DocumentStarted("doc_001", "code_block", 1, raw="```py\n"), "```py\n"),
        (DocumentStarted("doc_001", "text", 1), ""),
        (ContentDelta("doc_001", "Hi"), "Hi"),
        (ContentDelta("doc_001", "x", raw="  x"), "  x"),
        (ContentDelta("doc_001", "a plan", raw=""), ""),
        (DocumentEnded(DOCUMENT, raw="\n```"), "\n```"),
        (DocumentEnded(DOCUMENT), ""),
        (Paused(ENVELOPE, raw="\n"), "\n"),
        (Paused(ENVELOPE), ""),
        (Done(ENVELOPE, raw="\n"), "\n"),
        (Done(ENVELOPE), ""),
        (ToolCallStarted("doc_001", "grep", "c"), ""),
        (ToolCallArguments("doc_001", {"pattern": "x"}), ""),
        (ToolCallEnded("doc_001", ToolCallResult(status="success", data="x")), ""),
        (Reasoning("hm", opens=True), ""),
    ],
)
def test_an_event_tells_the_agents_text_in_it_and_no_other(event: DocumentEvent, text: str) -> None:
    assert source_text(event) == text


def test_an_error_and_the_end_say_nothing() -> None:
    assert says_something(DocumentStarted("doc_001", "text", 1))
    assert says_something(Reasoning("hm"))
    assert not says_something(DocumentStarted("doc_001", "error", 1))
    assert not says_something(ContentDelta("doc_001", "why"))


def test_the_context_is_the_last_calls_where_that_is_not_all() -> None:
    last = Usage(prompt_tokens=5, completion_tokens=1, total_tokens=6)
    for kind in (Paused, Done):
        assert reply_usage(kind(ENVELOPE)) == ENVELOPE.usage
        assert reply_usage(kind(ENVELOPE, last_call=last)) == last


def test_what_a_tool_does_is_neither_text_nor_thinking_nor_an_error() -> None:
    assert is_tool(DocumentStarted("doc_001", "terminal_command", 1))
    assert is_tool(DocumentStarted("doc_001", "file_edit", 1))
    assert not any(is_tool(DocumentStarted("doc_001", type, 1)) for type in ("text", "thinking", "error"))


def test_a_reply_ends_at_a_pause_unless_it_goes_on() -> None:
    assert ends_reply(Paused(ENVELOPE))
    assert not ends_reply(Paused(ENVELOPE, goes_on=True))
    assert not ends_reply(Done(ENVELOPE))
