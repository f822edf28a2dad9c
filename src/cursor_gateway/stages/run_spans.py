"""The events of a run, and when they happened, in; the spans of its trace, as they start and end, out.

Names and attributes are those of OpenTelemetry's conventions for generative AI (`gen_ai.…`), and ours where these have
none (`cursor_gateway.…`). Texts are left out unless they are wanted. Times are nanoseconds since 1970.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from cursor_gateway.model import document_events
from cursor_gateway.model.documents import (
    Document,
    FileEditDocument,
    TerminalCommandDocument,
    ToolCallDocument,
    ToolTrace,
)
from cursor_gateway.model.requests import RunInfo

Attributes: TypeAlias = Mapping[str, str | int | float | bool | Sequence[str]]

AGENT = "cursor-agent"
_PROVIDER = "cursor"
_FAILED = ("failed", "rejected", "timed_out", "interrupted")  # of what a tool's state can be
_QUEUE, _AGENT_START, _FIRST_CONTENT, _PAUSE = "queue", "start_agent", "first_content", "pause"
OPT_IN = "gen_ai_latest_experimental"


class Convention(Struct, frozen=True):
    """Which version of the conventions is meant: 1.36, or the latest known here (1.41); and whether texts are sent."""

    is_latest: bool = False
    has_content: bool = False  # only the latest has attributes for it

    @property
    def provider(self) -> str:
        return "gen_ai.provider.name" if self.is_latest else "gen_ai.system"


class SpanStart(Struct, frozen=True, kw_only=True):
    id: str  # within the run
    name: str
    at: int
    parent: str = ""  # the id of another span; empty: the run's own
    attributes: Attributes = {}


class SpanEnd(Struct, frozen=True, kw_only=True):
    id: str
    at: int
    attributes: Attributes = {}
    error: str = ""  # its type; empty: there was none


SpanChange: TypeAlias = SpanStart | SpanEnd


class RunSpans:
    """All spans of a run but its own. Each one that starts ends, at the latest with the run."""

    def __init__(self, convention: Convention) -> None:
        self._convention = convention
        self._open: set[str] = set()
        self._started: dict[str, tuple[int, document_events.DocumentStarted]] = {}  # tool calls whose name follows
        self._has_content = False

    # --- before the first event ---------------------------------------------------------------------

    def received(self, at: int) -> list[SpanChange]:
        """The request: it waits for a place, and for the run before it in its conversation."""
        return [self._start(_QUEUE, at)]

    def agent_starts(self, source: str, at: int) -> list[SpanChange]:
        """Also one that is started again, or in place of another."""
        changes = [*self._end(_QUEUE, at), *self._end(_AGENT_START, at), *self._end(_FIRST_CONTENT, at)]
        return [*changes, self._start(_AGENT_START, at, {"cursor_gateway.source": source})]

    def agent_ready(self, is_warm: bool, at: int) -> list[SpanChange]:
        """It has the prompt. What follows is the time that the model takes."""
        start = "warm" if is_warm else "cold"
        changes = self._end(_AGENT_START, at, {"cursor_gateway.start": start})
        return changes if self._has_content or not changes else [*changes, self._start(_FIRST_CONTENT, at)]

    # --- events -------------------------------------------------------------------------------------

    def push(self, event: document_events.DocumentEvent, at: int) -> list[SpanChange]:
        changes: list[SpanChange] = self._end(_PAUSE, at)
        if not self._has_content and document_events.says_something(event):
            self._has_content = True
            changes += [*self._end(_AGENT_START, at), *self._end(_FIRST_CONTENT, at)]
        match event:
            case document_events.DocumentStarted(id=id, type="tool_call"):
                self._started[id] = at, event
            case document_events.DocumentStarted(type=type) if document_events.is_tool(event):
                changes.append(self._tool(event, type, {}, at))
            case document_events.ToolCallStarted(id=id, tool_name=name, tool_call_id=call_id) if id in self._started:
                began, start = self._started.pop(id)
                changes.append(self._tool(start, name, {"gen_ai.tool.call.id": call_id}, began))
            case document_events.DocumentEnded(document=document):
                changes += self._end_tool(document, at)
            case document_events.Paused():
                names = [call.tool_name for call in event.envelope.metadata.waiting_for or ()]
                waits_for = "person" if event.goes_on else "caller"
                attributes = {"cursor_gateway.pause.for": waits_for, "cursor_gateway.pause.calls": names}
                changes.append(self._start(_PAUSE, at, attributes))
            case _:
                pass
        return changes

    def end(self, at: int) -> list[SpanChange]:
        """Of the run, however it ended."""
        return [change for id in sorted(self._open) for change in self._end(id, at, error="interrupted")]

    # --- spans --------------------------------------------------------------------------------------

    def _tool(self, event: document_events.DocumentStarted, name: str, more: Attributes, at: int) -> SpanStart:
        known = event.metadata
        is_callers = known is not None and known.ran_by == "caller"
        parent = known.parent_id if known is not None and known.parent_id else ""
        attributes: Attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.type": "function" if is_callers else "extension",  # run by the client; by the agent
            "cursor_gateway.document.id": event.id,
            **more,
        }
        self._open.add(event.id)
        parent = parent if parent in self._open else ""
        return SpanStart(id=event.id, name=f"execute_tool {name}", at=at, parent=parent, attributes=attributes)

    def _end_tool(self, document: Document, at: int) -> list[SpanChange]:
        self._started.pop(document.id, None)
        metadata = document.metadata
        state = metadata.state if isinstance(metadata, ToolTrace) and metadata.state else "completed"
        error: str = state if state in _FAILED else ""
        attributes: dict[str, Any] = {} if state == "completed" else {"cursor_gateway.tool.state": state}
        if isinstance(document, ToolCallDocument) and document.metadata.result.status == "error":
            error = error or "tool_error"
        if isinstance(document, TerminalCommandDocument):
            attributes["process.exit.code"] = document.metadata.exit_code
        if self._convention.is_latest and self._convention.has_content:
            attributes |= _texts(document)
        return self._end(document.id, at, attributes, error)

    def _start(self, id: str, at: int, attributes: Attributes | None = None) -> SpanStart:
        self._open.add(id)
        return SpanStart(id=id, name=id, at=at, attributes=attributes or {})

    def _end(self, id: str, at: int, attributes: Attributes | None = None, error: str = "") -> list[SpanChange]:
        if id not in self._open:
            return []
        self._open.remove(id)
        return [SpanEnd(id=id, at=at, attributes=attributes or {}, error=error)]


# --- the run's own span -----------------------------------------------------------------------------


def run_attributes(run: RunInfo, owner: str, source: str, convention: Convention) -> Attributes:
    """When it starts."""
    found = {
        "gen_ai.operation.name": "invoke_agent",
        convention.provider: _PROVIDER,
        "gen_ai.agent.name": AGENT,
        "gen_ai.request.model": run.model or "",
        "gen_ai.conversation.id": run.conversation_id or "",
        "cursor_gateway.run.id": run.id,
        "cursor_gateway.mode": run.mode,
        "cursor_gateway.source": source,
        "cursor_gateway.owner": owner,
    }
    return {name: value for name, value in found.items() if value}


def end_attributes(done: document_events.Done | None, outcome: str, convention: Convention) -> Attributes:
    """How it ended. `outcome`: completed, failed or cancelled."""
    found: dict[str, Any] = {"cursor_gateway.outcome": outcome}
    found["gen_ai.response.finish_reasons"] = [{"completed": "stop", "failed": "error"}.get(outcome, outcome)]
    if done is not None:
        envelope, usage = done.envelope, done.envelope.usage
        found["gen_ai.response.id"], found["gen_ai.response.model"] = envelope.id, envelope.model
        found["gen_ai.usage.input_tokens"], found["gen_ai.usage.output_tokens"] = (
            usage.prompt_tokens,
            usage.completion_tokens,
        )
        found["cursor_gateway.turns"] = envelope.metadata.turn_count
        found["cursor_gateway.tool_calls"] = envelope.metadata.tool_call_count
        if isinstance(usage.cost, float):
            found["cursor_gateway.cost_usd"] = usage.cost
        if usage.estimated:
            found["cursor_gateway.usage.estimated"] = True
        if convention.is_latest and isinstance(usage.cached_tokens, int):
            found["gen_ai.usage.cache_read.input_tokens"] = usage.cached_tokens
        if envelope.metadata.fallback:
            found["cursor_gateway.fallback"] = envelope.metadata.fallback
        if done.failure is not None and outcome == "failed":
            found["error.type"] = done.failure.code
    return found


def message_attributes(asked: Sequence[str], answer: str, outcome: str) -> Attributes:
    """The texts of a run, as the latest conventions have them: JSON."""
    finish = "stop" if outcome == "completed" else "error"
    return {
        "gen_ai.input.messages": _json([{"role": "user", "parts": [_text(text)]} for text in asked]),
        "gen_ai.output.messages": _json([{"role": "assistant", "parts": [_text(answer)], "finish_reason": finish}]),
    }


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "content": text}


def _texts(document: Document) -> Attributes:
    match document:
        case ToolCallDocument(metadata=call):
            arguments, result = call.arguments, call.result.data
        case TerminalCommandDocument(metadata=command):
            arguments, result = {"command": command.command}, command.output
        case FileEditDocument(metadata=edit):
            arguments, result = {"file_path": edit.file_path}, document.content
        case _:
            return {}
    return {"gen_ai.tool.call.arguments": _json(arguments), "gen_ai.tool.call.result": _json(result)}


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
