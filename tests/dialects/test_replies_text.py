"""The agent's plain text, to the byte."""

from cursor_gateway.dialects.replies import TextEncoder
from cursor_gateway.model.document_events import ContentDelta, DocumentEvent, DocumentStarted, Reasoning


def test_only_what_the_agent_said_is_written() -> None:
    events: list[DocumentEvent] = [
        Reasoning("hm", opens=True),
        DocumentStarted("doc_001", "code_block", 1, raw="é\n```py\n"),
        ContentDelta("doc_001", "x", raw="  x"),
        ContentDelta("doc_001", "\u2028\U0001f600"),
        ContentDelta("doc_001", "a plan", raw=""),
    ]
    encoder = TextEncoder()
    assert b"".join(encoder.push(event) for event in events) == "é\n```py\n  x\u2028\U0001f600".encode()
