"""What an agent does in a scratch folder in; the same with paths relative to that folder out.

An agent that works with its caller's tools has an empty folder of the gateway's for its workspace. Its full path means
nothing to the caller, who must not see it either: what the tools and the thinking say of it becomes relative. The
agent's answer is left as it is, because it is passed on byte for byte.
"""

import re
from typing import Any

import msgspec
from msgspec import Struct, structs

from cursor_gateway.model.agent_events import AgentEvent, ThinkingDelta, ToolEnded, ToolStarted


class ScratchPaths:
    """Without a folder it changes nothing."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        path = re.escape(folder)
        # Before a name the folder goes; by itself it is `.`; a longer name that begins like it is another one.
        self._path = re.compile(rf"{path}/+(?=[\w.*?\[-])|({path}/*)(?![\w-]|\.\w)")
        self._held = ""  # thinking that may be the beginning of the path

    def push(self, event: AgentEvent) -> list[AgentEvent]:
        match event:
            case _ if not self._folder:
                return [event]
            case ThinkingDelta(text=text):
                said, self._held = self._split(self._held + text)
                return [ThinkingDelta(self._relative(said))] if said else []
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
        """What can be said, and an end that is the path, or the beginning of it, with what may follow it."""
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
            case list() | dict():  # the agent's JSON, of any depth: as text, so that nothing here is recursive
                text = msgspec.json.encode(value).decode()
                return msgspec.json.decode(self._relative(text)) if self._folder in text else value
            case Struct():
                fields = {name: self._relative(getattr(value, name)) for name in value.__struct_fields__}
                return structs.replace(value, **fields)
            case _:
                return value
