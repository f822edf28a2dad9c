"""A run's documents in; the calls among them that were not run, and where they can be allowed, out."""

from msgspec import UNSET, Struct
from msgspec.structs import replace

from cursor_gateway.model.documents import (
    Document,
    FileEditMetadata,
    RefusedCall,
    TerminalCommandMetadata,
    ToolCallMetadata,
    ToolTrace,
    is_refused,
)

_MOST = 20  # calls that are described; all are counted
_LONGEST = 500  # characters of a subject or a reason


def page_path(conversation_id: str, run_id: str, document_id: str) -> str:
    """Of a document, on the page."""
    return f"/#/c/{conversation_id}/{run_id}/{document_id}"


class Refusals(Struct):
    """Of one run."""

    count: int = 0
    first: list[RefusedCall] = []  # without their links

    def push(self, document: Document) -> None:
        if not is_refused(document):
            return
        self.count += 1
        trace = document.metadata
        if isinstance(trace, ToolTrace) and len(self.first) < _MOST:
            call = RefusedCall(
                document=document.id,
                subject=_shortened(trace.permission.subject if trace.permission else _subject(trace)),
                rules=trace.permission.rules if trace.permission else UNSET,
                reason=_shortened(trace.reason) if trace.reason else UNSET,
            )
            self.first.append(call)

    def copied(self) -> "Refusals":
        return Refusals(self.count, list(self.first))

    def calls(self, conversation_id: str, run_id: str, page_url: str | None) -> list[RefusedCall]:
        """The first of them; those that somebody can allow with their links. See `RunInfo` for `page_url`."""
        if page_url is None:
            return list(self.first)
        found: list[RefusedCall] = []
        for call in self.first:
            if call.rules is not UNSET:
                link = page_path(conversation_id, run_id, call.document)
                call = replace(call, link=link, url=f"{page_url.rstrip('/')}{link}" if page_url else UNSET)
            found.append(call)
        return found


def _subject(trace: ToolTrace) -> str:
    match trace:
        case TerminalCommandMetadata(command=command):
            return command
        case FileEditMetadata(file_path=path):
            return path
        case _:
            return trace.tool_name if isinstance(trace, ToolCallMetadata) else ""


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
