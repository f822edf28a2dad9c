"""Turn an action and its outcome into a document's metadata and content."""

from typing import Any, Literal, TypeAlias

from msgspec import UNSET, UnsetType

from cursor_gateway.model.actions import Action, Command, FileEdit, OtherTool, Outcome, Plan, Question, TodoUpdate
from cursor_gateway.model.caller_tools import ToolResult
from cursor_gateway.model.document_events import KnownMetadata
from cursor_gateway.model.documents import (
    ClarificationMetadata,
    DocumentType,
    FileEditMetadata,
    Metadata,
    PlanMetadata,
    TerminalCommandMetadata,
    TodoUpdateMetadata,
    ToolCallMetadata,
    ToolCallResult,
)
from cursor_gateway.stages.languages import language_of

ToolType: TypeAlias = Literal["file_edit", "terminal_command", "plan", "clarification", "todo_update", "tool_call"]


def started(action: Action) -> tuple[DocumentType, KnownMetadata | None]:
    """The type of an action's document, and what is known about it before it ends."""
    match action:
        case FileEdit(path=path):
            return "file_edit", KnownMetadata(file_path=path, language=language_of(path))
        case Command(command=command, working_directory=directory):
            return "terminal_command", KnownMetadata(command=command, working_directory=directory or UNSET)
        case Plan(title=title, overview=overview, todos=todos):
            return "plan", KnownMetadata(title=title, overview=overview, todos=todos)
        case Question(questions=questions, permission=permission):
            return "clarification", KnownMetadata(questions=questions, permission=permission or UNSET)
        case TodoUpdate():
            return "todo_update", None
        case OtherTool():
            return "tool_call", None


def action_of(type: ToolType, known: KnownMetadata, content: str) -> Action:
    """The action of a document that has started and not ended, as far as its events show it: the inverse of `started`.
    The name and the arguments of other tools are not part of `known`."""
    match type:
        case "file_edit":
            return FileEdit(tool="", path=known.file_path or "", operation="edit", content=content or None)
        case "terminal_command":
            return Command(tool="", command=known.command or "", working_directory=known.working_directory or "")
        case "plan":
            title, overview = known.title or "", known.overview or ""
            return Plan(tool="", title=title, overview=overview, markdown=content, todos=known.todos or [])
        case "clarification":
            permission = known.permission or None
            return Question(tool="", title=content, questions=known.questions or [], permission=permission)
        case "todo_update":
            return TodoUpdate(tool="", todos=[])
        case "tool_call":
            return OtherTool(tool="", arguments={})


def content_of(action: Action) -> str | None:
    match action:
        case FileEdit(content=content):
            return content
        case Plan(markdown=markdown):
            return markdown
        case Question(title=title):
            return title or None
        case Command() | TodoUpdate() | OtherTool():
            return None


def answered(action: Action, result: ToolResult, duration_ms: int) -> tuple[Action, Outcome]:
    """A call of the caller's tool as it ended."""
    data = result.text if result.structured is UNSET else result.structured
    if result.images:
        data = {"text": result.text, "images": [image.media_type for image in result.images]}
    action = OtherTool(tool=action.tool, arguments={}, data=data)  # the start had the arguments
    if not result.is_error:
        return action, Outcome(duration_ms=duration_ms)
    message = result.text or "The caller's tool failed."
    return action, Outcome(state="failed", code="TOOL_ERROR", message=message, duration_ms=duration_ms)


def metadata_of(
    action: Action,
    outcome: Outcome,
    *,
    call_id: str,
    agent_call_id: str,
    payload: Any,
    by_caller: bool = False,
    parent_id: str | UnsetType = UNSET,
) -> Metadata:
    """`call_id` is what clients see; the agent's own id is added where it differs. `payload` is UNSET by default."""
    plain = outcome.state == "completed"
    trace: dict[str, Any] = {"parent_id": parent_id}  # the fields of `ToolTrace` that are set
    if permission := action.permission if isinstance(action, Question) else outcome.permission:
        trace["permission"] = permission
    if payload is not UNSET:
        trace["raw"] = payload
    if not plain:
        has_ended = outcome.state not in ("running", "waiting")
        trace |= {"state": outcome.state, "reason": outcome.message if has_ended else UNSET}
    match action:
        case FileEdit():
            return FileEditMetadata(
                file_path=action.path,
                operation=action.operation,
                language=language_of(action.path),
                diff=action.diff or UNSET,
                old_path=action.old_path or UNSET,
                **trace,
            )
        case Command():
            return TerminalCommandMetadata(
                command=action.command,
                working_directory=action.working_directory or UNSET,
                exit_code=action.exit_code,
                output=action.output,
                duration_ms=outcome.duration_ms or 0,
                permissions=action.permissions,
                **trace,
            )
        case Plan():
            accepted = action.is_accepted or UNSET
            return PlanMetadata(
                title=action.title, overview=action.overview, todos=action.todos, accepted=accepted, **trace
            )
        case Question():
            return ClarificationMetadata(questions=action.questions, answers=action.answers or UNSET, **trace)
        case TodoUpdate():
            return TodoUpdateMetadata(todos=action.todos, merge=UNSET if action.merge else False, **trace)
        case OtherTool():
            data = action.data if plain else action.data or outcome.message or None
            return ToolCallMetadata(
                tool_name=action.tool,
                tool_call_id=call_id,
                arguments=action.arguments,
                result=ToolCallResult(status="success" if plain else "error", data=data),
                duration_ms=outcome.duration_ms or 0,
                agent_call_id=UNSET if agent_call_id == call_id else agent_call_id,
                ran_by="caller" if by_caller else UNSET,
                **trace,
            )
