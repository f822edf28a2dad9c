"""What somebody might send, or have an agent read, to stop a gateway: one corpus for tests and for `chaos/`.

Each answer is what an agent writes, in the order of its lines; each request is a body for one of the routes. Each was
seen to take seconds on the event loop of some version, or grows faster than its length in a library that is used.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

_SESSION = "00000000-0000-4000-8000-000000000000"


# --- answers ------------------------------------------------------------------------------------------


def recording(prompt: str, records: Collection[Mapping[str, Any]]) -> bytes:
    said = "".join(
        part["text"]
        for record in records
        if record["type"] == "assistant" and "timestamp_ms" in record
        for part in record["message"]["content"]
    )
    init: dict[str, Any] = {"type": "system", "subtype": "init", "apiKeySource": "login", "cwd": "/", "model": "Auto"}
    lines: list[Mapping[str, Any]] = [
        {**init, "permissionMode": "default"},
        {"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": prompt}]}},
        *records,
        {
            "type": "result",
            "subtype": "success",
            "duration_ms": 1,
            "duration_api_ms": 1,
            "is_error": False,
            "result": said,
        },
    ]
    return b"".join(json.dumps({**line, "session_id": _SESSION}).encode() + b"\n" for line in lines)


def says(*pieces: str) -> Iterator[dict[str, Any]]:
    for number, piece in enumerate(pieces):
        content = [{"type": "text", "text": piece}]
        yield {"type": "assistant", "message": {"role": "assistant", "content": content}, "timestamp_ms": number}


def calls(name: str, arguments: dict[str, Any], result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    common = {"type": "tool_call", "call_id": f"call_{name}", "timestamp_ms": 1}
    yield {**common, "subtype": "started", "tool_call": {name: {"args": arguments}}}
    yield {**common, "subtype": "completed", "tool_call": {name: {"args": arguments, "result": {"success": result}}}}


def edits(path: str, before: str, after: str) -> Iterator[dict[str, Any]]:
    removed = "".join(f"-{line}\n" for line in before.splitlines())
    added = "".join(f"+{line}\n" for line in after.splitlines())
    diff = f"--- a/{path}\n+++ b/{path}\n@@ -1,{before.count(chr(10))} +1,{after.count(chr(10))} @@\n{removed}{added}"
    counts = {"linesAdded": after.count("\n"), "linesRemoved": before.count("\n")}
    result = {
        "path": path,
        "diffString": diff,
        "beforeFullFileContent": before,
        "afterFullFileContent": after,
        **counts,
    }
    yield from calls("editToolCall", {"path": path, "streamContent": after}, result)


def many_edits(count: int) -> Iterator[dict[str, Any]]:
    """Of one file, each further down."""
    for number in range(count):
        place = 4 * number + 1
        result = {"path": "a.txt", "diffString": f"@@ -{place},1 +{place},2 @@\n-a\n+b\n+{number}\n"}
        for record in calls("editToolCall", {"path": "a.txt"}, result):
            yield {**record, "call_id": f"call_{number}"}


def _pieces(text: str, size: int = 3000) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def _deep(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = {"a": [value]}
    return value


def answers() -> dict[str, Callable[[], bytes]]:
    """By their names, which are also the prompts that ask for them: what makes the agent's output."""
    lazy_quote = "> a\n" + "a\n" * 20_000
    table = "| a | b | c |\n|---|---|---|\n" + "| one | *two* | `three` |\n" * 3000
    found: dict[str, Iterator[dict[str, Any]]] = {
        "nested lists": says("- " * 100 + "x\n" + (" " * 5000 + "x\n") * 200),
        "blank lines in lists": says("- " * 100 + "x\n", *_pieces("\n" * 60_000)),
        "a lazily continued quote": says(*_pieces(lazy_quote)),
        "a long table": says(*_pieces(table)),
        "brackets": says(*_pieces("[" * 60_000)),
        "emphasis": says(*_pieces("*a_ " * 15_000)),
        "backticks": says(*_pieces("".join("`" * (number % 400) + " " for number in range(400)))),
        "entities": says(*_pieces("&#x202e;" * 8_000)),
        "one long line": says(*_pieces("x" * 1_000_000, 50_000)),
        "code in Go": says(*_pieces("```go\n" + "/*\n" * 30_000 + "```\n")),
        "code in Java": says(*_pieces("```java\n" + "a " * 50_000 + "\n```\n")),
        "many small fences": says(*_pieces("```py\nx\n```\n" * 6000)),
        "an edit in Go": edits("a.go", "/*\n" * 60_000, ""),
        "an edit of lines that repeat": edits("a.txt", "a\nb\n" * 900, "b\na\n" * 900),
        "many edits of one file": many_edits(2000),
        "a deep result": calls("readToolCall", {"path": "a"}, {"content": json.dumps(_deep(40)), "x": _deep(40)}),
        "a large result": calls("readToolCall", {"path": "a"}, {"content": "x = 1\n" * 200_000}),
        "many empty lists": calls("mcpToolCall", {"name": "a", "args": {}}, {"content": [[]] * 1_000_000}),
        "many empty objects": calls("mcpToolCall", {"name": "a", "args": {}}, {"content": [{"text": {}}] * 60_000}),
        "many arguments": calls("mcpToolCall", {"name": "a", "args": {str(n): [] for n in range(20_000)}}, {}),
    }
    return {name: partial(recording, name, list(records)) for name, records in found.items()}


# --- requests -----------------------------------------------------------------------------------------

_PIXEL = "data:image/png;base64,iVBORw0KGgo="


def requests() -> dict[str, tuple[str, Callable[[], bytes]]]:
    """By their names: a path, and what makes a body. Many are refused, which must not take long either."""
    user = {"role": "user", "content": "x"}
    image = {"type": "image_url", "image_url": {"url": _PIXEL}}
    bodies: dict[str, tuple[str, Any]] = {
        "580,000 messages": ("/v1/chat/completions", {"messages": [user] * 580_000}),
        "10,000 messages": ("/v1/chat/completions", {"messages": [user] * 10_000}),
        "500,000 parts": (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * 500_000}]},
        ),
        "200,000 images": ("/v1/chat/completions", {"messages": [{"role": "user", "content": [image] * 200_000}]}),
        "images": ("/v1/chat", {"message": "x", "images": [_PIXEL] * 400_000}),
        "50 large images": ("/v1/chat", {"message": "x", "images": ["data:image/png;base64," + "A" * 390_000] * 50}),
        "a long message": ("/v1/chat", {"message": "x\n" * 4_000_000}),
        "a message of markers": ("/v1/chat", {"message": "recording: --- " * 500_000}),
        "many empty objects": ("/v1/chat", {"message": "x", "tools": [{}] * 2_000_000}),
        "many tools": (
            "/v1/chat",
            {"message": "x", "tools": [{"name": f"t{n}", "parameters": {"type": "object"}} for n in range(20_000)]},
        ),
        **_many_items(200_000),
        **{f"{name}, as many as are read": body for name, body in _many_items(9_000).items()},
        "deep JSON": ("/v1/chat/chat_x/answer", {"toolResults": [{"toolCallId": "a", "content": _deep(450)}]}),
    }
    encoded = {name: (path, partial(_encoded, body)) for name, (path, body) in bodies.items()}
    return {**encoded, "unbalanced JSON": ("/v1/chat", lambda: b"[" * 900_000)}


def _many_items(count: int) -> dict[str, tuple[str, Any]]:
    """So many of each kind of item that a request may have, in each dialect."""
    user, parameters = {"role": "user", "content": "x"}, {"type": "object"}
    chat, messages, responses = "/v1/chat/completions", "/v1/messages", "/v1/responses"
    numbers = range(count)
    call = [{"id": f"c{n}", "type": "function", "function": {"name": "t", "arguments": "{}"}} for n in numbers]
    use = [{"type": "tool_use", "id": f"c{n}", "name": "t", "input": {}} for n in numbers]
    result = [{"type": "tool_result", "tool_use_id": f"c{n}", "content": "x"} for n in numbers]
    text = [{"type": "text", "text": "x"}] * count
    function = [{"type": "function", "name": f"t{n}", "parameters": parameters} for n in numbers]
    of_anthropic = {"model": "auto", "max_tokens": 9}
    bodies: dict[str, tuple[str, Any]] = {
        "tool calls in a chat": (chat, {"messages": [user, {"role": "assistant", "tool_calls": call}, user]}),
        "tools of a chat": (
            chat,
            {"messages": [user], "tools": [{"type": "function", "function": {"name": f"t{n}"}} for n in numbers]},
        ),
        "tool results in a chat": (
            chat,
            {"messages": [user, *({"role": "tool", "tool_call_id": f"c{n}", "content": "x"} for n in numbers)]},
        ),
        "text blocks": (messages, {**of_anthropic, "messages": [{"role": "user", "content": text}]}),
        "system blocks": (messages, {**of_anthropic, "system": text, "messages": [user]}),
        "tool_use blocks": (
            messages,
            {**of_anthropic, "messages": [user, {"role": "assistant", "content": use}, user]},
        ),
        "tool_result blocks": (messages, {**of_anthropic, "messages": [{"role": "user", "content": result}]}),
        "tools of messages": (
            messages,
            {**of_anthropic, "messages": [user], "tools": [{"name": f"t{n}", "input_schema": {}} for n in numbers]},
        ),
        "blocks to count": (
            f"{messages}/count_tokens",
            {"model": "auto", "messages": [{"role": "user", "content": text}]},
        ),
        "response items": (responses, {"input": [user] * count}),
        "response parts": (
            responses,
            {"input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}] * count}]},
        ),
        "function calls": (
            responses,
            {"input": [{"type": "function_call", "call_id": f"c{n}", "name": "t", "arguments": "{}"} for n in numbers]},
        ),
        "function outputs": (
            responses,
            {"input": [{"type": "function_call_output", "call_id": f"c{n}", "output": "x"} for n in numbers]},
        ),
        "reasoning items": (responses, {"input": [user, *[{"type": "reasoning", "summary": []}] * count]}),
        "tools of a response": (responses, {"input": "x", "tools": function}),
        "tools of documents": ("/v1/chat", {"message": "x", "tools": [{"name": f"t{n}"} for n in numbers]}),
        "results of documents": (
            "/v1/chat/chat_x/answer",
            {"toolResults": [{"toolCallId": f"c{n}", "content": "x"} for n in numbers]},
        ),
    }
    return {f"{count:,} {name}": body for name, body in bodies.items()}


def _encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


SEARCHES = ["a" * 900 + "é", "a " * 400, '"' * 900, "a.b" * 300]
SEARCHED = ("a" * 900 + "e ") * 250
