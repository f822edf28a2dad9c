"""End a run that has no end, or take a snapshot of it."""

from collections.abc import Iterable
from typing import Any, TypeGuard

from msgspec import UNSET, Struct, structs

from cursor_gateway.errors import Failure
from cursor_gateway.model.actions import INTERRUPTED, RUNNING, WAITING, OtherTool, Outcome
from cursor_gateway.model.agent_events import RunFailed
from cursor_gateway.model.document_events import (
    ContentDelta,
    DocumentEnded,
    DocumentEvent,
    DocumentStarted,
    Done,
    KnownMetadata,
    Paused,
    Reasoning,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
    source_text,
)
from cursor_gateway.model.documents import (
    ChatResponse,
    CodeBlockMetadata,
    CodeReferenceMetadata,
    Document,
    DocumentType,
    Envelope,
    ErrorMetadata,
    Metadata,
    TextMetadata,
    ThinkingMetadata,
    ToolCallMetadata,
    ToolCallResult,
    make_document,
    whole_response,
)
from cursor_gateway.model.run_info import RunInfo
from cursor_gateway.stages import tool_documents
from cursor_gateway.stages.assembler import Assembler, OpenProse, OpenTool
from cursor_gateway.stages.tool_documents import ToolType
from cursor_gateway.stages.transcript import Transcript
from cursor_gateway.stages.turns import Turns

_PROSE: frozenset[DocumentType] = frozenset({"text", "code_reference", "code_block", "thinking"})
_NOTHING = KnownMetadata()


class _Open(Struct):
    id: str
    type: DocumentType
    sequence: int
    known: KnownMetadata
    pieces: list[str]
    tool_name: str = ""
    call_id: str = ""
    arguments: dict[str, Any] = {}
    result: ToolCallResult | None = None


class PartialRun:
    """Follows a run by its events alone, which are all that a dead gateway leaves of it."""

    def __init__(self, events: Iterable[DocumentEvent] = ()) -> None:
        self._transcript = Transcript()
        self._open: dict[str, _Open] = {}
        self._turns = Turns()
        self._calls = 0
        self._last_sequence = 0
        self._output: list[str] = []
        self._paused: Envelope | None = None  # until the next event
        for event in events:
            self.push(event)

    def push(self, event: DocumentEvent, /) -> None:
        self._transcript.push(event)
        self._paused = event.envelope if isinstance(event, Paused) else None
        match event:
            case DocumentStarted(id=id, type=type, sequence=sequence, metadata=known):
                self._open[id] = _Open(id, type, sequence, known or _NOTHING, [])
                self._last_sequence = sequence
                self._calls += type == "tool_call"
                if type in _PROSE:
                    self._turns.output()
                elif type != "error":
                    self._turns.tool(None)
            case ContentDelta(id=id, text=text):
                self._open[id].pieces.append(text)
            case ToolCallStarted(id=id, tool_name=name, tool_call_id=call_id):
                self._open[id].tool_name, self._open[id].call_id = name, call_id
            case ToolCallArguments(id=id, arguments=arguments):
                self._open[id].arguments = arguments
            case ToolCallEnded(id=id, result=result):
                self._open[id].result = result
            case DocumentEnded(document=document):
                if self._open.pop(document.id).type not in (*_PROSE, "error"):
                    self._turns.end()
            case Reasoning(text=text):
                self._turns.output()
                self._output.append(text)
            case Paused() | Done():
                pass
        self._output.append(source_text(event))

    def response(self, run: RunInfo, prompt: str) -> ChatResponse:
        """The whole response if the run is done; else a snapshot."""
        return self._transcript.response() or self.snapshot(run, prompt)

    def snapshot(self, run: RunInfo, prompt: str) -> ChatResponse:
        """The response so far. A tool that is still running, or waits for the caller, says so and has no result."""
        unfinished = [self._document(open, WAITING if open.known.state else RUNNING) for open in self._open.values()]
        documents = sorted([*self._transcript.documents, *unfinished], key=lambda document: document.sequence)
        envelope = self._paused or structs.replace(
            self._resumed(run, prompt).envelope(), conversation_id=run.conversation_id or ""
        )
        return whole_response(envelope, documents)

    def end(self, run: RunInfo, prompt: str, failure: Failure) -> list[DocumentEvent]:
        """The events that end it, as they end any run that failed."""
        assembler, events = self._assembler(run, prompt)
        return events + assembler.push(RunFailed(failure=failure))

    def interrupt(self, run: RunInfo, prompt: str, note: str) -> tuple[Assembler, list[DocumentEvent]]:
        """What continues it, after events that end what is open and say what has happened."""
        assembler, events = self._assembler(run, prompt)
        return assembler, events + assembler.interrupt(note)

    def _assembler(self, run: RunInfo, prompt: str) -> tuple[Assembler, list[DocumentEvent]]:
        """The state as if it had assembled the run so far, and the events that it would have sent next."""
        events: list[DocumentEvent] = []
        for open in list(self._open.values()):
            if open.type == "tool_call" and not open.call_id:  # cut off between its start and its name
                open.tool_name, open.call_id = "unknown", f"call_{open.sequence:03d}"
                events.append(ToolCallStarted(open.id, open.tool_name, open.call_id))
            if open.result is not None:  # cut off between its result and its end
                events.append(DocumentEnded(self._document(open, INTERRUPTED)))
                del self._open[open.id]
        return self._resumed(run, prompt), events

    def _resumed(self, run: RunInfo, prompt: str) -> Assembler:
        prose = [
            OpenProse(open.id, open.sequence, _prose_metadata(open.type, open.known), open.pieces)
            for open in self._open.values()
            if not _is_tool(open.type)
        ]
        assembler = Assembler(run)
        assembler.resume(
            sequence=self._last_sequence,
            prose=prose[0] if prose else None,
            tools=[_tool(open, open.type) for open in self._open.values() if _is_tool(open.type)],
            tool_calls=self._calls,
            turns=self._turns,
            model_output=list(self._output),
            prompt=prompt,
        )
        return assembler

    def _document(self, open: _Open, outcome: Outcome) -> Document:
        return make_document(open.id, open.sequence, "".join(open.pieces) or None, _metadata(open, outcome))


def _is_tool(type: DocumentType) -> TypeGuard[ToolType]:
    return type not in _PROSE and type != "error"


def _tool(open: _Open, type: ToolType) -> OpenTool:
    content = "".join(open.pieces)
    action = tool_documents.action_of(type, open.known, content)
    if isinstance(action, OtherTool):
        action = OtherTool(tool=open.tool_name, arguments=open.arguments)
    by_caller = open.known.ran_by == "caller"
    waits = open.known.state == "waiting" and bool(open.call_id)
    return OpenTool(open.id, open.sequence, open.call_id, action, waits, by_caller, content or None)


def _metadata(open: _Open, outcome: Outcome) -> Metadata:
    if not _is_tool(type := open.type):
        return _prose_metadata(type, open.known)
    tool = _tool(open, type)
    id = tool.call_id
    metadata = tool_documents.metadata_of(
        tool.action, outcome, call_id=id, agent_call_id=id, payload=UNSET, by_caller=tool.by_caller
    )
    if isinstance(metadata, ToolCallMetadata) and open.result is not None:
        return structs.replace(metadata, result=open.result)
    return metadata


def _prose_metadata(type: DocumentType, known: KnownMetadata) -> Metadata:
    match type:
        case "text":
            return TextMetadata()
        case "thinking":
            return ThinkingMetadata()
        case "code_reference":
            return CodeReferenceMetadata(
                file_path=known.file_path or "",
                start_line=known.start_line or 0,
                end_line=known.end_line or 0,
                language=known.language or "text",
                indent=known.indent,
            )
        case "code_block":
            return CodeBlockMetadata(
                language=known.language or "text", purpose=known.purpose or "new_code", indent=known.indent
            )
        case _:
            return ErrorMetadata(error_code="UNKNOWN", source="agent", details="")
