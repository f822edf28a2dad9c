"""Decode the events of the SDK's stream as agent events.

The stream contains everything twice, as deltas and as messages. Text and tools are taken from the deltas, and from the
messages only what no delta has: the usage, the run's state. The prompt is not in it.
"""

import re
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

from msgspec import Struct

from cursor_gateway.errors import AgentCrashed, Failure
from cursor_gateway.model import agent_events
from cursor_gateway.sources.cursor.tools import CODES, read_call, read_result, snake, timed
from cursor_gateway.sources.sdk.failures import run_failure
from cursor_gateway.wire.payload import Fields, too_deep
from cursor_gateway.wire.surrogates import PairJoiner, repair_json

CALLERS_SERVER = "custom-user-tools"  # the SDK's name for the tools that it is given

# Duplicates, or not needed: partial arguments of a call, a sub-agent's steps.
_QUIET_UPDATES = frozenset(
    [
        "partial-tool-call",
        "token-delta",
        "step-started",
        "step-completed",
        "user-message-appended",
        "summary",
        "summary-started",
        "summary-completed",
        "tool-requests-listed",
        "tool-call-delta",
    ]
)
_QUIET_MESSAGES = frozenset({"assistant", "thinking", "tool_call", "request", "system", "user"})
_QUIET_KINDS = frozenset({"unknown", "step", "done"})  # the first is the keep-alive


class _Call(Struct):
    """An unfinished call: what its end may omit."""

    tool: str
    args: Any
    started_ms: float
    has_output: bool = False  # live output can only be this command's: no other one has run meanwhile


class SdkDecoder:
    def __init__(
        self,
        agent_id: str,
        model: str,
        prompt: str,
        *,
        offers_tools: bool = False,
        user_tool: str = "",
        is_warm: bool = False,
    ) -> None:
        """With `offers_tools`, successful calls of the caller's tools are skipped, and calls of the tool `user_tool`
        unless they are rejected: the gateway runs and reports them itself. `is_warm`: the runtime was ready before the
        run."""
        self._is_warm = is_warm
        self._agent_id, self._model, self._prompt, self._offers_tools = agent_id, model, prompt, offers_tools
        self._user_tool = user_tool
        self.user_calls = 0  # of the user's tool, so far
        self.finished = False  # whether the end of the run has been decoded
        self._started = False
        self._out: list[agent_events.AgentEvent] = []
        self._emitted: list[str] = []
        self._text, self._thought = PairJoiner(), PairJoiner()
        self._calls: dict[str, _Call] = {}
        self._status = ""
        self._reason = ""  # from the status
        self._reported: agent_events.TokenCounts | None = None  # from messages
        self._counted: agent_events.TokenCounts | None = None  # from the ends of turns

    def push(self, kind: str, body: Mapping[str, Any], at_ms: float) -> None:
        """One event of the stream, with the SDK's names, and when it arrived; `take` returns the result."""
        match kind:
            case "interaction_update":
                self._update(body, at_ms)
            case "sdk_message":
                self._message(body)
            case "result":
                self._result(Fields(dict(body)))
            case _:
                if kind not in _QUIET_KINDS:
                    self._out.append(agent_events.Unrecognized(f"kind {kind!r}"))

    def take(self) -> list[agent_events.AgentEvent]:
        """The events since the last call. Adjacent deltas are merged."""
        out, self._out = self._out, []
        return agent_events.merge_deltas(out)

    def flush(self, failure: Failure | None = None) -> list[agent_events.AgentEvent]:
        """The end of the stream. Without a result the run has failed: see `failure`, or else the status."""
        if not self.finished:
            self._settle()
            if failure is None and self._status in ("error", "cancelled", "expired"):
                failure = run_failure(self._status, "", self._reason)
            failure = failure or AgentCrashed().failure()
            self._out.append(agent_events.RunFailed(failure=failure, usage=self._usage()))
            self.finished = True
        return self.take()

    # --- deltas -------------------------------------------------------------------------------------

    def _update(self, update: Mapping[str, Any], at_ms: float) -> None:
        match update:
            case {"type": "text-delta", "text": str(text)}:
                self._start()
                self._emit_thinking(self._thought.flush())
                self._emit_text(self._text.push(text))
            case {"type": "thinking-delta", "text": str(text)}:
                self._start()
                self._emit_text(self._text.flush())
                self._emit_thinking(self._thought.push(text))
            case {"type": "thinking-completed"}:
                self._start()
                self._settle()
                self._out.append(agent_events.ThinkingEnded(Fields(dict(update)).integer("thinking_duration_ms")))
            case {
                "type": "tool-call-started" | "tool-call-completed" as name,
                "call_id": str(call_id),
                "tool_call": dict(call),
            }:
                self._start()
                self._settle()
                if too_deep(call):
                    self._out.append(agent_events.Unrecognized("nested too deeply"))
                    return
                report = self._tool_started if name == "tool-call-started" else self._tool_ended
                model_call = repair_json(Fields(dict(update)).text("model_call_id")) or None
                report(repair_json(call_id), repair_json(call), model_call, at_ms)
            case {"type": "shell-output-delta"}:
                self._command_output(Fields(dict(update)).object("event"))
            case {"type": "turn-ended"}:
                self._counted = _added(self._counted, update.get("usage"))
            case _:
                name = Fields(dict(update)).text("type")
                if name not in _QUIET_UPDATES:
                    self._out.append(agent_events.Unrecognized(f"update {name!r}"))

    def _emit_text(self, text: str) -> None:
        if text:
            self._emitted.append(text)
            self._out.append(agent_events.TextDelta(text))

    def _emit_thinking(self, text: str) -> None:
        if text:
            self._out.append(agent_events.ThinkingDelta(text))

    def _settle(self) -> None:
        self._emit_thinking(self._thought.flush())
        self._emit_text(self._text.flush())

    def _start(self) -> None:
        if not self._started:
            self._started = True
            self._out += [
                agent_events.RunStarted(self._agent_id, self._model, is_warm=self._is_warm),
                agent_events.PromptEchoed(self._prompt),
            ]

    # --- tools --------------------------------------------------------------------------------------

    def _tool_started(self, call_id: str, call: dict[str, Any], model_call: str | None, at_ms: float) -> None:
        tool = Fields(call).text("type")
        args = protocol_arguments(tool, call.get("args"))
        commands = [other for other in self._calls.values() if other.tool == "shell"]
        self._calls[call_id] = _Call(tool, args, at_ms, has_output=tool == "shell" and not commands)
        if tool == "shell":
            for other in commands:
                other.has_output = False
        if self._is_users(tool, args):
            self.user_calls += 1
        elif not self._is_callers(tool, args):
            self._out.append(agent_events.ToolStarted(call_id, read_call(tool, args), model_call, call))

    def _tool_ended(self, call_id: str, call: dict[str, Any], model_call: str | None, at_ms: float) -> None:
        started = self._calls.pop(call_id, None)
        tool = Fields(call).text("type") or (started.tool if started else "")
        args = protocol_arguments(tool, call["args"]) if call.get("args") else started.args if started else None
        action, outcome = read_result(tool, args, protocol_result(tool, call.get("result")))
        if outcome.state == "completed" and self._is_callers(tool, args):
            return
        if outcome.state != "rejected" and self._is_users(tool, args):
            return
        outcome = timed(outcome, (started.started_ms if started else None, at_ms))
        self._out.append(agent_events.ToolEnded(call_id, action, outcome, model_call, call))

    def _command_output(self, event: Fields) -> None:
        """It does not say which command it is of."""
        if event.text("case") in ("stdout", "stderr") and (text := event.object("value").text("data")):
            for call_id in [id for id, call in self._calls.items() if call.has_output]:
                self._out.append(agent_events.CommandOutput(call_id, repair_json(text)))

    def _is_callers(self, tool: str, args: object) -> bool:
        """An agent with the caller's tools has no other server, so an unnamed server is this one."""
        if not self._offers_tools or tool not in ("mcp", "getMcpTools"):
            return False
        return Fields(args).text("providerIdentifier", "serverIdentifier", "server") in ("", CALLERS_SERVER)

    def _is_users(self, tool: str, args: object) -> bool:
        return bool(self._user_tool) and tool == "mcp" and Fields(args).text("toolName") == self._user_tool

    # --- messages -----------------------------------------------------------------------------------

    def _message(self, message: Mapping[str, Any]) -> None:
        match message:
            case {"type": "status", "status": str(status)}:
                self._status, self._reason = status.lower(), repair_json(Fields(dict(message)).text("message"))
                if self._status == "running":  # the text may follow much later
                    self._start()
            case {"type": "usage"}:
                self._reported = _added(self._reported, message.get("usage"))
            case {"type": "task"}:
                self._out.append(agent_events.Notice("background"))
            case _:
                name = Fields(dict(message)).text("type")
                if name not in _QUIET_MESSAGES:
                    self._out.append(agent_events.Unrecognized(f"message {name!r}"))

    def _result(self, result: Fields) -> None:
        status = result.text("status").removeprefix("RUN_LIFECYCLE_STATUS_").lower()
        if self.finished or status in ("running", "creating"):
            return
        self._settle()
        usage = self._usage() or _added(None, result.all.get("usage"))
        duration_ms = result.integer("durationMs") or None
        if status == "finished":
            self._start()
            differs = self._complete(result.text("result"))
            self._out.append(agent_events.RunFinished(usage=usage, duration_ms=duration_ms, text_differs=differs))
        else:
            message = repair_json(result.text("errorMessage")) or self._reason
            failure = run_failure(status, result.text("errorCode"), message)
            self._out.append(agent_events.RunFailed(failure=failure, usage=usage, duration_ms=duration_ms))
        self.finished = True

    def _complete(self, result: str) -> bool:
        """Emits the rest of the result. Returns whether it disagrees; it may be only the last part of the text."""
        emitted = "".join(self._emitted)
        result = repair_json(result)
        if emitted.endswith(result):
            return False
        if result.startswith(emitted):
            self._emit_text(result[len(emitted) :])
            return False
        return True

    def _usage(self) -> agent_events.TokenCounts | None:
        """Both are the same figures."""
        return self._reported or self._counted


def _added(before: agent_events.TokenCounts | None, usage: object) -> agent_events.TokenCounts | None:
    """Adds a turn. As with the CLI, cached tokens are counted apart."""
    fields = Fields(usage)
    figures = [
        fields.integer(name if name in fields.all else snake(name))
        for name in ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens", "reasoningTokens")
    ]
    if all(figure is None for figure in figures):
        return before
    fresh, completion, cached, written, reasoning = (figure or 0 for figure in figures)
    added = agent_events.TokenCounts(
        prompt=fresh + cached + written, completion=completion, cached=cached, reasoning=reasoning
    )
    return added if before is None else before.plus(added)


# --- The SDK's values as those of the agent's protocol, which `sources.cursor.tools` reads ---------
# The SDK keeps fewer fields than the protocol, and renames some of them.

_HEADING = re.compile(r"^#+ +(.+?) *#*$", re.MULTILINE)
_BLOCKED = "Command execution was blocked by a hook"
_NOTE = "\n\nAgent note: "  # after the reason of a hook that blocks a call
_NEW_FILE = re.compile(r"--- /dev/null$|@@ -0,0 ", re.MULTILINE)
_BEFORE_LINES = re.compile(r"(?:--- .*\n\+\+\+ .*\n)?(?:@@ .*\n)?")
_NO_LINE_END = "\\ No newline at end of file"

# Only the kind of these is used: the deltas have the content.
_WHOLE_MESSAGES = frozenset({"assistant", "thinking", "tool_call"})


def plain(event: Any) -> Mapping[str, Any]:
    """`event` is a `RunStreamEvent`; its attributes depend on its `kind`."""
    match event.kind:
        case "interaction_update":
            return _fields(event.interaction_update)
        case "sdk_message":
            message = _fields(event.sdk_message)
            if message.get("type") in _WHOLE_MESSAGES:
                return {"type": message["type"]}
            return {name: _plain(value) for name, value in message.items()}
        case "result":
            return _fields(event.result)
        case _:
            return {}


def size_of(update: Mapping[str, Any]) -> int:
    """About its size on the wire, in characters. Not recursive: a tool's result may be nested deeply."""
    size, rest = 0, [update]
    while rest:
        value: Any = rest.pop()
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, Mapping):
            size += sum(map(len, value))
            rest += value.values()
        elif isinstance(value, list | tuple):
            rest += value
        elif is_dataclass(value):
            rest.append(vars(value))
        else:
            size += 8
    return size


def _fields(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else vars(value)


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {name: _plain(below) for name, below in vars(value).items()}
    if isinstance(value, tuple):
        return [_plain(below) for below in value]
    return value


def protocol_arguments(tool: str, args: object) -> Any:
    match tool:
        case "updateTodos":
            return {**Fields(args).all, "todos": _todos(Fields(args)), "merge": False}  # a complete list, without ids
        case "createPlan":
            fields = Fields(args)
            heading = _HEADING.search(fields.text("plan"))
            return {"name": heading[1] if heading else "", **fields.all}
        case _:
            return args


def protocol_result(tool: str, result: object) -> Any:
    """Turns `{status, value | error}` into an object with the outcome as its key. Other values are unchanged."""
    match result:
        case {"status": "success", **rest}:
            value = rest.get("value")
            match tool:
                case "shell" if Fields(value).integer("exitCode") or Fields(value).text("signal"):
                    return {"failure": value}
                case "grep":
                    return {"success": _grep(Fields(value))}
                case "edit":
                    return {"success": _edit(Fields(value))}
                case "updateTodos":
                    return {"success": {**Fields(value).all, "todos": _todos(Fields(value))}}
                case _:
                    return {"success": value}
        case {"status": "error", "error": {"message": str(message), **rest}} if _NOTE in message:
            return {"rejected": {**rest, "reason": message.partition(_NOTE)[0]}}
        case {"status": "error", "error": {"message": str(message), **rest}} if message.startswith(_BLOCKED):
            return {"rejected": {**rest, "reason": message}}
        case {"status": "error", "error": {"message": str(outcome), **rest}} if outcome in CODES:
            return {outcome: rest}  # the outcome's name is all that the SDK leaves
        case {"status": "error", "error": {"message": "error", **rest}}:
            return {"error": {**rest, "message": "The tool failed; Cursor's SDK does not say why."}}
        case {"status": "error", **rest}:
            return {"error": rest.get("error")}
        case _:
            return result


def _todos(fields: Fields) -> list[dict[str, Any]]:
    return [
        {**todo.all, "status": "IN_PROGRESS" if todo.text("status") == "inProgress" else todo.all.get("status")}
        for todo in fields.objects("todos")
    ]


def _edit(value: Fields) -> dict[str, Any]:
    """A new file is recognized by its patch."""
    patch = value.text("diffString")
    if not _NEW_FILE.match(patch):
        return value.all
    found = _BEFORE_LINES.match(patch)
    lines = patch[found.end() if found else 0 :].split("\n")
    added = "".join(f"{line[1:]}\n" for line in lines if line.startswith("+"))
    return {**value.all, "afterFullFileContent": added.removesuffix("\n") if _NO_LINE_END in lines else added}


def _grep(value: Fields) -> dict[str, Any]:
    workspaces = value.object("workspaceResults").all
    return {
        "workspaceResults": {root: _found(Fields(found)) for root, found in workspaces.items()},
        "activeEditorResult": _found(value.object("activeEditorResult")),
    }


def _found(found: Fields) -> dict[str, Any]:
    output = found.object("output")
    match found.text("type"):
        case "content":
            matches = output.objects("matches")
            lines = [_match(match) for match in matches if "line" in match.all]
            # The SDK loses the lines that were found, but not where.
            files = [match.text("file") for match in matches if "line" not in match.all]
            return {"content": {"matches": lines}, "files": {"files": list(dict.fromkeys(files))}}
        case "files":
            return {"files": output.all}
        case "count":
            return {"count": output.all}
        case _:
            return found.all


def _match(match: Fields) -> dict[str, Any]:
    """One matching line, with its context."""
    number, before = match.integer("lineNumber"), match.texts("beforeContext")
    lines = [*before, match.text("line"), *match.texts("afterContext")]
    return {
        "file": match.text("file"),
        "matches": [
            {
                "lineNumber": None if number is None else number + place,
                "content": line,
                "isContextLine": place != 0,
            }
            for place, line in enumerate(lines, -len(before))
        ],
    }
