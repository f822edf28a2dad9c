"""A model of cursor-agent's emitter: a story in; the lines of its stream, and the text that they must give, out.

Written from what the program does, not from what our decoder expects. Texts are JavaScript strings: a
delta may end in half a character, and halves that meet in the buffer are one character again.
"""

import json
import re
from typing import Any, Literal, TypeAlias

from msgspec import Struct

Ending: TypeAlias = Literal["success", "error", "rejected", "timeout", "permissionDenied", "nothing"]


class Says(Struct, frozen=True):
    delta: str


class Thinks(Struct, frozen=True):
    delta: str


class StopsThinking(Struct, frozen=True):
    pass


class Starts(Struct, frozen=True):
    call: int


class Ends(Struct, frozen=True):
    """Of a call that may never have started: a rejected web search shows only its end."""

    call: int
    ending: Ending


class Asks(Struct, frozen=True):
    """The CLI asks itself and answers at once, before or after the call's start."""

    call: int
    approves: bool


class Reconnects(Struct, frozen=True):
    pass


class Retries(Struct, frozen=True):
    forgets: bool  # whether the buffer survives a retry is not known, so both are told (only with partial output)


class Notifies(Struct, frozen=True):
    pass


Step: TypeAlias = Says | Thinks | StopsThinking | Starts | Ends | Asks | Reconnects | Retries | Notifies
Story: TypeAlias = list[Step]


class Recording(Struct, frozen=True):
    lines: list[bytes]
    text: str

    @property
    def data(self) -> bytes:
        return b"".join(self.lines)


SESSION = "b2bf0e32-e1d2-44b1-95cc-34d984abb66e"
_HALVES = re.compile("[\ud800-\udfff]")

# name, arguments, what stands below `success`; a call's number picks its tool
TOOLS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("shell", {"command": "make test", "workingDirectory": "/w"}, {"exitCode": 0, "stdout": "ok\n", "stderr": ""}),
    ("read", {"path": "src/main.py"}, {"content": "print('é\u2028')\n", "totalLines": 1}),
    ("edit", {"path": "a.py"}, {"path": "a.py", "beforeFullFileContent": "a\nb\n", "afterFullFileContent": "a\nc\n"}),
    ("webSearch", {"searchTerm": "node lts"}, {"references": [{"title": "t", "url": "u", "chunk": "c"}]}),
    ("createPlan", {"name": "Plan", "overview": "o", "plan": "# Plan\n", "todos": [{"id": "1", "content": "x"}]}, {}),
    ("askQuestion", {"title": "Which?", "questions": [{"id": "q", "prompt": "p", "options": []}]}, {"answers": [1]}),
    ("updateTodos", {"todos": [{"id": "1", "content": "x", "status": "TODO_STATUS_COMPLETED"}], "merge": True}, {}),
    ("mcp", {"name": "s-t", "toolName": "t", "args": {"n": 1}}, {"content": [{"text": {"text": "done"}}]}),
    ("delete", {"path": "old.py"}, {"path": "old.py", "deletedFile": "old.py"}),
    ("newerThanUs", {"someThing": [1, None, {"a": "b"}]}, {"whatever": True}),
]


def play(story: Story, *, partial: bool, counts_tokens: bool = True) -> Recording:
    agent = _Agent(partial)
    for step in story:
        agent.step(step)
    return agent.finish(counts_tokens)


def whole(text: str) -> str:
    """Halves that stand together are one character; a half alone is U+FFFD."""
    return _HALVES.sub("\ufffd", _joined(text))


def to_line(record: dict[str, Any]) -> bytes:
    """JSON.stringify: raw letters, lone halves escaped."""
    text = _joined(json.dumps(record, ensure_ascii=False, separators=(",", ":")))
    return _HALVES.sub(lambda half: f"\\u{ord(half[0]):04x}", text).encode() + b"\n"


def _joined(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


class _Agent:
    def __init__(self, partial: bool) -> None:
        self._partial = partial
        self._clock = 1_789_644_714_874
        self._lines: list[bytes] = []
        self._buffer = ""
        self._said = ""
        self._text = ""  # what is to be said, up to the last tool or query: no character is whole across one
        self._segment = ""
        self._started: set[int] = set()
        self._ended: set[int] = set()
        self._turn = 0
        self._queries = 0
        self._emit("system", "init", apiKeySource="login", cwd="/w", model="Auto", permissionMode="default")
        self._emit("user", message={"role": "user", "content": [{"type": "text", "text": "Do it."}]})

    def step(self, step: Step) -> None:
        match step:
            case Says(delta=delta):
                self._buffer += delta
                self._segment += delta
                self._said += delta
                if self._partial:
                    self._assistant(delta, timestamp_ms=self._now())
            case Thinks(delta=delta):
                self._emit("thinking", "delta", text=delta, timestamp_ms=self._now())
            case StopsThinking():
                self._emit("thinking", "completed", timestamp_ms=self._now())
            case Starts(call=call):
                if call not in self._started | self._ended:
                    self._start(call)
            case Ends(call=call, ending=ending):
                if call not in self._ended:
                    self._end(call, ending)
            case Asks(call=call, approves=approves):
                self._ask(call, approves)
            case Reconnects():
                self._emit("connection", "reconnecting", timestamp_ms=self._now(), attempt=1, endpoint_url="https://x")
                self._emit("connection", "reconnected", timestamp_ms=self._now())
            case Retries(forgets=forgets):
                self._emit("retry", "starting", timestamp_ms=self._now(), attempt=1, is_resume=True)
                self._emit("retry", "resuming", timestamp_ms=self._now(), checkpoint_turn_count=1, attempt=1)
                if forgets and self._partial:
                    self._buffer = ""
            case Notifies():
                self._emit("system", "task_notification", whatever={"a": 1})

    def finish(self, counts_tokens: bool) -> Recording:
        if self._buffer:
            self._assistant(self._buffer)
        counts = {"inputTokens": 100, "outputTokens": 20, "cacheReadTokens": 30, "cacheWriteTokens": 4}
        usage = {"usage": counts} if counts_tokens else {}  # builds of early 2026 report none
        self._emit("result", "success", duration_ms=1234, is_error=False, result=self._said, **usage)
        return Recording(self._lines, self._text + whole(self._segment))

    def _start(self, call: int) -> None:
        self._flush(model_call_id=self._model_call(), timestamp_ms=self._now())
        self._started.add(call)
        self._tool_call(call, "started", {"args": _args(call)})

    def _end(self, call: int, ending: Ending) -> None:
        self._ended.add(call)
        self._turn += 1
        self._tool_call(call, "completed", _body(call, ending))

    def _ask(self, call: int, approves: bool) -> None:
        self._flush(timestamp_ms=self._now())  # with exactly a delta's fields
        name = TOOLS[call % len(TOOLS)][0]
        kind = f"{name}{'InteractionQuery' if name == 'askQuestion' else 'RequestQuery'}"
        query = {"id": self._queries, kind: {"args": _args(call), "skipApproval": False}}
        self._emit("interaction_query", "request", query_type=kind, query=query, timestamp_ms=self._now())
        answer = {"approved": {}} if approves else {"rejected": {"reason": "User Rejected"}}
        response = {"id": self._queries, kind.replace("Query", "Response"): answer}
        self._emit("interaction_query", "response", query_type=kind, response=response, timestamp_ms=self._now())
        self._queries += 1

    def _tool_call(self, call: int, subtype: str, body: dict[str, Any]) -> None:
        payload = {
            f"{TOOLS[call % len(TOOLS)][0]}ToolCall": body,
            "hookAdditionalContexts": [],
            "toolCallId": _id(call),
        }
        fields = {"tool_call": payload, "model_call_id": self._model_call(), "timestamp_ms": self._now()}
        self._emit("tool_call", subtype, call_id=_id(call), **fields)

    def _flush(self, **fields: Any) -> None:
        if self._buffer:
            self._assistant(self._buffer, **fields)
        self._text += whole(self._segment)
        self._buffer = self._segment = ""

    def _assistant(self, text: str, **fields: Any) -> None:
        message = {"role": "assistant", "content": [{"type": "text", "text": text}]}
        self._emit("assistant", message=message, **fields)

    def _emit(self, type: str, subtype: str = "", **fields: Any) -> None:
        kind = {"subtype": subtype} if subtype else {}
        self._lines.append(to_line({"type": type, **kind, **fields, "session_id": SESSION}))

    def _model_call(self) -> str:
        return f"request-{self._turn}-abcd"

    def _now(self) -> int:
        self._clock += 7
        return self._clock


def _body(call: int, ending: Ending) -> dict[str, Any]:
    args = {"args": _args(call)}
    match ending:
        case "success":
            return {**args, "result": {"success": TOOLS[call % len(TOOLS)][2]}}
        case "error":
            return {**args, "result": {"error": {"error": "It broke."}}}
        case "rejected":
            return {"result": {"rejected": {"reason": "User Rejected"}}}  # without the arguments
        case "timeout":
            return {**args, "result": {"timeout": {"timeoutMs": 30000}}}
        case "permissionDenied":
            return {**args, "result": {"permissionDenied": {"path": "/etc"}}}
        case "nothing":
            return {}


def _id(call: int) -> str:
    return f"call_{call}\nfc_{call}" if call % 2 else f"toolu_{call}"


def _args(call: int) -> dict[str, Any]:
    return {**TOOLS[call % len(TOOLS)][1], "toolCallId": _id(call)}
