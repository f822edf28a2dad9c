"""Document events in; what the view prints of them out, as text, as it is written and as a screen."""

from collections.abc import Iterable
from io import StringIO

from cursor_gateway.model.document_events import DocumentEnded, DocumentEvent, DocumentStarted
from cursor_gateway.model.documents import Metadata, document_type, make_document
from cursor_gateway.model.requests import RunInfo
from cursor_gateway.reader import DocumentReader
from cursor_gateway.render.terminal import TerminalView, make_console
from tests.render.screen import screen

RUN = RunInfo(id="chat_1", created="2026-02-23T10:30:00Z", include=frozenset({"thinking"}))


def written(events: Iterable[DocumentEvent], *, plain: bool = False, width: int = 80, height: int = 25) -> str:
    out = StringIO()
    console = make_console(out, plain=plain, width=width)
    console.height = height
    with TerminalView(console) as view:
        for event in events:
            view.push(event)
    return out.getvalue()


def plain_text(events: Iterable[DocumentEvent]) -> str:
    return written(events, plain=True)


def on_screen(events: Iterable[DocumentEvent], *, width: int = 80, height: int = 25) -> str:
    return "\n".join(screen(written(events, width=width, height=height), height=height))


def events_of(recording: bytes, run: RunInfo = RUN) -> list[DocumentEvent]:
    """One read a line, as a slow agent gives them."""
    reader = DocumentReader(run)
    events = [event for line in recording.splitlines(keepends=True) for event in reader.push(line)]
    return [*events, *reader.flush()]


def whole(metadata: Metadata, content: str | None = None, number: int = 1) -> list[DocumentEvent]:
    """A document that starts and ends at once."""
    document = make_document(f"doc_{number:03d}", number, content, metadata)
    return [DocumentStarted(document.id, document_type(metadata), number), DocumentEnded(document)]
