"""What happens in a run in; the lines that cursor-agent prints of it out."""

import json
from itertools import count
from typing import Any

SESSION = "5f0c1d3e-0000-4000-8000-000000000001"


def line(record: dict[str, Any]) -> bytes:
    return json.dumps({**record, "session_id": SESSION}, ensure_ascii=False).encode() + b"\n"


def init(model: str = "Opus 4.6") -> bytes:
    return line({"type": "system", "subtype": "init", "cwd": "/w", "model": model, "permissionMode": "default"})


def user(text: str = "Do it.") -> bytes:
    return line({"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": text}]}})


def delta(text: str) -> bytes:
    message = {"role": "assistant", "content": [{"type": "text", "text": text}]}
    return line({"type": "assistant", "message": message, "timestamp_ms": 1_767_225_600_000})


def thought(text: str) -> bytes:
    return line({"type": "thinking", "subtype": "delta", "text": text}) + line(
        {"type": "thinking", "subtype": "completed"}
    )


_calls = count(1)


def tool(name: str, args: dict[str, Any], result: dict[str, Any]) -> bytes:
    call = f"call_{next(_calls)}"
    start = {"type": "tool_call", "subtype": "started", "call_id": call, "timestamp_ms": 1000}
    end = {"type": "tool_call", "subtype": "completed", "call_id": call, "timestamp_ms": 1250}
    return line({**start, "tool_call": {f"{name}ToolCall": {"args": args}}}) + line(
        {**end, "tool_call": {f"{name}ToolCall": {"args": args, "result": result}}}
    )


def result(text: str, **more: Any) -> bytes:
    usage = {"inputTokens": 100, "outputTokens": 20, "cacheReadTokens": 1000, "cacheWriteTokens": 0}
    reply = {"type": "result", "subtype": "success", "is_error": False, "result": text, "duration_ms": 4200}
    return line({**reply, "usage": usage, **more})


HELLO = init() + user() + delta("Hello ") + delta("world!") + result("Hello world!")

_NEW_FILE = "".join(f"value_{number} = {number}\n" for number in range(1, 41))
_BEFORE = "".join(f"line {number}\n" for number in range(1, 41))
_AFTER = _BEFORE.replace("line 12\n", "line twelve\nand a half\n").replace("line 30\n", "")
_TEXT = "## What I found\n\nThe **token** is checked in `auth.py`:\n\n- one\n- two\n\n"
_REFERENCE = "```41:43:src/auth.py\ndef check(token: str) -> bool:\n    # every time\n    return verify(token)\n```\n\n"
_BLOCK = "Better:\n\n```python\nreturn hmac.compare_digest(a, b)\n```\n"

EVERYTHING = b"".join(
    [
        init(),
        user("Check the tokens."),
        thought("I should look at the file first.\nThen decide."),
        delta(_TEXT),
        delta(_REFERENCE),
        delta(_BLOCK),
        tool("read", {"path": "src/auth.py"}, {"success": {"content": "a\nb\nc\nd\ne\nf\n"}}),
        tool("grep", {"pattern": "verify\\("}, {"error": {"error": "rg is not installed"}}),
        tool(
            "shell",
            {"command": "pytest -q"},
            {"success": {"exitCode": 0, "stdout": "3 passed\n", "executionTime": 1834}},
        ),
        tool(
            "shell",
            {"command": "make lint"},
            {"failure": {"exitCode": 2, "stdout": "".join(f"warning {n}\n" for n in range(1, 101)), "stderr": ""}},
        ),
        tool("edit", {"path": "src/new.py"}, {"success": {"path": "src/new.py", "afterFullFileContent": _NEW_FILE}}),
        tool(
            "edit",
            {"path": "src/old.py"},
            {"success": {"path": "src/old.py", "beforeFullFileContent": _BEFORE, "afterFullFileContent": _AFTER}},
        ),
        tool("delete", {"path": "src/gone.py"}, {"success": {"path": "src/gone.py"}}),
        tool(
            "createPlan",
            {
                "name": "Safer tokens",
                "overview": "Compare in constant time.",
                "plan": "# Steps\n\nFirst the *check*.",
                "todos": [
                    {"id": "a", "content": "Read the code", "status": "TODO_STATUS_COMPLETED"},
                    {"id": "b", "content": "Change the check", "status": "TODO_STATUS_IN_PROGRESS"},
                    {"id": "c", "content": "Test it", "status": "TODO_STATUS_PENDING", "dependencies": ["b"]},
                ],
            },
            {"success": {}},
        ),
        tool(
            "askQuestion",
            {
                "title": "Two things",
                "questions": [
                    {
                        "id": "q1",
                        "prompt": "Which algorithm?",
                        "options": [{"id": "hs", "label": "HS256"}, {"id": "rs", "label": "RS256"}],
                    },
                    {
                        "id": "q2",
                        "prompt": "Which clients?",
                        "options": [{"id": "web", "label": "Web"}, {"id": "cli", "label": "CLI"}],
                        "allowMultiple": True,
                    },
                ],
            },
            {"success": {"answers": [{"questionId": "q1", "selectedOptionIds": ["rs"]}]}},
        ),
        tool(
            "updateTodos",
            {
                "merge": True,
                "todos": [
                    {"id": "b", "content": "Change the check", "status": "TODO_STATUS_COMPLETED"},
                    {"id": "x", "content": "Tell the team", "status": "TODO_STATUS_PENDING"},
                ],
            },
            {"success": {}},
        ),
        delta("All done.\n"),
        result(_TEXT + _REFERENCE + _BLOCK + "All done.\n"),
    ]
)
