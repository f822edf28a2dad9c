"""Decode the session updates and extension messages of one turn as agent events.

Unlike in the CLI's output, deltas are never repeated. Tool calls are read in `calls`, failures that arrive as text in
`trailers`.
"""

from typing import Any

from cursor_gateway.errors import AgentError, AgentFailed, Failure, RunCancelled
from cursor_gateway.model.actions import Action, Outcome, Plan, Question, TodoUpdate
from cursor_gateway.model.agent_events import (
    AgentEvent,
    Notice,
    RunFailed,
    RunFinished,
    TextDelta,
    ThinkingDelta,
    ThinkingEnded,
    TokenCounts,
    ToolEnded,
    ToolStarted,
    Unrecognized,
)
from cursor_gateway.sources.acp.calls import ToolCall, call_of, ended, learn, started
from cursor_gateway.sources.acp.trailers import TrailerWatch
from cursor_gateway.sources.cursor.failures import CANCELLED
from cursor_gateway.sources.cursor.outcomes import timed
from cursor_gateway.sources.cursor.tools import read_call, read_result
from cursor_gateway.wire.payload import Fields, too_deep
from cursor_gateway.wire.surrogates import PairJoiner

_SILENT = {
    "available_commands_update",
    "config_option_update",
    "current_mode_update",
    "session_info_update",
    "usage_update",  # the size of the context, not what was used
    "user_message_chunk",
}
_STOPS: dict[str, AgentError] = {
    "cancelled": RunCancelled(CANCELLED),
    "refusal": AgentFailed("The model refused to continue; rephrase the request."),
    "max_tokens": AgentFailed("The answer was cut off at the model's token limit; ask for less at once."),
    "max_turn_requests": AgentFailed("The agent reached its limit of model calls in one turn; ask it to continue."),
}


class AcpDecoder:
    def __init__(self, callers_server: str = "") -> None:
        """Successful calls to the MCP server `callers_server` are skipped: the server reports them itself."""
        self._callers_server = callers_server
        self._out: list[AgentEvent] = []
        self._watch = TrailerWatch()
        self._text, self._thinking = PairJoiner(), PairJoiner()
        self._is_thinking = False
        self._calls: dict[str, ToolCall] = {}
        self._settled: set[str] = set()  # calls whose end was reported
        self._todos: dict[str, tuple[str, str]] = {}  # as last reported
        self._count = 0  # lists of todos without a call
        self.finished = False

    def push(self, update: object, /, at_ms: float | None = None) -> list[AgentEvent]:
        """The `update` of one `session/update`, and when it arrived: the agent does not report durations."""
        fields = Fields(update)
        match fields.text("sessionUpdate"):
            case "agent_message_chunk":
                self._message(fields.object("content"))
            case "agent_thought_chunk":
                self._thought(fields.object("content"))
            case "tool_call" | "tool_call_update" if too_deep(update):
                self._out.append(Unrecognized("nested too deeply"))
            case "tool_call" | "tool_call_update" if fields.text("toolCallId"):
                self._tool(fields, at_ms)
            case "plan":
                # A list without ids that replaces the previous one. It may repeat what was already reported.
                self._report_todos("", {"todos": fields.items("entries"), "merge": False})
            case name:
                if name not in _SILENT:
                    self._out.append(Unrecognized(f"update {name!r}"))
        return self._take()

    def extension(self, method: str, params: object, /) -> list[AgentEvent]:
        """One of Cursor's own messages that needs no answer."""
        fields = Fields(params)
        match method:
            case "cursor/update_todos":
                todos = {"todos": fields.items("todos"), "merge": fields.flag("merge")}
                self._report_todos(fields.text("toolCallId"), todos)
            case "cursor/task" | "cursor/generate_image":
                self._out.append(Notice("background"))
            case _:
                self._out.append(Unrecognized(f"method {method!r}"))
        return self._take()

    def ask(self, call_id: str, action: Plan | Question, payload: object, *, waits: bool = True) -> list[AgentEvent]:
        """A question, a plan or a permission request that waits for an answer."""
        self._boundary()
        if isinstance(action, Plan):
            self._todos = {todo.id: (todo.content, todo.status) for todo in action.todos}
        if call_id in self._calls:
            self._calls[call_id].is_reported = True
        self._out.append(ToolStarted(call_id, action, payload=None if too_deep(payload) else payload, waits=waits))
        return self._take()

    def settle(self, call_id: str, action: Action, outcome: Outcome) -> list[AgentEvent]:
        """A question was answered, or will not be."""
        self._settled.add(call_id)
        self._out.append(ToolEnded(call_id, action, outcome))
        return self._take()

    def begin(self, call_id: str) -> list[AgentEvent]:
        """The call is allowed, so it runs now."""
        call = self._calls.get(call_id)
        if call is not None and self._is_unreported(call):
            self._start(call)
        return self._take()

    def deny(self, call_id: str, outcome: Outcome) -> list[AgentEvent]:
        """The call is not allowed, so it ends like this, whatever the agent reports."""
        call = self._calls.get(call_id)
        if call is not None and call_id not in self._settled:
            call.is_denied = True
            if self._is_unreported(call):
                self._start(call)
            action, _ = ended(call, Fields({}))
            self._settled.add(call_id)
            self._out.append(ToolEnded(call_id, action, outcome, payload=call.payload))
        return self._take()

    def call(self, call_id: str) -> ToolCall | None:
        """A call that has started."""
        return self._calls.get(call_id)

    def finish(
        self, response: object, usage: TokenCounts | None = None, duration_ms: int | None = None
    ) -> list[AgentEvent]:
        """The answer to `session/prompt`."""
        error = _STOPS.get(Fields(response).text("stopReason"))
        return self._finish(None if error is None else error.failure(), usage, duration_ms)

    def flush(self, failure: Failure, duration_ms: int | None = None) -> list[AgentEvent]:
        """The end of the connection without an answer."""
        return self._finish(failure, None, duration_ms)

    def _finish(self, failure: Failure | None, usage: TokenCounts | None, duration_ms: int | None) -> list[AgentEvent]:
        failure = self._end() or failure
        self.finished = True
        if failure is None:
            self._out.append(RunFinished(usage=usage, duration_ms=duration_ms))
        else:
            self._out.append(RunFailed(failure=failure, usage=usage, duration_ms=duration_ms))
        return self._take()

    def _take(self) -> list[AgentEvent]:
        out, self._out = self._out, []
        return out

    # --- text and thinking --------------------------------------------------------------------------

    def _message(self, content: Fields) -> None:
        if content.text("type") != "text":
            self._out.append(Unrecognized(f"content {content.text('type')!r}"))
            return
        self._end_thinking()
        self._emit_text(self._watch.push(self._text.push(content.text("text"))))

    def _thought(self, content: Fields) -> None:
        if text := self._thinking.push(content.text("text")):
            self._end_text()
            self._is_thinking = True
            self._out.append(ThinkingDelta(text))

    def _emit_text(self, text: str) -> None:
        if text:
            self._out.append(TextDelta(text))

    def _boundary(self) -> None:
        self._end_thinking()
        self._end_text()

    def _end_text(self) -> None:
        self._emit_text(self._watch.push(self._text.flush()) + self._watch.release())

    def _end_thinking(self) -> None:
        if rest := self._thinking.flush():
            self._is_thinking = True
            self._out.append(ThinkingDelta(rest))
        if self._is_thinking:
            self._is_thinking = False
            self._out.append(ThinkingEnded())

    def _end(self) -> Failure | None:
        self._end_thinking()
        self._emit_text(self._watch.push(self._text.flush()))
        rest, failure = self._watch.finish()
        self._emit_text(rest)
        return None if failure is None else failure.failure()

    # --- tools --------------------------------------------------------------------------------------

    def _tool(self, update: Fields, at_ms: float | None) -> None:
        call = self._calls.get(update.text("toolCallId"))
        if call is None:
            call = call_of(update)
            call.started_ms = at_ms
            self._calls[call.id] = call
        else:
            learn(call, update)
        has_ended = update.text("status") in ("completed", "failed")
        if self._is_unreported(call) and (has_ended or not call.has_own_message):
            self._boundary()
            if update.text("status") != "pending":  # then it may need permission first, and does not run yet
                self._start(call)
        if has_ended and call.id not in self._settled:
            self._end_call(call, update, at_ms)

    def _is_unreported(self, call: ToolCall) -> bool:
        return not call.is_reported and not self._is_callers(call)

    def _start(self, call: ToolCall) -> None:
        self._boundary()
        call.is_reported = True
        if call.id not in self._settled:
            self._out.append(ToolStarted(call.id, started(call), payload=call.payload))

    def _end_call(self, call: ToolCall, update: Fields, at_ms: float | None) -> None:
        self._settled.add(call.id)
        action, outcome = ended(call, update)
        outcome = timed(outcome, (call.started_ms, at_ms))
        if self._is_callers(call):
            has_no_output = not update.items("content") and update.all.get("rawOutput") is None
            if outcome.state == "completed" or (has_no_output and not call.is_denied):
                return
            self._boundary()
        if isinstance(action, TodoUpdate):
            self._todos = _applied(self._todos, action)
        self._out.append(ToolEnded(call.id, action, outcome, payload=update.all))

    def _is_callers(self, call: ToolCall) -> bool:
        if not self._callers_server:
            return False
        return call.server == self._callers_server or (call.tool == "getMcpTools")

    # --- todos --------------------------------------------------------------------------------------

    def _report_todos(self, call_id: str, args: dict[str, Any]) -> None:
        if too_deep(args):
            self._out.append(Unrecognized("nested too deeply"))
            return
        action, outcome = read_result("updateTodos", args, {"success": {}})
        assert isinstance(action, TodoUpdate)
        todos = _applied(self._todos, action)
        if list(todos.values()) == list(self._todos.values()):
            if call_id:
                self._settled.add(call_id)  # reported already, by a list
            return
        self._todos = todos
        self._boundary()
        if not call_id or call_id in self._settled:
            self._count += 1
            call_id = f"todos {self._count}"
        self._settled.add(call_id)
        self._out += [
            ToolStarted(call_id, read_call("updateTodos", args), payload=args),
            ToolEnded(call_id, action, outcome, payload=args),
        ]


def counted(response: object) -> TokenCounts | None:
    """The session's usage so far, in builds that report it."""
    usage = Fields(response).object("usage")
    read, written = usage.integer("cachedReadTokens") or 0, usage.integer("cachedWriteTokens") or 0
    given, taken = usage.integer("inputTokens"), usage.integer("outputTokens")
    if given is None or taken is None:
        return None
    return TokenCounts(prompt=given + read + written, completion=taken, cached=read)


def _applied(known: dict[str, tuple[str, str]], update: TodoUpdate) -> dict[str, tuple[str, str]]:
    todos = dict(known) if update.merge else {}
    for todo in update.todos:
        content = todo.content if isinstance(todo.content, str) else todos.get(todo.id, ("", ""))[0]
        todos[todo.id] = (content, todo.status)
    return todos
