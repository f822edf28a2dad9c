"""Lines of cursor-agent's stream-json in, agent events out.

`push` takes the complete lines of one read, with or without their LFs, `push_line` one line. Tool payloads are read in
`sources.cursor.tools`, because the other sources have the same ones; everything else about this JSON is here.
"""

import re
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from cursor_gateway.errors import Failure
from cursor_gateway.model.agent_events import (
    Action,
    AgentEvent,
    Command,
    Notice,
    Outcome,
    PromptEchoed,
    RunFailed,
    RunFinished,
    RunStarted,
    TextDelta,
    ThinkingDelta,
    ThinkingEnded,
    TokenCounts,
    ToolEnded,
    ToolStarted,
    Unrecognized,
)
from cursor_gateway.sources.cli.reconcile import Reconciler
from cursor_gateway.sources.cursor.failures import failure_of, reported_failure
from cursor_gateway.sources.cursor.permissions import explained, needed
from cursor_gateway.sources.cursor.records import (
    REFUSED,
    AnyRecord,
    Assistant,
    ConnectionRecord,
    QueryRecord,
    ResultRecord,
    Retry,
    System,
    Thinking,
    ToolCallRecord,
    Torn,
    Unknown,
    Unreadable,
    UsageFigures,
    User,
    decode,
    read_again,
    read_arguments,
)
from cursor_gateway.sources.cursor.tools import elapsed, read_call, read_named, read_result, timed
from cursor_gateway.wire.large_json import LARGE, bounded
from cursor_gateway.wire.payload import Fields, clamped, too_deep
from cursor_gateway.wire.surrogates import PairJoiner, repair

if TYPE_CHECKING:
    from cursor_gateway.sources.cursor.ask_user import UserTool

_TIMED = (Assistant, Thinking, ToolCallRecord, QueryRecord, ConnectionRecord, Retry)  # records with a time
_UNRECOGNIZED = (Unknown, Unreadable)
_STRAY_LINES = 40  # lines of non-JSON output kept to explain a failure
# The CLI's own answers in the place of a person, where no rule allows a web page or an MCP tool.
_NOBODY_ASKED = re.compile(r"User Rejected$|MCP tool execution rejected by user\b")
_QUERY_SUFFIXES = ("RequestQuery", "InteractionQuery", "Query", "Args")


class _Call(Struct):
    """An unfinished call: what its end record may omit."""

    tool: str
    args: Any
    seen_ms: float | None  # by the CLI's clock
    started_ms: int | None  # by the service's
    answer: Any = None  # the CLI's own answer to the query


class CursorDecoder:
    def __init__(self, callers_server: str = "", user_tool: "UserTool | None" = None) -> None:
        """Successful calls to the MCP server `callers_server` are skipped, and calls of `user_tool` unless they are
        rejected: the gateway reports them itself."""
        self._callers_server, self._user_tool = callers_server, user_tool
        self.user_calls = 0  # of the user's tool, so far
        self.recognized = False  # whether any record was recognized
        self._out: list[AgentEvent] = []
        self._text, self._thinking = PairJoiner(), PairJoiner()
        self._reconciler = Reconciler()
        self._has_started = False
        self._calls: dict[str, _Call] = {}
        self._queries: dict[str, str] = {}  # query id -> call id
        self._query_only: dict[str, None] = {}  # calls, in order, known only from a query
        self._nameless: dict[str, list[str]] = {}  # tool -> unfinished calls without an id
        self._nameless_count = 0
        self._stray: list[str] = []
        # The duration of a run without a result is estimated from its first and last timestamps.
        self._first_ms: float | None = None
        self._last_ms: float | None = None
        self._thinking_ms: float | None = None  # when the open block of thinking began
        self.finished = False  # whether the end of the run has been decoded

    def push(self, lines: list[bytes], /) -> list[AgentEvent]:
        """The lines of one read. Adjacent deltas are merged.

        Lines are decoded one by one: decoding all of them at once would let a value span a line end, so the same
        bytes split differently would mean something else.
        """
        record: AnyRecord | None
        last: Assistant | Thinking | None = None  # of a series of text or thinking deltas: nearly all lines are
        texts: list[str] = []
        has_large = max(map(len, lines), default=0) >= LARGE
        for line in lines:
            if has_large and len(line) >= LARGE:
                line = bounded(line)
            try:
                record = decode(line)
            except REFUSED:
                record = read_again(line)
            if record.__class__ is Assistant and record.timestamp_ms is not None and record.model_call_id is None:
                text = record.message.content[0].text
                self._thinking_ms = None
            elif record.__class__ is Thinking and record.subtype == "delta":
                text = record.text or record.content
                if self._thinking_ms is None:
                    self._thinking_ms = record.timestamp_ms
            else:
                if last is not None:
                    self._end_run(last, texts)
                    last, texts = None, []
                if record is not None:
                    self._record(record)
                continue
            if last.__class__ is not record.__class__:
                if last is not None:
                    self._end_run(last, texts)
                    texts = []
                if self._first_ms is None:
                    self._first_ms = record.timestamp_ms
            last = record
            texts.append(text)
        if last is not None:
            self._end_run(last, texts)
        return self._take()

    def push_line(self, line: bytes, /) -> list[AgentEvent]:
        """A fast path for a slow stream, which arrives line by line and is passed on delta by delta."""
        record: AnyRecord | None
        if len(line) >= LARGE:
            line = bounded(line)
        try:
            record = decode(line)
        except REFUSED:
            record = read_again(line)
        if record.__class__ is Assistant and record.timestamp_ms is not None and record.model_call_id is None:
            text = record.message.content[0].text
            self._thinking_ms = None
            if len(text) < self._reconciler.floor:
                self._reconciler.emitted.append(text)
                self._last_ms = record.timestamp_ms
                return [TextDelta(text)]
            self._end_run(record, [text])
        elif record.__class__ is Thinking and record.subtype == "delta":
            text = record.text or record.content
            if self._thinking_ms is None:
                self._thinking_ms = record.timestamp_ms
            if text and not (
                self._first_ms is None or self._thinking.half or self._query_only or self._reconciler.held is not None
            ):
                self._last_ms = record.timestamp_ms or self._last_ms
                return [ThinkingDelta(text)]
            self._end_run(record, [text])
        elif record is not None:
            self._record(record)
        return self._take()

    def _end_run(self, last: Assistant | Thinking, texts: list[str]) -> None:
        self.recognized = True
        if last.timestamp_ms is not None:
            self._last_ms = last.timestamp_ms
            if self._first_ms is None:
                self._first_ms = self._last_ms
        if last.__class__ is Assistant:
            self._deltas(texts)
        elif text := "".join(texts):
            self._thoughts(text)

    def _take(self) -> list[AgentEvent]:
        out, self._out = self._out, []
        return out

    def flush(self, failure: Failure | None = None) -> list[AgentEvent]:
        """The end of the output. Without a result the run has failed: see `failure`, or else the stray text."""
        if not self.finished:
            self._boundary()
            self._end_answered_queries()
            failure = failure or failure_of("\n".join(self._stray)).failure()
            self._out.append(RunFailed(failure=failure, duration_ms=self._elapsed()))
            self.finished = True
        return self._take()

    @property
    def stray_text(self) -> str:
        """Output that is not JSON: usually what the agent would have written to stderr."""
        return "\n".join(self._stray)

    # --- text and thinking --------------------------------------------------------------------------

    def _deltas(self, texts: list[str]) -> None:
        if self._text.half and any(texts):
            self._settle_half_text()
        if self._query_only:
            self._end_answered_queries()
        if text := self._reconciler.deltas(texts):
            self._out.append(TextDelta(text))

    def _repetition(self, text: str) -> None:
        if self._text.half:
            self._settle_half_text()
        if self._query_only:
            self._end_answered_queries()
        if text := self._reconciler.repetition(text):
            self._out.append(TextDelta(text))

    def _thoughts(self, text: str) -> None:
        self._release()
        if self._thinking.half:
            self._settle_half_thought()
        if self._query_only:
            self._end_answered_queries()
        self._out.append(ThinkingDelta(text))

    def _release(self) -> None:
        if self._reconciler.held is not None and (text := self._reconciler.release()):
            self._out.append(TextDelta(text))

    def _torn(self, record: Assistant | Thinking) -> None:
        """A surrogate at the edge of a record is joined with its other half in the next record of the same kind."""
        self._end_answered_queries()
        match record:
            case Assistant(model_call_id=None, timestamp_ms=int() | float(), message=message):
                text = message.text
                is_other_half = bool(self._text.half) and "\udc00" <= text[:1] <= "\udfff"
                if text and not is_other_half and self._text.half:
                    self._settle_half_text()
                if not is_other_half and self._reconciler.is_repetition(repair(text)):
                    text = repair(text)
                else:
                    text = self._text.push(text)
                self._out.append(TextDelta(self._reconciler.delta(text)))
                self._reconciler.floor = 0  # no fast path for the next delta: it may be the other half
            case Assistant(message=message):
                self._repetition(repair(message.text))
            case Thinking(subtype=subtype, text=text, content=content):
                self._release()
                self._out.append(ThinkingDelta(self._thinking.push(text or content)))
                if self._thinking_ms is None:
                    self._thinking_ms = record.timestamp_ms
                if subtype == "completed":
                    self._end_thinking(record)

    def _settle_half_text(self) -> None:
        self._out.append(TextDelta(self._reconciler.delta(self._text.flush())))

    def _settle_half_thought(self) -> None:
        self._out.append(ThinkingDelta(self._thinking.flush()))

    def _end_thinking(self, end: Thinking) -> None:
        if self._thinking.half:
            self._settle_half_thought()
        since, self._thinking_ms = self._thinking_ms, None
        self._out.append(ThinkingEnded(elapsed(since, end.timestamp_ms)))

    def _boundary(self) -> None:
        """A tool, a query or the end follows: the text segment is complete."""
        self._thinking_ms = None
        if self._thinking.half:
            self._settle_half_thought()
        if self._text.half:
            self._settle_half_text()
        self._reconciler.end_segment()

    # --- everything else ----------------------------------------------------------------------------

    def _record(self, record: AnyRecord) -> None:
        self._note_time(record)
        match record:
            case Thinking():
                if text := record.text or record.content:  # empty ones were a heartbeat in builds up to January 2026
                    self._thoughts(text)
                if record.subtype == "completed":
                    self._release()
                    self._end_thinking(record)
            case Assistant(message=message):
                self._repetition(message.text)
            case ToolCallRecord():
                self._tool_call(record)
            case ResultRecord():
                self._result(record)
            case User(message=message):
                self._out.append(PromptEchoed(message.text))
            case Torn(record=torn):
                self._torn(torn)
            case QueryRecord(subtype="request"):
                self._query(record)
            case QueryRecord():
                self._query_answered(record)
            case System(subtype="init", session_id=session_id, model=model):
                if not self._has_started:
                    self._has_started = True
                    self._out.append(RunStarted(session_id, model))
            case System(subtype="task_notification" | "background_shell_timeout"):
                self._reconciler.begin_turn()  # the agent may go on about it, before the one result
                self._out.append(Notice("background"))
            case System(subtype=subtype):
                self._unrecognized(f"system {subtype}")
            case ConnectionRecord(subtype=subtype, attempt=attempt):
                self._out.append(
                    Notice("reconnected" if subtype == "reconnected" else "reconnecting", clamped(attempt))
                )
            case Retry(subtype=subtype, attempt=attempt):
                if subtype == "starting" and (text := self._reconciler.retry()):
                    self._out.append(TextDelta(text))
                self._out.append(Notice("retrying", clamped(attempt)))
            case Unknown(type=name):
                self._unrecognized(f"type {name!r}")
            case Unreadable(text=text):
                self._stray = [*self._stray, text][-_STRAY_LINES:]
                self._unrecognized("no JSON object")

    def _unrecognized(self, reason: str) -> None:
        """Reported beside the text: an unknown line does not end a segment."""
        self._out.append(Unrecognized(reason))

    def _result(self, record: ResultRecord) -> None:
        if self.finished:
            return
        self._boundary()
        self._end_answered_queries()
        failed = record.is_error or record.subtype.startswith("error")
        rest, differs = self._reconciler.finish(None if failed else record.result)
        if rest:
            self._out.append(TextDelta(rest))
        usage = _token_counts(record.usage)
        duration_ms = None if record.duration_ms is None else clamped(record.duration_ms)
        if failed:
            failure = reported_failure(record.result or _message_of(record.error) or record.message).failure()
            self._out.append(RunFailed(failure=failure, usage=usage, duration_ms=duration_ms))
        else:
            self._out.append(RunFinished(usage=usage, duration_ms=duration_ms, text_differs=differs))
        self.finished = True

    # --- tools --------------------------------------------------------------------------------------

    def _tool_call(self, record: ToolCallRecord) -> None:
        call = Fields(record.tool_call)
        if too_deep(record.tool_call) or (record.arguments is not None and too_deep(record.arguments)):
            self._unrecognized("nested too deeply")
            return
        for key in call.all:
            if key.endswith("ToolCall"):
                break
        else:
            self._named_call(record, call)
            return
        tool = key.removesuffix("ToolCall")
        body = call.object(key)
        args = body.all.get("args")
        call_id = record.call_id or call.text("toolCallId") or Fields(args).text("toolCallId")
        match record.subtype:
            case "started":
                self._boundary()
                call_id = call_id or self._start_nameless_call(tool)
                started_ms = call.integer("startedAtMs")
                self._query_only.pop(call_id, None)
                if (asked := self._calls.get(call_id)) is not None and isinstance(asked.args, dict):
                    args = {**asked.args, **Fields(args).all}  # the query may say more, such as a plan's name
                self._calls[call_id] = _Call(tool, args, record.timestamp_ms, started_ms)
                if self._is_callers(tool, args):
                    return
                if self._user_tool is not None and self._is_users(tool, args):
                    self.user_calls += tool == "mcp"
                    return
                self._out.append(ToolStarted(call_id, read_call(tool, args), record.model_call_id, record.tool_call))
            case "completed":
                call_id = call_id or self._end_nameless_call(tool)
                self._query_only.pop(call_id, None)
                started = self._calls.pop(call_id, None) or _Call(tool, None, None, None)
                args = {**Fields(started.args).all, **Fields(args).all}
                action, outcome = read_result(tool, args, body.all.get("result"))
                if outcome.state == "completed" and self._is_callers(tool, args):
                    return
                is_shown = self._user_tool is None or outcome.state == "rejected"
                if not is_shown and self._is_users(tool, args or started.args):
                    return
                outcome = timed(
                    outcome,
                    (call.integer("startedAtMs") or started.started_ms, call.integer("completedAtMs")),
                    (started.seen_ms, record.timestamp_ms),
                )
                outcome = self._explained(outcome, tool, action, args, body.all.get("result"))
                self._out.append(ToolEnded(call_id, action, outcome, record.model_call_id, record.tool_call))
            case subtype:
                self._unrecognized(f"tool_call {subtype}")

    def _explained(self, outcome: Outcome, tool: str, action: Action, args: object, result: object) -> Outcome:
        """A rule can help only if the agent has no reason of its own: a hook or a deny rule decides otherwise. With the
        caller's tools no rule can allow the agent its own; for the user's tool there is one."""
        if outcome.state != "rejected" or self._callers_server or self._is_users(tool, args):
            return outcome
        reason = Fields(result).object("rejected").text("reason").strip()
        if reason and not _NOBODY_ASKED.match(reason):
            return outcome
        return explained(outcome, needed(tool, {"command": action.command} if isinstance(action, Command) else args))

    def _is_callers(self, tool: str, args: object) -> bool:
        if not self._callers_server or tool not in ("mcp", "getMcpTools"):
            return False
        fields = Fields(args)
        server = _server(fields)
        if server:
            return server == self._callers_server
        return fields.text("name").startswith(f"{self._callers_server}-")

    def _is_users(self, tool: str, args: object) -> bool:
        if self._user_tool is None or tool not in ("mcp", "getMcpTools"):
            return False
        fields = Fields(args)
        server = _server(fields) or fields.text("name").removesuffix(f"-{self._user_tool.name}")
        return self._user_tool.is_called_by(server)

    def _named_call(self, record: ToolCallRecord, call: Fields) -> None:
        """The oldest shapes: a name and arguments in one event. Nothing is known but that the tool was called."""
        function = call.object("function")
        name = record.name or function.text("name")
        if not name:
            self._unrecognized("tool_call without a tool")
            return
        arguments = record.arguments if record.name else function.all.get("arguments")
        action = read_named(name, read_arguments(arguments))
        call_id = record.id or record.call_id
        if record.subtype == "completed":
            call_id = call_id or self._end_nameless_call(name)
        call_id = call_id or self._start_nameless_call(name)
        self._boundary()
        self._out.append(ToolStarted(call_id, action, record.model_call_id, record.tool_call))
        if record.subtype != "started":
            self._out.append(ToolEnded(call_id, action, Outcome(), record.model_call_id, record.tool_call))

    def _start_nameless_call(self, tool: str) -> str:
        self._nameless_count += 1
        call_id = f"call without an id {self._nameless_count}"
        self._nameless.setdefault(tool, []).append(call_id)
        return call_id

    def _end_nameless_call(self, tool: str) -> str:
        if not self._nameless.get(tool):
            self._start_nameless_call(tool)
        return self._nameless[tool].pop(0)

    def _query(self, record: QueryRecord) -> None:
        """A query, before or after its call starts; the call may never start, or may lack its arguments."""
        self._boundary()
        name = record.query_type
        if name not in record.query:
            name = next((key for key in record.query if key != "id"), name)
        query = Fields(record.query.get(name))
        args = query.all.get("args", query.all if name.endswith("Args") else None)
        call_id = query.text("toolCallId") or Fields(args).text("toolCallId")
        tool = name
        for suffix in _QUERY_SUFFIXES:
            tool = tool.removesuffix(suffix)
        if not call_id or not tool or too_deep(record.query):
            return
        self._queries[str(record.query.get("id"))] = call_id
        if call_id not in self._calls:
            self._query_only[call_id] = None
            self._calls[call_id] = _Call(tool, args, record.timestamp_ms, None)
            self._out.append(ToolStarted(call_id, read_call(tool, args), payload=record.query))

    def _query_answered(self, record: QueryRecord) -> None:
        call = self._calls.get(self._queries.pop(str(record.response.get("id")), ""))
        answer = next((value for key, value in record.response.items() if key != "id"), None)
        if call is not None and isinstance(answer, dict) and "approved" not in answer and not too_deep(answer):
            call.answer = answer.get("result", answer)

    def _end_answered_queries(self) -> None:
        """The agent continues, so calls known only from a query have ended with the query's answer."""
        for call_id in self._query_only:
            call = self._calls[call_id]
            if call.answer is not None:
                action, outcome = read_result(call.tool, call.args, call.answer)
                outcome = self._explained(outcome, call.tool, action, call.args, call.answer)
                self._out.append(ToolEnded(call_id, action, outcome, payload=call.answer))
        self._query_only = {}

    # --- time ---------------------------------------------------------------------------------------

    def _note_time(self, record: AnyRecord) -> None:
        time: float | None = None
        if record.__class__ in _TIMED:
            time = record.timestamp_ms
        elif record.__class__ in _UNRECOGNIZED:
            return
        elif record.__class__ is Torn:
            time = record.record.timestamp_ms
        self.recognized = True
        if time is not None:
            self._first_ms = time if self._first_ms is None else self._first_ms
            self._last_ms = time

    def _elapsed(self) -> int | None:
        return elapsed(self._first_ms, self._last_ms)


def _server(args: Fields) -> str:
    """The MCP server of a call; empty if it is not named."""
    return args.text("providerIdentifier", "serverIdentifier", "server")


def _message_of(error: object) -> str:
    """The message of an error: a string, or an object with a `message`."""
    return error if isinstance(error, str) else Fields(error).text("message")


def _token_counts(usage: UsageFigures | None) -> TokenCounts | None:
    if usage is None:
        return None
    return TokenCounts(
        prompt=clamped(usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens),
        completion=clamped(usage.output_tokens),
        cached=clamped(usage.cache_read_tokens),
    )
