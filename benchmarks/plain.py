"""An OpenAI request in; the agent's answer as chunks out: a gateway as people usually write it, for the comparison.

FastAPI, pydantic, asyncio's subprocess read line by line, `json` both ways and sse-starlette. It keeps no history, asks
for no key and counts nothing; it knows, as most do not, which lines only repeat what was said.
`python -m benchmarks.plain AGENT` prints its address.
"""

import asyncio
import json
import sys
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from sse_starlette import EventSourceResponse

from benchmarks.relay import serve

_LONGEST_LINE = 64 * 1024 * 1024  # the default, 64 KiB, ends at the first large tool result


class Message(BaseModel):
    role: str
    content: str


class ChatCompletionRequest(BaseModel):
    model: str = "auto"
    messages: list[Message]
    stream: bool = False


def plain(agent: str) -> FastAPI:
    app = FastAPI()

    @app.post("/v1/chat/completions")
    async def completions(request: ChatCompletionRequest) -> EventSourceResponse:
        return EventSourceResponse(_chunks(agent, request))

    return app


async def _chunks(agent: str, request: ChatCompletionRequest) -> AsyncIterator[dict[str, str]]:
    process = await asyncio.create_subprocess_exec(
        agent,
        *("-p", "--output-format", "stream-json", "--stream-partial-output"),
        request.messages[-1].content,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=_LONGEST_LINE,
    )
    assert process.stdout is not None
    id, created = f"chatcmpl-{uuid.uuid4().hex}", int(time.time())

    def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, str]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        head = {"id": id, "object": "chat.completion.chunk", "created": created, "model": request.model}
        return {"data": json.dumps({**head, "choices": [choice]})}

    try:
        yield chunk({"role": "assistant", "content": ""})
        while line := await process.stdout.readline():
            event = json.loads(line)
            if event["type"] == "thinking" and event["subtype"] == "delta":
                yield chunk({"reasoning_content": event["text"]})
            elif event["type"] == "assistant" and "timestamp_ms" in event and "model_call_id" not in event:
                yield chunk({"content": event["message"]["content"][0]["text"]})
            elif event["type"] == "tool_call" and event["subtype"] == "started":
                yield chunk({"reasoning_content": f"{next(iter(event['tool_call']))}\n"})
        yield chunk({}, "stop")
        yield {"data": "[DONE]"}
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


if __name__ == "__main__":
    serve(plain(sys.argv[1]))
