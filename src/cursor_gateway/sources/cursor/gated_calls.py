"""Hold back the starts of calls that may need permission: agent events in, the same events out, some of them later.

The agent reports that a call starts, and only then runs its hook, which asks for permission. A command must not look
as if it ran while it waits, so its start is reported when it is allowed, or with its end.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.model.agent_events import AgentEvent, Command, CommandOutput, Outcome, ToolEnded, ToolStarted
from cursor_gateway.sources.cursor.hook_rules import MCP
from cursor_gateway.wire.payload import Fields

_SHELL = "Shell"


def is_gated(tool: str) -> bool:
    """Whether calls of this tool, as hooks name it, are among those that may be held back."""
    return tool == _SHELL or tool.startswith(MCP)


class StartedCall(Struct):
    """A call that has not ended."""

    event: ToolStarted
    tool: str  # as hooks name it
    args: Any
    server: str = ""  # of an MCP tool
    is_held: bool = False  # its start is not reported yet
    is_claimed: bool = False  # by its hook
    refused: Outcome | None = None  # how it ends, because it was not allowed


class GatedCalls:
    def __init__(self, *, holds: bool) -> None:
        """With `holds`, starts of commands and of MCP tools are held back."""
        self.holds = holds
        self._calls: dict[str, StartedCall] = {}
        self._tasks: list[str] = []  # calls of sub-agents that have not ended
        self.had_tasks = False

    def push(self, events: Sequence[AgentEvent]) -> list[AgentEvent]:
        out: list[AgentEvent] = []
        for event in events:
            match event:
                case ToolStarted() if (call := _started(event)) is not None:
                    self._calls[event.call_id] = call
                    call.is_held = self.holds
                    if not call.is_held:
                        out.append(event)
                case ToolStarted() if _name(event) == "task":
                    self._tasks.append(event.call_id)
                    self.had_tasks = True
                    out.append(event)
                case ToolEnded():
                    out += self._ended(event)
                case CommandOutput(call_id=id) if id in self._calls:  # so it runs
                    out += [*self.release(self._calls[id]), event]
                case _:
                    out.append(event)
        return out

    def _ended(self, event: ToolEnded) -> list[AgentEvent]:
        if event.call_id in self._tasks:
            self._tasks.remove(event.call_id)
        call = self._calls.pop(event.call_id, None)
        if call is None:
            return [event]
        if call.refused is not None and event.outcome.state != "completed":  # otherwise it ran, whatever was answered
            refused = replace(call.refused, duration_ms=event.outcome.duration_ms)
            event = replace(event, outcome=refused)
        return [call.event, event] if call.is_held else [event]

    @property
    def tasks(self) -> list[str]:
        return self._tasks

    def claim(self, tool: str, args: object) -> StartedCall | None:
        """The first call like this whose hook has not asked yet."""
        for call in self._calls.values():
            if not call.is_claimed and (call.tool, call.args) == (tool, _compared(tool, args)):
                call.is_claimed = True
                return call
        return None

    def servers(self, tool: str, args: object) -> set[str]:
        """Of all calls like this that have not ended: a hook does not tell which of them it asks about."""
        wanted = (tool, _compared(tool, args))
        return {call.server for call in self._calls.values() if (call.tool, call.args) == wanted}

    def release(self, call: StartedCall) -> list[AgentEvent]:
        """The call is allowed, so it runs now."""
        is_held, call.is_held = call.is_held, False
        return [call.event] if is_held else []


def _name(event: ToolStarted) -> str:
    """Cursor's name of the tool: the SDK and the CLI have it in different places."""
    payload = Fields(event.payload)
    in_key = (key.removesuffix("ToolCall") for key in payload.all if key.endswith("ToolCall"))
    return payload.text("type") or next(in_key, "")


def _started(event: ToolStarted) -> StartedCall | None:
    """None for a tool that no hook asks about."""
    if isinstance(event.action, Command):
        return StartedCall(event, _SHELL, event.action.command)
    if _name(event) != "mcp":
        return None
    payload = Fields(event.payload)
    args = Fields(payload.all.get("args") or payload.object("mcpToolCall").all.get("args"))
    server = args.text("providerIdentifier", "serverIdentifier", "server")
    return StartedCall(event, MCP + args.text("toolName", "name"), args.object("args").all, server)


def _compared(tool: str, args: object) -> Any:
    return Fields(args).text("command") if tool == _SHELL else Fields(args).all
