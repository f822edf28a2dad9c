"""The events of an agent, the same for every source (closed union)."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from cursor_gateway.errors import Failure
from cursor_gateway.model import documents
from cursor_gateway.model.caller_tools import CallerCall, ToolResult

# --- what its tools do ------------------------------------------------------------------------------


class FileEdit(Struct, frozen=True, kw_only=True):
    tool: str
    path: str
    operation: documents.Operation
    content: str | None = None
    diff: documents.Diff | None = None
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
    todos: list[documents.PlanTodo]
    is_accepted: bool = False  # by a person, while the run waited


class Question(Struct, frozen=True, kw_only=True):
    tool: str
    title: str
    questions: list[documents.ClarificationQuestion]
    answers: list[documents.ClarificationAnswer] = []
    permission: documents.PermissionRequest | None = None  # what it asks for, if it asks for permission


class TodoUpdate(Struct, frozen=True, kw_only=True):
    tool: str
    todos: list[documents.TodoChange]
    merge: bool = True


class OtherTool(Struct, frozen=True, kw_only=True):
    tool: str
    arguments: dict[str, Any]
    data: Any = None


Action: TypeAlias = FileEdit | Command | Plan | Question | TodoUpdate | OtherTool


class Outcome(Struct, frozen=True, kw_only=True):
    """How a tool call ended. `message` is the agent's, or the gateway's if the agent has none."""

    state: documents.State = "completed"
    code: str = ""
    message: str = ""
    details: str = ""
    duration_ms: int | None = None
    permission: documents.PermissionRequest | None = None  # without which it was rejected


RUNNING, WAITING = Outcome(state="running"), Outcome(state="waiting")  # so far
INTERRUPTED = Outcome(state="interrupted", code="INTERRUPTED", message="The run ended before this tool did.")


class RunStarted(Struct, frozen=True):
    session_id: str
    model: str
    recording: documents.ReplayedRecording | UnsetType = UNSET  # no agent runs: this is replayed
    is_warm: bool = False  # the agent was ready before the run: nothing had to be started or opened for it


class TitleGiven(Struct, frozen=True):
    """What the agent calls the conversation."""

    title: str


class PromptEchoed(Struct, frozen=True):
    text: str


class TextDelta(Struct, frozen=True, gc=False):
    text: str


class ThinkingDelta(Struct, frozen=True, gc=False):
    text: str


class ThinkingEnded(Struct, frozen=True):
    duration_ms: int | None = None


class ToolStarted(Struct, frozen=True):
    call_id: str
    action: Action
    model_call: str | None = None  # the same for all calls of one model turn
    payload: Any = None  # the agent's own data, for `include: ["raw"]`
    waits: bool = False  # for an answer: a question, a plan, or a permission request
    parent: str | None = None  # the call of the sub-agent that made it


class ToolEnded(Struct, frozen=True):
    call_id: str
    action: Action
    outcome: Outcome
    model_call: str | None = None
    payload: Any = None


class CommandOutput(Struct, frozen=True, gc=False):
    """What a running command has just written. Its end has all of it."""

    call_id: str
    text: str


class CallerToolAsked(Struct, frozen=True):
    """The agent called one of the caller's tools."""

    call: CallerCall


class CallerToolAnswered(Struct, frozen=True):
    call_id: str
    result: ToolResult
    duration_ms: int = 0


class CallerAwaited(Struct, frozen=True):
    """The agent cannot continue before these calls are answered."""

    call_ids: tuple[str, ...]
    by_others: bool = False  # somebody else answers them, not the caller


class Notice(Struct, frozen=True):
    """The agent's connection, retries and background tasks; these make no document."""

    kind: Literal["reconnecting", "reconnected", "retrying", "background"]
    attempt: int = 0


class Unrecognized(Struct, frozen=True):
    """Counted, never fatal: new builds of the agent add types."""

    reason: str


class TokenCounts(Struct, frozen=True, kw_only=True):
    """The agent's own figures, summed over its model calls; `prompt` includes cached tokens, `completion` thinking."""

    prompt: int
    completion: int
    cached: int = 0
    reasoning: int = 0

    def plus(self, other: "TokenCounts", sign: Literal[1, -1] = 1) -> "TokenCounts":
        """The sum, or the difference."""
        return TokenCounts(
            prompt=self.prompt + sign * other.prompt,
            completion=self.completion + sign * other.completion,
            cached=self.cached + sign * other.cached,
            reasoning=self.reasoning + sign * other.reasoning,
        )


class RunFinished(Struct, frozen=True, kw_only=True):
    usage: TokenCounts | None = None
    last_usage: TokenCounts | None = None  # of the last agent only, if several were started for the run
    duration_ms: int | None = None
    text_differs: bool = False


class RunFailed(Struct, frozen=True, kw_only=True):
    failure: Failure
    usage: TokenCounts | None = None
    last_usage: TokenCounts | None = None
    duration_ms: int | None = None


AgentEvent: TypeAlias = (
    RunStarted
    | TitleGiven
    | PromptEchoed
    | TextDelta
    | ThinkingDelta
    | ThinkingEnded
    | ToolStarted
    | ToolEnded
    | CommandOutput
    | CallerToolAsked
    | CallerToolAnswered
    | CallerAwaited
    | Notice
    | Unrecognized
    | RunFinished
    | RunFailed
)


def merge_deltas(events: Sequence[AgentEvent]) -> list[AgentEvent]:
    """With adjacent deltas of text, of thinking, or of a command's output, in one."""
    merged: list[AgentEvent] = []
    for kind, same in groupby(events, type):
        if kind is TextDelta or kind is ThinkingDelta:
            merged.append(kind("".join(event.text for event in same if isinstance(event, kind))))
        elif kind is CommandOutput:
            outputs = [event for event in same if isinstance(event, CommandOutput)]
            for call_id, pieces in groupby(outputs, lambda event: event.call_id):
                merged.append(CommandOutput(call_id, "".join(event.text for event in pieces)))
        else:
            merged += same
    return merged
