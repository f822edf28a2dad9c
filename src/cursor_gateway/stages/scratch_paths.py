"""Make paths in agent events relative to the agent's scratch folder.

An agent that works with its caller's tools has an empty folder of the gateway's as its workspace. Its full path means
nothing to the caller, who must not see it either, so it is made relative in tool calls and thinking. The agent's
answer is unchanged, because it is passed on byte for byte.
"""

import re
from typing import Any

import msgspec
from msgspec import Struct, structs

from cursor_gateway.model.agent_events import AgentEvent, CommandOutput, ThinkingDelta, ToolEnded, ToolStarted


class ScratchPaths:
    """With an empty `folder` it changes nothing."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        path = re.escape(folder)
        # Removed before a name; `.` on its own; a longer name with this prefix is a different folder.
        self._path = re.compile(rf"{path}/+(?=[\w.*?\[-])|({path}/*)(?![\w-]|\.\w)")
        self._held = ""  # thinking that may be the start of the path

    def push(self, event: AgentEvent) -> list[AgentEvent]:
        match event:
            case _ if not self._folder:
                return [event]
            case ThinkingDelta(text=text):
                ready, self._held = self._split(self._held + text)
                return [ThinkingDelta(self._relative(ready))] if ready else []
            case CommandOutput():  # may cut the path in two, and the end of the command repeats it
                return self.flush()
            case ToolStarted(action=action):
                return [*self.flush(), structs.replace(event, action=self._relative(action))]
            case ToolEnded(action=action, outcome=outcome):
                shown = structs.replace(event, action=self._relative(action), outcome=self._relative(outcome))
                return [*self.flush(), shown]
            case _:
                return [*self.flush(), event]

    def flush(self) -> list[AgentEvent]:
        held, self._held = self._held, ""
        return [ThinkingDelta(self._relative(held))] if held else []

    def _split(self, text: str) -> tuple[str, str]:
        """The text to emit, and a tail to hold back: the path or a prefix of it, and what may follow it."""
        start = text.rfind(self._folder)
        if start >= 0 and re.fullmatch(r"/*\.?", text[start + len(self._folder) :]):
            return text[:start], text[start:]
        for length in range(min(len(self._folder), len(text)), 0, -1):
            if text.endswith(self._folder[:length]):
                return text[:-length], text[-length:]
        return text, ""

    def _relative(self, value: Any) -> Any:
        match value:
            case str():
                return self._path.sub(lambda found: "." if found[1] else "", value) if self._folder in value else value
            case [Struct(), *_]:
                return [self._relative(one) for one in value]
            case list() | dict():  # the agent's JSON, of any depth: as text, to avoid recursion
                text = msgspec.json.encode(value).decode()
                return msgspec.json.decode(self._relative(text)) if self._folder in text else value
            case Struct():
                fields = {name: self._relative(getattr(value, name)) for name in value.__struct_fields__}
                return structs.replace(value, **fields)
            case _:
                return value
