"""A run as clients see it, event by event (closed union): each document starts, grows and ends; then `Done`.

`raw` is the agent's own text where it differs from the document's (fence lines, indentation, white space between
documents). Joined in order, the raw texts are the agent's text.
"""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from cursor_gateway.errors import Failure
from cursor_gateway.model import documents


class KnownMetadata(Struct, frozen=True, kw_only=True, rename="camel"):
    """What is known about a document when it starts, so that a live view can show it at once."""

    file_path: Annotated[str | UnsetType, "The file's path, as given by the agent."] = UNSET
    start_line: Annotated[int | UnsetType, "The first line quoted."] = UNSET
    end_line: Annotated[int | UnsetType, "The last line quoted."] = UNSET
    language: Annotated[str | UnsetType, "The language; `text` if unknown."] = UNSET
    purpose: Annotated[
        documents.Purpose | UnsetType,
        "`new_code` in the modes agent and debug, `suggestion` in plan, `example` in ask.",
    ] = UNSET
    indent: Annotated[int | UnsetType, "The indentation removed from each line."] = UNSET
    command: Annotated[str | UnsetType, "The command line."] = UNSET
    working_directory: Annotated[str | UnsetType, "Where it ran, if known."] = UNSET
    title: Annotated[str | UnsetType, "The plan's name."] = UNSET
    overview: Annotated[str | UnsetType, "The plan in a sentence."] = UNSET
    todos: Annotated[list[documents.PlanTodo] | UnsetType, "The plan's steps."] = UNSET
    questions: Annotated[list[documents.ClarificationQuestion] | UnsetType, "The questions, each with its options."] = (
        UNSET
    )
    permission: Annotated[
        documents.PermissionRequest | UnsetType,
        "Extension: what the agent needs permission for. Send `permissions` to `/v1/chat/{id}/answer` to decide.",
    ] = UNSET
    state: Annotated[Literal["waiting"] | UnsetType, "`waiting`: the caller has to run the tool or answer."] = UNSET
    ran_by: Annotated[Literal["caller"] | UnsetType, "`caller`: the caller, not the agent, runs the tool."] = UNSET
    parent_id: Annotated[str | UnsetType, "The `task` document of the sub-agent that does this."] = UNSET


class DocumentStarted(Struct, frozen=True, tag_field="event", tag="document_start"):
    id: str
    type: documents.DocumentType
    sequence: int
    metadata: KnownMetadata | None = None
    raw: str = ""


class ContentDelta(Struct, frozen=True, tag_field="event", tag="content_delta", gc=False):
    id: str
    text: str
    raw: str | None = None  # None: the same as `text`


class TerminalOutput(Struct, frozen=True, tag_field="event", tag="terminal_output", gc=False):
    """What the command of an open `terminal_command` has just written. The document's end has all of it."""

    id: str
    text: str


class ToolCallStarted(Struct, frozen=True, tag_field="event", tag="tool_call_start", gc=False):
    id: str
    tool_name: str
    tool_call_id: str


class ToolCallArguments(Struct, frozen=True, tag_field="event", tag="tool_call_arguments"):
    id: str
    arguments: dict[str, Any]


class ToolCallEnded(Struct, frozen=True, tag_field="event", tag="tool_result"):
    id: str
    result: documents.ToolCallResult


class DocumentEnded(Struct, frozen=True, tag_field="event", tag="document_end"):
    document: documents.Document
    raw: str = ""


class Reasoning(Struct, frozen=True, tag_field="event", tag="reasoning", gc=False):
    """Thinking outside documents, for dialects that have a field for it."""

    text: str
    opens: bool = False  # the first piece of a block


class Paused(Struct, frozen=True, tag_field="event", tag="pause"):
    """The run waits for its caller: the response ends here, and continues in the response to the results."""

    envelope: documents.Envelope  # its metadata lists the calls
    raw: str = ""
    last_call: documents.Usage | None = None  # of the reply, see `reply_usage`
    goes_on: bool = False  # it waits for somebody else, such as a person at the page: the response does not end here


class Done(Struct, frozen=True, tag_field="event", tag="done"):
    envelope: documents.Envelope
    failure: Failure | None = None
    raw: str = ""
    last_call: documents.Usage | None = None  # of the reply, see `reply_usage`; None: the same as the envelope's


DocumentEvent: TypeAlias = (
    DocumentStarted
    | ContentDelta
    | TerminalOutput
    | ToolCallStarted
    | ToolCallArguments
    | ToolCallEnded
    | DocumentEnded
    | Reasoning
    | Paused
    | Done
)

# No `match`: this is asked of every event, and a class pattern that does not match takes 0.1 to 0.3 µs.
WITH_RAW = (ContentDelta, DocumentEnded, DocumentStarted, Paused, Done)


def ends_reply(event: DocumentEvent) -> bool:
    """Whether it is a pause at which the response ends."""
    return isinstance(event, Paused) and not event.goes_on


def reply_usage(event: Paused | Done) -> documents.Usage:
    """What the model wrote in this reply, and in total the size of the conversation after the last model call.

    The envelope's usage is the sum of all model calls of the run.
    """
    return event.last_call or event.envelope.usage


def says_something(event: DocumentEvent) -> bool:
    """Whether it is part of an answer, not only an error."""
    return isinstance(event, Reasoning) or (isinstance(event, DocumentStarted) and event.type != "error")


def is_tool(event: DocumentStarted) -> bool:
    """Whether the document is what a tool does: no text of the agent's, no thinking, no error."""
    return event.type not in ("text", "code_block", "code_reference", "thinking", "error")


def source_text(event: DocumentEvent) -> str:
    """The agent's text in this event; joined over a run it is the agent's output, byte for byte."""
    if event.__class__ is ContentDelta and event.raw is None:
        return event.text
    return (event.raw or "") if event.__class__ in WITH_RAW else ""


# --- as the documents dialect sends them: the encoder writes these shapes from byte templates -------


class _Payload(Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class DocumentStartPayload(_Payload, frozen=True, kw_only=True):
    """A document begins."""

    id: Annotated[str, "The document's id: `doc_001`, `doc_002`, …"]
    type: Annotated[documents.DocumentType, "The document's type."]
    sequence: Annotated[int, "The document's position in the answer, from 1."]
    metadata: Annotated[KnownMetadata | UnsetType, "Extension: what is known at the start, for live display."] = UNSET


class ContentDeltaPayload(_Payload, frozen=True, kw_only=True):
    """A document's content grows. The deltas of a document, joined, are its content."""

    document_id: Annotated[str, "The document's id."]
    delta: Annotated[str, "The next piece of the content, never empty."]


class TerminalOutputPayload(_Payload, frozen=True, kw_only=True):
    """What the command of a `terminal_command` document has just written, for people who watch: its end has the whole
    output. Not an event of the specification, so only readers that ask for it get it."""

    document_id: str
    text: str


class ToolCallStartPayload(_Payload, frozen=True, kw_only=True):
    """The tool of a `tool_call` document is known."""

    document_id: Annotated[str, "The document's id."]
    tool_name: Annotated[str, "The tool's name as in Cursor's editor, or the name of an MCP tool."]
    tool_call_id: Annotated[str, "The call's id."]


class ToolCallArgumentsPayload(_Payload, frozen=True, kw_only=True):
    """The arguments of a `tool_call` document, all at once. A call without arguments has no such event."""

    document_id: Annotated[str, "The document's id."]
    arguments: Annotated[dict[str, Any], "The arguments of the call."]


class ToolResultPayload(_Payload, frozen=True, kw_only=True):
    """What the tool of a `tool_call` document answered."""

    document_id: Annotated[str, "The document's id."]
    result: Annotated[documents.ToolCallResult, "The result of the call."]


class DocumentEndPayload(_Payload, frozen=True, kw_only=True):
    """A document is complete: with its start, this is all of it."""

    document_id: Annotated[str, "The document's id."]
    final_content: Annotated[str | UnsetType, "The whole content; omitted if the content is null."] = UNSET
    metadata: Annotated[
        documents.Metadata | UnsetType, "Extension: the document's whole metadata. Always sent by this gateway."
    ] = UNSET


class _Event(Struct, frozen=True, kw_only=True, rename="camel", tag_field="type"):
    id: Annotated[
        int | UnsetType,
        "Extension: the event's number in the run, as in the id of a Server-Sent Event. Use it with `?after=`. Always "
        "sent by this gateway.",
    ] = UNSET


class DocumentStartEvent(_Event, frozen=True, kw_only=True, tag="document_start"):
    """A document starts."""

    document_id: Annotated[str, "The document's id."]
    data: Annotated[DocumentStartPayload, "The payload."]


class ContentDeltaEvent(_Event, frozen=True, kw_only=True, tag="content_delta"):
    """A document's content grows."""

    document_id: Annotated[str, "The document's id."]
    data: Annotated[ContentDeltaPayload, "The payload."]


class ToolCallStartEvent(_Event, frozen=True, kw_only=True, tag="tool_call_start"):
    """The tool of a `tool_call` document is known."""

    document_id: Annotated[str, "The document's id."]
    data: Annotated[ToolCallStartPayload, "The payload."]


class ToolCallArgumentsEvent(_Event, frozen=True, kw_only=True, tag="tool_call_arguments"):
    """The arguments of a `tool_call` document."""

    document_id: Annotated[str, "The document's id."]
    data: Annotated[ToolCallArgumentsPayload, "The payload."]


class ToolResultEvent(_Event, frozen=True, kw_only=True, tag="tool_result"):
    """The result of a `tool_call` document."""

    document_id: Annotated[str, "The document's id."]
    data: Annotated[ToolResultPayload, "The payload."]


class DocumentEndEvent(_Event, frozen=True, kw_only=True, tag="document_end"):
    """A document is complete."""

    document_id: Annotated[str, "The document's id."]
    data: Annotated[DocumentEndPayload, "The payload."]


class DoneEvent(_Event, frozen=True, kw_only=True, tag="done"):
    """The run is over, successfully or not, and no event follows. Or its `status` is `streaming`: the run waits for its
    caller, and continues when it gets the results."""

    data: Annotated[documents.Envelope, "The payload."]


StreamEvent: TypeAlias = (
    DocumentStartEvent
    | ContentDeltaEvent
    | ToolCallStartEvent
    | ToolCallArgumentsEvent
    | ToolResultEvent
    | DocumentEndEvent
    | DoneEvent
)

StreamEventType: TypeAlias = Literal[
    "document_start",
    "content_delta",
    "tool_call_start",
    "tool_call_arguments",
    "tool_result",
    "document_end",
    "done",
]
