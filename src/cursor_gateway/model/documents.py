"""The document types and the response that contains them, as in the specification.

Fields that the specification does not have are marked as extensions; they are omitted from the JSON unless they are
set, so that clients written for the specification alone rarely see them.
"""

from collections.abc import Callable
from types import NoneType
from typing import Any, Literal, TypeAlias, get_args, get_type_hints

import msgspec
from msgspec import UNSET, Struct, UnsetType

Mode: TypeAlias = Literal["agent", "plan", "ask", "debug"]
Status: TypeAlias = Literal["completed", "streaming", "error"]
Operation: TypeAlias = Literal["create", "edit", "delete", "rename"]
Purpose: TypeAlias = Literal["new_code", "example", "suggestion"]
TodoStatus: TypeAlias = Literal["pending", "in_progress", "completed", "cancelled"]
State: TypeAlias = Literal[
    "completed", "failed", "rejected", "unanswered", "timed_out", "interrupted", "running", "waiting"
]

MODES: tuple[Mode, ...] = get_args(Mode)


class _Wire(Struct, frozen=True, kw_only=True, rename="camel"):
    """camelCase on the wire; `duration_ms` is the specification's exception and is named field by field."""


class TextMetadata(_Wire, frozen=True, kw_only=True):
    format: Literal["markdown", "plain"] = "markdown"


class CodeReferenceMetadata(_Wire, frozen=True, kw_only=True):
    file_path: str
    start_line: int
    end_line: int
    language: str
    indent: int | UnsetType = UNSET  # extension: columns taken off each line (a fence in a list item)


class CodeBlockMetadata(_Wire, frozen=True, kw_only=True):
    language: str
    purpose: Purpose
    indent: int | UnsetType = UNSET  # extension


class PermissionRequest(_Wire, frozen=True, kw_only=True):
    """Extension: what the agent needs permission for. Decide with `POST /v1/chat/{id}/answer`."""

    subject: str  # the command line, the address, or the tool
    rules: list[str]  # in the agent's own form, such as `Shell(npm)`: what "always" allows
    warning: str | UnsetType = UNSET  # why "always" would allow more than it seems


class ToolTrace(_Wire, frozen=True, kw_only=True):
    """Extension: how a tool's document ended, if it did not simply complete, and the agent's own payload."""

    state: State | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    permission: PermissionRequest | UnsetType = UNSET  # that it needs, or was run without
    parent_id: str | UnsetType = UNSET  # the document of the sub-agent that did this
    raw: Any = UNSET

    @property
    def needs_decision(self) -> bool:
        """The agent continued without it, because nobody could be asked."""
        return self.state == "rejected" and bool(self.permission)


class Diff(_Wire, frozen=True, kw_only=True):
    old_string: str
    new_string: str
    start_line: int
    end_line: int


class FileEditMetadata(ToolTrace, frozen=True, kw_only=True):
    file_path: str
    operation: Operation
    language: str
    diff: Diff | UnsetType = UNSET
    old_path: str | UnsetType = UNSET  # extension: the name before a rename


class ToolCallResult(_Wire, frozen=True, kw_only=True):
    status: Literal["success", "error"]
    data: Any


class ToolCallMetadata(ToolTrace, frozen=True, kw_only=True):
    tool_name: str
    tool_call_id: str
    arguments: dict[str, Any]
    result: ToolCallResult
    duration_ms: int = msgspec.field(name="duration_ms")
    agent_call_id: str | UnsetType = UNSET  # extension: the agent's own id, if it is not a valid one
    ran_by: Literal["caller"] | UnsetType = UNSET  # extension: run by the caller, not by the agent


class TerminalCommandMetadata(ToolTrace, frozen=True, kw_only=True):
    command: str
    working_directory: str | UnsetType = UNSET
    exit_code: int
    output: str
    duration_ms: int = msgspec.field(name="duration_ms")
    permissions: list[str]


class PlanTodo(_Wire, frozen=True, kw_only=True):
    id: str
    content: str
    status: TodoStatus
    dependencies: list[str]


class PlanMetadata(ToolTrace, frozen=True, kw_only=True):
    title: str
    overview: str
    todos: list[PlanTodo]
    format: Literal["markdown"] = "markdown"
    accepted: bool | UnsetType = UNSET  # extension


class ClarificationOption(_Wire, frozen=True, kw_only=True):
    id: str
    label: str


class ClarificationQuestion(_Wire, frozen=True, kw_only=True):
    id: str
    text: str
    options: list[ClarificationOption]
    allow_multiple: bool | UnsetType = UNSET  # extension


class ClarificationAnswer(_Wire, frozen=True, kw_only=True):
    """Extension: the answer to a question."""

    question_id: str
    selected_option_ids: list[str]
    text: str | UnsetType = UNSET


class ClarificationMetadata(ToolTrace, frozen=True, kw_only=True):
    questions: list[ClarificationQuestion]
    answers: list[ClarificationAnswer] | UnsetType = UNSET  # extension: the answers, if there are any


class ErrorMetadata(_Wire, frozen=True, kw_only=True):
    error_code: str
    source: str
    details: str


class TodoChange(_Wire, frozen=True, kw_only=True):
    id: str
    status: TodoStatus
    content: str | UnsetType = UNSET  # extension


class TodoUpdateMetadata(ToolTrace, frozen=True, kw_only=True):
    todos: list[TodoChange]
    merge: bool | UnsetType = UNSET  # extension: false when these replace the whole list


class ThinkingMetadata(_Wire, frozen=True, kw_only=True):
    format: Literal["markdown", "plain"] = "markdown"
    duration_ms: int | UnsetType = msgspec.field(default=UNSET, name="duration_ms")


Metadata: TypeAlias = (
    TextMetadata
    | CodeReferenceMetadata
    | CodeBlockMetadata
    | FileEditMetadata
    | ToolCallMetadata
    | TerminalCommandMetadata
    | PlanMetadata
    | ClarificationMetadata
    | ErrorMetadata
    | TodoUpdateMetadata
    | ThinkingMetadata
)


class _Document(_Wire, frozen=True, kw_only=True, tag_field="type"):
    id: str
    sequence: int


class TextDocument(_Document, frozen=True, kw_only=True, tag="text"):
    """Explaining text, Markdown."""

    content: str
    metadata: TextMetadata


class CodeReferenceDocument(_Document, frozen=True, kw_only=True, tag="code_reference"):
    """Code that exists in the project."""

    content: str
    metadata: CodeReferenceMetadata


class CodeBlockDocument(_Document, frozen=True, kw_only=True, tag="code_block"):
    """New or proposed code that belongs to no file."""

    content: str
    metadata: CodeBlockMetadata


class FileEditDocument(_Document, frozen=True, kw_only=True, tag="file_edit"):
    """A change of a file."""

    content: str | None
    metadata: FileEditMetadata


class ToolCallDocument(_Document, frozen=True, kw_only=True, tag="tool_call"):
    """A tool that the agent used, with its result."""

    content: None
    metadata: ToolCallMetadata


class TerminalCommandDocument(_Document, frozen=True, kw_only=True, tag="terminal_command"):
    """A command, its output and how it ended."""

    content: None
    metadata: TerminalCommandMetadata


class PlanDocument(_Document, frozen=True, kw_only=True, tag="plan"):
    """A plan with its to-dos."""

    content: str
    metadata: PlanMetadata


class ClarificationDocument(_Document, frozen=True, kw_only=True, tag="clarification"):
    """Questions to the user."""

    content: str | None
    metadata: ClarificationMetadata


class ErrorDocument(_Document, frozen=True, kw_only=True, tag="error"):
    """A tool or the run that failed."""

    content: str
    metadata: ErrorMetadata


class TodoUpdateDocument(_Document, frozen=True, kw_only=True, tag="todo_update"):
    """To-dos whose state changed."""

    content: None
    metadata: TodoUpdateMetadata


class ThinkingDocument(_Document, frozen=True, kw_only=True, tag="thinking"):
    """Extension: the model's thinking, if requested."""

    content: str
    metadata: ThinkingMetadata


Document: TypeAlias = (
    TextDocument
    | CodeReferenceDocument
    | CodeBlockDocument
    | FileEditDocument
    | ToolCallDocument
    | TerminalCommandDocument
    | PlanDocument
    | ClarificationDocument
    | ErrorDocument
    | TodoUpdateDocument
    | ThinkingDocument
)

DocumentType: TypeAlias = Literal[
    "text",
    "code_reference",
    "code_block",
    "file_edit",
    "tool_call",
    "terminal_command",
    "plan",
    "clarification",
    "error",
    "todo_update",
    "thinking",
]


METADATA_TYPES: dict[str, type[Metadata]] = {}
_TYPES: dict[type[Metadata], DocumentType] = {}
_MAKERS: dict[type[Metadata], tuple[Callable[..., Document], object]] = {}  # and the type of the content
for _made in get_args(Document):
    _hints = get_type_hints(_made)
    METADATA_TYPES[_made.__struct_config__.tag] = _hints["metadata"]
    _TYPES[_hints["metadata"]] = _made.__struct_config__.tag
    _MAKERS[_hints["metadata"]] = _made, _hints["content"]


def document_type(metadata: Metadata) -> DocumentType:
    return _TYPES[type(metadata)]


def said_in(document: Document) -> str | None:
    """The agent's own Markdown; None for what a tool did."""
    match document:
        case TextDocument(content=content):
            return content
        case CodeBlockDocument(content=content, metadata=metadata):
            return fenced(metadata.language, content)
        case CodeReferenceDocument(content=content, metadata=metadata):
            return fenced(f"{metadata.start_line}:{metadata.end_line}:{metadata.file_path}", content)
        case _:
            return None


def fenced(info: str, code: str) -> str:
    mark = "```"
    while mark in code:
        mark += "`"
    return f"{mark}{info}\n{code}\n{mark}"


def is_tool_use(document: Document) -> bool:
    """Whether a tool was used."""
    return isinstance(document, ToolCallDocument | TerminalCommandDocument | FileEditDocument)


def is_refused(document: Document) -> bool:
    """Whether it is a tool call that was not run because nothing allowed it."""
    return is_tool_use(document) and isinstance(document.metadata, ToolTrace) and document.metadata.state == "rejected"


def make_document(id: str, sequence: int, content: str | None, metadata: Metadata) -> Document:
    """A document whose type follows from its metadata."""
    make, kind = _MAKERS[type(metadata)]
    if kind is str:  # never null
        content = content or ""
    elif kind is NoneType:
        content = None
    return make(id=id, sequence=sequence, content=content, metadata=metadata)


class Usage(_Wire, frozen=True, kw_only=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    cached_tokens: int | UnsetType = UNSET  # extension: the part of promptTokens that came from the cache
    reasoning_tokens: int | UnsetType = UNSET  # extension: the part of completionTokens that was thinking
    estimated: bool | UnsetType = UNSET  # extension: true when these are not the agent's own figures


class WaitingCall(_Wire, frozen=True, kw_only=True):
    """Extension: a tool call that the caller has to run."""

    tool_call_id: str
    tool_name: str
    arguments: dict[str, Any]
    document_id: str


class RefusedCall(_Wire, frozen=True, kw_only=True):
    """Extension: a tool call that was not run because nothing allowed it."""

    document: str  # its id
    subject: str  # the command line, the address, the file or the tool; shortened if it is long
    rules: list[str] | UnsetType = UNSET  # that would allow it, such as `Shell(npm)`
    reason: str | UnsetType = UNSET
    link: str | UnsetType = UNSET  # where it can be allowed: the path on this gateway's page
    url: str | UnsetType = UNSET  # the same with the gateway's address, if it is known


RecordingReason: TypeAlias = Literal["named", "same_prompt", "similar_prompt", "default"]


class ReplayedRecording(_Wire, frozen=True, kw_only=True):
    """Extension: the replayed recording, and why it was chosen."""

    name: str
    reason: RecordingReason


class ResponseMetadata(_Wire, frozen=True, kw_only=True):
    duration_ms: int = msgspec.field(name="duration_ms")
    tool_call_count: int
    turn_count: int
    unrecognized: int | UnsetType = UNSET  # extension: unknown events and lines of the agent
    result_differs: bool | UnsetType = UNSET  # extension: the agent's closing text is not what it had streamed
    refused_count: int | UnsetType = UNSET  # extension: tool calls that were not run because nothing allowed them
    refused: list[RefusedCall] | UnsetType = UNSET  # extension: the first of them
    stored: bool | UnsetType = UNSET  # extension: false when the history could not take the answer
    waiting_for: list[WaitingCall] | UnsetType = UNSET  # extension: calls without whose results the run cannot continue
    recording: ReplayedRecording | UnsetType = UNSET  # extension: no agent ran, this was replayed
    fallback: str | UnsetType = UNSET  # extension: the backend that answered in place of one that failed
    warm: bool | UnsetType = UNSET  # extension: true if the agent was ready before the run
    context_tokens: int | UnsetType = UNSET  # extension: what the conversation fills of the model's context


class Envelope(_Wire, frozen=True, kw_only=True):
    """A ChatResponse without its documents: what `done` carries."""

    id: str
    conversation_id: str
    model: str
    mode: Mode
    created: str
    status: Status
    usage: Usage
    metadata: ResponseMetadata


class ChatResponse(_Wire, frozen=True, kw_only=True):
    """One answer of the agent: the non-streaming reply, and the fold of the stream."""

    id: str
    conversation_id: str
    model: str
    mode: Mode
    created: str
    status: Status
    documents: list[Document]
    usage: Usage
    metadata: ResponseMetadata

    @property
    def text(self) -> str:
        """The agent's text and code, as Markdown, without what its tools did."""
        return "\n\n".join(said for document in self.documents if (said := said_in(document)))

    def _repr_markdown_(self) -> str:
        """Shown by notebooks."""
        return self.text


def whole_response(envelope: Envelope, documents: list[Document]) -> ChatResponse:
    return ChatResponse(**msgspec.structs.asdict(envelope), documents=documents)
