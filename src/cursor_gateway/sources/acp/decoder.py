"""Decode the session updates and extension messages of one turn as agent events.

Unlike in the CLI's output, deltas are never repeated. Tool calls are read in `calls`, failures that arrive as text in
`cursor/failures`. A sub-agent works in a session of its own: its calls are reported with the call that started it as
their parent, and its last message is the result of that call.
"""

from itertools import chain
from typing import Any

from msgspec import Struct, structs

from cursor_gateway.errors import AgentError, AgentFailed, Failure, RunCancelled
from cursor_gateway.model import agent_events
from cursor_gateway.sources.acp.calls import (
    AcpCall,
    also_changed,
    call_of,
    denied,
    ended,
    has_made_up_id,
    learn,
    merge,
    started,
)
from cursor_gateway.sources.cursor.ask_user import UserTool
from cursor_gateway.sources.cursor.failures import CANCELLED, TrailerWatch
from cursor_gateway.sources.cursor.tools import elapsed, read_result, timed
from cursor_gateway.wire.payload import Fields, too_deep
from cursor_gateway.wire.surrogates import PairJoiner

_SILENT = {
    "agent_thought_chunk",  # of a sub-agent
    "available_commands_update",
    "config_option_update",
    "current_mode_update",
    "plan",  # of a sub-agent, or of a plan that is proposed next
    "usage_update",  # the size of the context, not what was used
    "user_message_chunk",
}
_STOPS: dict[str, AgentError] = {
    "cancelled": RunCancelled(CANCELLED),
    "refusal": AgentFailed("The model refused to continue; rephrase the request."),
    "max_tokens": AgentFailed("The answer was cut off at the model's token limit; ask for less at once."),
    "max_turn_requests": AgentFailed("The agent reached its limit of model calls in one turn; ask it to continue."),
}
_TASK = frozenset({"description", "prompt", "subagentType", "model", "agentId"})
_IN_PROGRESS = frozenset(
    {"", "in_progress", "pending", "queued", "running", "spawned", "started", "starting", "working"}
)


class Subagent(Struct):
    call_id: str  # that started it
    has_call: bool = True  # the agent reports the end of that call
    text: str = ""  # its last message
    is_over: bool = False


class AcpDecoder:
    def __init__(
        self, callers_server: str = "", user_tool: UserTool | None = None, last_calls: frozenset[str] = frozenset()
    ) -> None:
        """Successful calls to the MCP server `callers_server` and of `user_tool` are skipped: they report them
        themselves. So are late updates of `last_calls`, those of the turn before."""
        self._callers_server, self._user_tool, self._last_calls = callers_server, user_tool, last_calls
        self.user_calls = 0  # of the user's tool, so far
        self._out: list[agent_events.AgentEvent] = []
        self._watch = TrailerWatch()
        self._text, self._thinking = PairJoiner(), PairJoiner()
        self._is_thinking = False
        self._at_ms: float | None = None  # when the update that is decoded arrived
        self._thinking_ms: float | None = None  # when the open block of thinking began
        self._calls: dict[str, AcpCall] = {}
        self._settled: set[str] = set()  # calls whose end was reported
        self._todos: dict[str, tuple[str, str]] = {}  # as last reported
        self._todo_ids: dict[str, str] = {}  # as they were reported: a plan, which has none, may come first
        self._count = 0  # lists of todos without a call
        self._subagents: dict[str, Subagent] = {}  # by session
        self._held: dict[str, tuple[str, float | None]] = {}  # calls of sub-agents that ended: status, time
        self.finished = False

    def push(
        self, update: object, /, at_ms: float | None = None, session_id: str = ""
    ) -> list[agent_events.AgentEvent]:
        """The `update` of one `session/update`, and when it arrived: the agent does not report durations.

        `session_id` is that of a sub-agent; empty: the turn's own.
        """
        fields = Fields(update)
        self._at_ms = at_ms
        subagent = self._subagents.get(session_id)
        if subagent is None:
            self._release_subagents()
        match fields.text("sessionUpdate"):
            case "agent_message_chunk" if subagent is not None:
                subagent.text += fields.object("content").text("text")
            case "agent_message_chunk":
                self._message(fields.object("content"))
            case "agent_thought_chunk" if subagent is None:
                self._thought(fields.object("content"))
            case "tool_call" | "tool_call_update" | "subagent_spawned" if too_deep(update):
                self._out.append(agent_events.Unrecognized("nested too deeply"))
            case "tool_call_update" if self._is_late(fields.text("toolCallId")):
                pass
            case "tool_call" | "tool_call_update" if fields.text("toolCallId"):
                self._tool(fields, at_ms, subagent)
            case "subagent_spawned" if fields.text("subagentSessionId"):
                self._spawned(fields, at_ms, subagent)
            case "subagent_state_update":
                self._subagent_changed(fields, at_ms, session_id)
            case "session_info_update":
                if subagent is None and (title := fields.text("title")):
                    self._out.append(agent_events.TitleGiven(title))
            case "plan" if subagent is None and not self._plans:
                # A list without ids that replaces the previous one. It may repeat what was already reported.
                self._report_todos("", {"todos": fields.items("entries"), "merge": False})
            case name:
                if name not in _SILENT:
                    self._out.append(agent_events.Unrecognized(f"update {name!r}"))
        return self._take()

    @property
    def _plans(self) -> list[AcpCall]:
        """Plans that are about to be proposed: their to-dos are not those of the agent yet."""
        return [
            call
            for call in self._calls.values()
            if call.tool == "createPlan" and not call.is_reported and call.id not in self._settled
        ]

    def _is_late(self, call_id: str) -> bool:
        return call_id in self._last_calls and call_id not in self._calls

    def extension(self, method: str, params: object, /) -> list[agent_events.AgentEvent]:
        """One of Cursor's own messages that needs no answer."""
        fields = Fields(params)
        call = self.call(fields.text("toolCallId"))
        match method:
            case "cursor/update_todos":
                if call is None or call.parent is None:
                    todos = {"todos": fields.items("todos"), "merge": fields.flag("merge")}
                    self._report_todos(fields.text("toolCallId"), todos)
            case "cursor/task" if call is not None and call.tool == "task" and not too_deep(params):
                learn(call, Fields({"rawInput": {key: value for key, value in fields.all.items() if key in _TASK}}))
                if call.output is None and "durationMs" in fields.all:
                    call.output = {"durationMs": fields.all["durationMs"]}  # so it ran
                self._release_subagents()
            case "cursor/task" | "cursor/generate_image" | "cursor/canvas":
                self._out.append(agent_events.Notice("background"))
            case _:
                self._out.append(agent_events.Unrecognized(f"method {method!r}"))
        return self._take()

    def ask(
        self,
        call_id: str,
        action: agent_events.Plan | agent_events.Question,
        payload: object,
        *,
        waits: bool = True,
        parent: str | None = None,
    ) -> list[agent_events.AgentEvent]:
        """A question, a plan or a permission request that waits for an answer."""
        self._boundary()
        if isinstance(action, agent_events.Plan):
            self._todos = {todo.id: (todo.content, todo.status) for todo in action.todos}
        if call_id in self._calls:
            self._calls[call_id].is_reported = True
        payload = None if too_deep(payload) else payload
        self._out.append(agent_events.ToolStarted(call_id, action, payload=payload, waits=waits, parent=parent))
        return self._take()

    def settle(
        self, call_id: str, action: agent_events.Action, outcome: agent_events.Outcome
    ) -> list[agent_events.AgentEvent]:
        """A question was answered, or will not be."""
        self._settled.add(call_id)
        self._out.append(agent_events.ToolEnded(call_id, action, outcome))
        return self._take()

    def begin(self, call_id: str) -> list[agent_events.AgentEvent]:
        """The call is allowed, so it runs now."""
        call = self._calls.get(call_id)
        if call is not None and call.is_announced and self._is_unreported(call):
            self._start(call)
        return self._take()

    def deny(self, call_id: str, outcome: agent_events.Outcome) -> list[agent_events.AgentEvent]:
        """The call is not allowed, so it ends like this, whatever the agent reports."""
        call = self._calls.get(call_id)
        if call is not None and call.id not in self._settled:
            call.is_denied = True
            if self._is_unreported(call):
                self._start(call)
            action, _ = denied(call, outcome.message)
            self._settled.add(call.id)
            self._out.append(agent_events.ToolEnded(call.id, action, outcome, payload=call.payload))
        return self._take()

    def announce(self, call: AcpCall, session_id: str = "") -> None:
        """A call that is known only from a request for permission. It may be reported under another id, as those for
        web pages are: later, or it was already."""
        call.parent = _call_of(self._subagents.get(session_id))
        known = [other for id, other in self._calls.items() if id == other.id and other.is_announced]
        known = [other for other in known if other.id not in self._settled and _same_page(call, other)]
        taken = [other for id, other in self._calls.items() if id != other.id]
        reported = next((other for other in known if other not in taken), None)
        call.is_announced = reported is not None
        self._calls[call.id] = reported or call

    def is_another(self, call: AcpCall, session_id: str = "") -> bool:
        """Whether a request for permission has the id of another call: each session counts its web pages from 0."""
        known = self._calls.get(call.id)
        if known is None or not has_made_up_id(call):
            return False
        parent = _call_of(self._subagents.get(session_id))
        return (known.tool, known.parent, _subject(known)) != (call.tool, parent, _subject(call))

    @property
    def call_ids(self) -> frozenset[str]:
        return frozenset(self._calls)

    def call(self, call_id: str) -> AcpCall | None:
        """A call that has started."""
        return self._calls.get(call_id)

    def finish(
        self, response: object, usage: agent_events.TokenCounts | None = None, duration_ms: int | None = None
    ) -> list[agent_events.AgentEvent]:
        """The answer to `session/prompt`."""
        error = _STOPS.get(Fields(response).text("stopReason"))
        return self._finish(None if error is None else error.failure(), usage, duration_ms)

    def flush(self, failure: Failure, duration_ms: int | None = None) -> list[agent_events.AgentEvent]:
        """The end of the connection without an answer."""
        return self._finish(failure, None, duration_ms)

    def _finish(
        self, failure: Failure | None, usage: agent_events.TokenCounts | None, duration_ms: int | None
    ) -> list[agent_events.AgentEvent]:
        failure = self._end() or failure
        self.finished = True
        if failure is None:
            self._out.append(agent_events.RunFinished(usage=usage, duration_ms=duration_ms))
        else:
            self._out.append(agent_events.RunFailed(failure=failure, usage=usage, duration_ms=duration_ms))
        return self._take()

    def _take(self) -> list[agent_events.AgentEvent]:
        out, self._out, self._at_ms = self._out, [], None
        return out

    # --- text and thinking --------------------------------------------------------------------------

    def _message(self, content: Fields) -> None:
        if content.text("type") != "text":
            self._out.append(agent_events.Unrecognized(f"content {content.text('type')!r}"))
            return
        self._end_thinking()
        self._emit_text(self._watch.push(self._text.push(content.text("text"))))

    def _thought(self, content: Fields) -> None:
        if text := self._thinking.push(content.text("text")):
            self._end_text()
            if not self._is_thinking:
                self._is_thinking, self._thinking_ms = True, self._at_ms
            self._out.append(agent_events.ThinkingDelta(text))

    def _emit_text(self, text: str) -> None:
        if text:
            self._out.append(agent_events.TextDelta(text))

    def _boundary(self) -> None:
        self._end_thinking()
        self._end_text()

    def _end_text(self) -> None:
        self._emit_text(self._watch.push(self._text.flush()) + self._watch.release())

    def _end_thinking(self) -> None:
        if rest := self._thinking.flush():
            self._is_thinking = True
            self._out.append(agent_events.ThinkingDelta(rest))
        if self._is_thinking:
            took = elapsed(self._thinking_ms, self._at_ms)
            self._is_thinking, self._thinking_ms = False, None
            self._out.append(agent_events.ThinkingEnded(took))

    def _end(self) -> Failure | None:
        self._end_thinking()
        self._emit_text(self._watch.push(self._text.flush()))
        failure = self._watch.finish()
        for subagent in self._subagents.values():
            subagent.is_over = True
        self._release_subagents()
        for call in list(self._calls.values()):  # those that never ran: the agent was stopped, or forgot them
            if call.is_announced and not call.has_own_message and self._is_unreported(call):
                self._start(call)
        return None if failure is None else failure.failure()

    # --- tools --------------------------------------------------------------------------------------

    def _tool(self, update: Fields, at_ms: float | None, subagent: Subagent | None) -> None:
        id, status = update.text("toolCallId"), update.text("status")
        if self._is_another(id, update):
            self._settled.discard(self._calls.pop(id).id)
        if id not in self._calls:
            call = call_of(update)
            call.parent = _call_of(subagent)
            if subagent is not None:
                subagent.text = ""  # only its last message is its result
            self._calls[id] = call
        call = self._calls[id]
        if call.started_ms is None:
            call.started_ms = at_ms
        learn(call, update)
        if call.id == id and (permitted := self._permitted(call)) is not None:
            merge(permitted, call)
            self._calls[id] = call = permitted
        if self._user_tool is not None and call.tool == "mcp" and not call.is_reported and self._is_callers(call):
            call.is_reported = True
            self.user_calls += 1
        has_ended = status in ("completed", "failed")
        if self._is_unreported(call) and (has_ended or not call.has_own_message):
            self._boundary()
            if call.status != "pending":  # then it may need permission first, and does not run yet
                self._start(call)
        if has_ended:
            if call.tool == "task":  # its arguments, or its result, may follow
                self._hold(call, status, at_ms)
            else:
                self._end_call(call, status, update.all, at_ms)

    def _is_another(self, id: str, update: Fields) -> bool:
        """Whether a call has the id of one that has ended, and is not the same again."""
        known = self._calls.get(id)
        if known is None or known.id not in self._settled or update.text("sessionUpdate") != "tool_call":
            return False
        before = Fields(known.payload)
        return before.text("sessionUpdate") == "tool_call" and any(
            before.all.get(name) != update.all.get(name) for name in ("title", "kind", "rawInput")
        )

    def _permitted(self, call: AcpCall) -> AcpCall | None:
        """The request for permission that came before this call, under another id: so do those for web pages. A call
        that does not say yet which page it is about gets one when it runs."""
        if call.is_reported or call.tool not in ("webFetch", "webSearch"):
            return None
        waiting = [
            other
            for other in self._calls.values()
            if not other.is_announced and other.tool == call.tool and other.parent == call.parent
        ]
        same = [other for other in waiting if _same_page(call, other)]
        if not same and call.status != "pending":
            unsure = [other for other in waiting if not _subject(call) or not _subject(other)]
            same = sorted(unsure, key=lambda other: other.is_denied)
        return next(iter(same), None)

    def _is_unreported(self, call: AcpCall) -> bool:
        return not call.is_reported and not self._is_callers(call)

    def _start(self, call: AcpCall) -> None:
        self._boundary()
        call.is_reported = True
        if call.id not in self._settled:
            self._out.append(agent_events.ToolStarted(call.id, started(call), payload=call.payload, parent=call.parent))

    def _end_call(self, call: AcpCall, status: str, payload: object, at_ms: float | None) -> None:
        if call.id in self._settled:
            return
        self._settled.add(call.id)
        action, outcome = ended(call, status)
        outcome = timed(outcome, (call.started_ms, at_ms))
        if self._is_callers(call):
            has_no_output = not call.content and call.output is None
            if outcome.state == "completed" or (has_no_output and not call.is_denied):
                return
            self._boundary()
        if isinstance(action, agent_events.TodoUpdate) and call.parent is None:
            self._todos = _applied(self._todos, action)
        self._out.append(agent_events.ToolEnded(call.id, action, outcome, payload=payload))
        others = also_changed(call) if outcome.state == "completed" else []
        for number, (also, its) in enumerate(others, 2):
            id = f"{call.id} {number}"
            self._out.append(agent_events.ToolStarted(id, also, payload=payload, parent=call.parent))
            self._out.append(agent_events.ToolEnded(id, also, timed(its, (call.started_ms, at_ms)), payload=payload))

    # --- sub-agents ---------------------------------------------------------------------------------

    def _spawned(self, update: Fields, at_ms: float | None, parent: Subagent | None) -> None:
        about, session_id = update.object("_meta").object("cursor"), update.text("subagentSessionId")
        call_id = about.text("toolCallId") or f"subagent {session_id}"
        self._subagents[session_id] = Subagent(call_id, has_call=bool(about.text("toolCallId")))
        known = {} if (call := self.call(call_id)) is None else call.args
        described = {"description": update.text("name"), "prompt": update.text("task"), "model": about.text("model")}
        given = {key: value for key, value in described.items() if value and not known.get(key)}
        started = {"toolCallId": call_id, "kind": "other", "title": "Task", "status": "in_progress"}
        self._tool(Fields({**started, "rawInput": {"_toolName": "task", **given}}), at_ms, parent)

    def _subagent_changed(self, update: Fields, at_ms: float | None, session_id: str) -> None:
        subagent = self._subagents.get(update.text("subagentSessionId") or session_id)
        state = update.text("state")
        if subagent is None or state in _IN_PROGRESS:
            return
        subagent.is_over = True
        call = self._calls[subagent.call_id]
        if not subagent.has_call and call.id not in self._settled:
            call.output = {"state": state}
            self._held[call.id] = "failed" if state in ("failed", "error") else "completed", at_ms
        self._release_subagents()

    def _hold(self, call: AcpCall, status: str, at_ms: float | None) -> None:
        self._held[call.id] = status, at_ms
        if not Fields(call.output).flag("isBackground"):
            for subagent in self._subagents.values():
                subagent.is_over = subagent.is_over or subagent.call_id == call.id

    def _release_subagents(self) -> None:
        """Reports the end of calls whose sub-agents are over."""
        busy = {subagent.call_id for subagent in self._subagents.values() if not subagent.is_over}
        for call_id in [call_id for call_id in self._held if call_id not in busy]:
            status, at_ms = self._held.pop(call_id)
            call = self._calls[call_id]
            said = [subagent.text for subagent in self._subagents.values() if subagent.call_id == call_id]
            if said and said[-1].strip() and isinstance(call.output, dict | None):
                message = {"assistantMessage": {"text": said[-1]}}
                call.output = {**(call.output or {}), "conversationSteps": [message]}
            self._end_call(call, status, call.payload, at_ms)

    def _is_callers(self, call: AcpCall) -> bool:
        if self._user_tool is not None:
            server = Fields(call.args).text("server") if call.tool == "getMcpTools" else call.server
            return self._user_tool.is_called_by(server)
        if not self._callers_server:
            return False
        return call.server == self._callers_server or (call.tool == "getMcpTools")

    # --- todos --------------------------------------------------------------------------------------

    def _report_todos(self, call_id: str, args: dict[str, Any]) -> None:
        if too_deep(args):
            self._out.append(agent_events.Unrecognized("nested too deeply"))
            return
        action, outcome = read_result("updateTodos", args, {"success": {}})
        assert isinstance(action, agent_events.TodoUpdate)
        has_ids = any(Fields(todo).text("id") for todo in args["todos"])
        if has_ids and not action.merge:
            self._todo_ids = {}
        given = action.todos
        action = self._with_known_ids(action, has_ids)
        todos = _applied(self._todos, action)
        if list(todos.values()) == list(self._todos.values()):
            if has_ids and not action.merge:
                self._todo_ids = dict(zip(dict.fromkeys(todo.id for todo in given), self._todos, strict=True))
            if call_id:
                self._settled.add(call_id)  # reported already, by a list
            return
        self._todos = todos
        self._boundary()
        known = self._calls.get(call_id)
        if not call_id or call_id in self._settled or (known is not None and known.is_reported):
            self._count += 1
            call_id = f"todos {self._count}"
        self._settled.add(call_id)
        self._out += [
            agent_events.ToolStarted(call_id, action, payload=args),
            agent_events.ToolEnded(call_id, action, outcome, payload=args),
        ]

    def _with_known_ids(self, update: agent_events.TodoUpdate, has_ids: bool) -> agent_events.TodoUpdate:
        """With the ids that readers know. A plan's entries have none: those of the same words get the same id."""
        if has_ids:
            return structs.replace(
                update, todos=[structs.replace(todo, id=self._todo_ids.get(todo.id, todo.id)) for todo in update.todos]
            )
        known = {content: id for id, (content, _) in reversed(self._todos.items())}
        ids: list[str] = []
        for number, todo in enumerate(update.todos, 1):
            id = known.pop(todo.content, "") if isinstance(todo.content, str) else ""
            free = (str(count) for count in chain([number], range(1, len(self._todos) + len(update.todos) + 1)))
            ids.append(id or next(id for id in free if id not in self._todos and id not in ids))
        return structs.replace(
            update, todos=[structs.replace(todo, id=id) for todo, id in zip(update.todos, ids, strict=True)]
        )


def _call_of(subagent: Subagent | None) -> str | None:
    return None if subagent is None else subagent.call_id


def _subject(call: AcpCall) -> str:
    return Fields(call.args).text("url", "searchTerm") if call.tool in ("webFetch", "webSearch") else ""


def _same_page(call: AcpCall, other: AcpCall) -> bool:
    is_alike = (call.tool, call.parent) == (other.tool, other.parent)
    return is_alike and _subject(call) != "" and _subject(call) == _subject(other)


def counted(response: object) -> agent_events.TokenCounts | None:
    """The session's usage so far, in builds that report it."""
    usage = Fields(response).object("usage")
    read, written = usage.integer("cachedReadTokens") or 0, usage.integer("cachedWriteTokens") or 0
    given, taken = usage.integer("inputTokens"), usage.integer("outputTokens")
    if given is None or taken is None:
        return None
    return agent_events.TokenCounts(prompt=given + read + written, completion=taken, cached=read)


def _applied(known: dict[str, tuple[str, str]], update: agent_events.TodoUpdate) -> dict[str, tuple[str, str]]:
    todos = dict(known) if update.merge else {}
    for todo in update.todos:
        content = todo.content if isinstance(todo.content, str) else todos.get(todo.id, ("", ""))[0]
        todos[todo.id] = (content, todo.status)
    return todos
