"""What the agent says and does in; the bytes that it prints, in each output format, out.

One buffer holds the text since the last tool call. With partial output each delta is printed at once, and the
buffer once more when a call starts, when a query comes before its call, and at the end: three forms that differ
only in the fields beside the text. Texts are JavaScript strings: halves of a character join in the buffer.
"""

import json
import os
import re
import time
from _collections_abc import Callable, Mapping  # without `collections`, which takes longer

from tests.agent.sessions import new_id

Record = dict[str, object]

_HALVES = re.compile("[\ud800-\udfff]")
_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"


def joined(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def to_bytes(text: str) -> bytes:
    """As a JavaScript program writes a string: a half alone becomes U+FFFD."""
    return _HALVES.sub("\ufffd", joined(text)).encode()


def to_line(record: Mapping[str, object]) -> bytes:
    """JSON.stringify: raw letters, lone halves escaped."""
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    if _HALVES.search(text):
        text = _HALVES.sub(lambda half: f"\\u{ord(half[0]):04x}", joined(text))
    return text.encode() + b"\n"


def random_letters(count: int) -> str:
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in os.urandom(count))


class Call:
    """A tool's call: the name before `ToolCall`, its id, and its arguments."""

    def __init__(self, tool: str, id: str, args: Record, description: str = "") -> None:
        self.tool = tool
        self.id = id
        self.args = args
        self.about: Record = {"description": description} if description else {}
        self.started_at = ""
        self.model_call = ""


class Emitter:
    def __init__(
        self, write: Callable[[bytes], None], warn: Callable[[str], None], session: str, *, format: str, partial: bool
    ) -> None:
        self.session = session
        self.request = new_id()
        self.said = ""
        self.environment: Record = {}  # what --printenv adds to a tool's events
        self.shows_thinking = False
        self._write = write
        self._warn = warn
        self._format = format
        self._partial = partial
        self._buffer = ""
        self._thoughts = [""]
        self._began = time.monotonic()
        self._steps = 0
        self._model_call = ""
        self._queries = 0

    def begin(self, cwd: str, key_source: str, model: str, prompt: str) -> None:
        about = {"apiKeySource": key_source, "cwd": cwd, "session_id": self.session, "model": model}
        self.record({"type": "system", "subtype": "init", **about, "permissionMode": "default"})
        self.record({"type": "user", "message": _message("user", prompt), "session_id": self.session})

    def say(self, delta: str) -> None:
        self._called()
        self._buffer += delta
        self.said += delta
        if self._partial:  # even where the format is not stream-json
            self._assistant(delta, timestamp_ms=now())

    def think(self, delta: str) -> None:
        self._called()
        self._thoughts[-1] += delta
        self._timed("thinking", "delta", text=delta)

    def stop_thinking(self) -> None:
        self._thoughts.append("")
        self._timed("thinking", "completed")

    def start(self, call: Call) -> None:
        call.model_call, call.started_at = self._called(), str(now())
        self._flush(model_call_id=call.model_call, timestamp_ms=now())
        self._tool(call, "started", {"args": call.args, **call.about}, {"startedAtMs": call.started_at})

    def complete(self, call: Call, result: Record) -> None:
        self._complete(call, {"args": call.args, "result": result, **call.about})

    def reject(self, call: Call, rejected: Record) -> None:
        """Of a call that may not have started. Its arguments are not said again."""
        self._complete(call, {"result": {"rejected": rejected}})

    def ask(self, name: str, query: Record, answer: Record) -> None:
        """The program asks itself and answers at once: before its call, the text so far is flushed like a delta."""
        self._flush(timestamp_ms=now())
        asked = {"id": self._queries, name: query}
        answered = {"id": self._queries, name.removesuffix("Query") + "Response": answer}
        self._queries += 1
        self._timed("interaction_query", "request", query_type=name, query=asked)
        self._timed("interaction_query", "response", query_type=name, response=answered)

    def lose_connection(self, attempt: int) -> None:
        url = "https://agentn.global.api5.cursor.sh"
        if self._format == "text":
            self._warn(f"Connection lost, reconnecting to {url} (attempt {attempt})...")
        place = {"session_id": self.session, "timestamp_ms": now()}
        self.record({"type": "connection", "subtype": "reconnecting", **place, "attempt": attempt, "endpoint_url": url})

    def reconnect(self) -> None:
        self._place("connection", "reconnected")

    def retry(self, attempt: int, *, resumes: bool) -> None:
        if self._format == "text":
            self._warn(f"Retry attempt {attempt}...")
        self._place("retry", "starting", attempt=attempt, is_resume=resumes)
        if resumes:
            self._place("retry", "resuming", checkpoint_turn_count=1, attempt=attempt)

    def finish(self, usage: Record | None, *, end: bytes = b"\n") -> None:
        spent = int((time.monotonic() - self._began) * 1000)
        durations: Record = {"duration_ms": spent, "duration_api_ms": spent}
        about: Record = {"result": joined(self.said), "session_id": self.session, "request_id": self.request}
        counted: Record = {} if usage is None else {"usage": usage}
        streamed = {"type": "result", "subtype": "success", **durations, "is_error": False, **about, **counted}
        if self._format == "stream-json":
            self.end_text()
            self._write(to_line(streamed).removesuffix(b"\n") + end)
        elif self._partial:
            self._write(to_line(streamed))  # and no flush: seen in the program's code, late 2025
        elif self._format == "json":
            blocks = [{"text": text} for text in self._thoughts if text]
            thinking: Record = {"thinking_blocks": blocks} if self.shows_thinking else {}
            whole = {"type": "result", "subtype": "success", "is_error": False, **durations, **about}
            self._write(to_line({**whole, **counted, **thinking}))
        elif self._buffer:
            self._write(to_bytes(self._buffer) + b"\n")  # only what follows the last tool call

    def end_text(self) -> None:
        if self._buffer and self._format == "stream-json":
            self._assistant(joined(self._buffer))
        self._buffer = ""

    def fail_result(self, message: str) -> None:
        about: Record = {"is_error": True, "result": message, "session_id": self.session, "request_id": self.request}
        self.record({"type": "result", "subtype": "error", "duration_ms": 1, "duration_api_ms": 1, **about})

    def record(self, record: Mapping[str, object]) -> None:
        if self._format == "stream-json":
            self._write(to_line(record))

    def raw(self, data: bytes) -> None:
        if self._format == "stream-json":
            self._write(data)

    def _complete(self, call: Call, body: Record) -> None:
        call.model_call = call.model_call or self._called()
        times: Record = {"startedAtMs": call.started_at} if call.started_at else {}
        self._tool(call, "completed", body, {**times, "completedAtMs": str(now())})
        self._model_call = ""

    def _tool(self, call: Call, subtype: str, body: Record, times: Record) -> None:
        payload = {f"{call.tool}ToolCall": body, "hookAdditionalContexts": [], "toolCallId": call.id, **times}
        place = {"session_id": self.session, "timestamp_ms": now(), **self.environment}
        about = {"tool_call": payload, "model_call_id": call.model_call, **place}
        self.record({"type": "tool_call", "subtype": subtype, "call_id": call.id, **about})

    def _called(self) -> str:
        """The model's call that is under way. What follows a tool's end is a new one."""
        if not self._model_call:
            self._model_call = f"{self.request}-{self._steps}-{random_letters(4)}"
            self._steps += 1
        return self._model_call

    def _flush(self, **fields: object) -> None:
        if self._buffer and self._format == "stream-json":
            self._assistant(joined(self._buffer), **fields)
        self._buffer = ""

    def _assistant(self, text: str, **fields: object) -> None:
        message = _message("assistant", text)
        self._write(to_line({"type": "assistant", "message": message, "session_id": self.session, **fields}))

    def _timed(self, type: str, subtype: str, **fields: object) -> None:
        place = {"session_id": self.session, "timestamp_ms": now()}
        self.record({"type": type, "subtype": subtype, **fields, **place})

    def _place(self, type: str, subtype: str, **fields: object) -> None:
        place = {"session_id": self.session, "timestamp_ms": now()}
        self.record({"type": type, "subtype": subtype, **place, **fields})


def now() -> int:
    return int(time.time() * 1000)


def _message(role: str, text: str) -> Record:
    return {"role": role, "content": [{"type": "text", "text": text}]}
