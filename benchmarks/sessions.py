"""A size and a seed in; a synthetic session of cursor-agent, and the text that it must give, out.

Partial output as a fast model writes it: short deltas of Markdown prose and code, thinking before each
turn, tools whose results hold whole files, and the repetitions that the agent makes at each boundary.
"""

import json
import random
import re
from typing import Any

from msgspec import Struct

_WORDS = [
    "the", "gateway", "reads", "each", "line", "once", "and", "says", "what", "it", "means", "while", "agent", "still",
    "writes", "answer", "because", "reader", "should", "never", "wait", "for", "something", "that", "is", "already",
    "known", "naïve", "façade", "größer", "→", "“quoted”", "it’s", "日本語", "✅", "🚀", "buffer", "stream", "parser",
    "document", "event", "writer", "socket", "process", "result", "token", "fence", "list", "quote", "paragraph",
]  # fmt: skip
_TOKEN = re.compile(r" ?\w{1,7}|\s+|[^\w\s]+")  # about as models cut text
_LANGUAGES = ["python", "typescript", "bash", "json", "rust", ""]
_START_MS = 1_790_000_000_000


class Size(Struct, frozen=True):
    lines: int
    tools: int
    smallest_result: int = 50_000
    largest_result: int = 200_000


SIZES = {
    "100": Size(100, 2, 2_000, 50_000),
    "2k": Size(2_000, 8),
    "5k": Size(5_000, 6),  # as many tools to a line as the longest has
    "50k": Size(50_000, 60),
}


class Session(Struct, frozen=True):
    data: bytes
    text: str

    @property
    def lines(self) -> list[bytes]:
        return self.data.split(b"\n")[:-1]


def session(
    lines: int, *, tools: int, seed: int = 1, smallest_result: int = 50_000, largest_result: int = 200_000
) -> Session:
    """So many lines, with tool calls whose results have so many characters, but for the commands that say little."""
    writer = _Writer(random.Random(seed), smallest_result, largest_result)
    writer.event({"type": "system", "subtype": "init", "apiKeySource": "login", "cwd": "/w", "model": "Opus 4.6"})
    writer.event({"type": "user", "message": _message("Explain the parser and mend it.")})
    deltas = (
        lines - 4 - 4 * tools - 1
    )  # the rest: both ends, and a thought's end, a repetition and two lines for each tool
    per_turn = max(2, deltas // (tools + 1))
    for turn in range(tools + 1):
        thoughts = per_turn // 6
        writer.think(thoughts)
        writer.say(per_turn - thoughts + (max(0, deltas - per_turn * (tools + 1)) if turn == tools else 0))
        if turn < tools:
            writer.use_tool(turn)
    writer.end()
    return Session(b"".join(writer.out), "".join(writer.text))


def named_session(name: str) -> Session:
    size = SIZES[name]
    return session(
        size.lines, tools=size.tools, smallest_result=size.smallest_result, largest_result=size.largest_result
    )


class _Writer:
    def __init__(self, random: random.Random, smallest_result: int, largest_result: int) -> None:
        self.out: list[bytes] = []
        self.text: list[str] = []
        self._segment: list[str] = []
        self._random = random
        self._smallest, self._largest = smallest_result, largest_result
        self._now = _START_MS
        self._pending: list[str] = []

    def event(self, event: dict[str, Any]) -> None:
        event["session_id"] = "6f1d2c3b-0000-4000-8000-000000000001"
        self.out.append(json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")

    def think(self, deltas: int) -> None:
        for _ in range(deltas):
            self.event({"type": "thinking", "subtype": "delta", "text": self._delta(), "timestamp_ms": self._tick()})
        self.event({"type": "thinking", "subtype": "completed", "timestamp_ms": self._tick()})

    def say(self, deltas: int) -> None:
        for _ in range(deltas):
            delta = self._delta()
            self._segment.append(delta)
            self.text.append(delta)
            self.event({"type": "assistant", "message": _message(delta), "timestamp_ms": self._tick()})

    def use_tool(self, number: int) -> None:
        model_call = f"request-{number}-abcd"
        repeated = _message("".join(self._segment))
        self._segment = []
        self.event(
            {"type": "assistant", "message": repeated, "model_call_id": model_call, "timestamp_ms": self._tick()}
        )
        key, args, success = self._tool(number)
        for subtype, body in (
            ("started", {"args": args}),
            ("completed", {"args": args, "result": {"success": success}}),
        ):
            self.event(
                {
                    "type": "tool_call",
                    "subtype": subtype,
                    "call_id": f"call_{number}\nfc_{number}",
                    "tool_call": {key: body},
                    "model_call_id": model_call,
                    "timestamp_ms": self._tick(),
                }
            )

    def end(self) -> None:
        self.event({"type": "assistant", "message": _message("".join(self._segment))})
        usage = {"inputTokens": 1200, "outputTokens": 900, "cacheReadTokens": 40_000, "cacheWriteTokens": 0}
        result = {"type": "result", "subtype": "success", "is_error": False, "result": "".join(self.text)}
        self.event({**result, "duration_ms": self._now - _START_MS, "usage": usage})

    def _tick(self) -> int:
        self._now += self._random.randint(5, 60)
        return self._now

    def _delta(self) -> str:
        """A few tokens, as models give them."""
        while not self._pending:
            self._pending = _TOKEN.findall(self._block())[::-1]
        count = min(len(self._pending), self._random.choice((1, 1, 1, 2, 2, 3, 4)))
        return "".join(self._pending.pop() for _ in range(count))

    def _block(self) -> str:
        kind = self._random.random()
        if kind < 0.55:
            return self._prose(self._random.randint(15, 70)) + "\n\n"
        if kind < 0.7:
            return "".join(f"- **{self._word()}**: {self._prose(9)}\n" for _ in range(4)) + "\n"
        if kind < 0.74:
            return f"## {self._prose(4)}\n\n"
        if kind < 0.76:
            rows = "".join(f"| {self._word()} | {self._random.random():.2f} |\n" for _ in range(4))
            return f"| what | share |\n|---|---|\n{rows}\n"
        lines = [self._code() for _ in range(self._random.randint(3, 20))]
        return "\n".join([f"```{self._random.choice(_LANGUAGES)}", *lines, "```", "", ""])

    def _code(self) -> str:
        indent = "    " * self._random.randint(0, 3)
        key, number = self._word(), self._random.random()
        return (
            f'{indent}{self._word()}_{key} = "{self._word()}\\n" + f(x[3], {{"{key}": {number:.3f}}})  # {self._word()}'
        )

    def _prose(self, words: int) -> str:
        return " ".join(self._word() for _ in range(words)).capitalize() + "."

    def _word(self) -> str:
        return self._random.choice(_WORDS)

    def _file(self, size: int) -> str:
        line = '    def handler_{0}(self, value: int) -> str:  # {1} "{2}"\n'
        return "".join(line.format(number, self._word(), self._word()) for number in range(size // 60))

    def _tool(self, number: int) -> tuple[str, dict[str, Any], dict[str, Any]]:
        path = f"/w/src/module_{number}.py"
        size = self._random.randint(self._smallest, self._largest)
        match number % 3:
            case 0:
                return "readToolCall", {"path": path}, {"content": self._file(size), "isEmpty": False}
            case 1:
                output = self._file(size if number % 2 else 800)
                args = {"command": "pytest -q", "workingDirectory": "/w", "timeout": 30_000}
                return "shellToolCall", args, {"exitCode": 0, "stdout": output, "stderr": "", "executionTime": 1200}
            case _:
                before = self._file(size // 3)
                after = before.replace("handler_7(", "handle_seven(")
                edit = {"path": path, "beforeFullFileContent": before, "afterFullFileContent": after}
                return "editToolCall", {"path": path, "streamContent": after}, {**edit, "linesAdded": 1}


def _message(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}
