"""The agent's own text in each event."""

from typing import get_args

import pytest

from cursor_gateway.model import document_events, documents

DOCUMENT = documents.make_document("doc_001", 1, "Hi", documents.TextMetadata())
ENVELOPE = documents.Envelope(
    id="chat_1",
    conversation_id="conv_1",
    model="auto",
    mode="agent",
    created="2026-02-23T10:30:00Z",
    status="completed",
    usage=documents.Usage(prompt_tokens=1, completion_tokens=1, total_tokens=2),
    metadata=documents.ResponseMetadata(duration_ms=0, tool_call_count=0, turn_count=1),
)


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (document_events.DocumentStarted("doc_001", "code_block", 1, raw="```py\n"), "```py\n"),
        (document_events.DocumentStarted("doc_001", "text", 1), ""),
        (document_events.ContentDelta("doc_001", "Hi"), "Hi"),
        (document_events.ContentDelta("doc_001", "x", raw="  x"), "  x"),
        (document_events.ContentDelta("doc_001", "a plan", raw=""), ""),
        (document_events.DocumentEnded(DOCUMENT, raw="\n```"), "\n```"),
        (document_events.DocumentEnded(DOCUMENT), ""),
        (document_events.Paused(ENVELOPE, raw="\n"), "\n"),
        (document_events.Paused(ENVELOPE), ""),
        (document_events.Done(ENVELOPE, raw="\n"), "\n"),
        (document_events.Done(ENVELOPE), ""),
        (document_events.ToolCallStarted("doc_001", "grep", "c"), ""),
        (document_events.ToolCallArguments("doc_001", {"pattern": "x"}), ""),
        (document_events.ToolCallEnded("doc_001", documents.ToolCallResult(status="success", data="x")), ""),
        (document_events.Reasoning("hm", opens=True), ""),
    ],
)
def test_an_event_tells_the_agents_text_in_it_and_no_other(event: document_events.DocumentEvent, text: str) -> None:
    assert document_events.source_text(event) == text


def test_all_events_with_raw_text_are_known() -> None:
    kinds = get_args(document_events.DocumentEvent)
    assert {kind for kind in kinds if "raw" in kind.__struct_fields__} == set(document_events.WITH_RAW)


def test_an_error_and_the_end_say_nothing() -> None:
    assert document_events.says_something(document_events.DocumentStarted("doc_001", "text", 1))
    assert document_events.says_something(document_events.Reasoning("hm"))
    assert not document_events.says_something(document_events.DocumentStarted("doc_001", "error", 1))
    assert not document_events.says_something(document_events.ContentDelta("doc_001", "why"))


def test_the_context_is_the_last_calls_where_that_is_not_all() -> None:
    last = documents.Usage(prompt_tokens=5, completion_tokens=1, total_tokens=6)
    for kind in (document_events.Paused, document_events.Done):
        assert document_events.reply_usage(kind(ENVELOPE)) == ENVELOPE.usage
        assert document_events.reply_usage(kind(ENVELOPE, last_call=last)) == last


def test_what_a_tool_does_is_neither_text_nor_thinking_nor_an_error() -> None:
    assert document_events.is_tool(document_events.DocumentStarted("doc_001", "terminal_command", 1))
    assert document_events.is_tool(document_events.DocumentStarted("doc_001", "file_edit", 1))
    assert not any(
        document_events.is_tool(document_events.DocumentStarted("doc_001", type, 1))
        for type in ("text", "thinking", "error")
    )


def test_a_reply_ends_at_a_pause_unless_it_goes_on() -> None:
    assert document_events.ends_reply(document_events.Paused(ENVELOPE))
    assert not document_events.ends_reply(document_events.Paused(ENVELOPE, goes_on=True))
    assert not document_events.ends_reply(document_events.Done(ENVELOPE))
