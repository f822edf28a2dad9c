"""The streaming events of the documents dialect as types, for schemas and readers.

The encoder writes these shapes from byte templates; the schema tests hold its output against them.
"""

from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from cursor_gateway.model.document_events import KnownMetadata
from cursor_gateway.model.documents import DocumentType, Envelope, Metadata, ToolCallResult


class _Payload(Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class DocumentStartPayload(_Payload, frozen=True, kw_only=True):
    """A document begins."""

    id: str
    type: DocumentType
    sequence: int
    metadata: KnownMetadata | UnsetType = UNSET


class ContentDeltaPayload(_Payload, frozen=True, kw_only=True):
    """A document's content grows. The deltas of a document, joined, are its content."""

    document_id: str
    delta: str


class TerminalOutputPayload(_Payload, frozen=True, kw_only=True):
    """What the command of a `terminal_command` document has just written, for people who watch: its end has the whole
    output. Not an event of the specification, so only readers that ask for it get it."""

    document_id: str
    text: str


class ToolCallStartPayload(_Payload, frozen=True, kw_only=True):
    """The tool of a `tool_call` document is known."""

    document_id: str
    tool_name: str
    tool_call_id: str


class ToolCallArgumentsPayload(_Payload, frozen=True, kw_only=True):
    """The arguments of a `tool_call` document, all at once. A call without arguments has no such event."""

    document_id: str
    arguments: dict[str, Any]


class ToolResultPayload(_Payload, frozen=True, kw_only=True):
    """What the tool of a `tool_call` document answered."""

    document_id: str
    result: ToolCallResult


class DocumentEndPayload(_Payload, frozen=True, kw_only=True):
    """A document is complete: with its start, this is all of it."""

    document_id: str
    final_content: str | UnsetType = UNSET
    metadata: Metadata | UnsetType = UNSET


class _Event(Struct, frozen=True, kw_only=True, rename="camel", tag_field="type"):
    id: int | UnsetType = UNSET


class DocumentStartEvent(_Event, frozen=True, kw_only=True, tag="document_start"):
    document_id: str
    data: DocumentStartPayload


class ContentDeltaEvent(_Event, frozen=True, kw_only=True, tag="content_delta"):
    document_id: str
    data: ContentDeltaPayload


class ToolCallStartEvent(_Event, frozen=True, kw_only=True, tag="tool_call_start"):
    document_id: str
    data: ToolCallStartPayload


class ToolCallArgumentsEvent(_Event, frozen=True, kw_only=True, tag="tool_call_arguments"):
    document_id: str
    data: ToolCallArgumentsPayload


class ToolResultEvent(_Event, frozen=True, kw_only=True, tag="tool_result"):
    document_id: str
    data: ToolResultPayload


class DocumentEndEvent(_Event, frozen=True, kw_only=True, tag="document_end"):
    document_id: str
    data: DocumentEndPayload


class DoneEvent(_Event, frozen=True, kw_only=True, tag="done"):
    data: Envelope


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
