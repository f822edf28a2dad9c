"""Write the answer of `chat` to standard output, in the format that was asked for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

from cursor_gateway.cli.output import write_json, write_text
from cursor_gateway.dialects.documents.encoder import encode_response
from cursor_gateway.model.document_events import ContentDelta, DocumentEnded, DocumentEvent, DocumentStarted
from cursor_gateway.model.documents import CodeBlockDocument, CodeReferenceDocument, fenced
from cursor_gateway.stages.run_state import Transcript

Form: TypeAlias = Literal["view", "json", "text"]


@contextmanager
def output_of(form: Form) -> Iterator[Callable[[DocumentEvent], None]]:
    """A function that takes each event."""
    match form:
        case "view":
            from cursor_gateway.cli.terminals import terminal
            from cursor_gateway.render.terminal import TerminalView

            with TerminalView(terminal()) as view:
                yield view.push
        case "json":
            yield _Json().push
        case "text":
            text = _Text()
            try:
                yield text.push
            finally:
                text.end()


class _Json:
    """Nothing until the run is done, then all of it."""

    def __init__(self) -> None:
        self._transcript = Transcript()

    def push(self, event: DocumentEvent, /) -> None:
        self._transcript.push(event)
        if (response := self._transcript.response()) is not None:
            write_json(encode_response(response))


class _Text:
    """The agent's text as Markdown, with an empty line between two documents.

    The same for every source: a gateway's documents do not include the text between them.
    """

    def __init__(self) -> None:
        self._prose: set[str] = set()  # open documents whose deltas are written at once
        self._has_written = False

    def push(self, event: DocumentEvent, /) -> None:
        match event:
            case DocumentStarted(id=id, type="text"):
                self._prose.add(id)
                self._begin()
            case ContentDelta(id=id, text=text) if id in self._prose:
                self._say(text)
            case DocumentEnded(document=CodeBlockDocument() as document):
                self._begin()
                self._say(fenced(document.metadata.language, document.content))
            case DocumentEnded(document=CodeReferenceDocument() as document):
                place = document.metadata
                self._begin()
                self._say(fenced(f"{place.start_line}:{place.end_line}:{place.file_path}", document.content))
            case _:  # what it does
                pass

    def end(self) -> None:
        if self._has_written:
            write_text("\n")

    def _begin(self) -> None:
        if self._has_written:
            write_text("\n\n")

    def _say(self, text: str) -> None:
        self._has_written = True
        write_text(text)
