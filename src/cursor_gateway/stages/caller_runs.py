"""What a run with its caller's tools needs: paths without the agent's scratch folder, and an eye on repeated calls."""

import hashlib
import re
from typing import Any

import msgspec
from msgspec import Struct, structs

from cursor_gateway.model.agent_events import AgentEvent, CommandOutput, ThinkingDelta, ToolEnded, ToolStarted

# --- paths ------------------------------------------------------------------------------------------


class ScratchPaths:
    """With an empty `folder` it changes nothing."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        path = re.escape(folder)
        # Removed before a name; `.` on its own; a longer name with this prefix is a different folder.
        self._path = re.compile(rf"{path}/+(?=[\w.*?\[-])|({path}/*)(?![\w-]|\.\w)")
        self._held = ""  # thinking that may be the start of the path

    def push(self, event: AgentEvent) -> list[AgentEvent]:
        match event:
            case _ if not self.folder:
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
        start = text.rfind(self.folder)
        if start >= 0 and re.fullmatch(r"/*\.?", text[start + len(self.folder) :]):
            return text[:start], text[start:]
        for length in range(min(len(self.folder), len(text)), 0, -1):
            if text.endswith(self.folder[:length]):
                return text[:-length], text[-length:]
        return text, ""

    def _relative(self, value: Any) -> Any:
        match value:
            case str():
                return self._path.sub(lambda found: "." if found[1] else "", value) if self.folder in value else value
            case [Struct(), *_]:
                return [self._relative(one) for one in value]
            case list() | dict():  # the agent's JSON, of any depth: as text, to avoid recursion
                text = msgspec.json.encode(value).decode()
                return msgspec.json.decode(self._relative(text)) if self.folder in text else value
            case Struct():
                fields = {name: self._relative(getattr(value, name)) for name in value.__struct_fields__}
                return structs.replace(value, **fields)
            case _:
                return value


# --- loops ------------------------------------------------------------------------------------------


_WARN_AT = 3  # times the same call gave the same result
_STOP_AT = 25  # repetitions in a row
_SLOW = 1.0  # seconds: loops are fast, and an agent that polls sleeps in between


class LoopGuard:
    def __init__(self) -> None:
        self._seen: dict[bytes, int] = {}
        self._repetitions = 0

    def gave(self, call: str, result: str, seconds: float = 0.0) -> str:
        """A warning to add to the result for the model; usually empty. `seconds` is how long the call took."""
        pair = hashlib.sha256(f"{len(call)} {call}{result}".encode(errors="surrogatepass")).digest()
        times = self._seen[pair] = self._seen.get(pair, 0) + 1
        self._repetitions = self._repetitions + 1 if times > 1 and seconds < _SLOW else 0
        if times < _WARN_AT:
            return ""
        return (
            f"[You have made this call {times} times with the same arguments, and it gave the same each time. "
            "Do something else, or answer with what you have.]"
        )

    @property
    def is_loop(self) -> bool:
        return self._repetitions >= _STOP_AT
