"""Decode the events of the SDK's stream as agent events.

The stream contains everything twice, as deltas and as messages. Text and tools are taken from the deltas, and from the
messages only what no delta has: the usage, the run's state. The prompt is not in it.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from cursor_gateway.errors import AgentCrashed, Failure
from cursor_gateway.model.agent_events import (
    AgentEvent,
    CommandOutput,
    Notice,
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
    merge_deltas,
)
from cursor_gateway.sources.cursor.outcomes import snake, timed
from cursor_gateway.sources.cursor.tools import read_call, read_result
from cursor_gateway.sources.sdk.failures import run_failure
from cursor_gateway.sources.sdk.payloads import protocol_arguments, protocol_result
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
        self._out: list[AgentEvent] = []
        self._emitted: list[str] = []
        self._text, self._thought = PairJoiner(), PairJoiner()
        self._calls: dict[str, _Call] = {}
        self._status = ""
        self._reason = ""  # from the status
        self._reported: TokenCounts | None = None  # from messages
        self._counted: TokenCounts | None = None  # from the ends of turns

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
                    self._out.append(Unrecognized(f"kind {kind!r}"))

    def take(self) -> list[AgentEvent]:
        """The events since the last call. Adjacent deltas are merged."""
        out, self._out = self._out, []
        return merge_deltas(out)

    def flush(self, failure: Failure | None = None) -> list[AgentEvent]:
        """The end of the stream. Without a result the run has failed: see `failure`, or else the status."""
        if not self.finished:
            self._settle()
            if failure is None and self._status in ("error", "cancelled", "expired"):
                failure = run_failure(self._status, "", self._reason)
            failure = failure or AgentCrashed().failure()
            self._out.append(RunFailed(failure=failure, usage=self._usage()))
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
                self._out.append(ThinkingEnded(Fields(dict(update)).integer("thinking_duration_ms")))
            case {
                "type": "tool-call-started" | "tool-call-completed" as name,
                "call_id": str(call_id),
                "tool_call": dict(call),
            }:
                self._start()
                self._settle()
                if too_deep(call):
                    self._out.append(Unrecognized("nested too deeply"))
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
                    self._out.append(Unrecognized(f"update {name!r}"))

    def _emit_text(self, text: str) -> None:
        if text:
            self._emitted.append(text)
            self._out.append(TextDelta(text))

    def _emit_thinking(self, text: str) -> None:
        if text:
            self._out.append(ThinkingDelta(text))

    def _settle(self) -> None:
        self._emit_thinking(self._thought.flush())
        self._emit_text(self._text.flush())

    def _start(self) -> None:
        if not self._started:
            self._started = True
            self._out += [RunStarted(self._agent_id, self._model, is_warm=self._is_warm), PromptEchoed(self._prompt)]

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
            self._out.append(ToolStarted(call_id, read_call(tool, args), model_call, call))

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
        self._out.append(ToolEnded(call_id, action, outcome, model_call, call))

    def _command_output(self, event: Fields) -> None:
        """It does not say which command it is of."""
        if event.text("case") in ("stdout", "stderr") and (text := event.object("value").text("data")):
            for call_id in [id for id, call in self._calls.items() if call.has_output]:
                self._out.append(CommandOutput(call_id, repair_json(text)))

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
                self._out.append(Notice("background"))
            case _:
                name = Fields(dict(message)).text("type")
                if name not in _QUIET_MESSAGES:
                    self._out.append(Unrecognized(f"message {name!r}"))

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
            self._out.append(RunFinished(usage=usage, duration_ms=duration_ms, text_differs=differs))
        else:
            message = repair_json(result.text("errorMessage")) or self._reason
            failure = run_failure(status, result.text("errorCode"), message)
            self._out.append(RunFailed(failure=failure, usage=usage, duration_ms=duration_ms))
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

    def _usage(self) -> TokenCounts | None:
        """Both are the same figures."""
        return self._reported or self._counted


def _added(before: TokenCounts | None, usage: object) -> TokenCounts | None:
    """Adds a turn. As with the CLI, cached tokens are counted apart."""
    fields = Fields(usage)
    figures = [
        fields.integer(name if name in fields.all else snake(name))
        for name in ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens", "reasoningTokens")
    ]
    if all(figure is None for figure in figures):
        return before
    before = before or TokenCounts(prompt=0, completion=0)
    fresh, completion, cached, written, reasoning = (figure or 0 for figure in figures)
    return TokenCounts(
        prompt=before.prompt + fresh + cached + written,
        completion=before.completion + completion,
        cached=before.cached + cached,
        reasoning=before.reasoning + reasoning,
    )
