"""Small runs for the tests of dialects: document events, and what a dialect knows of the run beside them."""

from collections.abc import Sequence

from msgspec import UNSET

from cursor_gateway.dialects.base import RunView
from cursor_gateway.errors import Failure
from cursor_gateway.model import document_events, documents
from cursor_gateway.model.requests import RunInfo

USAGE = documents.Usage(prompt_tokens=10, completion_tokens=5, total_tokens=15)
RUN = RunView(
    RunInfo(id="chat_0a1b", created="2026-02-23T10:30:00Z", model="auto", conversation_id="conv_1", known_tokens=7),
    1_771_842_600,
    "What is it?",
)


def _envelope(
    failure: Failure | None,
    waiting: Sequence[documents.WaitingCall] = (),
    refused: Sequence[documents.RefusedCall] = (),
) -> documents.Envelope:
    status: documents.Status = "streaming" if waiting else "error" if failure else "completed"
    return documents.Envelope(
        id="chat_0a1b",
        conversation_id="conv_1",
        model="auto",
        mode="agent",
        created="2026-02-23T10:30:00Z",
        status=status,
        usage=USAGE,
        metadata=documents.ResponseMetadata(
            duration_ms=5,
            tool_call_count=0,
            turn_count=1,
            refused_count=len(refused) or UNSET,
            refused=list(refused) or UNSET,
            waiting_for=list(waiting),
        ),
    )


def done(failure: Failure | None = None, refused: Sequence[documents.RefusedCall] = ()) -> document_events.Done:
    return document_events.Done(_envelope(failure, refused=refused), failure)


def paused(*ids: str) -> document_events.Paused:
    calls = [
        documents.WaitingCall(tool_call_id=id, tool_name="look", arguments={"a": 1}, document_id="doc_001")
        for id in ids
    ]
    return document_events.Paused(_envelope(None, calls))


def ended(metadata: documents.Metadata, content: str | None = None, sequence: int = 1) -> document_events.DocumentEnded:
    return document_events.DocumentEnded(documents.make_document(f"doc_{sequence:03d}", sequence, content, metadata))


def words(*texts: str) -> list[document_events.DocumentEvent]:
    """One document of text."""
    return [
        document_events.DocumentStarted("doc_001", "text", 1),
        *(document_events.ContentDelta("doc_001", text) for text in texts),
        ended(documents.TextMetadata(), "".join(texts)),
    ]
