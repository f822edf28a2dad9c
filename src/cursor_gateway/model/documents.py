"""The document types and the response that contains them, as in the specification.

Fields that the specification does not have are marked as extensions; they are omitted from the JSON unless they are
set, so that clients written for the specification alone rarely see them.
"""

from collections.abc import Callable
from types import NoneType
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_type_hints

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


_Language: TypeAlias = Annotated[str, "The language; `text` if unknown."]
_Indent: TypeAlias = Annotated[
    int | UnsetType, "Extension: the indentation removed from each line, if the code was in a list item."
]
_Duration: TypeAlias = Annotated[int, "How long it took; 0 if unknown."]


class TextMetadata(_Wire, frozen=True, kw_only=True):
    format: Annotated[Literal["markdown", "plain"], "The format of the content. The agent writes Markdown."] = (
        "markdown"
    )


class CodeReferenceMetadata(_Wire, frozen=True, kw_only=True):
    file_path: Annotated[str, "The file's path, as given by the agent."]
    start_line: Annotated[int, "The first line quoted, from 1."]
    end_line: Annotated[int, "The last line quoted."]
    language: _Language
    indent: _Indent = UNSET


class CodeBlockMetadata(_Wire, frozen=True, kw_only=True):
    language: Annotated[str, "The language of the code fence."]
    purpose: Annotated[Purpose, "`new_code` in the modes agent and debug, `suggestion` in plan, `example` in ask."]
    indent: _Indent = UNSET


class PermissionRequest(_Wire, frozen=True, kw_only=True):
    """Extension: what the agent needs permission for. Decide with `POST /v1/chat/{id}/answer`."""

    subject: Annotated[str, "The command line, the URL or the tool."]
    rules: Annotated[
        list[str], "The rules that `conversation` and `workspace` add, in the form of the agent's own configuration."
    ]
    warning: Annotated[
        str | UnsetType,
        "Extension: why the rules would allow more than they seem to: the program can run any other. Show it beside "
        "`conversation` and `workspace`.",
    ] = UNSET


class ToolTrace(_Wire, frozen=True, kw_only=True):
    """Extension: how a tool's document ended, if it did not simply complete, and the agent's own payload."""

    state: Annotated[
        State | UnsetType,
        "Extension: how the tool ended, if it did not simply complete. `unanswered`: the agent continued without an "
        "answer to its question. In a snapshot: `running`, or `waiting` for the caller.",
    ] = UNSET
    reason: Annotated[str | UnsetType, "Extension: the reason for the `state`."] = UNSET
    permission: Annotated[
        PermissionRequest | UnsetType,
        "Extension: what the agent needs permission for. Send `permissions` to `/v1/chat/{id}/answer` to decide.",
    ] = UNSET
    parent_id: Annotated[
        str | UnsetType, "Extension: for what a sub-agent did, the id of the `task` document that started it."
    ] = UNSET
    raw: Annotated[Any, 'Extension: the agent\'s own payload, with `include: ["raw"]`.'] = UNSET

    @property
    def needs_decision(self) -> bool:
        """The agent continued without it, because nobody could be asked."""
        return self.state == "rejected" and bool(self.permission)


class Diff(_Wire, frozen=True, kw_only=True):
    """One replacement: the smallest range of whole lines that covers all changes of an edit. Where lines are only added
    or only removed, it includes the line before or after them, so that neither text is empty."""

    old_string: Annotated[str, "The lines before."]
    new_string: Annotated[str, "The lines after."]
    start_line: Annotated[int, "The first replaced line in the old file, from 1."]
    end_line: Annotated[int, "The last replaced line in the old file."]


class FileEditMetadata(ToolTrace, frozen=True, kw_only=True):
    file_path: Annotated[str, "The file's path, as given by the agent; after a rename, the new path."]
    operation: Annotated[Operation, "The operation."]
    language: _Language
    diff: Annotated[
        Diff | UnsetType, "What an edit replaced. Omitted for other operations, and if the agent reports none."
    ] = UNSET
    old_path: Annotated[str | UnsetType, "Extension: the path before a rename."] = UNSET


class ToolCallResult(_Wire, frozen=True, kw_only=True):
    """The result of a tool call."""

    status: Annotated[Literal["success", "error"], "Whether the call succeeded."]
    data: Annotated[Any, "The value, such as a file's content or search results; or the reason for the failure."]


class ToolCallMetadata(ToolTrace, frozen=True, kw_only=True):
    tool_name: Annotated[str, "The tool's name as in Cursor's editor, or the name of an MCP tool."]
    tool_call_id: Annotated[str, "The call's id."]
    arguments: Annotated[dict[str, Any], "The arguments of the call."]
    result: Annotated[ToolCallResult, "The result of the call."]
    duration_ms: _Duration = msgspec.field(name="duration_ms")
    agent_call_id: Annotated[
        str | UnsetType, "Extension: the agent's own id of the call, if it could not be used as `toolCallId`."
    ] = UNSET
    ran_by: Annotated[
        Literal["caller"] | UnsetType, "Extension: `caller` if the caller, not the agent, ran the tool."
    ] = UNSET


class TerminalCommandMetadata(ToolTrace, frozen=True, kw_only=True):
    command: Annotated[str, "The command line."]
    working_directory: Annotated[str | UnsetType, "Where it ran, if known."] = UNSET
    exit_code: Annotated[int, "The exit status; -1 if the command did not complete."]
    output: Annotated[str, "Its output: standard output and standard error, in order if known."]
    duration_ms: _Duration = msgspec.field(name="duration_ms")
    permissions: Annotated[list[str], "What the sandbox allowed: `network`, `git_write`, or `all`."]


class PlanTodo(_Wire, frozen=True, kw_only=True):
    """One step of a plan."""

    id: Annotated[str, "The step's id; later `todo_update` documents use it."]
    content: Annotated[str, "A description of the step."]
    status: Annotated[TodoStatus, "The state of the step."]
    dependencies: Annotated[list[str], "The ids of the steps it depends on."]


class PlanMetadata(ToolTrace, frozen=True, kw_only=True):
    title: Annotated[str, "The plan's name."]
    overview: Annotated[str, "The plan in a sentence or two."]
    todos: Annotated[list[PlanTodo], "The steps."]
    format: Annotated[Literal["markdown"], "The format of the content."] = "markdown"
    accepted: Annotated[bool | UnsetType, "Extension: `true` if somebody accepted the plan while the run waited."] = (
        UNSET
    )


class ClarificationOption(_Wire, frozen=True, kw_only=True):
    """One answer to choose."""

    id: Annotated[str, "The option's id."]
    label: Annotated[str, "The text of the option."]


class ClarificationQuestion(_Wire, frozen=True, kw_only=True):
    """One question."""

    id: Annotated[str, "The question's id."]
    text: Annotated[str, "The text of the question."]
    options: Annotated[list[ClarificationOption], "The answers to choose from."]
    allow_multiple: Annotated[bool | UnsetType, "Extension: true if several options may be chosen."] = UNSET


class ClarificationAnswer(_Wire, frozen=True, kw_only=True):
    """Extension: the answer to a question."""

    question_id: Annotated[str, "The question's id."]
    selected_option_ids: Annotated[list[str], "The ids of the chosen options."]
    text: Annotated[str | UnsetType, "Extension: the text of a written answer."] = UNSET


class ClarificationMetadata(ToolTrace, frozen=True, kw_only=True):
    questions: Annotated[list[ClarificationQuestion], "The questions."]
    answers: Annotated[list[ClarificationAnswer] | UnsetType, "Extension: the answers, if any."] = UNSET


class ErrorMetadata(_Wire, frozen=True, kw_only=True):
    error_code: Annotated[str, "A stable error code."]
    source: Annotated[str, "What failed: a tool's name, `agent` or `gateway`."]
    details: Annotated[str, "Details; may be empty."]


class TodoChange(_Wire, frozen=True, kw_only=True):
    """One step that changed."""

    id: Annotated[str, "The step's id."]
    status: Annotated[TodoStatus, "The new state of the step."]
    content: Annotated[str | UnsetType, "Extension: a description of the step."] = UNSET


class TodoUpdateMetadata(ToolTrace, frozen=True, kw_only=True):
    todos: Annotated[list[TodoChange], "The steps that changed."]
    merge: Annotated[bool | UnsetType, "Extension: false if these steps replace the whole list."] = UNSET


class ThinkingMetadata(_Wire, frozen=True, kw_only=True):
    """Extension: the metadata of a `thinking` document."""

    format: Annotated[Literal["markdown", "plain"], "The format of the content."] = "markdown"
    duration_ms: Annotated[int | UnsetType, "Extension: how long the agent thought, if known."] = msgspec.field(
        default=UNSET, name="duration_ms"
    )


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
    id: Annotated[str, "The document's id: `doc_001`, `doc_002`, …"]
    sequence: Annotated[int, "The document's position in the answer, from 1."]


class TextDocument(_Document, frozen=True, kw_only=True, tag="text"):
    """Explaining text, Markdown."""

    content: Annotated[str, "Markdown, without surrounding white space."]
    metadata: Annotated[TextMetadata, "Additional information about the document."]


class CodeReferenceDocument(_Document, frozen=True, kw_only=True, tag="code_reference"):
    """Code that exists in the project."""

    content: Annotated[str, "The lines quoted, without the fence."]
    metadata: Annotated[CodeReferenceMetadata, "Additional information about the document."]


class CodeBlockDocument(_Document, frozen=True, kw_only=True, tag="code_block"):
    """New or proposed code that belongs to no file."""

    content: Annotated[str, "The code, without the fence."]
    metadata: Annotated[CodeBlockMetadata, "Additional information about the document."]


class FileEditDocument(_Document, frozen=True, kw_only=True, tag="file_edit"):
    """A change of a file."""

    content: Annotated[str | None, "The new lines of an edit, or the whole new file; null for a deletion and a rename."]
    metadata: Annotated[FileEditMetadata, "Additional information about the document."]


class ToolCallDocument(_Document, frozen=True, kw_only=True, tag="tool_call"):
    """A tool that the agent used, with its result."""

    content: None
    metadata: Annotated[ToolCallMetadata, "Additional information about the document."]


class TerminalCommandDocument(_Document, frozen=True, kw_only=True, tag="terminal_command"):
    """A command, its output and how it ended."""

    content: None
    metadata: Annotated[TerminalCommandMetadata, "Additional information about the document."]


class PlanDocument(_Document, frozen=True, kw_only=True, tag="plan"):
    """A plan with its to-dos."""

    content: Annotated[str, "The plan, as Markdown."]
    metadata: Annotated[PlanMetadata, "Additional information about the document."]


class ClarificationDocument(_Document, frozen=True, kw_only=True, tag="clarification"):
    """Questions to the user."""

    content: Annotated[str | None, "An introduction to the questions, or null."]
    metadata: Annotated[ClarificationMetadata, "Additional information about the document."]


class ErrorDocument(_Document, frozen=True, kw_only=True, tag="error"):
    """A tool or the run that failed."""

    content: Annotated[str, "What happened."]
    metadata: Annotated[ErrorMetadata, "Additional information about the document."]


class TodoUpdateDocument(_Document, frozen=True, kw_only=True, tag="todo_update"):
    """To-dos whose state changed."""

    content: None
    metadata: Annotated[TodoUpdateMetadata, "Additional information about the document."]


class ThinkingDocument(_Document, frozen=True, kw_only=True, tag="thinking"):
    """Extension: the model's thinking, if requested."""

    content: Annotated[str, "The thinking, as reported by the agent."]
    metadata: Annotated[ThinkingMetadata, "Additional information about the document."]


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


_TOOL_USES: frozenset[type] = frozenset({ToolCallDocument, TerminalCommandDocument, FileEditDocument})


def is_tool_use(document: Document) -> bool:
    """Whether a tool was used."""
    return document.__class__ in _TOOL_USES


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
    """The tokens a run used."""

    prompt_tokens: Annotated[int, "Tokens read, including those from the cache."]
    completion_tokens: Annotated[int, "Tokens written."]
    total_tokens: Annotated[int, "The sum of both."]
    cached_tokens: Annotated[int | UnsetType, "Extension: the part of `promptTokens` that came from the cache."] = UNSET
    reasoning_tokens: Annotated[int | UnsetType, "Extension: the part of `completionTokens` that was thinking."] = UNSET
    estimated: Annotated[
        bool | UnsetType, "Extension: true if the agent reported no usage and the tokens are estimated from the text."
    ] = UNSET
    cost: Annotated[
        float | UnsetType, "Extension: what they cost in US dollars, if the setting `prices` has the model."
    ] = UNSET


class WaitingCall(_Wire, frozen=True, kw_only=True):
    """Extension: a tool call that the caller has to run."""

    tool_call_id: Annotated[str, "The call's id, to send with its result."]
    tool_name: Annotated[str, "The tool's name, as in the request."]
    arguments: Annotated[dict[str, Any], "The arguments of the call."]
    document_id: Annotated[str, "The call's own document."]


class RefusedCall(_Wire, frozen=True, kw_only=True):
    """Extension: a tool call that was not run because nothing allowed it."""

    document: Annotated[str, "The id of its document; decide about it with `POST /v1/chat/{id}/answer`."]
    subject: Annotated[str, "The command line, the address, the file or the tool; shortened if it is long."]
    rules: Annotated[list[str] | UnsetType, "Extension: the rules that would allow it; omitted if no rule can."] = UNSET
    reason: Annotated[str | UnsetType, "Extension: why it was not run."] = UNSET
    link: Annotated[
        str | UnsetType, "Extension: where a person can allow it, if anybody can: the path on this gateway's page."
    ] = UNSET
    url: Annotated[
        str | UnsetType, "Extension: the same with the gateway's address, if it is known (setting `page_url`)."
    ] = UNSET


RecordingReason: TypeAlias = Literal["named", "same_prompt", "similar_prompt", "default"]


class ReplayedRecording(_Wire, frozen=True, kw_only=True):
    """Extension: the replayed recording, and why it was chosen."""

    name: Annotated[str, "The recording's name: its file name without the extension."]
    reason: Annotated[
        RecordingReason,
        "Why it was chosen: the prompt names it, equals its prompt, or shares words with it; or nothing matches, and "
        "it is the demo's default.",
    ]


class QueuePlace(_Wire, frozen=True, kw_only=True):
    """Extension: where a run is that waits to be started."""

    position: Annotated[
        int | UnsetType, "Extension: its place, from 1, if no other request arrives; omitted until `runAt`."
    ] = UNSET
    age_seconds: Annotated[float, "How long it has waited; 0 until `runAt`."]
    priority: Annotated[int, "As in the request."] = 0
    run_at: Annotated[str | UnsetType, "Extension: when it is to start, if the request says so: ISO 8601, UTC."] = UNSET
    expires: Annotated[str, "If it has not started by then, it fails with `queue_expired`: ISO 8601, UTC."]


class ResponseMetadata(_Wire, frozen=True, kw_only=True):
    """Figures about a run."""

    duration_ms: Annotated[int, "How long the run took; 0 if unknown."] = msgspec.field(name="duration_ms")
    tool_call_count: Annotated[int, "The number of `tool_call` documents."]
    turn_count: Annotated[int, "The number of model turns."]
    unrecognized: Annotated[
        int | UnsetType, "Extension: the number of unknown lines and events in the agent's output."
    ] = UNSET
    result_differs: Annotated[
        bool | UnsetType, "Extension: true if the agent's final result differs from the text it streamed."
    ] = UNSET
    refused_count: Annotated[
        int | UnsetType,
        "Extension: the number of tool calls that were not run because nothing allowed them, whatever the answer "
        "claims.",
    ] = UNSET
    refused: Annotated[list[RefusedCall] | UnsetType, "Extension: the first 20 of these tool calls."] = UNSET
    stored: Annotated[
        bool | UnsetType, "Extension: false if the answer could not be stored. The answer itself is complete."
    ] = UNSET
    waiting_for: Annotated[
        list[WaitingCall] | UnsetType,
        "Extension: the tool calls that the caller has to run. The run continues when it gets their results.",
    ] = UNSET
    recording: Annotated[ReplayedRecording | UnsetType, "Extension: the recording that was replayed; no agent ran."] = (
        UNSET
    )
    fallback: Annotated[
        str | UnsetType, "Extension: the backend that answered, because the chosen one failed before its first event."
    ] = UNSET
    warm: Annotated[
        bool | UnsetType, "Extension: true if the agent was ready before the run; nothing had to be started."
    ] = UNSET
    queue: Annotated[QueuePlace | UnsetType, "Extension: its place in the queue, while it waits to be started."] = UNSET
    context_tokens: Annotated[
        int | UnsetType,
        'Extension: the size of the conversation after the last model call, in tokens, with `include: ["context"]`. '
        "Derived from the agent's figures; omitted if it reports none.",
    ] = UNSET


class _Answer(_Wire, frozen=True, kw_only=True):
    id: Annotated[str, "The id of this answer, `chat_…`."]
    conversation_id: Annotated[str, "The conversation it belongs to, `conv_…`."]
    model: Annotated[str, "The model that answered, by the name the caller or the agent gave."]
    mode: Annotated[Mode, "The mode the agent ran in."]
    created: Annotated[str, "When the run started: ISO 8601, UTC."]
    status: Annotated[
        Status,
        "The state of the run: `streaming` while it waits to be started, runs, or waits for its caller; then "
        "`completed` or `error`.",
    ]


class Envelope(_Answer, frozen=True, kw_only=True):
    """A ChatResponse without its documents: what `done` carries."""

    usage: Annotated[Usage, "Tokens of the whole run."]
    metadata: Annotated[ResponseMetadata, "Figures about the run."]


class ChatResponse(_Answer, frozen=True, kw_only=True):
    """One answer of the agent: the non-streaming reply, and the fold of the stream."""

    documents: Annotated[list[Document], "The parts of the answer, in order."]
    usage: Annotated[Usage, "Tokens of the whole run."]
    metadata: Annotated[ResponseMetadata, "Figures about the run."]

    @property
    def text(self) -> str:
        """The agent's text and code, as Markdown, without what its tools did."""
        return "\n\n".join(said for document in self.documents if (said := said_in(document)))

    def _repr_markdown_(self) -> str:
        """Shown by notebooks."""
        return self.text


def whole_response(envelope: Envelope, documents: list[Document]) -> ChatResponse:
    return ChatResponse(**msgspec.structs.asdict(envelope), documents=documents)
