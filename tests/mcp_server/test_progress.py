"""One line for each thing that the agent does."""

import pytest

from cursor_gateway.mcp_server.progress import progress_line
from cursor_gateway.model.document_events import (
    ContentDelta,
    DocumentEnded,
    DocumentEvent,
    DocumentStarted,
    KnownMetadata,
    Paused,
    Reasoning,
    TerminalOutput,
)
from cursor_gateway.model.documents import ErrorMetadata, TextMetadata, make_document
from tests.mcp_server.responses import command, response


def text(content: str) -> DocumentEvent:
    return DocumentEnded(make_document("doc_001", 1, content, TextMetadata()))


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (DocumentStarted("doc_001", "terminal_command", 1, KnownMetadata(command="npm\n test")), "Running `npm test`"),
        (DocumentStarted("doc_001", "text", 1), ""),
        (ContentDelta("doc_001", "Hello"), ""),
        (TerminalOutput("doc_001", "x"), ""),
        (text("\nFirst line.\nSecond line."), "First line."),
        (text("x" * 300), "x" * 199 + "…"),
        (DocumentEnded(command("npm test")), "Ran `npm test` (exit status 0)"),
        (
            DocumentEnded(make_document("doc_001", 1, "No.", ErrorMetadata(error_code="X", source="y", details=""))),
            "",
        ),
        (Reasoning("Hm."), ""),
        (Paused(response().envelope), "Waiting for an answer"),
    ],
)
def test_the_line_of_an_event(event: DocumentEvent, line: str) -> None:
    assert progress_line(event) == line
