"""The events of a run in; its state out: what was said, what is open, what it waits for, how it ended.

A run is its log, so whoever has the log has the state: the process that drives the run, another one that ends or
continues it after a crash, and one that only reads it. Each event takes constant time. Documents that have ended are
not kept: they are in the log, and `Transcript` collects them for a whole answer.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeGuard

import msgspec
from msgspec import UNSET, Struct, structs

from cursor_gateway.errors import Failure
from cursor_gateway.model.agent_events import INTERRUPTED, RUNNING, WAITING, Command, OtherTool, Outcome, RunFailed
from cursor_gateway.model.caller_tools import ToolResult
from cursor_gateway.model.document_events import (
    ContentDelta,
    DocumentEnded,
    DocumentEvent,
    DocumentStarted,
    Done,
    KnownMetadata,
    Paused,
    Reasoning,
    TerminalOutput,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
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
    ToolCallDocument,
    ToolCallMetadata,
    ToolCallResult,
    WaitingCall,
    make_document,
    whole_response,
)
from cursor_gateway.model.messages import AssistantMessage, Message, ToolCall, ToolMessage
from cursor_gateway.model.requests import RunInfo
from cursor_gateway.stages import tool_documents
from cursor_gateway.stages.assembler import Assembler, OpenProse, OpenTool
from cursor_gateway.stages.search_tokens import Words
from cursor_gateway.stages.tool_documents import Refusals, ToolType
from cursor_gateway.stages.usage import Turns

_PROSE: frozenset[DocumentType] = frozenset({"text", "code_reference", "code_block", "thinking"})
_NO_TOOLS = _PROSE | {"error"}
_NOTHING = KnownMetadata()


class OpenDocument(Struct):
    """One that has started and not ended."""

    id: str
    type: DocumentType
    sequence: int
    known: KnownMetadata
    pieces: list[str] = []  # of its content
    output: list[str] = []  # of a running command
    tool_name: str = ""
    call_id: str = ""
    arguments: dict[str, Any] = {}
    result: ToolCallResult | None = None

    def learn(self, event: ToolCallStarted | ToolCallArguments | ToolCallEnded | TerminalOutput) -> None:
        match event:
            case ToolCallStarted(tool_name=name, tool_call_id=call_id):
                self.tool_name, self.call_id = name, call_id
            case ToolCallArguments(arguments=arguments):
                self.arguments = arguments
            case ToolCallEnded(result=result):
                self.result = result
            case TerminalOutput(text=text):
                self.output.append(text)


class RunPause(Struct, frozen=True):
    """The run has asked its caller, and its reply ended; or it has asked somebody else, and its reply goes on."""

    number: int  # of the event
    event: Paused
    said: int  # how many pieces of text there were

    def waits_for(self, *, calls: Collection[str] = (), document_id: str = "") -> bool:
        """One of these calls, or the call of this document."""
        waiting = self.event.envelope.metadata.waiting_for or ()
        return any(one.tool_call_id in calls or one.document_id == document_id for one in waiting)


class RunState(Struct):
    count: int = 0  # of events; the number of the last one
    sequence: int = 0  # of the last document
    open: dict[str, OpenDocument] = {}
    said: list[str] = []  # the agent's text, byte for byte
    thought: list[str] = []
    tool_calls: int = 0
    refused: Refusals = msgspec.field(default_factory=Refusals)
    turns: Turns = msgspec.field(default_factory=Turns)
    words: Words = msgspec.field(default_factory=Words)  # to be searched for
    pauses: list[RunPause] = []
    calls: dict[str, ToolCallMetadata] = {}  # of the caller's tools, by their ids, when they have ended
    done: Done | None = None

    def push(self, event: DocumentEvent, /) -> None:
        self.push_all((event,))

    def push_all(self, events: Iterable[DocumentEvent]) -> "RunState":
        """Raises `LookupError` if one is about a document that has not started; its text counts in any case."""
        for event in events:
            self.count += 1
            match event:
                case ContentDelta(id=id, text=text, raw=raw):
                    if source := text if raw is None else raw:
                        self.said.append(source)
                    self.open[id].pieces.append(text)
                case DocumentStarted(id=id, type=type, sequence=sequence, metadata=known, raw=raw):
                    self.open[id] = OpenDocument(id, type, sequence, known or _NOTHING)
                    self.sequence = sequence
                    self.tool_calls += type == "tool_call"
                    if type in _PROSE:
                        if not self.turns.is_open:
                            self.turns.output()
                    elif type != "error":
                        self.turns.tool(None)
                    if raw:
                        self.said.append(raw)
                case DocumentEnded(document=document, raw=raw):
                    if raw:
                        self.said.append(raw)
                    self._end(document)
                case Reasoning(text=text):
                    if not self.turns.is_open:
                        self.turns.output()
                    self.thought.append(text)
                case ToolCallStarted() | ToolCallArguments() | ToolCallEnded() | TerminalOutput():
                    self.open[event.id].learn(event)
                case Paused(raw=raw):
                    if raw:
                        self.said.append(raw)
                    self.pauses.append(RunPause(self.count, event, len(self.said)))
                case Done(raw=raw):
                    if raw:
                        self.said.append(raw)
                    self.done = event
        return self

    def _end(self, document: Document) -> None:
        self.words.push(document)
        if isinstance(document, ToolCallDocument) and document.metadata.ran_by == "caller":
            self.calls[document.metadata.tool_call_id] = document.metadata
        if self.open.pop(document.id).type not in _NO_TOOLS:
            self.refused.push(document)
            self.turns.end()

    @property
    def has_output(self) -> bool:
        """More than an error."""
        return self.turns.count > 0

    # --- replies ------------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """All that the agent wrote."""
        return "".join(self.said)

    @property
    def paused_at(self) -> int:
        """The number of the last pause; 0 without one."""
        return self.pauses[-1].number if self.pauses else 0

    @property
    def last_reply(self) -> str:
        if not self.pauses:
            return self.text
        before = next((pause.said for pause in reversed(self.pauses) if not pause.event.goes_on), 0)
        return "".join(self.said[before:])

    def reply_text(self, after: int) -> str:
        """What the agent wrote in the reply that begins after this event: 0, or a pause."""
        place = bisect_right(self.pauses, after, key=_number)
        first, end = self.pauses[place - 1].said if place else 0, self.next_pause(after)
        return "".join(self.said[first : end.said if end is not None else None])

    def reply_calls(self, after: int) -> list[ToolCall]:
        """What the reply that begins after this event asks its caller for."""
        pause = self.next_pause(after)
        waiting = () if pause is None else pause.event.envelope.metadata.waiting_for or ()
        return [_call(one) for one in waiting]

    def next_pause(self, after: int) -> RunPause | None:
        """The one that ends the reply that begins after this event."""
        place = bisect_right(self.pauses, after, key=_number)
        return next((pause for pause in islice(self.pauses, place, None) if not pause.event.goes_on), None)

    def pause_for(self, *, calls: Collection[str] = (), document_id: str = "") -> int | None:
        """The number of the last pause that waited for one of these calls, or for the call of this document."""
        found = (
            pause.number for pause in reversed(self.pauses) if pause.waits_for(calls=calls, document_id=document_id)
        )
        return next(found, None)

    def are_missing(self, calls: Collection[str]) -> bool:
        """The result of one of these was never given to the agent."""
        return any(id in calls and metadata.state == "interrupted" for id, metadata in self.calls.items())

    def messages(self, results: Mapping[str, ToolResult]) -> list[Message]:
        """The texts, the calls and their results, whether they arrived then or now."""
        messages: list[Message] = []
        for _, text, ids in self.rounds():
            calls = [id for id in ids if id in self.calls]
            if text or calls:
                messages.append(AssistantMessage(text, tuple(_call(self.calls[id]) for id in calls)))
            messages += [ToolMessage(self._given(id, results), id, self.calls[id].tool_name) for id in calls]
        return messages

    def rounds(self) -> Iterator[tuple[int, str, list[str]]]:
        """Of each reply that ended with a pause: its number, what was said, and the calls that it was the first to
        ask for.
        """
        seen: set[str] = set()
        after = 0
        for pause in self.pauses:
            if not pause.event.goes_on:
                ids = [call.tool_call_id for call in pause.event.envelope.metadata.waiting_for or ()]
                yield pause.number, "".join(self.said[after : pause.said]), [id for id in ids if id not in seen]
                seen.update(ids)
                after = pause.said

    def _given(self, id: str, results: Mapping[str, ToolResult]) -> str:
        metadata = self.calls[id]
        if metadata.state == "interrupted":
            return results[id].text if id in results else "There is no result: the run was interrupted."
        data = metadata.result.data
        return data if isinstance(data, str) else msgspec.json.encode(data).decode()

    # --- the answer so far, and the rest ------------------------------------------------------------

    def response(self, documents: list[Document], run: RunInfo, prompt: str) -> ChatResponse:
        """The whole response, with the documents that have ended. A tool that is still running, or waits for the
        caller, says so and has no result.
        """
        if self.done is not None:
            return whole_response(self.done.envelope, documents)
        unfinished = [self._document(open, WAITING if open.known.state else RUNNING) for open in self.open.values()]
        if self.pauses and self.paused_at == self.count:
            envelope = self.pauses[-1].event.envelope
        else:
            assembler = self._assembler(run, prompt, self.open.values())
            envelope = structs.replace(assembler.envelope(), conversation_id=run.conversation_id or "")
        return whole_response(envelope, sorted([*documents, *unfinished], key=lambda document: document.sequence))

    def end(self, run: RunInfo, prompt: str, failure: Failure) -> list[DocumentEvent]:
        """The events that end it, as they end any run that failed."""
        assembler, events = self._continued(run, prompt)
        return events + assembler.push(RunFailed(failure=failure))

    def interrupt(self, run: RunInfo, prompt: str, note: str) -> tuple[Assembler, list[DocumentEvent]]:
        """What continues it, after events that end what is open and say what has happened."""
        assembler, events = self._continued(run, prompt)
        return assembler, events + assembler.interrupt(note)

    def _continued(self, run: RunInfo, prompt: str) -> tuple[Assembler, list[DocumentEvent]]:
        """The assembler as if it had assembled the run so far, and the events that it would have sent next."""
        events: list[DocumentEvent] = []
        still_open: list[OpenDocument] = []
        for open in self.open.values():
            if open.type == "tool_call" and not open.call_id:  # cut off between its start and its name
                open = structs.replace(open, tool_name="unknown", call_id=f"call_{open.sequence:03d}")
                events.append(ToolCallStarted(open.id, open.tool_name, open.call_id))
            if open.result is not None:  # cut off between its result and its end
                events.append(DocumentEnded(self._document(open, INTERRUPTED)))
            else:
                still_open.append(open)
        return self._assembler(run, prompt, still_open), events

    def _assembler(self, run: RunInfo, prompt: str, still_open: Iterable[OpenDocument]) -> Assembler:
        """It shares nothing with this state, which follows the events that it makes."""
        prose = [
            OpenProse(open.id, open.sequence, _prose_metadata(open.type, open.known), list(open.pieces))
            for open in still_open
            if not _is_tool(open.type)
        ]
        assembler = Assembler(run)
        assembler.resume(
            sequence=self.sequence,
            prose=prose[0] if prose else None,
            tools=[_tool(open, open.type) for open in still_open if _is_tool(open.type)],
            tool_calls=self.tool_calls,
            refused=self.refused.copied(),
            turns=structs.replace(self.turns),
            model_output=[*self.said, *self.thought],
            prompt=prompt,
        )
        return assembler

    def _document(self, open: OpenDocument, outcome: Outcome) -> Document:
        return make_document(open.id, open.sequence, "".join(open.pieces) or None, _metadata(open, outcome))


def _number(pause: RunPause) -> int:
    return pause.number


def _call(metadata: ToolCallMetadata | WaitingCall) -> ToolCall:
    return ToolCall(metadata.tool_call_id, metadata.tool_name, msgspec.json.encode(metadata.arguments).decode())


def _is_tool(type: DocumentType) -> TypeGuard[ToolType]:
    return type not in _NO_TOOLS


def _tool(open: OpenDocument, type: ToolType) -> OpenTool:
    content = "".join(open.pieces)
    action = tool_documents.action_of(type, open.known, content)
    if isinstance(action, OtherTool):
        action = OtherTool(tool=open.tool_name, arguments=open.arguments)
    if isinstance(action, Command):
        action = structs.replace(action, output="".join(open.output))
    by_caller = open.known.ran_by == "caller"
    waits, parent_id = open.known.state == "waiting" and bool(open.call_id), open.known.parent_id
    return OpenTool(open.id, open.sequence, open.call_id, action, waits, by_caller, content or None, parent_id)


def _metadata(open: OpenDocument, outcome: Outcome) -> Metadata:
    if not _is_tool(type := open.type):
        return _prose_metadata(type, open.known)
    tool = _tool(open, type)
    id = tool.call_id
    metadata = tool_documents.metadata_of(
        tool.action,
        outcome,
        call_id=id,
        agent_call_id=id,
        payload=UNSET,
        by_caller=tool.by_caller,
        parent_id=tool.parent_id,
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


# --- its documents ----------------------------------------------------------------------------------


class Transcript:
    """Documents are in the order of their starts; one that has not ended is left out."""

    def __init__(self) -> None:
        self._documents: dict[str, Document | None] = {}
        self._envelope: Envelope | None = None

    def push(self, event: DocumentEvent, /) -> None:
        match event:
            case DocumentStarted(id=id):
                self._documents[id] = None
            case DocumentEnded(document=document):
                self._documents[document.id] = document
            case Done(envelope=envelope):
                self._envelope = envelope
            case ContentDelta() | ToolCallStarted() | ToolCallArguments() | ToolCallEnded() | Reasoning() | Paused():
                pass  # an end repeats them all
            case TerminalOutput():
                pass

    @property
    def documents(self) -> list[Document]:
        return [document for document in self._documents.values() if document is not None]

    def response(self) -> ChatResponse | None:
        """None until the run is done."""
        return whole_response(self._envelope, self.documents) if self._envelope is not None else None
