"""Nothing in; a short recording in cursor-agent's wire shapes out, which shows every document type and event."""

import json
from collections.abc import Iterator
from pathlib import PurePosixPath as Path
from typing import Any

from cursor_gateway import ChatResponse, DocumentEvent, RunInfo, read_events, read_response

RUN = RunInfo(
    id="chat_7f3a2b1c", conversation_id="conv_9e8d7c6b", created="2026-02-23T10:30:00Z", include=frozenset({"thinking"})
)

_ANSWER = """\
The route is registered here:

```5:6:src/app.py
app = Flask(__name__)
app.register_blueprint(api)
```

A health check would look like this:

```python
@app.get("/health")
def health():
    return "ok"
```
"""


def response() -> ChatResponse:
    return read_response(recording(), RUN)


def events() -> list[DocumentEvent]:
    return list(read_events(recording(), RUN))


def recording() -> list[bytes]:
    return [json.dumps(event).encode() + b"\n" for event in _events()]


def short_recording() -> list[bytes]:
    """One text in two pieces, one tool: the shortest stream with every kind of event."""
    return [
        json.dumps(event).encode() + b"\n"
        for event in [
            _START,
            {**_said("I will look "), "timestamp_ms": 1000},
            {**_said("at the file."), "timestamp_ms": 1050},
            *_tool("read", {"path": "src/app.py"}, {"success": {"content": "import os\n"}}),
            {"type": "result", "subtype": "success", "result": "I will look at the file.", "duration_ms": 1200},
        ]
    ]


_START: dict[str, Any] = {"type": "system", "subtype": "init", "session_id": "9e8d7c6b", "model": "Claude 4.6 Opus"}


def _events() -> Iterator[dict[str, Any]]:
    yield _START
    yield {"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": "Add a health check"}]}}
    yield {"type": "thinking", "subtype": "delta", "text": "Find where the routes are.", "timestamp_ms": 1000}
    yield {"type": "thinking", "subtype": "completed", "timestamp_ms": 1100}
    yield from _tool("read", {"path": "src/app.py"}, {"success": {"content": "import os\nfrom flask import Flask\n"}})
    yield _said(_ANSWER)
    yield from _tool(
        "askQuestion",
        {
            "title": "Before I go on:",
            "questions": [
                {
                    "id": "q1",
                    "prompt": "Which path?",
                    "options": [{"id": "short", "label": "/health"}, {"id": "long", "label": "/api/health"}],
                }
            ],
        },
        {"rejected": {"reason": "Questions skipped by the user"}},
    )
    yield from _tool(
        "createPlan",
        {
            "name": "Health check",
            "overview": "A route that answers while the app runs.",
            "plan": "# Health check\n\n- `src/app.py`: the route",
            "todos": [
                {"id": "route", "content": "Add the route", "status": "TODO_STATUS_PENDING"},
                {"id": "test", "content": "Test it", "status": "TODO_STATUS_PENDING", "dependencies": ["route"]},
            ],
        },
        {"success": {}},
    )
    yield from _tool(
        "edit",
        {"path": "src/app.py"},
        {
            "success": {
                "beforeFullFileContent": "app.register_blueprint(api)\n",
                "afterFullFileContent": "app.register_blueprint(api)\napp.register_blueprint(health)\n",
            }
        },
    )
    yield from _tool(
        "updateTodos", {"todos": [{"id": "route", "status": "TODO_STATUS_COMPLETED"}], "merge": True}, {"success": {}}
    )
    yield from _tool(
        "shell",
        {"command": "pytest -q", "workingDirectory": "/path/to/project"},
        {
            "success": {"exitCode": 0, "stdout": "1 passed in 0.12s", "executionTime": 320},
            "sandboxPolicy": {"type": "TYPE_WORKSPACE_READWRITE", "networkAccess": True},
        },
    )
    yield from _tool("read", {"path": "src/health.py"}, {"error": {"errorMessage": "File not found: src/health.py"}})
    yield {
        "type": "result",
        "subtype": "success",
        "result": _ANSWER,
        "duration_ms": 8750,
        "usage": {"inputTokens": 1200, "outputTokens": 450, "cacheReadTokens": 2000, "cacheWriteTokens": 0},
    }


def _said(text: str) -> dict[str, Any]:
    return {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": text}]}}


def _tool(name: str, args: dict[str, Any], result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    call = {"type": "tool_call", "call_id": f"call_{name}_{Path(args.get('path', '')).stem}".strip("_")}
    yield {**call, "subtype": "started", "timestamp_ms": 2000, "tool_call": {f"{name}ToolCall": {"args": args}}}
    ended = {f"{name}ToolCall": {"args": args, "result": result}}
    yield {**call, "subtype": "completed", "timestamp_ms": 2045, "tool_call": ended}
