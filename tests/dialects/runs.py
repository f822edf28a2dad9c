"""Small runs for the tests of dialects: document events, and what a dialect knows of the run beside them."""

from collections.abc import Sequence

from msgspec import UNSET

from cursor_gateway.dialects.base import RunView
from cursor_gateway.errors import Failure
from cursor_gateway.model.document_events import (
    ContentDelta,
    DocumentEnded,
    DocumentEvent,
    DocumentStarted,
    Done,
    Paused,
)
from cursor_gateway.model.documents import (
    Envelope,
    Metadata,
    RefusedCall,
    ResponseMetadata,
    Status,
    TextMetadata,
    Usage,
    WaitingCall,
    make_document,
)
from cursor_gateway.model.requests import RunInfo

USAGE = Usage(prompt_tokens=10, completion_tokens=5, total_tokens=15)
RUN = RunView(
    RunInfo(id="chat_0a1b", created="2026-02-23T10:30:00Z", model="auto", conversation_id="conv_1", known_tokens=7),
    1_771_842_600,
    "What is it?",
)


def _envelope(
    failure: Failure | None, waiting: Sequence[WaitingCall] = (), refused: Sequence[RefusedCall] = ()
) -> Envelope:
    status: Status = "streaming" if waiting else "error" if failure else "completed"
    return Envelope(
        id="chat_0a1b",
        conversation_id="conv_1",
        model="auto",
        mode="agent",
        created="2026-02-23T10:30:00Z",
        status=status,
        usage=USAGE,
        metadata=ResponseMetadata(
            duration_ms=5,
            tool_call_count=0,
            turn_count=1,
            refused_count=len(refused) or UNSET,
            refused=list(refused) or UNSET,
            waiting_for=list(waiting),
        ),
    )


def done(failure: Failure | None = None, refused: Sequence[RefusedCall] = ()) -> Done:
    return Done(_envelope(failure, refused=refused), failure)


def paused(*ids: str) -> Paused:
    calls = [WaitingCall(tool_call_id=id, tool_name="look", arguments={"a": 1}, document_id="doc_001") for id in ids]
    return Paused(_envelope(None, calls))


def ended(metadata: Metadata, content: str | None = None, sequence: int = 1) -> DocumentEnded:
    return DocumentEnded(make_document(f"doc_{sequence:03d}", sequence, content, metadata))


def words(*texts: str) -> list[DocumentEvent]:
    """One document of text."""
    return [
        DocumentStarted("doc_001", "text", 1),
        *(ContentDelta("doc_001", text) for text in texts),
        ended(TextMetadata(), "".join(texts)),
    ]
