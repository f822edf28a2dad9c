"""Put the OpenAPI 3.1 document of the gateway together, from the descriptions of its dialects and its own paths."""

from collections.abc import Sequence
from typing import Any

import msgspec

from cursor_gateway.dialects import openapi as api
from cursor_gateway.dialects.base import Dialect, RunView, Sample
from cursor_gateway.dialects.openapi import Json
from cursor_gateway.model.run_info import RunInfo
from cursor_gateway.reader import read_events
from cursor_gateway.schema import openapi_components
from cursor_gateway.server.openapi_paths import own_paths

_ABOUT = """\
Cursor's agent over HTTP. The agent works in a folder on the gateway's machine. Its answers are ordered lists of typed \
**documents**, or have the form of **OpenAI's** or **Anthropic's API**, whole or streamed.

- Requests are JSON, with `Content-Type: application/json`.
- If the gateway has API keys, every request needs one: `Authorization: Bearer …`.
- Every reply has an `X-Request-Id`, which is also in the log. A request may send its own.
- Errors have OpenAI's form (Anthropic's below `/v1/messages`), a stable `code` and a message that says what to do.
- A streaming reply starts when the agent produces output, so a run that cannot start has its own status. After that, \
an error ends the stream. While the agent is silent, comments keep the connection open; in NDJSON, spaces do.
"""


def openapi_document(version: str, dialects: Sequence[Dialect]) -> dict[str, Any]:
    sample = _sample()
    of_dialects = [found for dialect in dialects if (found := dialect.describe(sample)) is not None]
    described = [*of_dialects, *own_paths()]
    paths: dict[str, Json] = {}
    for description in described:
        for place, operation in description.operations.items():
            method, _, path = place.partition(" ")
            paths.setdefault(path, {})[method.lower()] = {"tags": [description.tag], **operation}
    tags = {description.tag: description.about for description in described}
    schemas = {name: schema for description in described for name, schema in description.schemas.items()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "cursor-gateway",
            "version": version,
            "summary": "Cursor's agent as typed documents, and over OpenAI's and Anthropic's APIs.",
            "description": _ABOUT,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"bearer": []}, {"header": []}],
        "tags": [{"name": name, "description": about} for name, about in tags.items()],
        "paths": paths,
        "components": {
            "schemas": {**schemas, **api.shared_schemas(), **openapi_components()["schemas"]},
            "headers": {name: {"description": about, "schema": api.TEXT} for name, about in _HEADERS.items()},
            "parameters": {"X-Request-Id": _REQUEST_ID},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "An API key from `cursor-gateway key`."},
                "header": {"type": "apiKey", "in": "header", "name": "X-Api-Key", "description": "The same key."},
            },
        },
    }


_HEADERS = {
    "X-Request-Id": "The request's id, as in the log: the one that the client sent, or a new one.",
    "X-Cursor-Gateway-Source": "What answered: `cli`, `acp` or `sdk` for the agent, `replay` or `demo` for "
    "recordings, `history` for a run that has ended.",
    "X-Chat-Id": "The run's id, sent before the answer.",
    "X-Conversation-Id": "The conversation's id. Send it as `conversationId` to continue.",
    "X-Should-Retry": "`false` if the same request would fail again. OpenAI's SDKs obey it.",
    "Retry-After": "Seconds to wait before a retry, if known.",
    "WWW-Authenticate": "`Bearer`, if an API key is missing.",
    "Allow": "The methods that the path supports.",
    "Location": "The URL of the run: `/v1/chat/{id}`.",
}
_REQUEST_ID: Json = {
    **api.header(
        "X-Request-Id",
        "The client's id for this request: up to 128 letters, digits, `.`, `_`, `:` and `-`. An invalid one is "
        "replaced.",
        api.TEXT,
    ),
    "example": "my-request-1",
}


def _sample() -> Sample:
    info = RunInfo(
        id="chat_7f3a2b1c", conversation_id="conv_9e8d7c6b", created="2026-02-23T10:30:00Z", mode="ask", model="auto"
    )
    texts = ("It is a calculator ", "for the terminal.")
    recording: list[Json] = [
        {"type": "system", "subtype": "init", "session_id": "9e8d7c6b", "model": "Auto"},
        *(
            {"type": "assistant", "message": {"content": [{"type": "text", "text": text}]}, "timestamp_ms": number}
            for number, text in enumerate(texts, 1)
        ),
        {
            "type": "result",
            "subtype": "success",
            "result": "".join(texts),
            "duration_ms": 2400,
            "usage": {"inputTokens": 310, "outputTokens": 9, "cacheReadTokens": 1200, "cacheWriteTokens": 0},
        },
    ]
    lines = [msgspec.json.encode(line) + b"\n" for line in recording]
    return Sample(RunView(info, 1771842600, prompt="What does this project do?"), list(read_events(lines, info)))
