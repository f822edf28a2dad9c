"""What an agent's tools do, the same for every source (closed union), and how a call ended."""

from typing import Any, TypeAlias

from msgspec import Struct

from cursor_gateway.model.documents import (
    ClarificationAnswer,
    ClarificationQuestion,
    Diff,
    Operation,
    PermissionRequest,
    PlanTodo,
    State,
    TodoChange,
)


class FileEdit(Struct, frozen=True, kw_only=True):
    tool: str
    path: str
    operation: Operation
    content: str | None = None
    diff: Diff | None = None
    old_path: str | None = None


class Command(Struct, frozen=True, kw_only=True):
    tool: str
    command: str
    working_directory: str = ""
    exit_code: int = -1  # -1: it did not finish
    output: str = ""
    permissions: list[str] = []


class Plan(Struct, frozen=True, kw_only=True):
    tool: str
    title: str
    overview: str
    markdown: str
    todos: list[PlanTodo]
    is_accepted: bool = False  # by a person, while the run waited


class Question(Struct, frozen=True, kw_only=True):
    tool: str
    title: str
    questions: list[ClarificationQuestion]
    answers: list[ClarificationAnswer] = []
    permission: PermissionRequest | None = None  # what it asks for, if it asks for permission


class TodoUpdate(Struct, frozen=True, kw_only=True):
    tool: str
    todos: list[TodoChange]
    merge: bool = True


class OtherTool(Struct, frozen=True, kw_only=True):
    tool: str
    arguments: dict[str, Any]
    data: Any = None


Action: TypeAlias = FileEdit | Command | Plan | Question | TodoUpdate | OtherTool


class Outcome(Struct, frozen=True, kw_only=True):
    """How a tool call ended. `message` is the agent's, or the gateway's if the agent has none."""

    state: State = "completed"
    code: str = ""
    message: str = ""
    details: str = ""
    duration_ms: int | None = None
    permission: PermissionRequest | None = None  # without which it was rejected


RUNNING, WAITING = Outcome(state="running"), Outcome(state="waiting")  # so far
INTERRUPTED = Outcome(state="interrupted", code="INTERRUPTED", message="The run ended before this tool did.")
