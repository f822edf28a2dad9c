"""Numbers that no program writes: whatever the agent reports, its answer can be stored and viewed in every form."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import hostile
from tests.server.test_stalls import READ, said, served

NUMBERS = ["18446744073709551616", "-9223372036854775809", "1e308", "-1e308", "9" * 400, "-1", "1.5", "0"]
UNREADABLE = ["9" * 5000, "1e400"]  # by any reader of JSON here: the agent seems to end without a result


def records(number: Any) -> Iterator[dict[str, Any]]:
    patch = {"path": "a.txt", "diffString": f"@@ -{number},1 +{number},1 @@\n-a\n+b\n"}
    for tool, arguments, result in (
        ("editToolCall", {"path": "a.txt"}, patch),
        ("shellToolCall", {"command": "x", "timeout": number}, {"exitCode": number, "executionTime": number}),
        ("readToolCall", {"path": "a", "offset": number, "limit": number}, {"content": "x", "totalLines": number}),
        ("mcpToolCall", {"name": "a", "args": {"x": number, "y": [number]}}, {"content": [{"text": {"z": number}}]}),
        ("newToolCall", {"x": number}, {"y": number}),
    ):
        for record in hostile.calls(tool, arguments, result):
            yield {**record, "call_id": f"call_{tool}", "timestamp_ms": number}
    yield {"type": "connection", "subtype": "reconnecting", "attempt": number, "timestamp_ms": number}
    yield from hostile.says("Done.")


def recording(number: str) -> bytes:
    mark = 123454321
    whole = hostile.recording("numbers", list(records(mark)))
    *lines, last = whole.splitlines()
    result = json.loads(last) | {
        "duration_ms": mark,
        "duration_api_ms": mark,
        "usage": {"inputTokens": mark, "outputTokens": mark, "cacheReadTokens": mark, "cacheWriteTokens": mark},
    }
    return b"\n".join([*lines, json.dumps(result).encode(), b""]).replace(str(mark).encode(), number.encode())


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("number", [*NUMBERS, *UNREADABLE], ids=lambda number: number[:22])
async def test_an_answer_with_any_number_can_be_viewed(number: str, tmp_path: Path) -> None:
    async with served(tmp_path, recording(number)) as app:
        body = json.dumps({"message": "recording: hostile", "stream": True}).encode()
        status, stream = await said(app, "POST", "/v1/chat", body)
        assert status == 200
        assert b"event: done" in stream
        (conversation,) = json.loads((await said(app, "GET", "/v1/conversations"))[1])["conversations"]
        (run,) = json.loads((await said(app, "GET", "/v1/runs"))[1])["runs"]
        assert (await said(app, "GET", f"/v1/chat/{run['id']}"))[0] == 200
        base = f"/v1/conversations/{conversation['id']}"
        forms = [f"/v1/chat/{run['id']}{form}" for form in READ] + [f"{base}/changes", f"{base}/changes"]
        forms += [f"{base}/export?format={form}" for form in ("markdown", "json", "text")] + [base]
        replies = {form: await said(app, "GET", form) for form in forms}
        failed = {form: reply[-300:] for form, (status, reply) in replies.items() if status != 200}
        assert not failed
        assert all(b"Done." in reply for form, (_, reply) in replies.items() if "/v1/chat/" in form)
        for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages"):
            asked = {
                "model": "auto",
                "max_tokens": 100,
                "messages": [{"role": "user", "content": "recording: hostile"}],
            }
            if path == "/v1/responses":
                asked = {"model": "auto", "input": "recording: hostile"}
            status, reply = await said(app, "POST", path, json.dumps(asked).encode())
            assert status == 200 or (status in (424, 502) and number in UNREADABLE), (path, reply[:300])
